"""Convolutional networks: against the model written out with torch's own convolution, its kernels, and its limits."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import numpy as np
import pytest
import torch
from tolerances import Oracle, assert_close, assert_within_noise
from torch import Tensor
from torch.func import functional_call, jacrev, vmap
from torch.nn import functional

import notsodeep as nsd
from notsodeep.nets import ConvDEQNet, ConvExplicitNet, Net, SolverOptions, empirical_kernels, fit

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
    """The outputs after `steps` of plain iteration under autograd."""
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


def written_out(net: Net, X: Tensor) -> Tensor:
    return unrolled(net, X) if isinstance(net, ConvDEQNet) else layers(net, X)


def gradients(net: Net, X: Tensor, outputs: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    X = X.clone().requires_grad_()
    named = {"X": X, **dict(net.named_parameters())}
    loss = (outputs(X).tanh() - images(len(X), 3, seed=9)).square().sum()
    return dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))


@KINDS
@PADDING
@READOUT
@SIZE
def test_outputs_and_gradients_are_those_of_the_model_written_out(
    kind: str, padding: str, readout: str, size: tuple[int, ...]
) -> None:
    net, X = MAKERS[kind](size=size, padding=padding, readout=readout), images(5, 2, *size)
    assert_close(net(X).detach(), written_out(net, X).detach(), Oracle.QUADRATURE)
    found, expected = gradients(net, X, net), gradients(net, X, lambda Y: written_out(net, Y))
    assert {"X", "readout"} < found.keys()
    for name, value in expected.items():
        assert float((found[name] - value).norm() / value.norm()) <= 1e-10, name


# --- how it is used --------------------------------------------------------------------------------------------------


@KINDS
@PADDING
def test_vmap_and_jacrev(kind: str, padding: str) -> None:
    net, X = MAKERS[kind](padding=padding), images(4, 2, 4, 5)
    parameters = {name: value.detach() for name, value in net.named_parameters()}

    def one(given: dict[str, Tensor], sample: Tensor) -> Tensor:
        return functional_call(net, given, (sample[None],))[0]

    found = vmap(jacrev(one), in_dims=(None, 0))(parameters, X)
    outputs, names = net(X), list(parameters)
    for i, k in ((0, 0), (1, 2), (3, 1)):
        expected = torch.autograd.grad(outputs[i, k], list(net.parameters()), retain_graph=True)
        for name, value in zip(names, expected, strict=True):
            assert_close(found[name][i, k], value, Oracle.QUADRATURE, scale=float(value.norm()))
    stacked = {name: torch.stack([value, 0.5 * value]) for name, value in parameters.items()}
    several = vmap(lambda given: functional_call(net, given, (X,)))(stacked)
    assert_close(several[0], outputs.detach(), Oracle.QUADRATURE)
    assert_close(
        several[1], functional_call(net, {k: v[1] for k, v in stacked.items()}, (X,)), Oracle.QUADRATURE
    )


@KINDS
def test_scalings_are_one_function(kind: str) -> None:
    X, nets = images(4, 2, 4, 5), [MAKERS[kind](scaling=scaling) for scaling in ("standard", "ntk")]
    assert_close(nets[0](X).detach(), nets[1](X).detach(), Oracle.QUADRATURE)
    rates = {group["name"]: group["lr"] for group in nets[0].parameter_groups(1.0)}
    for net in nets:
        optimiser = torch.optim.SGD(net.parameter_groups(0.1), lr=0.1)
        net(X).square().sum().backward()
        optimiser.step()
    assert_close(nets[0](X).detach(), nets[1](X).detach(), Oracle.QUADRATURE)
    hidden = "recurrent" if kind == "deq" else "weight2"
    assert rates[hidden] == 1.0 / (4 * 9)
    assert rates["readout"] == 1.0 / (4 * 20)


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


@READOUT
@pytest.mark.parametrize("kind", ["deq", "explicit"])
def test_empirical_kernels_approach_the_exact_ones_like_the_root_of_the_channels(
    kind: str, readout: str
) -> None:
    """Eight times the channels, 8^-½ = 0.35 of the error.

    With few channels the error falls faster: exponents of -0.54 to -0.70 from 16 to 128 channels, 0.33 to 0.23 here.
    """
    X = images(4, 2, 4, 4, seed=5)
    model = nsd.ConvDEQ("relu", 0.3, bias2=0.1, readout=readout)
    model = model if kind == "deq" else model.unrolled(2)
    exact = nsd.both_kernels(model, X.numpy())
    make = ConvDEQNet if kind == "deq" else ConvExplicitNet

    def errors(channels: int) -> np.ndarray:
        found = []
        for seed in range(10):
            kernels = empirical_kernels(make(model, 2, channels, 2, 4, seed=seed), X.float())
            pair = (kernels.ck.numpy(), kernels.ntk.numpy())
            found.append(
                [np.linalg.norm(a - b) / np.linalg.norm(b) for a, b in zip(pair, exact, strict=True)]
            )
        return np.sqrt(np.mean(np.square(found), axis=0))

    few, many = errors(16), errors(128)
    assert np.all(many < 0.2)
    assert np.all((many / few > 0.2) & (many / few < 0.5)), many / few


@pytest.mark.slow
def test_random_networks_on_a_torus_have_the_exact_kernels() -> None:
    X = images(3, 1, 4, 4)
    model = nsd.ConvDEQ("erf", 0.35, bias2=0.1, padding="circular", readout="pool")
    draws = [empirical_kernels(ConvDEQNet(model, 1, 96, 1, 4, seed=seed), X.float()) for seed in range(24)]
    for name, exact in zip(("ck", "ntk"), nsd.both_kernels(model, X.numpy()), strict=True):
        assert_within_noise(exact, [getattr(draw, name).numpy() for draw in draws], bias=0.02)


# --- training --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "readout", "mode", "optimizer"),
    [
        ("deq", "pool", "all", "sgd"),
        ("deq", "flatten", "readout", "adam"),
        ("explicit", "pool", "readout", "sgd"),
        ("explicit", "flatten", "all", "adam"),
    ],
)
def test_training_at_the_default_rate_learns(kind: str, readout: str, mode: str, optimizer: str) -> None:
    """Two classes of images that differ in where their bright stripe lies: its mean alone tells nothing."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    X = 0.5 * torch.randn(60, 2, 4, 5, generator=generator)
    X[labels == 0, 0, :, 0] += 2.0
    X[labels == 1, 0, 0, :] += 2.0
    net = (
        MAKERS[kind](readout=readout, train=mode, channels=16, dtype=None, solver=None)
        if kind == "deq"
        else (explicit(readout=readout, train=mode, channels=16, dtype=None))
    )
    history = fit(net, (X.numpy(), labels), (X, labels), optimizer=optimizer, epochs=8, batch_size=10)
    assert history.stopped is None
    assert history.last.loss < 0.7 * history.rows[0].loss
    assert history.last.test_accuracy > 0.8
    assert (history.last.forward_steps is not None) == (kind == "deq")


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
