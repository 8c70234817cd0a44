"""Kernels of models in continuous time: a graph model whose graph is time (docs/theory.md, section 14).

The covariance of the states of two samples at two times solves Λ = b + σ_w² I F(Λ) Iᵀ on nodes in time, with the
integration matrix I in the place of the propagation matrix of a graph. Every sample is a block of nodes; two samples
are a field (times, times), all pairs of a tile are one tile of `duals.dual` whose rows are samples and times. A model
is a `NeuralODE`, or anything with its attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from notsodeep.duals.dual import Dual, DualEvidence
from notsodeep.errors import ConvergenceError
from notsodeep.kernel_names import Kernel
from notsodeep.models.field_equilibrium import evaluate
from notsodeep.models.programs import EntrywiseTile, RowProgram, is_kinked
from notsodeep.models.protocol import Samples
from notsodeep.models.spot_check import SpotCheck
from notsodeep.models.time_nodes import TimeNodes, euler_nodes, time_nodes, triangle_nodes
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

# Residual of Λ relative to √(Λ_ii Λ_jj), and change of linear fixed points, at which iterations stop.
TOLERANCE, LINEAR = 1e-13, 1e-14
# Residual that is accepted where rounding prevents smaller ones.
ROUNDED = 1e-11
MAX_STEPS, LINEAR_STEPS = 500, 1000
# Numbers of nodes that are tried, and the errors in time that are aimed at and accepted.
COUNTS, AIM, ACCEPTED = (4, 6, 8, 11, 15, 20, 27, 36, 48), 1e-11, 1e-3
# The error that is aimed at, and how many of these numbers are tried, for piecewise linear activations; the error for
# other activations with a kink, whose F is integrated pair by pair.
KINKED_AIM, KINKED_COUNTS, COARSE_AIM = 1e-9, 7, 1e-6
# The stated error in parts of the change of a few kernels with more nodes: other pairs may change more.
SAFETY = 3.0
# Factor by which the variances of one `Dual` extend beyond those that were seen; growth that is refused.
MARGIN, LIMIT = 4.0, 1e12
# Samples along each side of a tile.
SIDE = 64
# Cosines between samples for which the number of nodes is chosen: of the nearest and of the nearest that counts, and
# relative distance below which two samples are equal.
NEAR, NEAREST, EQUAL = 0.9, 0.99, 1e-14
REMEDY = "Shorten the duration, lower sigma_w2, or give the model a decay."


def mix(matrix: Array, fields: Array) -> Array:
    """M field Mᵀ for fields (n, times, m, times)."""
    n, rows, m, columns = fields.shape
    once = np.matmul(matrix, fields.reshape(n, rows, m * columns))
    return np.asarray((once.reshape(-1, columns) @ matrix.T).reshape(n, len(matrix), m, len(matrix)))


def reduce(weights: Array, fields: Array) -> Array:
    """Σ_ab w_a w_b field(a, b) for fields (n, times, m, times)."""
    return np.asarray(np.tensordot(fields @ weights, weights, axes=([1], [0])))


def linear_fixed_point(right: Array, move: Callable[[Array], Array], accuracy: float = LINEAR) -> Array:
    """Δ = right + move(Δ) by iteration; for integrals up to the present it always converges."""
    total = term = right
    for _ in range(LINEAR_STEPS):
        term = move(term)
        total = total + term
        if not np.abs(term).max() > accuracy * np.abs(total).max():
            break
    return total


def base_field(model: Any, nodes: TimeNodes) -> Array:
    """What an inner product of 1 gives without feedback, at two nodes; the last node is the end."""
    reach = np.append(nodes.integral.sum(axis=1), nodes.end.sum())
    return np.asarray(
        model.sigma_u2 * np.outer(nodes.fade, nodes.fade) + model.sigma_b2 * np.outer(reach, reach)
    )


def has_kink(model: Any) -> bool:
    """Whether the activation is piecewise linear and time continuous: one sample is solved on a `TriangleGrid`."""
    phi = model.activation
    return model.steps is None and phi.shape.pieces is not None and is_kinked(phi)


class SquareGrid:
    """One sample at two times, on all pairs of nodes."""

    def __init__(self, model: Any, nodes: TimeNodes) -> None:
        self.nodes, self.base = nodes, base_field(model, nodes)[:-1, :-1]

    def variances(self, covariance: Array) -> tuple[Array, Array]:
        """Variances at the first and at the second time, (samples, times) and with one more axis."""
        q = np.maximum(np.diagonal(covariance, axis1=1, axis2=2), 0.0)
        return q, q[:, None, :]

    def evaluate(self, dual: Dual, covariance: Array, value: Array, slope: Array) -> DualEvidence:
        """F and F' at all nodes."""
        q, own = self.variances(covariance)[0], np.arange(len(self.base))
        return evaluate(dual, dual.rows(q), dual.columns(q), covariance, value, slope, (own, own))

    def integrated(self, fields: Array) -> Array:
        """Integrals of fields up to both times."""
        moved = self.nodes.integral @ fields @ self.nodes.integral.T
        return np.asarray(0.5 * (moved + moved.swapaxes(1, 2)))

    def kernels(self, squares: Array, value: Array, slope: Array) -> tuple[Array, Array] | None:
        """CK of the samples with themselves, and what all weights but the readout add; None: as of other pairs."""
        return None


