"""The network to replace: a frozen copy of it, its outputs on unlabelled samples, and the split of the samples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import ceil, inf, isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader

from notsodeep.distillation.certainty import agreement, relative_error
from notsodeep.distillation.fitting import BATCH, Part
from notsodeep.distillation.student_networks import Cell
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.nets.cell_net import CellNet
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.modules import Net
from notsodeep.nets.samples import as_inputs, as_tensor
from notsodeep.progress import Report

# Samples below which nothing can be fitted and tested.
_FEWEST = 50
# Shares of the rows: validation; test at least, and at most where rows are few.
_VALIDATION, _LEAST_TEST, _MOST_TEST = 0.1, 0.1, 0.3
_MOST_VALIDATION_ROWS = 2000
# A student that differs half as often as allowed passes with this number of rows over the share that may differ.
_ENOUGH = 12.0
# Steps of a cell that are looked at, at least and at most; relative errors that are as good as none; share of answers
# from which on they are called the same.
_LEAST_STEPS, _MOST_STEPS, _CLOSE, SAME = 64, 200, 1e-4, 0.999
# Outputs that vary by this number of units in the last place are constant.
_ROUNDING = 4.0


@dataclass(frozen=True)
class Teacher:
    """A frozen copy of the network to replace.

    Attributes:
        function: outputs of samples.
        network: the same, if it is a `DEQNet` or `ConvDEQNet`.
        cell: its cell, if it is known.
    """

    function: Callable[[Tensor], Any]
    network: EquilibriumNet | None
    cell: Cell | None

    @classmethod
    def of(cls, teacher: Any, X: Tensor, cell: Any, readout: Any, z0: Any) -> Teacher:
        """Copy a teacher, and its cell; modules are put in evaluation mode, functions are called as they are."""
        if isinstance(teacher, CellNet) and cell is None:
            cell, readout = teacher.cell, teacher.outputs_of
            z0 = teacher.readout.new_zeros(teacher.layer_size)
        try:
            # One copy of all: a cell that is a method of the teacher becomes a method of the copy.
            teacher, cell, readout, z0 = parts = copy.deepcopy((teacher, cell, readout, z0))
        except Exception as error:
            raise InputError(
                f"The teacher cannot be copied ({error}). Pass a function instead: distill(lambda X: teacher(X), X), "
                "with the teacher in evaluation mode."
            ) from error
        for part in parts:
            owner = part if isinstance(part, nn.Module) else getattr(part, "__self__", None)
            if isinstance(owner, nn.Module):
                owner.eval()
        if isinstance(teacher, EquilibriumNet | CellNet):
            teacher.on_failure = "ignore"
        if isinstance(teacher, EquilibriumNet):
            return cls(teacher, teacher, Cell.of_network(teacher))
        return cls(teacher, None, None if cell is None else _cell_of(cell, readout, z0, X))

    @torch.no_grad()
    def outputs(self, X: Tensor, report: Report) -> tuple[Tensor, Tensor]:
        """The outputs of all samples, (rows, outputs), and whether each one is finite and converged."""
        outputs, usable = [], []
        for start in range(0, len(X), BATCH):
            rows = X[start : start + BATCH]
            values = as_tensor(self.function(rows.clone()), "The teacher's output").detach()
            values = values[:, None] if values.ndim == 1 else values
            if values.ndim != 2 or len(values) != len(rows):
                raise InputError(
                    "The teacher must return a row of outputs for each sample, (rows, outputs); "
                    f"got {tuple(values.shape)} for {len(rows)} samples."
                )
            good = torch.isfinite(values).all(1)
            solve = self.function.last_solve if isinstance(self.function, Net) else None
            if solve is not None:
                good &= solve.residuals.to(good.device) <= solve.tolerance
            outputs.append(values.to(X))
            usable.append(good.to(X.device))
            report(start + len(rows), len(X), lambda: "teacher's outputs")
        good = torch.cat(usable)
        share = float(good.double().mean())
        if share < 0.5:
            raise ConvergenceError(
                f"The teacher has no converged, finite output for {1.0 - share:.0%} of the rows.",
                "Give its solver more steps or a looser tolerance, or scale X as in its training.",
            )
        return torch.cat(outputs), good


def _cell_of(step: Any, readout: Any, z0: Any, X: Tensor) -> Cell:
    """The cell of a module, called to see whether it fits and whether it holds its own weights."""
    if readout is None or (z0 is None and not isinstance(readout, nn.Linear)):
        raise InputError(
            "cell= needs readout=, from a state to the outputs, and z0=, the first state: a tensor of the shape of one "
            "state, or a function of the samples. z0 is zero if readout is a torch.nn.Linear and z0 is left out."
        )
    with torch.no_grad():
        cell = Cell(step, readout, z0, X[:2])
        state = cell.start(X[:2])
        following = cell(state, X[:2])
        if following.shape != state.shape:
            raise InputError(
                f"cell(z, x) must return a state like z: for z of shape {tuple(state.shape)} it returned "
                f"{tuple(following.shape)}."
            )
        used = _TensorsUsed([X, *cell.parameters(), *cell.buffers()])
        with used:
            cell.read(cell(cell.start(X[:2]), X[:2]))
    if used.others:
        shapes = ", ".join(str(shape) for shape in dict.fromkeys(tuple(one.shape) for one in used.others))
        raise InputError(
            f"cell=, readout= or z0= use tensors of shape {shapes} that belong to no module which was passed, so that "
            "the small network would share them with yours. Pass a module, or a method of the module that has these "
            "weights: cell=net.step, not lambda z, x: net.step(z, x)."
        )
    return cell


class _TensorsUsed(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Collects the tensors that operations read and that are neither known nor computed by them."""

    def __init__(self, known: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Tensors are kept, so that no other one gets their place in memory.
        self.known = {one.untyped_storage().data_ptr(): one for one in known}
        self.others: list[Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        read = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        result = func(*args, **(kwargs or {}))
        # A constant that is written in the function is new in every call.
        if func is not torch.ops.aten.lift_fresh.default:
            self.others += [one for one in read if one.untyped_storage().data_ptr() not in self.known]
        for one in tree_leaves(result):
            if isinstance(one, Tensor):
                self.known[one.untyped_storage().data_ptr()] = one
        return result


class Reach(NamedTuple):
    """How many steps of its cell a teacher takes.

    Attributes:
        own: steps after which further ones change its outputs by less than 1e-4.
        same: steps from which on at least 99.9 % of the samples have its answer.
        settles: whether more steps leave the outputs as they are, as those of an equilibrium.
    """

    own: int
    same: int
    settles: bool


@torch.no_grad()
def reach_of(cell: Cell, X: Tensor, Y: Tensor) -> Reach:
    """Measure on some samples how many steps of the cell give the teacher's outputs."""
    drive = cell.drive(X)
    z, errors, shares = cell.start(drive), list[float](), list[float]()
    # Half as many steps again as the best so far; errors may grow before they fall.
    while len(errors) < _LEAST_STEPS or len(errors) < min(_MOST_STEPS, 1.5 * errors.index(min(errors))):
        z = cell(z, drive)
        outputs = cell.linear(cell.read(z))
        error = relative_error(outputs, Y)
        errors.append(error if isfinite(error) else inf)
        shares.append(agreement(outputs, Y))
    close = 1.5 * min(errors) + _CLOSE
    own = next(k for k, error in enumerate(errors, 1) if error <= close)
    different = [k for k, share in enumerate(shares[:own], 1) if share < SAME]
    return Reach(own, min(own, max(different, default=0) + 1), errors[-1] <= 2.0 * close)


def read_samples(X: Any, teacher: Any) -> Tensor:
    """Copy the samples of an array, a tensor or a DataLoader to the precision and the device of the teacher."""
    if isinstance(X, DataLoader):
        X = _from_loader(X)
    if isinstance(teacher, EquilibriumNet | CellNet):
        return as_inputs(X, teacher, "X").clone()
    if not callable(teacher):
        raise InputError(
            "distill takes a DEQNet, a ConvDEQNet, any torch module or a function of samples as teacher; "
            f"got {type(teacher).__name__}."
        )
    values = as_tensor(X, "X").detach()
    if values.ndim < 2 or not values.numel():
        raise InputError(f"X must have samples in rows, or images; got shape {tuple(values.shape)}.")
    like = next(iter(teacher.parameters()), None) if isinstance(teacher, nn.Module) else None
    if like is not None and like.is_floating_point():
        values = values.to(like.device, like.dtype, copy=True)
    else:
        values = values.clone() if values.is_floating_point() else values.to(torch.float32)
    bad = int((~torch.isfinite(values).flatten(1).all(1)).sum())
    if bad:
        raise InputError(
            f"X has NaN or infinite entries in {bad} of {len(values)} samples. Remove or impute them."
        )
    return values


def _from_loader(loader: DataLoader[Any]) -> Tensor:
    """All samples of a DataLoader, the first entry of batches that are tuples; its generator is left as it was."""
    generator = loader.generator
    state = None if generator is None else generator.get_state()
    batches: Iterable[Any] = (one[0] if isinstance(one, list | tuple) else one for one in loader)
    samples = torch.cat([as_tensor(one, "A batch of X") for one in batches])
    if generator is not None and state is not None:
        generator.set_state(state)
    return samples


class Split(NamedTuple):
    """Samples with the teacher's outputs, in three parts that have no row in common.

    Attributes:
        train: rows that weights are fitted to.
        validation: rows that stop fits and put candidates in order.
        test: rows on which agreement is measured; neither a fit nor the order depends on them.
    """

    train: Part
    validation: Part
    test: Part


def split_rows(X: Tensor, Y: Tensor, usable: Tensor, seed: int, target_agreement: float) -> Split:
    """Split the usable rows at random; the closer the target is to 1, the more rows test."""
    places, outputs = usable.nonzero().squeeze(1), Y.shape[1]
    rows, needed = len(places), max(_FEWEST, 2 * outputs)
    if rows < needed:
        raise InputError(
            f"{rows} usable rows are too few to fit and test {outputs} outputs: give at least {needed}."
        )
    order = torch.randperm(rows, generator=torch.Generator().manual_seed(seed)).to(places.device)
    test = rows_for_tests(rows, target_agreement)
    validation = min(max(int(_VALIDATION * rows), 5), _MOST_VALIDATION_ROWS)
    sizes = [rows - validation - test, validation, test]
    parts = [(X[part], Y[part]) for part in torch.split(places[order], sizes)]
    for _, values in parts:
        _refuse_constant(values)
    return Split(*parts)


def rows_for_tests(rows: int, target_agreement: float) -> int:
    """How many of the usable rows test."""
    enough = max(ceil(_ENOUGH / max(1.0 - target_agreement, 1e-9)), int(_LEAST_TEST * rows))
    return min(enough, int(_MOST_TEST * rows))


def _refuse_constant(outputs: Tensor) -> None:
    """Refuse outputs that vary by rounding alone: errors are relative to their variation."""
    low, high = outputs.double().aminmax(dim=0)
    if bool((high - low <= _ROUNDING * torch.finfo(outputs.dtype).eps * high.abs().maximum(low.abs())).all()):
        raise InputError(
            f"The teacher's outputs are the same for {len(outputs)} random rows of X, so there is nothing to learn. "
            "Give more or other rows."
        )
