"""Programs of convolutional models: kernels of two samples from the covariances at their positions (section 10)."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.kernel_names import Kernel
from notsodeep.models.mixing import Convolution
from notsodeep.models.programs import LayerInput
from notsodeep.models.protocol import Samples
from notsodeep.pairs.careful_fields import seconds_for_pairs
from notsodeep.pairs.field_layout import Layout
from notsodeep.pairs.field_methods import method_for
from notsodeep.pairs.field_recursion import FieldRecursion
from notsodeep.pairs.field_solver import TOLERANCE, TRUNCATED, FieldSolver, not_converged, spectrum
from notsodeep.pairs.pair_fields import FieldMethod, PairFields
from notsodeep.pairs.positions import MomentTable, Positions, energy
from notsodeep.pairs.single_precision import ROUNDED, SinglePrecision, SingleSide, SingleTile, serves
from notsodeep.pairs.tiles import threads
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, IntArray

# Relative change of a variance at which its iteration stops: a few roundings.
SETTLED = 4e-15
MOST_STEPS = 1200
# Samples of a tile, at most: more share what is prepared for each; and tiles along a side, at least, for progress.
TILE_SIDE, TILE_SIDE_POOL, TILES = 64, 8, 3
# Entries of fields that are worked on together: so many that calls cost little, few enough for a cache; and samples of
# the rows among them, which share what is read of the others.
ENTRIES, ROWS = 1 << 15, 4
# Memory for what is prepared of the samples of the columns of a tile, in bytes.
PREPARED = 1 << 26
# Seconds that are spent without a word beforehand.
PATIENCE = 60.0


@dataclass(frozen=True)
class ImageTile:
    """The kernels of a rectangle of pairs of samples."""

    kernels: dict[Kernel, Array]
    info: KernelInfo

    def kernel(self, name: Kernel) -> Array:
        """The kernel of this name."""
        return self.kernels[name]


@dataclass(frozen=True)
class Side:
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
class Part:
    """Some samples, prepared for the fields of all layers.

    Attributes:
        values: the samples as the layout of fields has them, (n, channels, positions).
        keys: a number for each sample; equal samples have equal ones.
        positions: what positions contribute to pairs, layer by layer.
        sides: what the method of each layer made of it.
    """

    values: Array
    keys: IntArray
    positions: list[Positions]
    sides: list[Any]


def _in_words(seconds: float) -> str:
    """A duration in the largest unit that it exceeds twice."""
    for name, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


def _chunks(start: int, stop: int, size: int) -> Iterator[slice]:
    for begin in range(start, stop, size):
        yield slice(begin, min(begin + size, stop))


class ImageProgram:
    """Base of the programs for convolutional models.

    Attributes:
        evaluations: how often F is evaluated for a pair of positions in a layer.

    Args:
        layers: the layers; of a DEQ the one layer that is repeated.
        mixing: how positions are mixed.
        readout: "flatten" has weights for each position and needs the diagonal s = s' alone, (10.2); "pool" averages.
        left: samples (n, channels, …) of the rows.
        right: samples of the columns; None for the same.
        kernels: which kernels are wanted.
        tolerance: residual of an equilibrium, or error of a layer, that is accepted.
    """

    evaluations = 1

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
        pool = readout == "pool"
        self.layout = Layout(mixing.positions, mixing.filter_size // 2, mixing.padding == "circular", pool)
        self.weight = mixing.count ** (-2.0 if pool else -1.0)
        self.tangent = any(kernel.is_tangent for kernel in kernels)
        self.sides = [self._side(left)]
        self.sides.append(self.sides[0] if right is None else self._side(right))
        self.moments: list[MomentTable] = []
        self.methods: list[FieldMethod] = []
        for number, layer in enumerate(layers):
            distinct = self.sides[: 1 if right is None else 2]
            flat = np.concatenate([side.variances[number].reshape(-1) for side in distinct])
            flat = flat[flat > 0.0]
            self.moments.append(MomentTable(layer.phi, flat))
            self.methods.append(method_for(layer.phi, flat, self.layout, TRUNCATED * tolerance))
        self.shape = len(left.values), len((right or left).values)
        # Where samples are few, all threads have a tile.
        few = -(-max(self.shape) // max(threads(), TILES))
        self.tile_side = int(np.clip(few, 1, TILE_SIDE_POOL if pool else TILE_SIDE))
        self.rows = 1 if pool else ROWS
        self.others = 1 if pool else max(1, ENTRIES // len(self.layout.valid) // self.rows)
        prepared = max(1, sum(method.sample_bytes() for method in self.methods))
        self.columns = int(np.clip(PREPARED // prepared, self.others, TILE_SIDE))
        self._announce(right is None)
        # Where few digits are wanted of a closed form that is simple enough.
        activations = [layer.phi for layer in layers]
        self.single = SinglePrecision(self.layout, activations) if serves(activations, tolerance) else None

    def _announce(self, symmetric: bool) -> None:
        """Say beforehand when positions that are integrated one by one will take long."""
        rows, columns = self.shape
        entries = rows * (rows + 1) // 2 if symmetric else rows * columns
        entries *= round(1.0 / self.weight)
        seconds, slow = 0.0, ""
        for number, (layer, method) in enumerate(zip(self.layers, self.methods, strict=True)):
            if method.one_by_one:
                once = seconds_for_pairs(layer.phi, self.sides[0].variances[number], entries)
                seconds, slow = seconds + self.evaluations * once / threads(), slow or str(layer.phi)
        if seconds > PATIENCE:
            warnings.warn(
                f"F of {slow} has neither a closed form nor a series or a table that serves all correlations: "
                f"{entries:.1e} pairs of positions are integrated one by one, about {_in_words(seconds)}. "
                "progress=True shows how far it is. Fewer samples or positions, or an activation that is smooth or "
                "kinked at zero only, take less.",
                RuntimeWarning,
                stacklevel=2,
            )

    def start(self) -> Array:
        """An empty array: nothing is known of a pair before its positions are looked at."""
        return np.zeros(self.shape)

    def _side(self, samples: Samples) -> Side:
        values = samples.values.reshape(*samples.values.shape[:2], -1)
        # Positions first, samples last, as `diagonal` wants it.
        forcing = self.mixing.diagonal(np.einsum("ics,ics->si", values, values))
        variances = [np.ascontiguousarray(q.T) for q in self.variances(forcing)]
        keys = np.array([hash(one.tobytes()) for one in values])
        return Side(values, keys, np.ascontiguousarray(forcing.T), variances)

    def variances(self, forcing: Array) -> list[Array]:
        """The variances (positions, samples) of every layer, from 𝒜|x|²."""
        raise NotImplementedError

    def alone(self, forcing: Array) -> Array | None:
        """What the input alone gives of the variances of the first layer; None if it is all of them."""
        return None

    def _part(self, number: int, part: slice, *, right: bool) -> Part:
        """Some samples of a side, prepared."""
        side = self.sides[number]
        positions = [
            Positions(moments, side.variances[k][part], self.layout, self.alone(side.forcing[part]))
            for k, moments in enumerate(self.moments)
        ]
        made = [method.side(one, right=right) for method, one in zip(self.methods, positions, strict=True)]
        return Part(self.layout.side(side.values[part]), side.keys[part], positions, made)

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> ImageTile:
        """The kernels of these pairs."""
        if self.single is None:
            values, tangents, info = self._double_tile(rows, columns, diagonal=diagonal)
        else:
            values, tangents, info = self._single_tile(self.single, rows, columns, diagonal=diagonal)
        if diagonal:
            # A few entries beyond the diagonal may have been computed as well.
            values, tangents = (np.tril(part) + np.tril(part, -1).T for part in (values, tangents))
        named = {Kernel.CK: values, Kernel.NTK: tangents}
        return ImageTile({name: named[name] for name in self.kernels}, info)

    def _single_tile(
        self, single: SinglePrecision, rows: slice, columns: slice, *, diagonal: bool
    ) -> tuple[Array, Array, KernelInfo]:
        """CK and NTK in single precision, on and below the diagonal if these pairs are about it."""
        left = self._single_side(0, rows)
        right = left if diagonal else self._single_side(1, columns)
        tile = self.solve_single(single, left, right, lower=diagonal)
        return (
            self.weight * tile.features,
            self.weight * (tile.tangents if self.tangent else tile.features),
            self.single_evidence(tile),
        )

    def _single_side(self, number: int, part: slice) -> SingleSide:
        side = self.sides[number]
        variances = [one[part] for one in side.variances]
        return SingleSide.of(side.values[part], variances, self.layout, self.alone(side.forcing[part]))

    def solve_single(
        self, single: SinglePrecision, left: SingleSide, right: SingleSide, *, lower: bool
    ) -> SingleTile:
        """Sums over positions of the kernels of pairs, in single precision."""
        raise NotImplementedError

    def single_evidence(self, tile: SingleTile) -> KernelInfo:
        """How kernels were obtained in single precision."""
        raise NotImplementedError

    def _double_tile(self, rows: slice, columns: slice, *, diagonal: bool) -> tuple[Array, Array, KernelInfo]:
        """CK and NTK, some samples of the rows with some of the columns at a time."""
        shape = rows.stop - rows.start, columns.stop - columns.start
        values, tangents = np.zeros(shape), np.zeros(shape)
        info = KernelInfo(0, 0.0, 0.0, 0)
        worker = self.worker(self._fields())
        for chunk in _chunks(columns.start, columns.stop, self.columns):
            right = self._part(1, chunk, right=True)
            for block in _chunks(chunk.start if diagonal else rows.start, rows.stop, self.rows):
                left = self._part(0, block, right=False)
                stop = min(chunk.stop, block.stop) if diagonal else chunk.stop
                for others in _chunks(0, stop - chunk.start, self.others):
                    features, tangent, found = self.fill(worker, left, right, others)
                    first = others.start + chunk.start - columns.start
                    place = (
                        slice(block.start - rows.start, block.stop - rows.start),
                        slice(first, first + others.stop - others.start),
                    )
                    values[place], tangents[place] = self.weight * features, self.weight * tangent
                    info = info.merge(found)
        return values, tangents, info

    def _fields(self) -> list[PairFields]:
        """Room for the fields of all layers."""
        pairs = self.rows * self.others
        first = PairFields(self.layout, self.methods[0], pairs)
        return [first, *(PairFields(self.layout, method, pairs, first.memory) for method in self.methods[1:])]

    def meet(self, fields: list[PairFields], left: Part, right: Part, others: slice, layer: int = 0) -> None:
        """Set up the fields of a layer, of all samples on the left with some others."""
        some = slice(0, len(left.keys))
        same = np.argwhere(np.equal.outer(left.keys, right.keys[others]))
        positions, sides = (
            (getattr(left, name)[layer], getattr(right, name)[layer]) for name in ("positions", "sides")
        )
        fields[layer].between(sides, positions, some, others, same)

    def worker(self, fields: list[PairFields]) -> Any:
        """What computes kernels in these fields."""
        raise NotImplementedError

    def fill(self, worker: Any, left: Part, right: Part, others: slice) -> tuple[Array, Array, KernelInfo]:
        """G and Θ, in units of the readout's weight, of some samples with others, and how they were obtained."""
        raise NotImplementedError


