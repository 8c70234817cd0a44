"""Networks as torch modules: weights, modes, storing, copying, refusing; features against NumPy."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest
import torch
from nets_oracles import as_array, dense_equilibrium, gaussian_rows, theory_weight
from tolerances import Oracle, assert_close

from notsodeep.errors import InputError
from notsodeep.gaussian.activations import activation
from notsodeep.models import DEQ, Explicit
from notsodeep.nets import DEQNet, ExplicitNet, Net, SolverOptions

LAYERS = ["relu", activation("tanh").scaled(1.2, gain=0.7).shifted(-0.1), "gelu"]
KINDS = pytest.mark.parametrize("kind", ["deq", "explicit"])
TRAIN = pytest.mark.parametrize("train", ["all", "readout"])


def _deq(**options) -> DEQNet:
    options = {"dtype": torch.float64, "seed": 5, **options}
    return DEQNet(DEQ("tanh", 0.2, 0.8, 0.3), 4, 15, 3, **options)


def _explicit(**options) -> ExplicitNet:
    options = {"dtype": torch.float64, "seed": 5, **options}
    return ExplicitNet(Explicit(LAYERS), 4, 15, 3, **options)


def _make(kind: str, **options) -> Net:
    return _deq(**options) if kind == "deq" else _explicit(**options)


X = gaussian_rows(6, 4, 1)


# --- values ----------------------------------------------------------------------------------------------------------


@TRAIN
def test_deq_outputs_are_the_readout_of_the_dense_solution(train: str) -> None:
    net = _deq(train=train, solver=SolverOptions(tolerance=1e-13))
    z = dense_equilibrium(net, X)
    assert_close(as_array(net.features(X)), z, Oracle.QUADRATURE)
    assert_close(as_array(net(X)), z @ as_array(theory_weight(net, "readout")).T, Oracle.QUADRATURE)


@TRAIN
def test_explicit_outputs_are_the_layers_written_out(train: str) -> None:
    net = _explicit(train=train)
    x = as_array(X)
    for number, layer in enumerate(net.spec.layers, 1):
        x = layer(x @ as_array(theory_weight(net, f"weight{number}")).T) / sqrt(15)
    assert_close(as_array(net.features(X)), x, Oracle.CLOSED_FORM)
    assert_close(as_array(net(X)), x @ as_array(theory_weight(net, "readout")).T, Oracle.CLOSED_FORM)


@KINDS
def test_without_a_seed_torchs_own_generator_draws(kind: str) -> None:
    def outputs() -> np.ndarray:
        return as_array(_make(kind, seed=None)(X))

    torch.manual_seed(11)
    first, second = outputs(), outputs()
    torch.manual_seed(11)
    assert_close(outputs(), first, Oracle.IDENTITY)
    assert np.abs(second - first).max() > 1e-2


# --- weights ---------------------------------------------------------------------------------------------------------


def test_which_tensors_are_trained() -> None:
    names = {"recurrent", "inputs", "bias", "readout"}
    assert {key for key, _ in _deq().named_parameters()} == names
    assert not list(_deq().buffers())
    frozen = _deq(train="readout")
    assert {key for key, _ in frozen.named_parameters()} == {"readout"}
    assert {key for key, _ in frozen.named_buffers()} == names - {"readout"}
    plain = DEQNet(DEQ("tanh", 0.2), 4, 15, 3)
    assert {key for key, _ in plain.named_parameters()} == names - {"bias"}
    assert plain.bias is None
    hidden = {"weight1", "weight2", "weight3"}
    assert {key for key, _ in _explicit().named_parameters()} == hidden | {"readout"}
    assert {key for key, _ in _explicit(train="readout").named_buffers()} == hidden
    assert [tuple(weight.shape) for weight in _explicit().weights] == [(15, 4), (15, 15), (15, 15)]


@KINDS
def test_a_seed_is_one_network_in_every_precision(kind: str) -> None:
    state = torch.random.get_rng_state()
    single, double = _make(kind, dtype=torch.float32), _make(kind)
    for key, value in double.state_dict().items():
        assert torch.equal(value.float(), single.state_dict()[key]), key
    again, other = _make(kind), _make(kind, seed=6)
    assert all(torch.equal(a, b) for a, b in zip(double.parameters(), again.parameters(), strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(double.parameters(), other.parameters(), strict=True))
    # Nothing is drawn from, or done to, the global generator.
    assert torch.equal(state, torch.random.get_rng_state())


@KINDS
@pytest.mark.parametrize("scaling", ["standard", "ntk"])
def test_weights_have_the_variance_of_their_scaling(kind: str, scaling: str) -> None:
    net = (
        DEQNet(DEQ("tanh", 0.2, 0.8, 0.3), 200, 300, 100, scaling=scaling)
        if kind == "deq"
        else ExplicitNet(Explicit(["relu", "tanh"]), 200, 300, 100, scaling=scaling)
    )
    for key, stored in net.state_dict().items():
        count = stored.numel()
        value = sqrt(stored.shape[1]) * stored if scaling == "standard" and stored.ndim == 2 else stored
        assert_close(as_array(net.unit_weight(key)), as_array(value), Oracle.CLOSED_FORM, dtype=np.float32)
        # Five standard errors of a mean and of a variance.
        assert abs(float(value.mean())) <= 5.0 / sqrt(count), key
        assert abs(float(value.var()) - 1.0) <= 5.0 * sqrt(2.0 / count), key
    tensors = list(net.state_dict().values())
    # No two are cut from the same draws.
    assert len({float(value.flatten()[0]) for value in tensors}) == len(tensors)


# --- storing and copying ---------------------------------------------------------------------------------------------


@KINDS
def test_precision_and_device_change_as_for_any_module(kind: str) -> None:
    net = _make(kind, dtype=torch.float32)
    single = net(X.float())
    assert net.to("cpu")(X.float()).equal(single)
    double = net.double()(X)
    assert double.dtype == torch.float64
    assert_close(as_array(single), as_array(double), Oracle.QUADRATURE, dtype=np.float32)
    if isinstance(net, DEQNet):
        assert net.last_solve.tolerance == 1e-10
    empty = _make(kind).to("meta")
    assert all(value.is_meta for value in empty.state_dict().values())
    made = _make(kind, device="meta")
    assert {key: value.shape for key, value in made.state_dict().items()} == {
        key: value.shape for key, value in net.state_dict().items()
    }
    made = made.to_empty(device="cpu")
    made.load_state_dict(net.state_dict())
    assert_close(as_array(made(X)), as_array(double), Oracle.IDENTITY)


# --- refusing --------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (as_array(X), r"must be a torch tensor, not ndarray"),
        (X[0], r"samples in rows, \(rows, 4\); got \(4,\)"),
        (X[None], r"got \(1, 6, 4\)"),
        (X[:, :3], r"got \(6, 3\)"),
        (X.T, r"got \(4, 6\)"),
        (X.float(), r"X is torch.float32 and the network torch.float64"),
        (X.long(), r"X is torch.int64 and the network torch.float64"),
    ],
)
def test_wrong_inputs_are_named(kind: str, bad: object, message: str) -> None:
    net = _make(kind)
    for call in (net, net.features):
        with pytest.raises(InputError, match=message):
            call(bad)


@KINDS
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name in ("in_features", "width", "out_features") for value in (0, 2.5)]
    + [("width", -3), ("in_features", "4"), ("out_features", None), ("width", True)],
)
def test_impossible_sizes_are_refused(kind: str, name: str, value: object) -> None:
    sizes = {"in_features": 4, "width": 15, "out_features": 3, name: value}
    with pytest.raises(InputError, match=f"{name} must be a whole number of at least 1"):
        DEQNet(DEQ("tanh", 0.2), **sizes) if kind == "deq" else ExplicitNet(Explicit(["relu"]), **sizes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"train": "some"}, "train='some' is not known. Choose one of: all, readout"),
        ({"on_failure": "shout"}, "Choose one of: raise, warn, ignore"),
        ({"dtype": torch.int64}, "dtype must be a floating-point type"),
        ({"solver": "anderson"}, "SolverOptions"),
        ({"adjoint": {"tolerance": 1e-3}}, "SolverOptions"),
    ],
)
def test_unknown_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        _deq(**options)


def test_the_wrong_kind_of_specification_is_refused() -> None:
    with pytest.raises(InputError, match="DEQNet takes a model of the class DEQ, not Explicit"):
        DEQNet(Explicit(["relu"]), 4, 15, 3)
    with pytest.raises(InputError, match="ExplicitNet takes a model of the class Explicit, not DEQ"):
        ExplicitNet(DEQ("tanh", 0.2), 4, 15, 3)
    with pytest.raises(InputError, match="not str"):
        DEQNet("tanh", 4, 15, 3)
