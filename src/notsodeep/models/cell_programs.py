"""Tiles of the kernels of cells of images and graphs, whose positions are coupled: by plain iteration."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

import numpy as np

from notsodeep.cells.layouts import Layout
from notsodeep.cells.rates import growth_of, raise_growth
from notsodeep.cells.sample_terms import cut_nodes, equilibrium_terms, loop_terms, settle_exceptions
from notsodeep.cells.second_moments import Moments, SampleTerms, Vector
from notsodeep.cells.structure import Cell
from notsodeep.duals.dual import Dual, DualEvidence
from notsodeep.duals.sides import Side
from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.kernel_names import Kernel
from notsodeep.models.programs import EntrywiseTile, slope_rounding
from notsodeep.models.protocol import Samples
from notsodeep.models.spot_check import SpotCheck
from notsodeep.models.tiling import mirror_lower
from notsodeep.results import KernelInfo
from notsodeep.validation import Array

# Steps of plain iteration, and the relative change at which it ends.
PLAIN_STEPS, SETTLED = 5000, 2e-14
# Samples on a side of a tile: images are computed in smaller ones.
STACKED_SIDE, PAIRED_ENTRIES = 64, 1 << 20


@dataclass
class _Tile:
    """One rectangle of pairs while it is computed."""

    rows: slice
    columns: slice
    diagonal: bool
    left: SampleTerms
    right: SampleTerms
    gram: Array
    evidence: DualEvidence = field(default_factory=DualEvidence)
    turned: float = 0.0


class CellProgram:
    """A cell prepared for two sets of samples.

    Args:
        cell: the cell.
        steps: how often it is applied; None for the equilibrium.
        left: samples of the rows.
        right: samples of the columns; None for the same.
        kernels: the kernels to compute.
        ends: of a loop, the steps after which rows and columns are read; both after the last if not given.
    """

    def __init__(
        self,
        cell: Cell,
        steps: int | None,
        left: Samples,
        right: Samples | None,
        kernels: tuple[Kernel, ...],
        ends: tuple[int, int] | None = None,
    ) -> None:
        self.cell, self.steps, self.kernels = cell, steps, kernels
        self.tangent = any(kernel.is_tangent for kernel in kernels)
        self.samples = left.values, (right or left).values
        self.symmetric = right is None
        self.positions = left.values.shape[2:] if cell.samples == "images" else ()
        self.layout = self._layout()
        self.cuts = [] if steps is not None else cut_nodes(cell)
        self.solved: list[tuple[SampleTerms, dict[int, Array]]] = []
        for values in self.samples[: 1 if self.symmetric else 2]:
            self.solved.append(self._terms(values))
        if self.symmetric:
            self.solved.append(self.solved[0])
        last = 1 if steps is None else steps
        self.ends: tuple[Vector, ...] = tuple((cell.last, end - 1) for end in ends or (last, last))
        self._prepare_duals()
        self.checks = list(self._checks.values())
        count = prod(self.positions)
        self.tile_side = {"graph": len(left.values), "stacked": STACKED_SIDE}.get(
            self.layout.kind, max(1, int(PAIRED_ENTRIES**0.5) // max(count, 1))
        )

    def _layout(self) -> Layout:
        if self.cell.samples == "images":
            return Layout("paired" if self.cell.readout == "pool" else "stacked", self.positions)
        return Layout(self.cell.samples)

    def _terms(self, values: Array) -> tuple[SampleTerms, dict[int, Array]]:
        """What is known of samples one by one, in the layout of pairs, and second moments of the cut nodes."""
        graph = self.cell.samples == "graph"
        own = self.layout if graph else Layout("own", self.positions)
        gram = own.gram(values, values)
        if self.steps is not None:
            terms, unknown = loop_terms(self.cell, own, gram, self.steps)[0], {}
        else:
            terms, moments = equilibrium_terms(self.cell, own, gram)
            unknown = {cut: moments.expanded((cut, 0), (cut, 0)) for cut in self.cuts}
            if self.tangent:
                raise_growth(growth_of(self.cell, own, terms, moments))
        if graph:
            return terms.arranged((1, len(values)), np.ascontiguousarray), unknown
        count, number = max(prod(self.positions), 1), len(values)

        def arrange(flat: Array) -> Array:
            field_values = flat.reshape(count, number)
            if self.layout.kind == "paired":
                return np.ascontiguousarray(field_values.T).reshape(1, -1)
            return np.ascontiguousarray(field_values)

        shape = (count * number, 1)
        variances = {cut: arrange(part[:, :, 0]) for cut, part in unknown.items()}
        return terms.arranged(shape, arrange), variances

    def _prepare_duals(self) -> None:
        """One engine for each activation, over all variances that occur."""
        vectors: dict[Activation, set[Vector]] = {}
        for factors in self.cell.factors.values():
            for factor in factors:
                if not factor.is_linear:
                    for vector in self.solved[0][0].variances:
                        if vector[0] == factor.argument:
                            vectors.setdefault(factor.phi, set()).add(vector)
        self._checks, self._duals = {}, {}
        self._sides: dict[tuple[Activation, Vector, bool], Side] = {}
        self._lock = threading.Lock()
        for phi, places in vectors.items():
            values = [terms.variances[place].reshape(-1) for terms, _ in self.solved for place in places]
            pairs = prod(len(samples) for samples in self.samples) * max(prod(self.positions), 1)
            self._duals[phi] = Dual(phi, np.concatenate(values), pairs=pairs * len(places))
            self._checks[phi] = SpotCheck(phi, self.tangent, tolerance=0.0)

    def integrate_all_pairs(self) -> None:
        """Compute F of every pair by quadrature."""
        for dual in self._duals.values():
            dual.careful = True

    def start(self) -> Array:
        """The Gram matrix of a graph; an empty array of the shape of the kernel for images."""
        if self.layout.kind == "graph":
            return np.asarray(self.samples[0] @ self.samples[1].T)
        return np.empty((len(self.samples[0]), len(self.samples[1])))

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The kernels of a rectangle of pairs."""
        if self.layout.kind == "graph":
            gram = c[None]
        else:
            gram = self.layout.gram(self.samples[0][rows], self.samples[1][columns])
        count = prod(self.positions) if self.layout.kind == "paired" else 1
        parts = [slice(part.start * count, part.stop * count) for part in (rows, columns)]
        tile = _Tile(
            parts[0],
            parts[1],
            diagonal,
            self.solved[0][0].part(parts[0]),
            self.solved[1][0].part(parts[1]),
            gram,
        )
        moments, tangents, info = self._solve(tile)
        kernels = {Kernel.CK: self._read(moments.expanded(*self.ends), diagonal)}
        if self.tangent:
            moments.tangents = dict(tangents)
            for ends in self._earlier_ends():
                learnt = moments.expanded_tangent(*ends)
            kernels[Kernel.NTK] = kernels[Kernel.CK] + self._read(learnt, diagonal)
        return EntrywiseTile(kernels, info)

    def _earlier_ends(self) -> Iterator[tuple[Vector, Vector]]:
        """The states that lead to the ends, step by step, because moments call those of the step before."""
        (node, one), (_, two) = self.ends
        for back in range(min(one, two), -1, -1):
            yield (node, one - back), (node, two - back)

    def _read(self, field_values: Array, diagonal: bool) -> Array:
        """What the readout makes of second moments of states."""
        if self.layout.kind == "stacked":
            kernel = field_values.mean(axis=0)
        elif self.layout.kind == "paired":
            count = prod(self.positions)
            rows, columns = (length // count for length in field_values.shape[1:])
            kernel = field_values.reshape(rows, count, columns, count).mean(axis=(1, 3))
        else:
            kernel = field_values[0].copy()
        if diagonal:
            mirror_lower(kernel)
        return np.ascontiguousarray(kernel)

    # --- the equations of pairs ---------------------------------------------------------------------------------------

    def _moments(self, tile: _Tile, unknown: Mapping[int, Array], note: bool = False) -> Moments:
        def dual(phi: Activation, one: Vector, two: Vector, covariance: Array) -> tuple[Array, Array]:
            return self._dual(tile, phi, one, two, covariance, note)

        return Moments(self.cell, self.layout, tile.left, tile.right, tile.gram, dual, unknown)

    def _dual(
        self, tile: _Tile, phi: Activation, one: Vector, two: Vector, covariance: Array, note: bool
    ) -> tuple[Array, Array]:
        """F and F' for a tile; `note` keeps pairs for the spot check."""
        left, right = self._side(phi, one, tile.rows, 0), self._side(phi, two, tile.columns, 1)
        value, slope = np.empty(covariance.shape), np.empty(covariance.shape)
        bound = left.root[:, :, None] * right.root[:, None, :]
        c = np.ascontiguousarray(np.clip(covariance, -bound, bound))
        if tile.diagonal and one == two:
            place = np.arange(c.shape[1])
            c[:, place, place] = bound[:, place, place]
        evidence = self._duals[phi].tiles(left, right, c, value, slope)
        tile.evidence = tile.evidence.merge(evidence)
        settle_exceptions(left, right, value, slope, diagonal=tile.diagonal and one == two)
        if note:
            if self.tangent:
                mirrored = tile.diagonal and one == two
                turned = slope_rounding(self._duals[phi], left, right, c, diagonal=mirrored)
                tile.turned = max(tile.turned, turned)
            self._checks[phi].add(left, right, c, value, slope, tile.rows.start + 3 * tile.columns.start)
        return value, slope

    def _side(self, phi: Activation, vector: Vector, part: slice, which: int) -> Side:
        variances, dual = self.solved[which][0].variances[vector], self._duals[phi]
        prepare = dual.columns if which else dual.rows
        if self.layout.kind == "paired":
            return prepare(np.ascontiguousarray(variances[:, part]))
        key = phi, vector, bool(which)
        with self._lock:
            if key not in self._sides:
                self._sides[key] = prepare(np.ascontiguousarray(variances))
        return self._sides[key][part]

    def _solve(self, tile: _Tile) -> tuple[Moments, dict[int, Array], KernelInfo]:
        """The moments at the solution, tangent moments of the cut nodes, and the evidence."""
        if not self.cuts:
            moments = self._moments(tile, {}, note=True)
            for ends in self._earlier_ends():
                moments.expanded(*ends)
            return moments, {}, self._info(tile, 0, 0.0, 0.0)
        return self._iteration(tile)

    def _bounds(self, tile: _Tile) -> dict[int, Array]:
        """√(q q') of the cut nodes."""
        bounds = {}
        for cut in self.cuts:
            left, right = (
                self._cut_variances(0, cut)[:, tile.rows],
                self._cut_variances(1, cut)[:, tile.columns],
            )
            bounds[cut] = np.sqrt(np.maximum(left[:, :, None] * right[:, None, :], 0.0))
        return bounds

    def _cut_variances(self, which: int, cut: int) -> Array:
        part = self.solved[which][1][cut]
        return np.diagonal(part, axis1=1, axis2=2) if self.cell.samples == "graph" else part

    def _iteration(self, tile: _Tile) -> tuple[Moments, dict[int, Array], KernelInfo]:
        """Plain iteration, where filters or a graph couple the positions."""
        bounds = self._bounds(tile)
        if self.cell.samples == "graph":
            unknown = dict(self.solved[0][1])
        else:
            unknown = {cut: np.zeros(tile.gram.shape) for cut in self.cuts}
        before, rate = np.inf, 0.0
        for step in range(1, PLAIN_STEPS + 1):  # noqa: B007
            tile.evidence = DualEvidence()
            moments = self._moments(tile, unknown)
            fresh = {cut: moments.expanded((cut, 0), (cut, 0)) for cut in self.cuts}
            largest = _largest(fresh, unknown, bounds)
            rate = largest / before if before < np.inf and largest > 1e-12 else rate
            unknown, stuck = fresh, largest < 1e-12 and largest >= 0.5 * before
            before = largest
            if largest <= SETTLED or stuck or not np.isfinite(largest):
                break
        else:
            raise ConvergenceError(
                f"The covariances did not settle within {PLAIN_STEPS} steps; the last change was {largest:.2g}.",
                "Lower the variances of the weights: the cell is close to losing its equilibrium.",
            )
        moments = self._moments(tile, unknown, note=True)
        tangents: dict[int, Array] = {}
        if self.tangent:
            tangents = self._iterated_tangents(moments)
        else:
            moments.expanded(*self.ends)
        return moments, tangents, self._info(tile, step, largest, min(rate, 1.0))

    def _iterated_tangents(self, moments: Moments) -> dict[int, Array]:
        tangents = {cut: np.zeros(moments.gram.shape) for cut in self.cuts}
        before = np.inf
        for _ in range(PLAIN_STEPS):
            moments.forget_tangents()
            moments.tangents = tangents
            fresh = {cut: moments.expanded_tangent((cut, 0), (cut, 0)) for cut in self.cuts}
            size = max(float(np.abs(part).max()) for part in fresh.values())
            largest = max(float(np.abs(fresh[cut] - tangents[cut]).max()) for cut in self.cuts) / max(
                size, 1e-300
            )
            tangents = fresh
            if largest <= SETTLED or (largest < 1e-12 and largest >= 0.5 * before):
                moments.forget_tangents()
                return tangents
            if not np.isfinite(largest) or size > 1e15:
                break
            before = largest
        raise ConvergenceError(
            "The tangent kernel of the cell diverges: its derivatives grow from step to step.",
            "Lower the variances of the weights that read the state; `forecast` says by how much.",
        )

    def _info(self, tile: _Tile, steps: int, residual: float, rate: float) -> KernelInfo:
        evidence, margin = tile.evidence, max(1.0 - rate, 1e-9)
        # An error of one activation passes through all that follow.
        count = max(len(self.cell.factors), 1) * (self.steps or 1)
        error = (count * (evidence.error + 4e-16 + tile.turned / margin) + residual) / margin
        info = KernelInfo(steps, residual, error, evidence.fallback_pairs, evidence.methods)
        for phi in self.cell.activations:
            info = info.with_caveat(phi.caveat, phi.shape.inaccuracy / margin) if phi.caveat else info
        return info


def _largest(new: dict[int, Array], old: dict[int, Array], bounds: dict[int, Array]) -> float:
    """The largest change relative to √(q q')."""
    return max(float((np.abs(new[k] - old[k]) / np.maximum(bounds[k], 1e-300)).max()) for k in new)


__all__ = ["CellProgram"]
