"""Programs of convolutional models: kernels of two samples from the covariances at their positions (section 10)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from notsodeep.duals.dual import Dual, DualEvidence
from notsodeep.duals.sides import Side
from notsodeep.duals.strips import WIDTH
from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.moments import derivative_second_moment, second_moment
from notsodeep.kernel_names import Kernel
from notsodeep.models.field_equilibrium import (
    TOLERANCE,
    FieldEquation,
    Own,
    adjoint_products,
    evaluate,
    growing_guess,
    set_own,
    solve,
)
from notsodeep.models.mixing import Convolution, Systems
from notsodeep.models.programs import EntrywiseTile, LayerInput
from notsodeep.models.protocol import Samples
from notsodeep.models.spot_check import SpotCheck
from notsodeep.models.tiling import threads
from notsodeep.models.variances import moment_at
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, IntArray

# In parts of the tolerance: what the series of F and F' may leave out.
LEFT_OUT = 0.01
# Relative change of a variance at which its iteration stops: a few roundings.
SETTLED = 4e-15
MOST_STEPS = 1200
# Pooled samples of a tile, at most; and tiles along a side, at least, for progress.
TILE_SIDE_POOL, TILES = 8, 3
# Positions of the samples of a tile, and entries of the fields that are computed together.
PREPARED, ENTRIES = 1 << 16, 1 << 18
# How often F is evaluated for a pair of positions, about.
EVALUATIONS = 3
# Samples of the rows that are prepared together.
ROWS = 16


@dataclass(frozen=True)
class SampleSet:
    """One set of samples.

    Attributes:
        values: the samples, (n, channels, positions).
        keys: a number for each sample; equal samples have equal ones.
        forcing: 𝒜|x|² at each position, (n, positions).
        variances: the variances of each layer, (n, positions).
    """

    values: Array
    keys: IntArray
    forcing: Array
    variances: list[Array]


@dataclass(frozen=True)
class Block:
    """Some samples of a set, arranged as fields have them: (positions, …, samples), or (1, …, positions·samples).

    Attributes:
        values: the samples, (stack, channels, n).
        keys: their keys.
        sides: what they contribute to F in each layer.
        guess: what they contribute to a first guess, (…, stack, n).
    """

    values: Array
    keys: IntArray
    sides: list[Side]
    guess: Array

    def part(self, start: int, stop: int) -> Block:
        """Some of these samples; pooled ones are not cut."""
        if stop - start >= len(self.keys):
            return self
        part = slice(start, stop)
        sides = [side[part] for side in self.sides]
        return Block(self.values[..., part], self.keys[part], sides, self.guess[..., part])


def _chunks(start: int, stop: int, size: int) -> Iterator[slice]:
    for begin in range(start, stop, size):
        yield slice(begin, min(begin + size, stop))


class ImageProgram:
    """Base of the programs for convolutional models.

    Args:
        layers: the layers; of a DEQ the one layer that is repeated.
        mixing: how positions are mixed.
        readout: "flatten" has weights for each position and needs the diagonal s = s' alone, (10.2); "pool" averages.
        left: samples (n, channels, …) of the rows.
        right: samples of the columns; None for the same.
        kernels: the kernels to compute.
        tolerance: residual of an equilibrium that is accepted.
    """

    # Pooled samples of the columns that are computed together, at most.
    together = 1

    def __init__(
        self,
        layers: list[LayerInput],
        mixing: Convolution,
        readout: str,
        left: Samples,
        right: Samples | None,
        kernels: tuple[Kernel, ...],
        tolerance: float = TOLERANCE,
    ) -> None:
        self.layers, self.mixing, self.kernels, self.tolerance = layers, mixing, kernels, tolerance
        self.pool = readout == "pool"
        self.weight = mixing.count ** (-2.0 if self.pool else -1.0)
        self.tangent = any(kernel.is_tangent for kernel in kernels)
        self.sets = [self._set(left)]
        self.sets.append(self.sets[0] if right is None else self._set(right))
        self.shape = len(self.sets[0].keys), len(self.sets[1].keys)
        pairs = int(EVALUATIONS * self.shape[0] * self.shape[1] / self.weight)
        allowed = LEFT_OUT * tolerance
        self.duals = [Dual(layer.phi, self._range(k), pairs, allowed) for k, layer in enumerate(layers)]
        self.checks = [SpotCheck(layer.phi, self.tangent, tolerance) for layer in layers]
        # Where samples are few, all threads have a tile; strips of columns should be full all the same.
        closed = all(layer.phi.shape.is_homogeneous for layer in layers)
        tiles = max(threads(), TILES) if closed or max(self.shape) > TILES * WIDTH else 2
        most = TILE_SIDE_POOL if self.pool else min(WIDTH, max(8, PREPARED // mixing.count))
        self.tile_side = int(np.clip(-(-max(self.shape) // tiles), 1, most))
        # Pooled samples of the columns that meet one sample of the rows at once.
        self.columns = self.tile_side
        if self.pool:
            self.columns = int(np.clip(ENTRIES // mixing.count**2, 1, self.together))
        self.rows = (
            1 if self.pool else int(np.clip(ENTRIES // mixing.count // self.tile_side, 1, self.tile_side))
        )

    def integrate_all_pairs(self) -> None:
        """Compute F of every pair of positions by quadrature."""
        for dual in self.duals:
            dual.careful = True

    def start(self) -> Array:
        """An empty array: nothing is known of a pair before its positions are looked at."""
        return np.zeros(self.shape)

    def _set(self, samples: Samples) -> SampleSet:
        values = samples.values.reshape(*samples.values.shape[:2], -1)
        # Positions first, samples last, as `diagonal` wants it.
        forcing = self.mixing.diagonal(np.einsum("ics,ics->si", values, values))
        variances = [np.ascontiguousarray(q.T) for q in self.variances(forcing)]
        keys = np.array([hash(one.tobytes()) for one in values])
        return SampleSet(values, keys, np.ascontiguousarray(forcing.T), variances)

    def _range(self, layer: int) -> Array:
        """The smallest and the largest variance of a layer that is not zero; one if all are."""
        positive = [q[q > 0.0] for q in (each.variances[layer] for each in self.sets)]
        ends = [end for q in positive if len(q) for end in (q.min(), q.max())]
        return np.array(ends or [1.0])

    def variances(self, forcing: Array) -> list[Array]:
        """The variances (positions, samples) of every layer, from 𝒜|x|²."""
        raise NotImplementedError

    def _arranged(self, values: Array) -> Array:
        """Numbers of some samples (n, …, positions) as fields have them."""
        last = np.moveaxis(values, 0, -1)
        if self.pool:
            return np.ascontiguousarray(last).reshape(1, *values.shape[1:-1], -1)
        return np.ascontiguousarray(last.swapaxes(0, -2))

    def _block(self, number: int, part: slice) -> Block:
        """Some samples of the rows (0) or columns (1)."""
        chosen = self.sets[number]
        variances = [self._arranged(q[part]) for q in chosen.variances]
        sides = [
            dual.columns(q) if number else dual.rows(q) for dual, q in zip(self.duals, variances, strict=True)
        ]
        guess = self.guess(sides[0], self._arranged(chosen.forcing[part]))
        return Block(self._arranged(chosen.values[part]), chosen.keys[part], sides, guess)

    def guess(self, side: Side, forcing: Array) -> Array:
        """What samples contribute to a first guess: nothing where none is needed."""
        return np.empty((0, *forcing.shape))

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The kernels of these pairs, some samples of the rows with some of the columns at a time."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        named = {Kernel.CK: np.zeros(shape), Kernel.NTK: np.zeros(shape)}
        info = KernelInfo(0, 0.0, 0.0, 0)
        right = [(part, self._block(1, part)) for part in _chunks(columns.start, columns.stop, self.columns)]
        for top, left in self._row_blocks(rows):
            for side, block in right:
                # On the diagonal no more than a few columns beyond it.
                if diagonal and side.start >= top.stop:
                    continue
                stop = side.stop
                if diagonal and not self.pool:
                    stop = min(stop, side.start + -(-(top.stop - side.start) // 8) * 8)
                features, tangents, tile_info = self.fill(left, block.part(0, stop - side.start))
                place = (
                    slice(top.start - rows.start, top.stop - rows.start),
                    slice(side.start - columns.start, stop - columns.start),
                )
                named[Kernel.CK][place], named[Kernel.NTK][place] = features, tangents
                info = info.merge(tile_info)
        kernels = {name: self.weight * named[name] for name in self.kernels}
        if diagonal:
            # A few entries beyond the diagonal may have been computed as well.
            kernels = {name: np.tril(part) + np.tril(part, -1).T for name, part in kernels.items()}
        return EntrywiseTile(kernels, info)

    def _row_blocks(self, rows: slice) -> Iterator[tuple[slice, Block]]:
        """The samples of the rows in small blocks, parts of larger ones that are prepared together."""
        for chunk in _chunks(rows.start, rows.stop, 1 if self.pool else max(self.rows, ROWS)):
            whole = self._block(0, chunk)
            for part in _chunks(chunk.start, chunk.stop, self.rows):
                yield part, whole.part(part.start - chunk.start, part.stop - chunk.start)

    def _own(self, left: Block, right: Block) -> Own:
        """Where a position meets itself."""
        same = np.equal.outer(left.keys, right.keys)
        if self.pool:
            positions, samples = (
                part.reshape(-1) for part in np.meshgrid(np.arange(self.mixing.count), same[0].nonzero()[0])
            )
            return positions, positions * len(right.keys) + samples
        rows, columns = np.nonzero(same)
        return rows, columns

    def mixed(self, field: Array) -> Array:
        """𝒜 of a field."""
        return self.mixing.pairs(field) if self.pool else self.mixing.diagonal(field)

    def product(self, left: Block, right: Block) -> Array:
        """The averaged inner products 𝒜(x·x') of the inputs at all positions."""
        return self.mixed(np.matmul(left.values.swapaxes(1, 2), right.values))

    def total(self, field: Array) -> Array:
        """The sum over positions of every pair, (samples, others)."""
        if self.pool:
            return np.asarray(field.reshape(self.mixing.count**2, -1).sum(axis=0, keepdims=True))
        return np.asarray(field.sum(axis=0))

    def fill(self, left: Block, right: Block) -> tuple[Array, Array, KernelInfo]:
        """G and Θ, in units of the readout's weight, of some samples with others, and how they were obtained."""
        raise NotImplementedError


class ImageEquilibrium(ImageProgram):
    """A convolutional DEQ: each pair of samples solves (10.1) over its positions."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        layer = self.layers[0]
        q = np.concatenate([each.variances[0].reshape(-1) for each in self.sets])
        steep = moment_at(derivative_second_moment, layer.phi, q)
        self.rate = layer.weight * float(steep.max())
        # The largest q E1/S: by how much a relative error of Λ may be larger as one of F.
        energy = moment_at(second_moment, layer.phi, q)
        self.sensitivity = float((q * steep / np.maximum(energy, 1e-300)).max())
        if self.rate >= 1.0 and self.tangent:
            raise self._too_steep("The tangent kernel diverges", self.rate)
        self.equation = FieldEquation(self.duals[0], layer.weight, self.rate, self.tolerance)
        self._systems: dict[int, Systems] = {}

    def variances(self, forcing: Array) -> list[Array]:
        """The variances Λ_ii(s, s), by iteration over the positions of all samples."""
        layer = self.layers[0]
        start = layer.inject * forcing + layer.constant
        q = start.copy()
        for _ in range(MOST_STEPS):
            moved = start + layer.weight * self.mixing.diagonal(moment_at(second_moment, layer.phi, q))
            settled = bool(np.all(np.abs(moved - q) <= SETTLED * moved))
            q = moved
            if settled:
                return [q]
            if not float(q.max()) <= 1e12 * (1.0 + float(start.max())):
                break
        raise ConvergenceError(
            "The variances of the positions have no limit: signals grow from step to step.",
            "Lower sigma_a2, or use an activation with smaller slopes.",
        )

    def systems(self, pairs: int) -> Systems:
        """The systems of equations of fields of so many pairs."""
        if pairs not in self._systems:
            mixing = self.mixing
            self._systems[pairs] = mixing.pair_systems() if self.pool else mixing.diagonal_systems(pairs)
        return self._systems[pairs]

    def fill(self, left: Block, right: Block) -> tuple[Array, Array, KernelInfo]:
        """G by (10.2) and Θ by (10.3)."""
        layer, sides = self.layers[0], (left.sides[0], right.sides[0])
        entering = layer.inject * self.product(left, right) + layer.constant
        systems = self.systems(len(left.keys) * len(right.keys))
        own = self._own(left, right)
        solution = solve(self.equation, *sides, entering, (left.guess, right.guess), systems, own)
        self.checks[0].add(*sides, solution.covariance, solution.value, solution.slope)
        rate = self.rate
        if rate >= 1.0:
            # Where the bound on all correlations is not a contraction, those of these pairs may be.
            slopes = np.abs(solution.slope)
            slopes[(slice(None), *own)] = 0.0
            rate = layer.weight * float(slopes.max())
            if rate >= 1.0:
                raise self._too_steep("The conjugate kernel may not be unique", rate)
        features = self.total(solution.value)
        tangents = features
        if self.tangent:
            tangents = features + self.total(adjoint_products(self.equation, solution, systems))
        return features, tangents, self._info(solution.steps, solution.residual, rate, solution.evidence)

    def guess(self, side: Side, forcing: Array) -> Array:
        """What `solve` starts from."""
        layer = self.layers[0]
        return growing_guess(side, layer.inject * forcing + layer.constant)

    def _info(self, steps: int, residual: float, rate: float, evidence: DualEvidence) -> KernelInfo:
        """The error of F and the residual, both as the fixed point carries them on, relative to √(S S').

        An error of F enters Λ with σ_a² 𝒜√(S S') ≤ √(q q'), and one of Λ enters F with F' ≤ √(E1 E1').
        """
        phi, wrong = self.layers[0].phi, evidence.error
        error = self.sensitivity * (residual + wrong) / (1.0 - rate) + wrong
        info = KernelInfo(steps, residual, error, evidence.fallback_pairs, evidence.methods)
        return info.with_caveat(phi.caveat, phi.shape.inaccuracy / (1.0 - rate))

    def _too_steep(self, what: str, rate: float) -> ConvergenceError:
        return ConvergenceError(
            f"{what}: σ_a² E[φ'φ'] = {rate:.4g} ≥ 1 at some position.",
            f"Lower sigma_a2 below {self.layers[0].weight / rate:.4g}, or use an activation with smaller slopes.",
        )


class ImageFeedforward(ImageProgram):
    """An explicit convolutional network: the recursion (10.5) and its adjoint (10.6)."""

    together = TILE_SIDE_POOL

    def variances(self, forcing: Array) -> list[Array]:
        """The variances of every layer."""
        variances: list[Array] = []
        for number, layer in enumerate(self.layers):
            before = forcing
            if number:
                before = self.mixing.diagonal(
                    moment_at(second_moment, self.layers[number - 1].phi, variances[-1])
                )
            variances.append(layer.weight * before + layer.inject * forcing + layer.constant)
        return variances

    def fill(self, left: Block, right: Block) -> tuple[Array, Array, KernelInfo]:
        """G and Θ after the last layer."""
        own, product = self._own(left, right), self.product(left, right)
        info, signal = KernelInfo(0, 0.0, 0.0, 0), product
        covariances, slopes, value = [], [], product
        for number, (layer, dual) in enumerate(zip(self.layers, self.duals, strict=True)):
            sides = left.sides[number], right.sides[number]
            if number:
                signal = self.mixed(value)
            scale = sides[0].root[:, :, None] * sides[1].root[:, None, :]
            covariance = np.clip(
                layer.weight * signal + layer.inject * product + layer.constant, -scale, scale
            )
            set_own(covariance, scale, sides[0], own)
            value, slope = np.empty_like(covariance), np.empty_like(covariance)
            evidence = evaluate(dual, *sides, covariance, value, slope, own)
            self.checks[number].add(*sides, covariance, value, slope)
            covariances.append(covariance)
            slopes.append(slope)
            one = KernelInfo(
                0, 0.0, info.error_bound + evidence.error, evidence.fallback_pairs, evidence.methods
            )
            info = info.merge(one.with_caveat(layer.phi.caveat, layer.phi.shape.inaccuracy))
        features = self.total(value)
        tangents = features.copy()
        if self.tangent:
            adjoint = slopes[-1]
            for number in range(len(self.layers) - 1, -1, -1):
                tangents += self.total(adjoint * covariances[number])
                if number:
                    adjoint = slopes[number - 1] * self.mixed(self.layers[number].weight * adjoint)
        return features, tangents, info


__all__ = ["ImageEquilibrium", "ImageFeedforward"]