class TriangleGrid(SquareGrid):
    """One sample at two times, the second the earlier one: F of an activation with a kink is smooth there."""

    def __init__(self, model: Any, nodes: TimeNodes) -> None:
        self.model, self.grid = model, triangle_nodes(len(nodes.times), model.duration, model.decay)
        late, early = self.grid.late[:, None], self.grid.early
        self.base = self._base(late, early)
        # Variances that grow from zero are interpolated relative to those without feedback.
        self.units = [self._base(part, part) if model.sigma_u2 == 0.0 else 1.0 for part in (late, early)]

    def _base(self, one: Array, two: Array) -> Array:
        model, decay = self.model, self.model.decay
        reaches = [-np.expm1(-decay * part) / decay if decay else part for part in (one, two)]
        return np.asarray(
            model.sigma_u2 * np.exp(-decay * (one + two)) + model.sigma_b2 * reaches[0] * reaches[1]
        )

    def variances(self, covariance: Array) -> tuple[Array, Array]:
        """Variances at the later and at the earlier times, by interpolation."""
        unit = 1.0 if self.model.sigma_u2 else self.base
        relative = np.maximum((covariance / unit) @ self.grid.equal, 0.0)
        early = np.maximum(relative @ self.grid.earlier.T, 0.0).reshape(covariance.shape)
        return (relative[:, :, None] * self.units[0])[:, :, 0], early * self.units[1]

    def evaluate(self, dual: Dual, covariance: Array, value: Array, slope: Array) -> DualEvidence:
        """F and F' at all nodes."""
        late, early = self.variances(covariance)
        shape, none = (late.size, 1, len(self.base)), np.arange(0)
        left, right = dual.rows(late.reshape(-1, 1)), dual.columns(early.reshape(late.size, -1))
        bound = np.sqrt(late[:, :, None] * early)
        inside = np.clip(covariance, -bound, bound).reshape(shape)
        return evaluate(dual, left, right, inside, value.reshape(shape), slope.reshape(shape), (none, none))

    def integrated(self, fields: Array) -> Array:
        """Integrals of fields up to both times."""
        return (fields.reshape(len(fields), -1) @ self.grid.integral.T).reshape(fields.shape)

    def kernels(self, squares: Array, value: Array, slope: Array) -> tuple[Array, Array] | None:
        """(14.3) and (14.4) on the triangle; gradients on the triangle with time reversed."""
        model, grid, end = self.model, self.grid, np.full((1, 1), self.model.duration)
        flat, strength = (len(squares), -1), model.sigma_w2
        features = squares * self._base(end, end)[0, 0] + strength * (value.reshape(flat) @ grid.end)
        value, slope = (part.reshape(flat) @ grid.reversal.T for part in (value, slope))
        unit = np.exp(-model.decay * (grid.late[:, None] + grid.early)).reshape(1, -1)
        gradient = linear_fixed_point(
            np.broadcast_to(unit, value.shape), lambda term: strength * (term * slope) @ grid.integral.T
        )
        arrived = np.exp(-2.0 * model.decay * model.duration) + strength * (gradient * slope) @ grid.end
        inputs = model.sigma_u2 * arrived + model.sigma_b2 * (gradient @ grid.weights)
        return features, strength * (gradient * value) @ grid.weights + squares * inputs


