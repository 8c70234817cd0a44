"""Models whose step is an expression of `notsodeep.cells`: at its equilibrium, or after a number of steps."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from notsodeep.cells.cell_serial import cell_from_list, cell_to_list
from notsodeep.cells.expressions import Conv, Node
from notsodeep.cells.layouts import Layout
from notsodeep.cells.sample_terms import equilibrium_terms, loop_terms
from notsodeep.cells.structure import Cell
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import Activation
from notsodeep.gaussian.serial import activation_to_dict, mapping, number
from notsodeep.kernel_names import Kernel
from notsodeep.models.cell_programs import CellProgram
from notsodeep.models.cell_rows import CellRows
from notsodeep.models.cell_shorthands import model_of
from notsodeep.models.convolutional import as_images
from notsodeep.models.protocol import Model, Program, Samples, WriteActivation
from notsodeep.validation import Array, as_count, as_rows

# Norms at which the largest variance of a pre-activation is looked for, relative to the largest norm.
_NORMS = (1.0, 0.3, 0.1, 0.03)


class CellModel:
    """What the models of a cell have in common.

    Attributes:
        step: the cell.
        steps: how often it is applied; None for the equilibrium.
    """

    step: Node
    steps: int | None

    @cached_property
    def cell(self) -> Cell:
        """The checked structure of the cell."""
        return Cell(self.step, from_zero=self.steps is not None)

    @cached_property
    def shorthand(self) -> Model | None:
        """The compiled model with the same kernels, if there is one."""
        return model_of(self.step, self.steps)

    @property
    def activations(self) -> tuple[Activation, ...]:
        """The activations of the cell."""
        return self.cell.activations

    def check_samples(self, X: Any, name: str = "X") -> Array:
        """Samples as a C-contiguous float64 array: rows, images, or one row for each node of a graph."""
        if self.cell.samples != "images":
            return as_rows(X, name)
        sizes = [node.filter_size for node in self.cell.nodes if isinstance(node, Conv)]
        return as_images(X, name, max(sizes))

    def squared_norms(self, samples: Array) -> Array:
        """||x_i||² of every sample."""
        flat = samples.reshape(len(samples), -1)
        if self.shorthand is not None:
            return self.shorthand.squared_norms(samples)
        return np.asarray(np.einsum("ij,ij->i", flat, flat))

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> Program:
        """The program of the cell; that of a compiled model where the cell is one."""
        if self.cell.samples == "rows":
            if Kernel.NTK_PAPER in kernels and self.shorthand is None:
                raise InputError(
                    f"The kernel {Kernel.NTK_PAPER.value!r} is not defined for general cells: it is the papers', of a "
                    "DEQ. Use 'ntk'."
                )
            return CellRows(self.cell, self.steps, left, right, kernels)
        if self.shorthand is not None:
            return self.shorthand.prepare(left, right, kernels)
        for kernel in kernels:
            if kernel not in (Kernel.CK, Kernel.NTK):
                raise InputError(
                    f"The kernel {kernel.value!r} is not defined for general cells of images and graphs: use 'ck' "
                    "(conjugate_kernel) or 'ntk' (tangent_kernel)."
                )
        self._check_graph(left, right)
        return CellProgram(self.cell, self.steps, left, right, kernels)

    def _check_graph(self, left: Samples, right: Samples | None) -> None:
        nodes = self.cell.positions
        if nodes is not None and (right is not None or len(left.values) != nodes):
            raise InputError(
                f"A graph has one kernel, between all of its {nodes} nodes: X must have a row for each node, and there "
                f"is no Y; got {len(left.values)} rows."
            )

    def centred(self, tau0: float) -> Model:
        """Centring is for models with one activation: shift the activations of a cell with `Activation.shifted`."""
        if self.shorthand is not None:
            return self.shorthand.centred(tau0)
        raise InputError(
            "A general cell has no centred form: give it activations that are shifted, "
            "nsd.activation(name).shifted(-mean)."
        )

    def largest_variance(self, norm: float) -> float:
        """The largest variance of a pre-activation for inputs of norms up to `norm`."""
        if self.cell.samples != "rows":
            return norm**2 * sum(getattr(node, "variance", 0.0) for node in self.cell.nodes) + 1.0
        gram = (norm * np.array(_NORMS)).reshape(-1, 1, 1) ** 2
        try:
            terms = self._own_terms(gram)
        except ConvergenceError:
            return norm**2
        return max(float(values.max()) for values in terms.variances.values()) if terms.variances else norm**2

    def _own_terms(self, gram: Array) -> Any:
        layout = Layout("own")
        if self.steps is None:
            return equilibrium_terms(self.cell, layout, gram)[0]
        return loop_terms(self.cell, layout, gram, self.steps)[0]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CellModel) and self.to_dict(_by_value) == other.to_dict(_by_value)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.steps, str(self.step)))

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The model as plain JSON values; that of the shorthand where the cell is one."""
        raise NotImplementedError