class ImageEquilibrium(ImageProgram):
    """A convolutional DEQ: each pair of samples solves (10.1) over its positions."""

    evaluations = 4

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        layer, steepest = self.layers[0], 0.0
        scale = (layer.phi.amplitude * layer.phi.gain) ** 2
        # The largest q E1/S: by how much a relative error of Λ may be larger as one of F.
        self.sensitivity = 0.0
        for side in self.sides[: 1 if self.sides[0] is self.sides[1] else 2]:
            for part in _chunks(0, len(side.values), TILE_SIDE):
                variances = side.variances[0][part]
                slopes = self.moments[0](variances)[3] ** 2
                steepest = max(steepest, float(slopes.max()))
                whole = np.maximum(energy(layer.phi, variances), 1e-300)
                self.sensitivity = max(self.sensitivity, float((scale * variances * slopes / whole).max()))
        self.rate = layer.weight * scale * steepest
        if self.rate >= 1.0 and self.tangent:
            raise self._too_steep("The tangent kernel diverges", self.rate)
        if self.rate >= 1.0:
            self.single = None

    def variances(self, forcing: Array) -> list[Array]:
        """The variances Λ_ii(s, s), by iteration over the positions of all samples."""
        layer = self.layers[0]
        start = layer.inject * forcing + layer.constant
        q = start.copy()
        for _ in range(MOST_STEPS):
            moved = start + layer.weight * self.mixing.diagonal(energy(layer.phi, q))
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

    def alone(self, forcing: Array) -> Array:
        """What the input alone gives of the variances."""
        return self.layers[0].inject * forcing + self.layers[0].constant

    def worker(self, fields: list[PairFields]) -> FieldSolver:
        """The solver of the equations."""
        return FieldSolver(fields[0], self.layers[0].weight, self.rate, self.tolerance)

    def fill(
        self, worker: FieldSolver, left: Part, right: Part, others: slice
    ) -> tuple[Array, Array, KernelInfo]:
        """G by (10.2) and Θ by (10.3)."""
        layer = self.layers[0]
        self.meet([worker.fields], left, right, others)
        worker.forcing(left.values, right.values[others], layer.inject, layer.constant)
        worker.start(left.positions[0], right.positions[0])
        steps, residual = worker.solve()
        features = worker.features()
        # Where the bound on all correlations is not a contraction, those of these pairs may be.
        rate = self.rate if self.rate < 1.0 else worker.largest_gain()
        if rate >= 1.0:
            raise self._too_steep("The conjugate kernel may not be unique", rate)
        return (
            features,
            worker.tangents() if self.tangent else features,
            self._evidence(steps, residual, rate, self.methods[0].levels[worker.level]),
        )

    def solve_single(
        self, single: SinglePrecision, left: SingleSide, right: SingleSide, *, lower: bool
    ) -> SingleTile:
        """G by (10.2) and Θ by (10.3), in single precision."""
        layer = self.layers[0]
        even = layer.phi.shape.parity == 1
        tile = single.equilibria(
            left, right, (layer.weight, layer.inject, layer.constant), self.rate, spectrum(self.rate, even),
            self.tolerance, lower=lower, tangent=self.tangent,
        )  # fmt: skip
        if tile.residual > self.tolerance:
            raise not_converged(tile.residual, tile.sweeps)
        return tile

    def single_evidence(self, tile: SingleTile) -> KernelInfo:
        """The residual and rounding, as the fixed point carries them on."""
        return self._evidence(tile.sweeps, tile.residual, self.rate, ROUNDED)

    def _evidence(self, steps: int, residual: float, rate: float, left_out: float) -> KernelInfo:
        """The error of F and the residual, both as the fixed point carries them on, relative to √(S S').

        An error of F enters Λ with σ_a² 𝒜√(S S') ≤ √(q q'), and one of Λ enters F with F' ≤ √(E1 E1').
        """
        method, phi = self.methods[0], self.layers[0].phi
        wrong = max(method.error, left_out)
        error = self.sensitivity * (residual + wrong) / (1.0 - rate) + wrong
        info = KernelInfo(steps, residual, error, 0, method.ways)
        return info.provided(phi.caveat, phi.shape.inaccuracy / (1.0 - rate))

    def _too_steep(self, what: str, rate: float) -> ConvergenceError:
        return ConvergenceError(
            f"{what}: σ_a² E[φ'φ'] = {rate:.4g} ≥ 1 at some position.",
            f"Lower sigma_a2 below {self.layers[0].weight / rate:.4g}, or use an activation with smaller slopes.",
        )