def own_states(
    model: Any, nodes: TimeNodes, squares: Array, careful: bool = False
) -> tuple[Array, tuple[Array, Array] | None, DualEvidence]:
    """Λ_ii(t, t) of every sample, (samples, times), its own kernels if the grid has them, and how F was evaluated."""
    grid = TriangleGrid(model, nodes) if has_kink(model) else SquareGrid(model, nodes)
    base = squares[:, None, None] * grid.base
    covariance, largest, span, dual = base, np.inf, np.ones(2), Dual(model.activation, np.ones(1))
    limit = LIMIT * (1.0 + float(base.max(initial=0.0)))
    for _ in range(MAX_STEPS):
        seen = np.concatenate([part.ravel() for part in grid.variances(covariance)])
        seen = seen[seen > 0.0]
        if len(seen) and not span[0] <= seen.min() <= seen.max() <= span[1]:
            # Variances change from step to step: a range that serves most of them.
            span = np.array([seen.min() / MARGIN, seen.max() * MARGIN])
            dual = Dual(model.activation, span, covariance.size)
        dual.careful = careful
        value, slope = np.empty((2, *covariance.shape))
        evidence = grid.evaluate(dual, np.ascontiguousarray(covariance), value, slope)
        moved = base + model.sigma_w2 * grid.integrated(value)
        q, others = grid.variances(moved)
        change = np.abs(moved - covariance) / np.sqrt(np.maximum(q[:, :, None] * others, 1e-300))
        covariance = moved
        if not float(covariance.max(initial=0.0)) <= limit:
            break
        largest, before = float(change.max(initial=0.0)), largest
        if largest <= TOLERANCE or 0.5 * before <= largest <= ROUNDED:
            return q, grid.kernels(squares, value, slope), evidence
    raise ConvergenceError(
        f"The state of {model} grows beyond {limit:.1g} before the end, or {len(nodes.times)} nodes have no solution.",
        REMEDY,
    )


def solve_pairs(
    model: Any, nodes: TimeNodes, entering: Array, scale: Array, dual: Callable[[Array], tuple[Array, Array]]
) -> tuple[Array, Array, Array, float]:
    """Λ, F and F' of pairs of samples, and the residual; `dual` gives F and F' of Λ.

    By Newton's method, or by plain iteration where the slope of F has no bound at correlation 1.
    """
    covariance, strength, matrix, before = entering, model.sigma_w2, nodes.integral, np.inf
    for _ in range(MAX_STEPS):
        covariance = np.clip(covariance, -scale, scale)
        value, slope = dual(covariance)
        # On few nodes integrals may exceed √(Λ_ii Λ_jj) by their error.
        rest = np.clip(entering + strength * mix(matrix, value), -scale, scale) - covariance
        residual = float((np.abs(rest) / scale).max(initial=0.0))
        # Rounding may prevent residuals below the tolerance.
        if not residual > TOLERANCE or 0.5 * before <= residual <= ROUNDED or not np.isfinite(residual):
            return covariance, value, slope, residual
        before, gain = residual, strength * slope
        if not has_kink(model):
            # Newton's method squares the residual: more accuracy would be lost.
            rest = linear_fixed_point(rest, partial(_carried, matrix, gain), max(LINEAR, 0.1 * residual))
        covariance = covariance + rest
    raise ConvergenceError(
        f"The covariances of two samples did not converge: residual {residual:.2g}.", REMEDY
    )


