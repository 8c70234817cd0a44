"""Cells of torch modules read as expressions: variances, structure, kernels of wide modules, refusals with a line."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tolerances import Oracle, assert_close
from torch import Tensor, nn
from torch.nn import functional as F
from torch_cells import Cell

from notsodeep import cells
from notsodeep.cells.expressions import Weighted, nodes_of
from notsodeep.errors import InputError
from notsodeep.models.cell_models import Equilibrium
from notsodeep.nets.torch_reader import from_torch

M, P = 16, 6
Z, X = torch.zeros(3, M), torch.zeros(3, P)


class RootMeanSquareNorm(nn.Module):
    """RMSNorm as language models write it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        values = x.float()
        return (values * torch.rsqrt(values.pow(2).mean(-1, keepdim=True) + 1e-6)).type_as(x) * self.weight


class SwiGLU(nn.Module):
    def __init__(self, size: int, hidden: int) -> None:
        super().__init__()
        self.gate_up = nn.Linear(size, 2 * hidden, bias=False)
        self.down = nn.Linear(hidden, size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class RecursiveBlock(nn.Module):
    """The block of recursive reasoning models without attention."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.first, self.second = SwiGLU(size, 2 * size), SwiGLU(size, 2 * size)
        self.norm1, self.norm2 = RootMeanSquareNorm(size), nn.RMSNorm(size)

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        h = z + x
        h = self.norm1(h + self.first(h))
        return self.norm2(h + self.second(h))


def linear(size: int, out: int = M, bias: bool = True) -> nn.Linear:
    torch.manual_seed(size + out)
    return nn.Linear(size, out, bias)


def square(values: Tensor) -> float:
    return float(values.detach().double().square().mean())


def assert_same(model: Equilibrium, step: cells.expressions.Node) -> None:
    """The model has the structure of an expression, and its variances."""
    found, expected = ([n for n in nodes_of(s) if isinstance(n, Weighted)] for s in (model.step, step))
    assert [type(n) for n in found] == [type(n) for n in expected]
    assert_close([n.variance for n in found], [n.variance for n in expected], Oracle.CLOSED_FORM)
    assert str(model.step) == str(step)


def test_a_simple_cell_is_a_deq() -> None:
    W, U = linear(M), linear(P, bias=False)
    model = from_torch(Cell(lambda s, z, x: torch.tanh(s.W(z) + s.U(x)), W=W, U=U), Z, X)
    z, x = cells.state(), cells.input()
    inner = cells.bias(cells.dense(z, M * square(W.weight)), square(W.bias)) + cells.dense(
        x, square(U.weight)
    )
    assert_same(model, cells.activation(inner, "tanh"))
    assert model.to_dict()["kind"] == "deq"


def test_a_recursive_block_has_two_gated_sublayers() -> None:
    block = RecursiveBlock(M)
    z, x = cells.state(), cells.input()

    def sublayer(y: Any, layer: SwiGLU) -> Any:
        gate, up = layer.gate_up.weight.chunk(2)
        hidden = cells.activation(cells.dense(y, M * square(gate)), "swish") * cells.dense(y, M * square(up))
        return y + cells.dense(hidden, 2 * M * square(layer.down.weight))

    y = z + cells.dense(x, 1.0 / M)
    step = cells.norm(sublayer(cells.norm(sublayer(y, block.first)), block.second))
    assert_same(from_torch(block, Z, Z), step)


def test_concatenation_is_one_map_for_each_part() -> None:
    adapter, up, down = linear(M + P), linear(M, 4 * M), linear(4 * M)
    norm, last = nn.LayerNorm(M), nn.LayerNorm(M)

    def forward(s: Any, z: Tensor, x: Tensor) -> Tensor:
        h = s.adapter(torch.cat([z, x], dim=-1))
        return s.last(h + s.down(F.gelu(s.up(s.norm(h)))))

    model = from_torch(Cell(forward, adapter=adapter, up=up, down=down, norm=norm, last=last), Z, X)
    z, x = cells.state(), cells.input()
    of_z, of_x = square(adapter.weight[:, :M]), square(adapter.weight[:, M:])
    h = cells.bias(cells.dense(z, M * of_z) + cells.dense(x, of_x), square(adapter.bias))
    hidden = cells.bias(cells.dense(cells.norm(h, "layer"), M * square(up.weight)), square(up.bias))
    branch = cells.dense(cells.activation(hidden, "gelu"), 4 * M * square(down.weight))
    assert_same(model, cells.norm(h + cells.bias(branch, square(down.bias)), "layer"))


def test_gains_after_and_before_weights_are_folded_in() -> None:
    norm, inner, outer, inputs = nn.LayerNorm(M), linear(M, 3 * M), linear(3 * M, bias=False), linear(P)
    gamma = nn.Parameter(torch.rand(M))
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2.0)
        norm.bias.normal_()
    steps = nn.Sequential(norm, inner, nn.SiLU(), nn.Dropout(0.5), outer)
    cell = Cell(
        lambda s, z, x: F.layer_norm(0.5 * z + s.gamma * s.steps(z) + s.inputs(x), (M,)),
        steps=steps, gamma=gamma, inputs=inputs,
    )  # fmt: skip
    model = from_torch(cell, Z, X)
    z, x = cells.state(), cells.input()
    steps.double()
    variance = M * square(inner.weight * norm.weight)
    hidden = cells.bias(cells.dense(cells.norm(z, "layer"), variance), square(inner(norm.bias)))
    weights = gamma.double()[:, None] * outer.weight
    branch = cells.dense(cells.activation(hidden, "swish"), 3 * M * square(weights))
    read = cells.bias(cells.dense(x, square(inputs.weight)), square(inputs.bias))
    assert_same(model, cells.norm(0.5 * z + branch + read, "layer"))
    assert cell.training, "the module itself is not changed"


def test_filters_of_images() -> None:
    torch.manual_seed(0)
    W = nn.Conv2d(M, M, 3, padding=1, padding_mode="circular")
    U = nn.Conv2d(P, M, 3, padding="same", padding_mode="circular", bias=False)
    cell = Cell(lambda s, z, x: F.relu(s.W(z) + s.U(x)), W=W, U=U)
    model = from_torch(cell, torch.zeros(2, M, 5, 5), torch.zeros(2, P, 5, 5), readout="pool")
    z, x = cells.state(), cells.input()
    state = cells.bias(cells.conv(z, 9 * M * square(W.weight), 3, "circular"), square(W.bias))
    inner = state + cells.conv(x, 9 * square(U.weight), 3, "circular")
    assert_same(model, cells.pool(cells.activation(inner, "relu")))
    assert model.to_dict()["kind"] == "conv_deq"


NORMS: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "module": lambda s, h: s.norm(h),
    "function": lambda s, h: F.rms_norm(h, (M,)),
    "reciprocal root": lambda s, h: h * torch.rsqrt(torch.mean(h * h, dim=-1, keepdim=True) + 1e-8),
    "root": lambda s, h: h / (h.square().mean(1, keepdim=True) + 1e-8).sqrt(),
    "power": lambda s, h: h * (h.pow(2).mean(-1, True) + 1e-8) ** -0.5,
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_that_are_written_out(name: str) -> None:
    cell = Cell(lambda s, z, x: NORMS[name](s, z + s.U(x)), U=linear(P, bias=False), norm=nn.RMSNorm(M))
    z, x = cells.state(), cells.input()
    step = cells.norm(z + cells.dense(x, square(cell.U.weight)))
    assert_same(from_torch(cell, Z, X), step)


def _halves(s: Any, z: Tensor) -> Tensor:
    gate, value = s.both(z).split(M, dim=1)
    return torch.sigmoid(gate) * value.tanh()


GATES: dict[str, Callable[[Any, Tensor], Tensor]] = {
    "split": _halves,
    "matrix": lambda s, z: (
        torch.sigmoid(z @ s.both.weight[:M].T) * torch.tanh(F.linear(z, s.both.weight[M:]))
    ),
}


@pytest.mark.parametrize("name", GATES)
def test_gates(name: str) -> None:
    both, U = linear(M, 2 * M, bias=False), linear(P, bias=False)
    cell = Cell(lambda s, z, x: s.out(GATES[name](s, z)) + s.U(x), both=both, U=U, out=linear(M, bias=False))
    z, x = cells.state(), cells.input()
    gate = cells.activation(cells.dense(z, M * square(both.weight[:M])), "sigmoid")
    value = cells.activation(cells.dense(z, M * square(both.weight[M:])), "tanh")
    assert_same(
        from_torch(cell, Z, X),
        cells.dense(gate * value, M * square(cell.out.weight)) + cells.dense(x, square(U.weight)),
    )


def test_parameters_of_activations_are_read() -> None:
    for function, name, options in (
        (lambda h: F.leaky_relu(h, 0.2), "leaky_relu", {"a": 1.0, "b": 0.2}),
        (nn.ELU(alpha=0.7), "elu", {"alpha": 0.7}),
        (lambda h: h * torch.sigmoid(h), "swish", {}),
        (lambda h: F.gelu(h, approximate="tanh"), "formula", None),
    ):
        cell = Cell(lambda s, z, x: s.f(s.W(z) + s.U(x)), W=linear(M), U=linear(P), f=function)
        phi = from_torch(cell, Z, X).activations[0]
        assert phi.name == name
        assert options is None or dict(phi.parameters) == options


def _attention(s: Any, z: Tensor, x: Tensor) -> Tensor:
    weights = F.softmax(s.W(z) @ s.V(z).transpose(0, 1), dim=-1)
    return weights @ z + s.U(x)


def _residual_relu(s: Any, z: Tensor, x: Tensor) -> Tensor:
    inner = F.relu(s.W(z) + s.U(x))
    return F.relu(z + inner)


def _reset_gate(s: Any, z: Tensor, x: Tensor) -> Tensor:
    reset = torch.sigmoid(s.W(z) + s.U(x))
    return torch.tanh(s.V(reset * z))


def _update_gate(s: Any, z: Tensor, x: Tensor) -> Tensor:
    update = torch.sigmoid(s.W(z) + s.U(x))
    return (1 - update) * z + update * torch.tanh(s.V(z))


def _branch(s: Any, z: Tensor, x: Tensor) -> Tensor:
    return z if z.sum() > 0 else s.U(x)


REFUSED: list[tuple[Callable[..., Tensor], str]] = [
    (
        _attention,
        r"softmax in line \d+ of test_torch_reader.py, `weights = F.softmax.*attention is not Gaussian",
    ),
    (lambda s, z, x: s.heads(z, z, z)[0] + s.U(x), r"MultiheadAttention \(heads\) in line"),
    (
        _residual_relu,
        r"in line \d+ of test_torch_reader.py, `return F.relu\(z \+ inner\)`: .*another one's output",
    ),
    (_reset_gate, r"line \d+ .*reset \* z"),
    (_update_gate, r"line \d+ .*`return \(1 - update\).*the number 1 is added"),
    (lambda s, z, x: s.gru(x, z), r"GRUCell \(gru\)"),
    (lambda s, z, x: torch.tanh(s.W(torch.tanh(s.W(z))) + s.U(x)), r"Linear \(W\).*two different vectors"),
    (lambda s, z, x: torch.tanh(s.W(z).view(-1, 4, 4).flatten(1) + s.U(x)), "view.*rearranged"),
    (lambda s, z, x: torch.tanh(s.batch(s.W(z)) + s.U(x)), "BatchNorm1d.*other samples"),
    (lambda s, z, x: s.weighted(z + s.U(x)), "differ between features"),
    (lambda s, z, x: torch.cumsum(s.W(z), 1) + s.U(x), "cumsum.*not an operation"),
    (lambda s, z, x: torch.tanh(s.W(z) * s.W(z)) + s.U(x), "share weights"),
    (lambda s, z, x: torch.prelu(s.W(z) + s.U(x), s.slope), "prelu"),
    (lambda s, z, x: torch.tanh(s.W(z) + s.U(F.dropout(x, 0.5))), "dropout.*active in evaluation mode"),
    (lambda s, z, x: z * torch.rsqrt(z.pow(2).mean(-1, keepdim=True) + 1.0) + s.U(x), "not small"),
    (lambda s, z, x: F.normalize(z + s.U(x), dim=-1), "norm.*not an operation"),
    (lambda s, z, x: F.glu(s.both(z)) + s.U(x), r"glu.*chunk"),
    (_branch, "values of tensors"),
    (lambda s, z, x: s.U(x)[:, :3], "must return a state like z"),
    (lambda s, z, x: s.U(z), "fails"),
]


@pytest.mark.parametrize(("function", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_cannot_be_read_is_named_with_its_line(function: Any, words: str) -> None:
    weighted = nn.RMSNorm(M)
    with torch.no_grad():
        weighted.weight.uniform_(0.5, 2.0)
    layers = {
        "W": linear(M), "V": linear(M), "U": linear(P), "heads": nn.MultiheadAttention(M, 2), "gru": nn.GRUCell(P, M),
        "batch": nn.BatchNorm1d(M), "weighted": weighted, "slope": nn.Parameter(torch.ones(1)),
        "both": linear(M, 2 * M),
    }  # fmt: skip
    with pytest.raises(InputError, match=words):
        from_torch(Cell(function, **layers), Z, X)


def test_other_arguments_are_refused() -> None:
    with pytest.raises(InputError, match="torch module"):
        from_torch(lambda z, x: z, Z, X)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="readout"):
        from_torch(Cell(lambda s, z, x: z), Z, X, readout="last")
