"""`from_weights`: networks of weights that were trained in other code."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from nets_oracles import gaussian_rows
from torch import nn

import notsodeep as nsd
from notsodeep.nets import ConvDEQNet, DEQNet, SolverOptions


def test_weights_trained_elsewhere_make_the_same_function() -> None:
    W, U, b = (
        0.15 * gaussian_rows(16, 16, 2),
        0.6 * gaussian_rows(16, 10, 3),
        0.3 * gaussian_rows(1, 16, 4)[0],
    )
    readout, rows = nn.Linear(16, 3).double(), gaussian_rows(50, 10, 5)
    z = torch.zeros(50, 16, dtype=torch.float64)
    for _ in range(300):
        z = torch.relu(z @ W.T + rows @ U.T + b)
    net = DEQNet.from_weights(W, U, b, "relu", readout)
    assert torch.allclose(net(rows), readout(z), atol=1e-8)
    assert net.spec.sigma_a2 == pytest.approx(float(W.square().sum()) / 16)
    for one, other in zip(net.plain_weights(), (W, U, b, readout.weight, readout.bias), strict=True):
        assert torch.allclose(one, other, atol=1e-12)
    pair = (readout.weight.detach().numpy(), readout.bias.tolist())
    assert torch.equal(DEQNet.from_weights(W, U, b, "relu", pair)(rows), net(rows))


@pytest.mark.parametrize(("padding", "pool"), [("zeros", False), ("circular", True)])
def test_filters_trained_elsewhere_make_the_same_function(padding: str, pool: bool) -> None:
    torch.manual_seed(0)
    mode = {"padding": "same", "padding_mode": padding, "dtype": torch.float64}
    inner, outer = nn.Conv2d(4, 4, 3, bias=False, **mode), nn.Conv2d(2, 4, 3, **mode)
    readout = nn.Linear(4 if pool else 4 * 30, 3, dtype=torch.float64)
    images = gaussian_rows(7, 60, 1).reshape(7, 2, 5, 6)
    z = torch.zeros(7, 4, 5, 6, dtype=torch.float64)
    for _ in range(200):
        z = torch.tanh(0.5 * inner(z) + outer(images))
    expected = readout(z.mean((2, 3)) if pool else z.flatten(1))
    options = {"padding": padding, "pool": pool, "solver": SolverOptions(tolerance=1e-10)}
    net = ConvDEQNet.from_weights(
        0.5 * inner.weight, outer.weight, outer.bias, "tanh", readout, image_size=(5, 6), **options
    )
    assert torch.allclose(net(images), expected, atol=1e-8)
    assert torch.allclose(net.plain_weights().recurrent, 0.5 * inner.weight, atol=1e-12)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"W": torch.zeros(3, 4)}, "W must be square"),
        ({"U": torch.zeros(2, 3)}, "It looks transposed"),
        ({"b": torch.zeros(2)}, "a number for each of the 3 units"),
        ({"readout": torch.zeros(2, 5)}, "a column for each of the 3 units"),
        ({"readout": nn.Sequential()}, "readout must be linear"),
        ({"readout": (torch.ones(1, 3), torch.ones(2))}, "a number for each of the 1 outputs"),
        ({"readout": (torch.ones(3), torch.ones(1))}, r"For one output pass a row, \(1, units\)"),
        ({"readout": ([[1.0], [1.0, 2.0]], np.ones(2))}, "readout cannot be read as an array"),
        ({"W": torch.empty(3, 3, device="meta")}, "W must be an ordinary tensor"),
        ({"W": torch.eye(3).to_sparse()}, "W must be an ordinary tensor"),
        ({"readout": nn.LazyLinear(1)}, "readout must be an ordinary tensor"),
        ({"W": torch.full((3, 3), torch.nan)}, "NaN"),
        ({"W": torch.eye(3) * 1j}, "W must hold real numbers, not torch.complex64"),
        ({"readout": nn.Linear(3, 1, dtype=torch.complex64)}, "readout must hold real numbers"),
        ({"W": np.zeros((0, 0)), "U": np.zeros((0, 2))}, r"at least one unit; got \(0, 0\)"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: dict, words: str) -> None:
    good = {"W": torch.eye(3) / 2, "U": torch.ones(3, 2), "b": torch.zeros(3), "readout": torch.ones(1, 3)}
    with pytest.raises(nsd.InputError, match=words):
        DEQNet.from_weights(**{**good, **change})


def test_filters_that_do_not_fit_are_refused() -> None:
    with pytest.raises(nsd.InputError, match="filters of one size"):
        ConvDEQNet.from_weights(np.ones((2, 2, 3, 3)), np.ones((2, 1, 5, 5)), image_size=6)
    with pytest.raises(nsd.InputError, match=r"each unit at each position, \(outputs, 72\)"):
        ConvDEQNet.from_weights(
            np.ones((2, 2, 3, 3)), np.ones((2, 1, 3, 3)), readout=np.ones((3, 2)), image_size=6
        )


def test_weights_in_every_memory_layout() -> None:
    W, U = gaussian_rows(3, 3, 1).numpy() / 4, gaussian_rows(3, 2, 2).numpy()
    X = gaussian_rows(5, 2, 3)
    expected = DEQNet.from_weights(W, U)(X)
    for turned in (lambda a: a[::-1].copy()[::-1], lambda a: a.astype(">f8"), np.asfortranarray):
        assert torch.equal(DEQNet.from_weights(turned(W), turned(U))(X), expected)


def test_an_integer_readout_with_a_bias_is_read() -> None:
    W, U, rows = gaussian_rows(3, 3, 1) / 4, gaussian_rows(3, 2, 2), gaussian_rows(5, 2, 3)
    expected = DEQNet.from_weights(W, U)(rows) @ torch.tensor([[1.0, 2.0, 3.0]], dtype=W.dtype).mT + 4.0
    for readout in ((np.array([[1, 2, 3]]), np.array([4])), (torch.tensor([[1, 2, 3]]), torch.tensor([4]))):
        assert torch.allclose(DEQNet.from_weights(W, U, readout=readout)(rows), expected, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn])
def test_weights_of_less_than_32_bits_are_solved_and_distilled_in_float32(dtype: torch.dtype) -> None:
    W, U, R = (
        part.float().to(dtype) for part in (gaussian_rows(8, 8, 1) / 8, *gaussian_rows(2 * 8, 8, 2).split(8))
    )
    net, X = DEQNet.from_weights(W, U, None, "tanh", R), gaussian_rows(300, 8, 3).float()
    expected = DEQNet.from_weights(W.float(), U.float(), None, "tanh", R.float())(X)
    assert torch.equal(net(X), expected)
    assert nsd.distill(net, X, epochs=0).agreement > 0.9