def _carried(matrix: Array, gain: Array, fields: Array) -> Array:
    return mix(matrix, gain * fields)


def tangent_series(
    model: Any, nodes: TimeNodes, gram: Array, values: Array, slopes: Array,
    multiply: Callable[[Array, Array], Array] = np.multiply,
) -> Array:  # fmt: skip
    """What all weights but the readout give, (14.4), order by order for series along the first axis."""
    strength, matrix, last = model.sigma_w2, nodes.backward, nodes.fade[:-1][::-1]
    gradient, carried = np.zeros_like(values), partial(_carried, matrix, strength * slopes[0])
    source = np.broadcast_to(np.outer(last, last)[None, :, None, :], values.shape[1:])
    for power in range(len(values)):
        if power:
            source = strength * mix(matrix, multiply(gradient, slopes)[power])
        gradient[power] = linear_fixed_point(source, carried)
    arrived = strength * reduced(nodes.start, multiply(gradient, slopes))
    arrived[0] += nodes.fade[-1] ** 2
    inputs = model.sigma_u2 * arrived + model.sigma_b2 * reduced(nodes.weights, gradient)
    return np.asarray(strength * reduced(nodes.weights, multiply(gradient, values)) + multiply(gram, inputs))


def reduced(weights: Array, series: Array) -> Array:
    """`reduce` for every order of a series."""
    return np.array([reduce(weights, field) for field in series])