def _by_value(phi: Activation) -> dict[str, Any]:
    """Activations themselves, for comparisons."""
    return {"activation": phi}


@dataclass(frozen=True, eq=False)
class Equilibrium(CellModel):
    """The network whose state is the fixed point of a cell, z = step(z, x), that iteration from z = 0 leads to.

    The state of a sample of zeros stays zero where nothing but the input starts it: a norm divides zero by one there.

    Args:
        step: the cell, an expression of `notsodeep.cells`; `cells.pool(step)` or `cells.flatten(step)` for images.
    """

    step: Node

    def __post_init__(self) -> None:
        _checked(self)

    @property
    def steps(self) -> None:  # type: ignore[override]
        """An equilibrium has no number of steps."""
        return

    def unrolled(self, depth: int) -> Loop:
        """The cell applied `depth` times from z = 0, with the same weights at each step."""
        return Loop(self.step, depth)

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The nodes of the cell as plain JSON values; the form of `DEQ`, `ConvDEQ` or `GraphDEQ` where it is one."""
        if self.shorthand is not None:
            return self.shorthand.to_dict(write)  # type: ignore[call-arg]
        return {"kind": "equilibrium", "nodes": cell_to_list(self.step, write)}

    @classmethod
    def from_dict(cls, data: Any) -> Equilibrium:
        """The model that `to_dict` wrote down."""
        return cls(cell_from_list(mapping(data, "a model", ("kind", "nodes"))["nodes"]))

    def __str__(self) -> str:
        return f"Equilibrium({self.step})"


@dataclass(frozen=True, eq=False)
class Loop(CellModel):
    """The network that applies a cell a number of times with the same weights, from z_0 = 0.

    Args:
        step: the cell, an expression of `notsodeep.cells`.
        steps: how often it is applied; 1 applies it once.
    """

    step: Node
    steps: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", as_count(self.steps, "steps"))
        _checked(self)

    def to_dict(self, write: WriteActivation = activation_to_dict) -> dict[str, Any]:
        """The nodes of the cell and the number of steps as plain JSON values; the shorthand's form where it has one."""
        if self.shorthand is not None:
            return self.shorthand.to_dict(write)  # type: ignore[call-arg]
        return {"kind": "loop", "nodes": cell_to_list(self.step, write), "steps": self.steps}

    @classmethod
    def from_dict(cls, data: Any) -> Loop:
        """The model that `to_dict` wrote down."""
        entry = mapping(data, "a model", ("kind", "nodes", "steps"))
        return cls(cell_from_list(entry["nodes"]), int(number(entry["steps"], "steps")))

    def __str__(self) -> str:
        return f"Loop({self.step}, steps={self.steps})"


def _checked(model: CellModel) -> None:
    """Refuse anything but a cell whose limit is Gaussian, before any work."""
    if not isinstance(model.step, Node):
        raise InputError(
            f"{type(model).__name__} takes a cell, an expression of notsodeep.cells such as "
            f"cells.activation(cells.dense(z, 0.5) + cells.dense(x, 0.5), 'tanh'); got {model.step!r}."
        )
    _ = model.cell


__all__ = ["CellModel", "Equilibrium", "Loop"]
