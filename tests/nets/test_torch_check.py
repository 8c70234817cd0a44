"""The reader of torch modules compares the cell with the module itself: what it refuses, and what it still reads."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from tolerances import assert_within_noise, standard_errors_allowed
from torch_cells import HONEST, HOSTILE, Cell, P, examples, layer, simple

from notsodeep import InputError, Loop, cells, conjugate_kernel

WIDTH, STEPS, DRAWS = 64, 3, 24
# These may be read: their kernels are those of cells with independent weights.
READ_RIGHTLY = ("tied values", "half of the columns", "hook of the cell")


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_cells_are_refused_or_read_rightly(name: str) -> None:
    torch.manual_seed(3)
    module = HOSTILE[name](WIDTH)
    try:
        model = cells.from_torch(module, *examples(module, WIDTH))
    except InputError:
        return
    assert name in READ_RIGHTLY
    # What is read has the kernel of modules that are drawn anew.
    x, draws = torch.randn(4, P), []
    for seed in range(DRAWS):
        torch.manual_seed(seed)
        module, z = HOSTILE[name](256), torch.zeros(4, 256)
        with torch.no_grad():
            for _ in range(STEPS):
                z = module(z, x)
        draws.append((z @ z.mT / 256).double().numpy())
    assert_within_noise(conjugate_kernel(Loop(model.step, STEPS), x.double().numpy()), draws, bias=0.02)


def test_the_refusal_names_the_ratio_of_second_moments() -> None:
    torch.manual_seed(0)
    module = Cell(lambda s, z, x: s.W(z), W=layer(WIDTH, WIDTH))
    cells.from_torch(module, *examples(module, WIDTH))
    module.W.register_forward_hook(lambda part, given, out: 2.0 * out)
    with pytest.raises(InputError, match="after one step the second moments") as refusal:
        cells.from_torch(module, *examples(module, WIDTH))
    words = r"instead of ([\d.]+) \(([\d.]+) times as large, with a standard error of ([\d.]+)"
    expected, ratio, error = (float(one) for one in re.search(words, str(refusal.value)).groups())  # type: ignore[union-attr]
    assert abs(ratio - 2.0**2) * expected <= standard_errors_allowed(1, DRAWS) * error


@pytest.mark.parametrize("width", [32, 128])
@pytest.mark.parametrize("name", HONEST)
def test_honest_cells_are_read(name: str, width: int) -> None:
    torch.manual_seed(width)
    module = HONEST[name](width)
    assert cells.from_torch(module, *examples(module, width)).cell.weighted


def test_the_module_its_arguments_and_random_numbers_are_left_alone() -> None:
    """Nothing of the caller changes, though the module writes into its buffers and arguments and draws numbers."""

    def forward(self: Cell, z: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        torch.randn(3)
        x *= 1.0
        return simple(self, z.mul(1.0), x)

    torch.manual_seed(0)
    module = Cell(forward, W=torch.nn.Linear(32, 32), U=torch.nn.Linear(P, 32, bias=False))
    module.register_buffer("calls", torch.zeros(()))
    module.train()
    z, x = torch.ones(3, 32), torch.full((3, P), 2.0)
    before, state = copy.deepcopy(module.state_dict()), torch.random.get_rng_state()
    cells.from_torch(module, z, x)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert module.training
    assert all(torch.equal(values, before[name]) for name, values in module.state_dict().items())
    assert torch.equal(z, torch.ones_like(z))
    assert torch.equal(x, torch.full_like(x, 2.0))
    assert all(one.grad is None and one.requires_grad for one in module.parameters())


def test_the_same_module_has_the_same_answer() -> None:
    module = HONEST["default"](WIDTH)
    torch.manual_seed(1)
    first = cells.from_torch(module, *examples(module, WIDTH))
    torch.manual_seed(2)
    assert cells.from_torch(module, *examples(module, WIDTH)) == first


def test_a_module_that_cannot_be_copied_is_refused() -> None:
    module = HONEST["gaussian"](WIDTH)
    module.cache = module.W(torch.ones(1, WIDTH))  # not a leaf
    with pytest.raises(InputError, match="deepcopy"):
        cells.from_torch(module, *examples(module, WIDTH))


@pytest.mark.parametrize("batch", [1, 3, 300])
def test_examples_of_every_size(batch: int) -> None:
    torch.manual_seed(0)
    module = HONEST["layer norm"](WIDTH)
    cells.from_torch(module, torch.zeros(batch, WIDTH), torch.randn(batch, P))
    cells.from_torch(module, torch.zeros(batch, 2, WIDTH), torch.randn(batch, 2, P))
    hostile = HOSTILE["symmetric"](WIDTH)
    with pytest.raises(InputError, match="something else"):
        cells.from_torch(hostile, torch.zeros(batch, WIDTH), torch.randn(batch, P))


def test_a_cell_without_input_has_a_network() -> None:
    z = cells.state()
    torch.manual_seed(0)
    module = Cell(lambda s, z, x: torch.tanh(s.W(z)), W=torch.nn.Linear(WIDTH, WIDTH, bias=False))
    model = cells.from_torch(module, torch.zeros(3, WIDTH), torch.zeros(3, P))
    expected = WIDTH * float(module.W.weight.detach().double().square().mean())
    assert str(model.step) == str(cells.activation(cells.dense(z, expected), "tanh"))