class TimeKernels:
    """All kernels of pairs of samples on given nodes in time.

    Args:
        model: the model.
        nodes: the nodes.
        rows: squared norms of the samples of the rows, followed by anchors.
        columns: the same of the columns; None for the same samples.
        tangent: whether tangent kernels are needed.
        careful: every pair is integrated by itself.
    """

    def __init__(
        self, model: Any, nodes: TimeNodes, rows: Array, columns: Array | None, tangent: bool,
        careful: bool = False,
    ) -> None:  # fmt: skip
        self.model, self.tangent, self.nodes, self.count = model, tangent, nodes, len(nodes.times)
        self.squares = rows, rows if columns is None else columns
        found = [own_states(model, nodes, part, careful) for part in (rows, columns) if part is not None]
        own, (_, self.own, self.evidence) = [part[0].reshape(1, -1) for part in found], found[0]
        self.dual = Dual(model.activation, np.concatenate(own, axis=1), own[0].size * own[-1].size)
        self.dual.careful = careful
        self.left = self.dual.rows(own[0])
        self.right = self.dual.columns_like(self.left) if columns is None else self.dual.columns(own[1])
        self.check = SpotCheck(model.activation, tangent)

    def error_growth(self) -> float:
        """How much an error of F, relative to √(S S'), grows on its way to the kernel, relative to √(K_ii K_jj)."""
        strength, nodes = self.model.sigma_w2, self.nodes
        roots = [np.sqrt(part[0]).reshape(-1, self.count) for part in (self.left.energy, self.left.steep)]
        sizes, slopes = (root[:, :, None, None] * root[:, None, None, :] for root in roots)
        carried = partial(_carried, nodes.integral, strength * slopes)
        moved = linear_fixed_point(strength * mix(nodes.integral, sizes), carried)
        grown = strength * reduce(nodes.end, sizes + slopes * moved)[:, 0]
        squares = self.left.variances[0].reshape(-1, self.count)[:, -1]
        return float((grown / squares).max(initial=0.0))

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The kernels of these samples from their inner products c."""
        model, nodes, count = self.model, self.nodes, self.count
        left, right = (
            side[part.start * count : part.stop * count]
            for side, part in ((self.left, rows), (self.right, columns))
        )
        base, flat = base_field(model, nodes), (1, left.count, right.count)
        entering = c[:, None, :, None] * base[None, :-1, None, :-1]
        own, evidence = np.arange(left.count if diagonal and self.own is None else 0), self.evidence

        def dual(covariance: Array) -> tuple[Array, Array]:
            nonlocal evidence
            value, slope = np.empty((2, *covariance.shape))
            field = covariance.reshape(flat)
            field[:, own, own] = np.where(left.silent, 0.0, left.variances)[:, own]
            evaluated = evaluate(
                self.dual, left, right, field, value.reshape(flat), slope.reshape(flat), (own, own)
            )
            evidence = self.evidence.merge(evaluated)
            return value, slope

        scale = (left.root[0][:, None] * right.root[0]).reshape(entering.shape)
        covariance, value, slope, residual = solve_pairs(model, nodes, entering, scale, dual)
        fields = [part.reshape(flat) for part in (covariance, value, slope)]
        self.check.add(left, right, fields[0], fields[1], fields[2], rows.start + 3 * columns.start)
        features = base[-1, -1] * c + model.sigma_w2 * reduce(nodes.end, value)
        parts = [features]
        if self.tangent:
            parts.append(tangent_series(model, nodes, c[None], value[None], slope[None])[0])
        if self.own is not None:
            i, j = np.nonzero(equal_samples(c, self.squares[0][rows], self.squares[1][columns]))
            for part, own_kernel in zip(parts, self.own, strict=False):
                part[i, j] = own_kernel[rows][i]
        kernels = {Kernel.CK: features, Kernel.CK_PREACTIVATIONS: features}
        if self.tangent:
            kernels |= {Kernel.NTK: features + parts[1], Kernel.NTK_PREACTIVATIONS: parts[1]}
        methods = (*evidence.methods, f"{count} nodes in time")
        return EntrywiseTile(
            kernels, KernelInfo(0, residual, evidence.error, evidence.fallback_pairs, methods)
        )


def equal_samples(c: Array, rows: Array, columns: Array) -> Array:
    """Whether two samples are equal up to rounding, from inner products and squared norms."""
    distance = rows[:, None] + columns - 2.0 * c
    return np.asarray(distance <= EQUAL * np.minimum(rows[:, None], columns))


class TimeProgram(RowProgram):
    """The kernels of a model in continuous time, on as many nodes as its samples need, or on Euler's."""

    tile_side = SIDE

    def __init__(self, model: Any, left: Samples, right: Samples | None, tangent: bool) -> None:
        super().__init__(left, right)
        self.model, self.tangent = model, tangent
        squares, others = self.squares
        norms = squares if others is None else np.concatenate([squares, others])
        if model.steps is None:
            cosines = self._cosines() if has_kink(model) else (-1.0, 1.0)
            count, self.time_error, self.growth = nodes_needed(model, norms, tangent, cosines)
            self.nodes = time_nodes(count, model.duration, model.decay)
        else:
            self.time_error, self.growth = 0.0, 1.0
            self.nodes = euler_nodes(model.steps, model.duration, model.decay)
        self._start_kernels(careful=False)

    def _cosines(self) -> tuple[float, float]:
        """The smallest and the largest cosine between two samples that are not equal."""
        squares, others = self.squares
        rows, columns = (
            squares[: len(self._gram)],
            (squares if others is None else others)[: self._gram.shape[1]],
        )
        scale = np.sqrt(np.maximum(np.outer(rows, columns), 1e-300))
        cosines = np.where(equal_samples(self._gram, rows, columns), 0.0, self._gram) / scale
        return max(float(cosines.min(initial=0.0)), -1.0), min(float(cosines.max(initial=0.0)), 1.0)

    def _start_kernels(self, careful: bool) -> None:
        self.kernels = TimeKernels(self.model, self.nodes, *self.squares, self.tangent, careful)
        self.checks = [self.kernels.check]

    def integrate_all_pairs(self) -> None:
        """Compute F of every pair by quadrature."""
        self._start_kernels(careful=True)

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The kernels of a tile; their error bound includes that of the nodes in time."""
        tile, phi = self.kernels.tile(start, rows, columns, diagonal=diagonal), self.model.activation
        error = self.time_error + self.growth * (tile.info.error_bound + tile.info.residual)
        info = replace(tile.info, error_bound=error).with_caveat(phi.caveat, phi.shape.inaccuracy)
        return EntrywiseTile(tile.kernels, info)


def nodes_needed(
    model: Any, squares: Array, tangent: bool, cosines: tuple[float, float] = (-1.0, NEAR)
) -> tuple[int, float, float]:
    """The number of nodes in time, the error that it leaves, and the growth of errors of F.

    The error is the change of the kernels of a few samples with extreme norms when more nodes are taken. Kernels of
    nearly parallel samples have nearly a kink at equal times if the activation has one: the number of nodes is chosen
    for cosines up to `NEAREST`, and nearer samples have a larger error.

    Args:
        model: the model.
        squares: squared norms of the samples.
        tangent: whether tangent kernels are needed.
        cosines: the smallest and the largest cosine between two samples.
    """
    seen = squares[squares > 0.0]
    if not len(seen):
        return COUNTS[0], 0.0, 1.0
    roots, kinked = np.sqrt(np.geomspace(seen.min(), seen.max(), 3)), has_kink(model)
    far, near = min(cosines[0], -0.5), min(max(cosines[1], NEAR), NEAREST) if kinked else 1.0
    probes, tried = _probes(roots, far, near), COUNTS[: KINKED_COUNTS if kinked else None]
    counts, before, growth, error = [COUNTS[0]], None, 1.0, np.inf
    aim = KINKED_AIM if kinked else (COARSE_AIM if is_kinked(model.activation) else AIM)
    for count in tried:
        try:
            after, after_growth = _probe_kernels(model, count, probes, tangent)
        except ConvergenceError:
            # The equation on few nodes may have no solution.
            if count == tried[-1]:
                raise
            continue
        error = np.inf if before is None else _change(before, after)
        if error <= aim:
            break
        before, growth = after, after_growth
        counts.append(count)
    if not error <= ACCEPTED:
        raise ConvergenceError(
            f"{counts[-1]} nodes in time leave a relative error of {error:.1g} in the kernels of {model}.",
            "Shorten the duration, lower sigma_w2 or the decay.",
        )
    if kinked and cosines[1] > NEAREST:
        probes = _probes(roots, far, cosines[1])
        last = [_probe_kernels(model, count, probes, tangent)[0] for count in counts[-2:]]
        error = max(error, _change(*last))
    return counts[-1], SAFETY * error, growth


def _probes(roots: Array, far: float, near: float) -> Array:
    """Samples of three norms in several directions, with these cosines between the farthest and the nearest."""
    turns = np.arccos(near) * np.array([0.0, 1.0, 2.0, 3.0, -1.0, -2.0])
    angles = np.concatenate([turns, [np.arccos(far), -0.5 * np.pi]])
    return np.asarray(
        roots[[0, 0, 1, 1, 2, 2, 0, 2], None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    )


def _probe_kernels(model: Any, count: int, probes: Array, tangent: bool) -> tuple[Array, float]:
    """The kernels of the probes, and the growth of errors of F."""
    everything, gram = slice(0, len(probes)), probes @ probes.T
    nodes = time_nodes(count, model.duration, model.decay)
    kernels = TimeKernels(model, nodes, np.diag(gram).copy(), None, tangent)
    tile = kernels.tile(gram, everything, everything, diagonal=True)
    names = (Kernel.CK, Kernel.NTK) if tangent else (Kernel.CK,)
    return np.array([tile.kernel(name) for name in names]), kernels.error_growth()


def _change(before: Array, after: Array) -> float:
    """The largest change of a kernel relative to √(K_ii K_jj)."""
    root = np.sqrt(np.maximum(np.diagonal(after, axis1=1, axis2=2), 1e-300))
    return float((np.abs(after - before) / (root[:, :, None] * root[:, None, :])).max())


__all__ = [
    "TimeKernels",
    "TimeProgram",
    "base_field",
    "linear_fixed_point",
    "mix",
    "nodes_needed",
    "own_states",
    "reduced",
    "solve_pairs",
    "tangent_series",
]
