"""Convolutional models as specifications, and with everything that takes a kernel."""

from __future__ import annotations

import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conv_oracles import images
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.fingerprint import fingerprint
from notsodeep.gaussian.moments import mean_derivative
from notsodeep.models import model_from_dict

# --- bad input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"filter_size": 2}, "filter_size must be odd, so that a filter has a middle; got 2. Use 1 or 3."),
        ({"filter_size": 0}, "filter_size"),
        ({"filter_size": 1.5}, "filter_size"),
        ({"padding": "mirror"}, "padding"),
        ({"readout": "mean"}, "readout"),
        ({"sigma_a2": -0.1}, "sigma_a2"),
    ],
)
def test_parameters_that_mean_nothing(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(nsd.InputError, match=re.escape(message)):
        nsd.ConvDEQ("relu", **arguments)
    if "sigma_a2" not in arguments:
        with pytest.raises(nsd.InputError, match=re.escape(message)):
            nsd.ConvExplicit(["relu"], **arguments)


@pytest.mark.parametrize(
    ("X", "Y", "message"),
    [
        (np.ones((4, 9)), None, "images (n, channels, height, width) or sequences (n, channels, length)"),
        (np.ones((4, 9)), None, "it has the shape (4, 9)"),
        (np.ones((2, 1, 3, 3, 3)), None, "X must be images"),
        (np.ones((2, 0, 3, 3)), None, "empty"),
        (np.ones((2, 1, 2, 5)), None, "2 × 5 positions, fewer than the 3 taps of the filter along an axis"),
        (np.full((2, 1, 3, 3), np.nan), None, "not finite"),
        (np.ones((2, 1, 3, 3)), np.ones((2, 2, 3, 3)), "(2, 3, 3)"),
        (np.ones((2, 1, 3, 3)), np.ones((2, 1, 3, 4)), "(1, 3, 4)"),
        (np.ones((2, 1, 3, 3)), np.ones((2, 9)), "Y must be images"),
        (np.full((2, 1, 3, 3), "a"), None, "numbers"),
    ],
)
def test_samples_that_are_no_images(X: np.ndarray, Y: np.ndarray | None, message: str) -> None:
    for model in (nsd.ConvDEQ("relu"), nsd.ConvExplicit(["relu", "erf"])):
        with pytest.raises(nsd.InputError, match=re.escape(message)):
            nsd.conjugate_kernel(model, X, Y)


def test_kernels_that_only_dense_models_have() -> None:
    for model in (nsd.ConvDEQ("relu"), nsd.ConvExplicit(["relu"])):
        for kernel in ("paper", "preactivations"):
            with pytest.raises(nsd.InputError, match="has the kernels 'ck' and 'ntk'"):
                nsd.tangent_kernel(model, images(2, 1, 3, 3), of=kernel)


# --- one specification --------------------------------------------------------------------------------------------

MODELS = [
    nsd.ConvDEQ("relu", 0.3),
    nsd.ConvDEQ("tanh", 0.3),
    nsd.ConvDEQ("relu", 0.2),
    nsd.ConvDEQ("relu", 0.3, 0.5),
    nsd.ConvDEQ("relu", 0.3, bias2=0.1),
    nsd.ConvDEQ("relu", 0.3, filter_size=5),
    nsd.ConvDEQ("relu", 0.3, padding="circular"),
    nsd.ConvDEQ("relu", 0.3, readout="pool"),
    nsd.DEQ("relu", 0.3),
    nsd.ConvExplicit(["relu"]),
    nsd.ConvExplicit(["relu"], weights=[0.5]),
    nsd.ConvExplicit(["relu", "relu"]),
    nsd.ConvExplicit(["relu", "relu"], inject=[0.5]),
    nsd.ConvExplicit(["relu", "relu"], bias2=0.5),
    nsd.ConvExplicit(["relu", "relu"], filter_size=1),
    nsd.ConvExplicit(["relu", "relu"], padding="circular"),
    nsd.ConvExplicit(["relu", "relu"], readout="pool"),
]


def test_every_parameter_is_in_the_fingerprint_and_comes_back() -> None:
    assert len({fingerprint(model) for model in MODELS}) == len(MODELS)
    for model in MODELS:
        again = model_from_dict(json.loads(json.dumps(model.to_dict())))
        assert again == model
        assert again == pickle.loads(pickle.dumps(model))


def test_callables_are_told_apart() -> None:
    models = [
        wrap(nsd.custom_activation(lambda x, k=k: np.tanh(k * x)))
        for k in (1.0, 1.1)
        for wrap in (nsd.ConvDEQ, lambda phi: nsd.ConvExplicit([phi, phi], bias2=0.3))
    ]
    assert len({fingerprint(model, 2.0) for model in models}) == 4


def test_centred() -> None:
    model = nsd.ConvDEQ("relu", 0.3, readout="pool").centred(1.0)
    assert model.activation == nsd.DEQ("relu", 0.3).centred(1.0).activation
    assert (model.readout, model.sigma_a2) == ("pool", 0.3)
    network = nsd.ConvExplicit(["relu", "relu"], inject=[0.5]).centred(1.0)
    assert network.layers == nsd.Explicit(["relu", "relu"], inject=[0.5]).centred(1.0).layers
    with_bias = nsd.ConvExplicit(["relu", "relu"], inject=[0.5], bias2=0.1).centred(1.0)
    for layer, variance in zip(with_bias.layers, with_bias.preactivation_variances(1.0), strict=True):
        assert abs(mean_derivative(layer, variance)) < 1e-15
    assert with_bias.preactivation_variances(1.0)[0] == 1.1


# --- everything that takes a kernel -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many() -> np.ndarray:
    return images(40, 2, 4, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model", [nsd.ConvDEQ("relu", 0.3), nsd.ConvExplicit(["tanh", "relu"], inject=[0.5])]
)
def test_on_disk_and_resumed(model: Any, many: np.ndarray, tmp_path: Path) -> None:
    expected = nsd.tangent_kernel(model, many)
    seen: list[int] = []

    def stop(done: int, total: int, news: Any) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        nsd.tangent_kernel(model, many, out=tmp_path / "T.zarr", block=16, progress=stop)
    seen = [0] * 3
    stored = nsd.tangent_kernel(model, many, out=tmp_path / "T.zarr", block=16, progress=stop)
    assert seen[3] == 2, "the finished blocks were kept"
    assert_close(np.asarray(stored), expected, Oracle.QUADRATURE)
    with pytest.raises(nsd.InputError):
        nsd.tangent_kernel(nsd.ConvDEQ("relu", 0.2), many, out=tmp_path / "T.zarr", block=16)
