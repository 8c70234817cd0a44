"""Convolutional networks against the model written out with torch's own convolution; their contraction and limits."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from tolerances import Oracle, assert_close
from torch import Tensor
from torch.nn import functional

import notsodeep as nsd
from notsodeep.nets import ConvDEQNet, ConvExplicitNet, Net, SolverOptions, fit

DOUBLE = torch.float64
TIGHT = SolverOptions(tolerance=1e-13)
PHI = {"tanh": torch.tanh, "relu": torch.relu}
PADDING = pytest.mark.parametrize("padding", ["zeros", "circular"])
READOUT = pytest.mark.parametrize("readout", ["flatten", "pool"])
SIZE = pytest.mark.parametrize("size", [(4, 5), (6,)], ids=["images", "sequences"])


def images(n: int, *shape: int, seed: int = 0, dtype: torch.dtype = DOUBLE) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, *shape, generator=generator, dtype=DOUBLE).to(dtype) / sqrt(shape[0])


def deq(phi: str = "tanh", size: tuple[int, ...] = (4, 5), channels: int = 4, **options: Any) -> ConvDEQNet:
    names = ("padding", "readout", "bias2", "sigma_a2", "filter_size")
    model = {"sigma_a2": 0.15, "bias2": 0.3} | {key: options.pop(key) for key in names if key in options}
    options = {"solver": TIGHT, "dtype": DOUBLE, "seed": 3} | options
    return ConvDEQNet(nsd.ConvDEQ(phi, **model), 2, channels, 3, size, **options)


def explicit(size: tuple[int, ...] = (4, 5), channels: int = 4, **options: Any) -> ConvExplicitNet:
    model = {key: options.pop(key) for key in ("padding", "readout", "bias2") if key in options}
    spec = nsd.ConvExplicit(["tanh", "relu"], weights=[0.7, 0.4], inject=[0.5], **{"bias2": 0.3} | model)
    return ConvExplicitNet(spec, 2, channels, 3, size, **{"dtype": DOUBLE, "seed": 3} | options)


MAKERS: dict[str, Callable[..., Net]] = {"deq": deq, "explicit": explicit}
KINDS = pytest.mark.parametrize("kind", MAKERS)


# --- the function, written out once more ------------------------------------------------------------------------------


def unit(net: Net, name: str) -> Tensor:
    """A weight of variance 1: "standard" scaling stores it divided by the root of what a unit sees."""
    stored: Tensor = getattr(net, name)
    return stored * sqrt(stored[0].numel()) if net.scaling == "standard" and stored.ndim > 1 else stored


def conv(net: Any, weights: Tensor, values: Tensor, variance: float) -> Tensor:
    axes = values.ndim - 2
    border = (net.spec.filter_size // 2,) * (2 * axes)
    padded = functional.pad(values, border, "constant" if net.spec.padding == "zeros" else "circular")
    convolve = functional.conv2d if axes == 2 else functional.conv1d
    return sqrt(variance / net.spec.filter_size**axes) * convolve(padded, weights)


def read_out(net: Any, z: Tensor) -> Tensor:
    flat = z.flatten(2)
    count = flat.shape[2]
    features = flat.flatten(1) / sqrt(count) if net.spec.readout == "flatten" else flat.mean(2)
    return features @ unit(net, "readout").T


def unrolled(net: ConvDEQNet, X: Tensor, steps: int = 80) -> Tensor:
    """The outputs after `steps` of plain iteration."""
    spec, ones = net.spec, (1,) * (X.ndim - 2)
    u = conv(net, unit(net, "inputs"), X, spec.sigma_b2)
    if net.bias is not None:
        u = u + sqrt(spec.bias2) * net.bias.reshape(-1, *ones)
    h = u
    for _ in range(steps):
        z = PHI[spec.activation.name](h) / sqrt(net.units)
        h = conv(net, unit(net, "recurrent"), z, spec.sigma_a2) + u
    return read_out(net, PHI[spec.activation.name](h) / sqrt(net.units))


def layers(net: ConvExplicitNet, X: Tensor) -> Tensor:
    spec, x, ones = net.spec, X, (1,) * (X.ndim - 2)
    for number, phi in enumerate(spec.layers, 1):
        h = conv(net, unit(net, f"weight{number}"), x, spec.weights[number - 1])
        if number > 1:
            h = h + conv(net, unit(net, "weight1"), X, spec.inject[number - 2])
        if spec.bias2:
            h = h + sqrt(spec.bias2) * getattr(net, f"bias{number}").reshape(-1, *ones)
        x = PHI[phi.name](h) / sqrt(net.units)
    return read_out(net, x)


@KINDS
@PADDING
@READOUT
@SIZE
def test_outputs_are_those_of_the_model_written_out(
    kind: str, padding: str, readout: str, size: tuple[int, ...]
) -> None:
    net, X = MAKERS[kind](size=size, padding=padding, readout=readout), images(5, 2, *size)
    expected = unrolled(net, X) if isinstance(net, ConvDEQNet) else layers(net, X)
    assert_close(net(X).detach(), expected.detach(), Oracle.QUADRATURE)


# --- how it is used --------------------------------------------------------------------------------------------------


# --- the linear map --------------------------------------------------------------------------------------------------


@PADDING
def test_contraction_is_kept_below_the_bound_on_request(padding: str) -> None:
    net = deq(channels=16, contractive=True, sigma_a2=0.12, padding=padding)
    assert net.contraction() <= net.contraction(exact=True) <= 0.95
    with torch.no_grad():
        net.recurrent.mul_(3.0)
    free = deq(channels=16, sigma_a2=0.12, padding=padding)
    free.load_state_dict(net.state_dict())
    assert free.project() > 0.95
    assert net.project() == 0.95
    # The convolution as a matrix, in weights of variance 1; the estimate is from below by a percent or two.
    square = conv(
        net, unit(net, "recurrent").detach(), torch.eye(320, dtype=DOUBLE).reshape(-1, 16, 4, 5), 0.12
    )
    norm = float(np.linalg.norm(square.flatten(1).numpy(), 2)) / sqrt(16)
    assert 0.94 <= norm <= 0.97
    # Exact on a torus; with zeros around the image a bound from above.
    assert (
        norm * (1.0 - 1e-9)
        <= net.contraction(exact=True)
        <= (1.25 if padding == "zeros" else 1.0 + 1e-9) * norm
    )
    net(images(2, 2, 4, 5))
    with pytest.raises(nsd.InputError, match="cannot hold at the start"):
        deq(contractive=0.5, sigma_a2=0.5)


# --- kernels ---------------------------------------------------------------------------------------------------------


# --- training --------------------------------------------------------------------------------------------------------


def test_training_refuses_other_images_and_warns_of_their_scale() -> None:
    net, labels = deq(dtype=None, solver=None), np.arange(6) % 3
    with pytest.raises(
        nsd.InputError, match=r"inputs of train must be images \(n, 2, 4, 5\).*other in_channels"
    ):
        fit(net, (np.zeros((6, 1, 4, 5)), labels))
    with pytest.raises(nsd.InputError, match="They are flattened"):
        nsd.nets.compute_features(net, np.zeros((6, 40)))
    broken = np.ones((6, 2, 4, 5))
    broken[2, 0, 1, 1] = np.nan
    with pytest.raises(nsd.InputError, match="1 of 6 samples"):
        fit(net, (broken, labels))
    with pytest.warns(UserWarning, match="have a root mean square norm of 100 at each position"):
        fit(net, (100.0 / sqrt(2.0) * np.ones((6, 2, 4, 5)), labels), epochs=1, lr=1e-6)


# --- refusing --------------------------------------------------------------------------------------------------------

GOOD = images(4, 1, 4, 5)
WRONG = {
    "flattened": (GOOD.flatten(1), r"They are flattened: X.reshape\(-1, 1, 4, 5\)"),
    "no channel": (GOOD[:, 0], r"X\[:, None\]"),
    "one sample": (GOOD[0], r"one sample pass X\[None\]"),
    "channels last": (GOOD.movedim(1, -1), r"X.movedim\(-1, 1\)"),
    "three channels": (GOOD.expand(-1, 3, -1, -1), "other in_channels and image_size"),
    "larger": (images(4, 1, 8, 8), "Resize the images"),
    "precision": (GOOD.float(), "X is torch.float32 and the network torch.float64"),
}


@KINDS
@pytest.mark.parametrize("case", WRONG)
def test_wrong_images_are_named(kind: str, case: str) -> None:
    make, spec = (
        (ConvDEQNet, nsd.ConvDEQ("relu", 0.2))
        if kind == "deq"
        else (ConvExplicitNet, nsd.ConvExplicit(["relu"]))
    )
    net, (bad, message) = make(spec, 1, 4, 2, (4, 5), dtype=DOUBLE), WRONG[case]
    with pytest.raises(nsd.InputError, match=message):
        net(bad)


def test_impossible_networks_are_refused() -> None:
    model = nsd.ConvDEQ("relu", 0.2)
    with pytest.raises(nsd.InputError, match=r"image_size has 2 × 2 positions.*filter_size of at most 1"):
        ConvDEQNet(model, 1, 4, 2, 2)
    with pytest.raises(nsd.InputError, match="image_size is"):
        ConvDEQNet(model, 1, 4, 2, (4, 4, 4))
    with pytest.raises(nsd.InputError, match="channels must be a whole number"):
        ConvDEQNet(model, 1, 0, 2, 4)
    with pytest.raises(nsd.InputError, match="ConvDEQNet takes a model of the class ConvDEQ, not DEQ"):
        ConvDEQNet(nsd.DEQ("relu", 0.2), 1, 4, 2, 4)
    with pytest.raises(nsd.InputError, match="class ConvExplicit, not ConvDEQ"):
        ConvExplicitNet(model, 1, 4, 2, 4)
