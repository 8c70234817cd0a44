"""Networks of cells, at the equilibrium of the cell or after a number of steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from notsodeep.cells.expressions import Bias
from notsodeep.errors import InputError
from notsodeep.models import GraphDEQ
from notsodeep.models.cell_models import Equilibrium, Loop
from notsodeep.models.cell_shorthands import expression_of
from notsodeep.nets.cell_equilibrium import CellSolver, cell_adjoint, cell_equilibrium, cell_solution
from notsodeep.nets.cell_expression import ExpressionNet, Use
from notsodeep.nets.connections import Connection
from notsodeep.nets.equilibrium import ON_FAILURE
from notsodeep.nets.fixed_point_solvers import SolverOptions, as_solver_options
from notsodeep.nets.modules import Net, network_of
from notsodeep.nets.weight_groups import TiedGroup, WeightGroup
from notsodeep.validation import one_of


class CellNet(ExpressionNet):
    """The network of a cell with finitely many units; outputs readout · z/√m.

    The equilibrium is solved sample by sample and has the gradient of the implicit function theorem; a loop is unrolled
    from z = 0.

    Args:
        spec: an `Equilibrium`, a `Loop`, or another model that is the equilibrium of a cell.
        sample_shape: shape of one sample: (features,) for rows, (channels, height, width) for images.
        width: m; of images channels.
        out_features: number of outputs.
        solver: solver of the forward pass; not used by a loop.
        adjoint: solver of the backward pass; the same if not given.
        on_failure: "raise", "warn" or "ignore" when a sample does not converge; `last_solve` always has the residuals.
        options: seed, and keyword arguments of `Net`: train, scaling, dtype, device, output_scale.

    Attributes:
        steps: number of steps of a loop; None for an equilibrium.
    """

    def __init__(
        self,
        spec: Any,
        sample_shape: Sequence[int],
        width: int,
        out_features: int,
        *,
        solver: SolverOptions | None = None,
        adjoint: SolverOptions | None = None,
        on_failure: str = "raise",
        **options: Any,
    ) -> None:
        super().__init__(expression_of(spec), sample_shape, width, out_features, **options)
        self.spec, self.steps = spec, getattr(spec, "steps", None)
        forward = as_solver_options(solver, "solver")
        self._options = forward, as_solver_options(adjoint, "adjoint", forward)
        self.on_failure = one_of(on_failure, ON_FAILURE, "on_failure")

    def cell(self, z: Tensor, X: Tensor) -> Tensor:
        """Evaluate the cell at any state z, (rows, layer_size), with coordinates of order one; differentiable."""
        return self._step(z, self._drive(self._rows(X)))

    def states(self, X: Tensor) -> Tensor:
        """The equilibrium, or the state after the last step, (rows, layer_size); of images, channel by channel."""
        rows = self._rows(X)
        # Under autocast too an equilibrium is solved in the precision of the weights: half of it would not converge.
        with torch.autocast(rows.device.type, enabled=False):
            drive = self._drive(rows)
            return self._settled(drive) if self._has_equilibrium else self._unrolled(drive)

    @property
    def _has_equilibrium(self) -> bool:
        """Whether there is an equation to solve: a cell that does not read the state is evaluated once."""
        return self.steps is None and self._reads_state[-1]

    def _unrolled(self, drive: Tensor, uses: list[Use] | None = None) -> Tensor:
        z = drive.new_zeros(len(drive), self.layer_size)
        for _ in range(1 if self.steps is None else self.steps):
            z = self._step(z, drive, uses=uses)
        return z

    def _solved_step(self, z: Tensor, drive: Tensor, weights: Sequence[Tensor]) -> Tensor:
        """One step of the rows that the solver sees: samples, or whole graphs."""
        if self.graph_size is None:
            return self._step(z, drive, weights)
        nodes = len(z) * self.graph_size
        return self._step(z.reshape(nodes, -1), drive.reshape(nodes, -1), weights).reshape(z.shape)

    def _solver_rows(self, values: Tensor) -> Tensor:
        """Values of samples as rows of the solver: those of the nodes of a graph are one."""
        return values if self.graph_size is None else values.reshape(1, -1)

    def _settled(self, drive: Tensor) -> Tensor:
        z = cell_equilibrium(self._solver_rows(drive), self.stored_weights(), self._settings)
        return z.reshape(len(drive), -1)

    def features(self, X: Tensor) -> Tensor:
        """z/√m for every sample, as it is read out, (rows, width)."""
        return self.read_state(self.states(X))

    def read_state(self, z: Tensor) -> Tensor:
        """Return z/√m as it is read out."""
        return self.connection.read(z) / sqrt(self.units)

    def outputs_of(self, z: Tensor) -> Tensor:
        """Return the outputs of any state, (rows, layer_size)."""
        return self.outputs(self.read_state(z))

    @property
    def _settings(self) -> CellSolver:
        keep = [partial(setattr, self, name) for name in ("last_solve", "last_adjoint")]
        size = self.layer_size * (self.graph_size or 1)
        return CellSolver(self._solved_step, size, *self._options, self.on_failure, *keep)

    def check_shape(self, shape: Sequence[int], name: str = "X") -> None:
        """Raise an error unless samples have the shape (n, *sample_shape), and a graph all of its nodes."""
        super().check_shape(shape, name)
        if self.graph_size is not None and shape[0] != self.graph_size:
            raise InputError(
                f"{name} must have a row for each of the {self.graph_size} nodes of the graph; got {shape[0]} rows."
            )

    @property
    def coupled_samples(self) -> bool:
        """Whether samples depend on each other, as the nodes of a graph do."""
        return self.graph_size is not None

    # --- tangent kernels ------------------------------------------------------------------------------------------

    def weight_groups(self, X: Tensor) -> Iterator[WeightGroup | TiedGroup]:
        """The weights of all nodes, with the adjoint of the equilibrium or of the loop; then the readout."""
        uses: list[Use] = []
        with torch.enable_grad():
            drive = self._drive(self._rows(X), uses)
            if self._has_equilibrium:
                # The gradient is that of one step at the equilibrium.
                z = cell_solution(self._solver_rows(drive), self.stored_weights(), self._settings)
                z = self._step(z.detach().reshape(len(drive), -1).requires_grad_(), drive, uses=uses)
            else:
                z = self._unrolled(drive, uses)
        backs = self._gradients(z, drive.detach(), uses)
        for number, (_, connection, rate) in self._weights.items():
            groups: list[WeightGroup] = []
            for use, back in zip(uses, backs, strict=True):
                if use.number == number:
                    groups.extend(self._groups_of(number, connection, use.signal, back, rate))
            if groups:
                yield groups[0] if len(groups) == 1 else TiedGroup(tuple(groups))
        yield WeightGroup(self.read_state(z.detach()), None, self.output_scale**2)

    def _gradients(self, z: Tensor, drive: Tensor, uses: list[Use]) -> list[Tensor]:
        """The derivative of every output in the product of each use, (outputs, rows, units × positions).

        Of a graph (outputs, rows, nodes, units): the output of a node depends on what the weights make of all nodes.
        """
        readout = self.connection.read_back(self.factors["readout"] * self.readout.detach()) / sqrt(
            self.units
        )
        nodes = range(self.graph_size or 0)
        columns: list[list[Tensor]] = [[] for _ in uses]
        for row in readout:
            for place in nodes if self.coupled_samples else [slice(None)]:
                cotangent = torch.zeros_like(z)
                cotangent[place] = row
                arrived = self._adjoint(z.detach(), drive, cotangent)
                products = [use.product for use in uses]
                parts = torch.autograd.grad(z, products, arrived, retain_graph=True, materialize_grads=True)
                for column, part in zip(columns, parts, strict=True):
                    column.append(part)
        stacks = [torch.stack(column) for column in columns]
        if not self.coupled_samples:
            return stacks
        return [stack.reshape(len(readout), len(nodes), *stack.shape[1:]) for stack in stacks]

    def _adjoint(self, z: Tensor, drive: Tensor, cotangent: Tensor) -> Tensor:
        """What arrives at the image of the last step."""
        if not self._has_equilibrium:
            return cotangent
        rows = [self._solver_rows(value) for value in (z, drive, cotangent)]
        return cell_adjoint(rows[0], rows[1], rows[2], self.stored_weights(), self._settings).reshape(z.shape)

    def _groups_of(
        self, number: int, connection: Connection, signal: Tensor, back: Tensor, rate: float
    ) -> list[WeightGroup]:
        """The groups of one use of weights: one, or for a graph one for each of its nodes."""
        pairs = [(signal, back)]
        if self.coupled_samples:
            rows = range(len(signal))
            pairs = [(signal[node].expand(len(signal), -1), back[:, :, node]) for node in rows]
        if isinstance(self.nodes[number], Bias):
            return [connection.bias_group(part, rate) for _, part in pairs]
        return [connection.group(seen, part, rate) for seen, part in pairs]


@network_of.register(Equilibrium)
@network_of.register(Loop)
@network_of.register(GraphDEQ)
def _(
    spec: Equilibrium | Loop | GraphDEQ,
    sample_shape: Sequence[int],
    width: int,
    out_features: int,
    **options: Any,
) -> Net:
    if options.pop("contractive", False):
        raise InputError("contractive is for DEQNet and ConvDEQNet: a cell has no such bound.")
    return CellNet(spec, sample_shape, width, out_features, **options)


__all__ = ["CellNet"]