class ImageFeedforward(ImageProgram):
    """An explicit convolutional network: the recursion (10.5)."""

    def variances(self, forcing: Array) -> list[Array]:
        """The variances of every layer."""
        found: list[Array] = []
        for number, layer in enumerate(self.layers):
            if number:
                before = self.mixing.diagonal(energy(self.layers[number - 1].phi, found[-1]))
                found.append(layer.weight * before + layer.inject * forcing + layer.constant)
            else:
                found.append(layer.weight * forcing + layer.constant)
        return found

    def worker(self, fields: list[PairFields]) -> FieldRecursion:
        """The recursion over layers."""
        return FieldRecursion(self.layers, fields)

    def fill(
        self, worker: FieldRecursion, left: Part, right: Part, others: slice
    ) -> tuple[Array, Array, KernelInfo]:
        """G and Θ after the last layer."""
        features = worker.forward(
            left.values,
            right.values[others],
            lambda layer: self.meet(worker.fields, left, right, others, layer),
        )
        return features, worker.tangents() if self.tangent else features, self._evidence()

    def solve_single(
        self, single: SinglePrecision, left: SingleSide, right: SingleSide, *, lower: bool
    ) -> SingleTile:
        """G and Θ after the last layer, in single precision."""
        layers = np.array([(layer.weight, layer.inject, layer.constant) for layer in self.layers])
        return single.recursion(left, right, layers, lower=lower, tangent=self.tangent)

    def single_evidence(self, tile: SingleTile) -> KernelInfo:
        """Rounding in all layers."""
        return KernelInfo(0, 0.0, ROUNDED * len(self.layers), 0, self.methods[0].ways)

    def _evidence(self) -> KernelInfo:
        """The errors of F of all layers."""
        info = KernelInfo(0, 0.0, 0.0, 0)
        for method, layer in zip(self.methods, self.layers, strict=True):
            wrong = max(method.error, method.levels[-1])
            one = KernelInfo(0, 0.0, info.error_bound + wrong, 0, method.ways)
            info = info.merge(one.provided(layer.phi.caveat, layer.phi.shape.inaccuracy))
        return info


__all__ = ["ImageEquilibrium", "ImageFeedforward"]
