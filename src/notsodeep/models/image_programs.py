"""Programs of convolutional models: kernels of two samples from the covariances at their positions (section 10)."""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from notsodeep.errors import ConvergenceError
from notsodeep.kernel_names import Kernel
from notsodeep.models.mixing import Convolution
from notsodeep.models.programs import LayerInput
from notsodeep.models.protocol import Samples
from notsodeep.pairs.compiled_fields import (
    contracted,
    equilibrium_images,
    equilibrium_pooled,
    explicit_images,
)
from notsodeep.pairs.compiled_powers import FEW_LANES, LANES
from notsodeep.pairs.field_series import Strips, strip_places
from notsodeep.pairs.fields import (
    FieldTable,
    Method,
    PairField,
    Positions,
    energy,
    in_strips,
    method_for,
    seconds_for,
)
from notsodeep.pairs.tiles import threads
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, IntArray

# Residual of a covariance, relative to √(q q'), that is accepted, and at which compiled solvers stop.
TOLERANCE, AIM = 1e-12, 1e-13
MAX_STEPS = 60
# Relative change of a variance at which its iteration stops: a few roundings.
SETTLED = 4e-15
# A Newton step solves its linear equation to this factor, by at most so many sweeps.
SWEEP_GAIN, MOST_SWEEPS = 1e-4, 80
# Samples of a tile; more share the table of a row, fewer keep threads busy where there are few samples.
TILE_SIDE, TILE_SIDE_TABLE, TILE_SIDE_POOL = 32, 64, 8
TOGETHER = 8

# Seconds that are spent without a word beforehand.
PATIENCE = 60.0
# Sets of samples whose Mehler series are kept: rows and columns of a tile of each of two threads.
KEPT = 4

# Coefficients, starts and tails of one sample, of others, the first power of ρ and the step to the next.
PairedPowers = tuple[tuple[Array, IntArray, Array], tuple[Array, IntArray, Array], tuple[int, int]]


@dataclass(frozen=True)
class ImageTile:
    """The kernels of a rectangle of pairs of samples."""

    kernels: dict[Kernel, Array]
    info: KernelInfo

    def kernel(self, name: Kernel) -> Array:
        """The kernel of this name."""
        return self.kernels[name]


class Readout:
    """The sum over positions that a linear readout makes of a field, docs/theory.md (10.2).

    "flatten" has weights of its own for each position and needs the diagonal s = s' alone: several samples are put
    beside each other, (positions, samples).  "pool" averages over all positions: one pair of samples at a time,
    (positions, positions).
    """

    def __init__(self, kind: str, mixing: Convolution) -> None:
        self.flatten = kind == "flatten"
        self.mix = mixing.diagonal if self.flatten else mixing.pairs
        count = int(np.prod(mixing.positions))
        self.weight = 1.0 / count if self.flatten else 1.0 / count**2

    def total(self, field: Array) -> Array:
        """Σ R(s, s') M(s, s'), one number for each sample beside each other."""
        return np.asarray(self.weight * (field.sum(axis=0) if self.flatten else field.sum()[None]))


class Side:
    """One set of samples.

    Attributes:
        values: (n, positions, channels).
        forcing: 𝒜|x|² at each position, (n, positions).
        variances: the variances of each layer, (n, positions).
    """

    def __init__(self, values: Array, forcing: Array, layers: list[Array]) -> None:
        self.values = values
        self.forcing = forcing
        self.variances = layers

    def prepared(self, layers: list[LayerInput]) -> list[Positions]:
        """What positions contribute to pairs, layer by layer."""
        return [Positions(layer.phi, q) for layer, q in zip(layers, self.variances, strict=True)]


def _in_words(seconds: float) -> str:
    """A duration in the largest unit that it exceeds twice."""
    for name, size in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2.0 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} s"


class ImageProgram:
    """Base of the programs for convolutional models.

    Attributes:
        evaluations: how often F is evaluated for a pair of positions in a layer.

    Args:
        layers: the layers; of a DEQ the one layer that is repeated.
        mixing: how positions are mixed.
        readout: "flatten" or "pool".
        left: samples (n, channels, …) of the rows.
        right: samples of the columns; None for the same.
        kernels: which kernels are wanted.
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
    ) -> None:
        self.layers, self.mixing, self.kernels = layers, mixing, kernels
        self.readout = Readout(readout, mixing)
        self.tangent = any(kernel.is_tangent for kernel in kernels)
        self.sides = [self._side(left)]
        self.sides.append(self.sides[0] if right is None else self._side(right))
        both = [[side.variances[k] for side in self.sides] for k in range(len(layers))]
        self.methods: list[Method] = [
            method_for(layer.phi, found) for layer, found in zip(layers, both, strict=True)
        ]
        self.prepared = [side.prepared(layers) for side in self.sides[: 1 if right is None else 2]]
        side = TILE_SIDE_TABLE if any(method.table or method.series for method in self.methods) else TILE_SIDE
        self.tile_side = side if self.readout.flatten else TILE_SIDE_POOL
        self.shape = len(left.values), len((right or left).values)
        self._announce(right is None)

    def _announce(self, symmetric: bool) -> None:
        """Say beforehand when positions that are integrated one by one will take long."""
        count = int(np.prod(self.mixing.positions))
        rows, columns = self.shape
        entries = rows * (rows + 1) // 2 if symmetric else rows * columns
        entries *= count if self.readout.flatten else count * count
        seconds = 0.0
        for number, (layer, method) in enumerate(zip(self.layers, self.methods, strict=True)):
            once = seconds_for(method, layer.phi, self.sides[0].variances[number], entries)
            seconds += self.evaluations * once / threads()
        if seconds > PATIENCE:
            slow = [
                str(one.phi)
                for one, method in zip(self.layers, self.methods, strict=True)
                if method.one_by_one
            ]
            warnings.warn(
                f"F of {slow[0]} has neither a closed form nor a series or a table that serves all correlations: "
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
        values = samples.values.reshape(*samples.values.shape[:2], -1).transpose(0, 2, 1)
        # Positions first, samples last, as `mix` wants it.
        squares = np.einsum("isc,isc->si", values, values)
        forcing = self.mixing.diagonal(squares)
        variances = [np.ascontiguousarray(q.T) for q in self.variances(forcing)]
        return Side(np.ascontiguousarray(values), np.ascontiguousarray(forcing.T), variances)

    def variances(self, forcing: Array) -> list[Array]:
        """The variances (positions, samples) of every layer, from 𝒜|x|²."""
        raise NotImplementedError

    def fill(self, first: int, others: slice) -> tuple[Array, Array | None, KernelInfo]:
        """G and, if wanted, Θ of one sample with others; with one other where the readout pools."""
        raise NotImplementedError

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> ImageTile:
        """The kernels of these pairs, one sample of the rows after the other."""
        form = start.shape
        results = {name: np.zeros(form) for name in self.kernels}
        info = KernelInfo(0, 0.0, 0.0, 0)
        for i in range(form[0]):
            count = i + 1 if diagonal else form[1]
            blocks = [slice(0, count)] if self.readout.flatten else [slice(j, j + 1) for j in range(count)]
            for block in blocks:
                first, others = rows.start + i, slice(columns.start + block.start, columns.start + block.stop)
                features, tangent, found = self.fill(first, others)
                info = info.merge(found)
                for name, result in results.items():
                    values = features if name is Kernel.CK else tangent
                    result[i, block] = values
                    if diagonal:
                        result[block, i] = values
        return ImageTile(results, info)

    def _forcing(self, first: int, others: slice) -> Array:
        """𝒜(x·x') of one sample with others (flatten), or of all positions of two samples (pool)."""
        row, columns = self.sides[0].values[first], self.sides[1].values[others]
        flatten = self.readout.flatten
        return self.readout.mix(np.einsum("sc,jsc->sj", row, columns) if flatten else row @ columns[0].T)

    def _fields(self, first: int, others: slice) -> list[PairField]:
        fields: list[PairField] = []
        for layer, method, rows, columns in zip(
            self.layers, self.methods, self.prepared[0], self.prepared[-1], strict=True
        ):
            left = rows.take((first, slice(None), None))
            if self.readout.flatten:
                right = columns.take(others).turned()
            else:
                right = columns.take((others.start, None, slice(None)))
            fields.append(PairField(layer.phi, method, left, right, self._own(first, others)))
        return fields

    def _own(self, first: int, others: slice) -> tuple[IntArray, IntArray] | None:
        """Where in the field a position meets itself: those of a sample with the same sample."""
        row = self.sides[0].values[first]
        same = np.flatnonzero([np.array_equal(row, column) for column in self.sides[1].values[others]])
        if not len(same):
            return None
        places: IntArray = np.arange(int(np.prod(self.mixing.positions)))
        if not self.readout.flatten:
            return places, places
        return np.repeat(places, len(same)), np.tile(same, len(places))

    def _images(self, number: int, part: slice) -> Array:
        """These samples as (n, channels, positions)."""
        return np.ascontiguousarray(self.sides[number].values[part].transpose(0, 2, 1))

    def _moments(self, number: int, part: slice, layer: int, growth: Array) -> Array:
        """What the compiled loops need of each position in a layer, (n, 8, positions)."""
        phi, prepared = self.layers[layer].phi, self.prepared[number][layer].take(part)
        return np.stack(
            [
                prepared.root / phi.gain,
                prepared.inverse * phi.gain,
                phi.amplitude * phi.offset * prepared.mean + 0.5 * phi.offset**2,
                growth,
                phi.amplitude * prepared.energy,
                phi.amplitude * phi.gain * prepared.steep,
                phi.amplitude * prepared.mean + phi.offset,
                phi.amplitude * phi.gain * prepared.rise,
            ],
            axis=1,
        )

    def _grid(self) -> tuple[int, int, int, int, bool, bool]:
        """Height, width, taps beyond the middle, whether borders wrap, whether fields are over pairs of positions."""
        radius = self.mixing.filter_size // 2
        height, width = (1, *self.mixing.positions)[-2:]
        vertical = radius if len(self.mixing.positions) == 2 else 0
        return height, width, vertical, radius, self.mixing.padding == "circular", not self.readout.flatten

    def _slopes(self, layer: int) -> tuple[float, float]:
        """F is the first times the covariance and the second times √(q q') J(ρ), with constants, (3.20)."""
        phi, method = self.layers[layer].phi, self.methods[layer]
        scale = (phi.amplitude * phi.gain) ** 2
        return scale * method.linear, scale * (method.bent or 0.0)

    def _finished(self, values: Array, tangents: Array, info: KernelInfo, diagonal: bool) -> ImageTile:
        """The tile; of a symmetric one the lower half was computed."""
        if diagonal:
            values, tangents = (np.tril(part) + np.tril(part, -1).T for part in (values, tangents))
        named = {Kernel.CK: values, Kernel.NTK: tangents}
        return ImageTile({name: named[name] for name in self.kernels}, info)


class ImageEquilibrium(ImageProgram):
    """A convolutional DEQ: each pair of samples solves (10.1) over its positions."""

    evaluations = 5

    def variances(self, forcing: Array) -> list[Array]:
        """The variances Λ_ii(s, s), by iteration over the positions of all samples."""
        layer = self.layers[0]
        start = layer.inject * forcing + layer.constant
        q = start.copy()
        for _ in range(20 * MAX_STEPS):
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

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        layer = self.layers[0]
        steepest = max(float(side[0].steep.max()) for side in self.prepared) ** 2
        self.rate = layer.weight * (layer.phi.amplitude * layer.phi.gain) ** 2 * steepest
        if self.rate >= 1.0:
            raise ConvergenceError(
                f"The kernels may not exist: σ_a² E[φ'²] = {self.rate:.4g} ≥ 1 at some position.",
                f"Lower sigma_a2 below {layer.weight / self.rate:.4g}, or use an activation with smaller slopes.",
            )
        needed = np.log(SWEEP_GAIN) / np.log(max(self.rate, 1e-12))
        self.sweeps = int(np.clip(np.ceil(needed), 1, MOST_SWEEPS))
        self.kept: OrderedDict[tuple[int, ...], Strips] = OrderedDict()
        self.lock = threading.Lock()
        method = self.methods[0]
        self.compiled = method.bent is not None or method.covers_all or method.series is not None

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> ImageTile:
        """The kernels of these pairs, by compiled loops where a closed form or a table serves."""
        if not self.compiled:
            return super().tile(start, rows, columns, diagonal=diagonal)
        sides = [
            (self._images(side, part), self._moments(side, part, 0, self._growth(side, part)))
            for side, part in ((0, rows), (-1, columns))
        ]
        values, tangents = np.zeros(start.shape), np.zeros(start.shape)
        steps, residual = 0, 0.0
        grid, slopes, layer, table = self._grid(), self._slopes(0), self.layers[0], self.methods[0].table
        equation, coordinate = (layer.weight, layer.inject, layer.constant), (0.0, 0.0, 0.0, False)
        if table is not None:
            coordinate = table.epsilon, table.start, table.stop, table.odd
        tables, buffer = None, np.zeros((0, 0, 0, 0))
        if table is not None:
            tables = self._column_tables(table, columns)
            together = TOGETHER if self.readout.flatten else int(np.prod(self.mixing.positions))
            buffer = np.empty((together, tables.shape[1], table.orders, tables.shape[3]))
        powers = self._powers(0, rows), self._powers(-1, columns)
        for i in range(len(start)):
            count = i + 1 if diagonal else start.shape[1]
            row = None if table is None else self._row_table(table, rows.start + i)
            images, moments = (part[i] for part in sides[0])
            others, theirs = (part[:count] for part in sides[1])
            for part in _chunks(count) if self.readout.flatten else ():
                taken, left = equilibrium_images(
                    images, others[part], moments, theirs[part], grid, equation, slopes,
                    self._series(row, tables, part, buffer), coordinate, _paired(*powers, i, part),
                    self.readout.weight,
                    AIM, self.tangent, values[i, part], tangents[i, part],
                )  # fmt: skip
                steps, residual = max(steps, taken), max(residual, left)
            for j in range(0 if self.readout.flatten else count):
                values[i, j], tangents[i, j], taken, left = equilibrium_pooled(
                    images, others[j], moments, theirs[j], grid, equation, slopes,
                    self._series(row, tables, slice(j, j + 1), buffer),
                    coordinate, _paired(*powers, i, j), self.readout.weight, AIM,
                    self.tangent,
                )  # fmt: skip
                steps, residual = max(steps, taken), max(residual, left)
        if residual > TOLERANCE:
            raise _not_converged(residual)
        return self._finished(values, tangents, self._evidence(steps, residual), diagonal)

    def _row_table(self, table: FieldTable, number: int) -> Array:
        """The table at the variances of one sample of the rows."""
        own = table.rows_of(self.layers[0].phi.gain ** 2 * self.sides[0].variances[0][number])
        return in_strips(own) if self.readout.flatten else own

    def _column_tables(self, table: FieldTable, columns: slice) -> Array:
        """What tables of rows are multiplied with, for each sample of the columns: (samples, strips, rank, STRIP)."""
        variances = self.layers[0].phi.gain ** 2 * self.sides[-1].variances[0][columns]
        if self.readout.flatten:
            return np.stack([in_strips(table.columns_of(q)) for q in variances])
        places = strip_places(variances.shape[1], FEW_LANES, self.mixing.positions[-1])
        return np.stack([in_strips(table.columns_of(q)[places], FEW_LANES) for q in variances])

    def _series(self, row: Array | None, tables: Array | None, part: slice, buffer: Array) -> Array:
        """The table at the variances of a sample with some others (flatten), or with one (pool), in the buffer."""
        if row is None or tables is None:
            return np.zeros((0, 0, 0, 0))
        if not self.readout.flatten:
            return np.asarray(np.matmul(row[:, None], tables[part], out=buffer))
        series = buffer[: part.stop - part.start]
        contracted(row, tables[part], series)
        return series

    def _powers(self, number: int, part: slice) -> Strips | None:
        """The Mehler series of these samples; those of the last few are kept, because tiles share them."""
        series, moments = self.methods[0].series, self.prepared[number][0]
        if series is None:
            return None
        width, row = LANES, None
        if not self.readout.flatten:
            width, row = (FEW_LANES, self.mixing.positions[-1]) if number else (1, None)
        key = id(moments), part.start, part.stop, width
        with self.lock:
            if key in self.kept:
                self.kept.move_to_end(key)
                return self.kept[key]
        known = np.stack([moments.inner[part], moments.energy[part], moments.steep[part]])
        found = series.in_strips(known, width, row).scaled(self.layers[0].phi.amplitude)
        with self.lock:
            self.kept[key] = found
            while len(self.kept) > KEPT:
                self.kept.popitem(last=False)
        return found

    def _evidence(self, steps: int, residual: float) -> KernelInfo:
        method, phi = self.methods[0], self.layers[0].phi
        error = (residual + self.layers[0].weight * method.error) / (1.0 - self.rate) + method.error
        info = KernelInfo(steps, residual, error, 0, (method.name,))
        return info.provided(phi.caveat, phi.shape.inaccuracy / (1.0 - self.rate))

    def _growth(self, number: int, part: slice) -> Array:
        """√(q over what the input alone gives) at every position of these samples, (n, positions)."""
        layer, side = self.layers[0], self.sides[number]
        alone = layer.inject * side.forcing[part] + layer.constant
        return np.sqrt(np.divide(side.variances[0][part], alone, out=np.ones_like(alone), where=alone > 0.0))

    def fill(self, first: int, others: slice) -> tuple[Array, Array | None, KernelInfo]:
        """G by (10.2) and Θ by (10.3)."""
        layer, field, mix = self.layers[0], self._fields(first, others)[0], self.readout.mix
        forcing = layer.inject * self._forcing(first, others) + layer.constant
        # To begin with, the correlations that the input alone gives.
        theirs = self._growth(-1, others)
        theirs = theirs.T if self.readout.flatten else theirs
        covariance = forcing * self._growth(0, slice(first, first + 1)).T * theirs
        np.clip(covariance, -field.bound, field.bound, out=covariance)
        scale = np.maximum(field.bound, 1e-300)
        features = slope = forcing
        residual, steps = np.inf, 0
        for _ in range(MAX_STEPS):
            features, slope = field(covariance)
            gap = layer.weight * mix(features)
            gap += forcing
            gap -= covariance
            residual = float(np.max(np.abs(gap) / scale, initial=0.0, where=field.bound > 0.0))
            if residual <= TOLERANCE:
                break
            steps += 1
            step = gap
            for _ in range(self.sweeps):
                step = gap + layer.weight * mix(slope * step)
            covariance = covariance + step
            np.clip(covariance, -field.bound, field.bound, out=covariance)
        else:
            raise _not_converged(residual)
        return (
            self.readout.total(features),
            self._tangent(features, slope, covariance) if self.tangent else None,
            self._evidence(steps, residual),
        )

    def _tangent(self, features: Array, slope: Array, covariance: Array) -> Array:
        """Θ = G + Σ B Λ with B = F' ∘ (R + σ_a² 𝒜 B), (10.3); B in units of R."""
        weight, mix = self.layers[0].weight, self.readout.mix
        adjoint = slope
        for _ in range(20 * MAX_STEPS):
            moved = slope * (1.0 + weight * mix(adjoint))
            change = float(np.abs(moved - adjoint).max())
            adjoint = moved
            if change * self.rate <= TOLERANCE * (1.0 - self.rate) * float(np.abs(adjoint).max()):
                break
        return self.readout.total(features) + self.readout.total(adjoint * covariance)


def _paired(left: Strips | None, right: Strips | None, i: int, others: slice | int) -> PairedPowers:
    """The series of one sample and those of others, as compiled loops want them."""
    if left is None or right is None:
        none: IntArray = np.zeros(0, dtype=np.intp)
        empty = np.zeros(0), none, np.zeros((0, 0))
        several = np.zeros((0, 0)), none[:, None], np.zeros((0, 0, 0))
        return empty, several if isinstance(others, slice) else empty, (0, 1)
    return left.of(i), right.of(others), left.powers


def _chunks(count: int) -> Iterator[slice]:
    """Samples whose series are made and used together, few enough that these stay in a cache."""
    for start in range(0, count, TOGETHER):
        yield slice(start, min(start + TOGETHER, count))


def _not_converged(residual: float) -> ConvergenceError:
    return ConvergenceError(
        f"The covariances of two samples did not converge: residual {residual:.2g} after {MAX_STEPS} steps.",
        "Lower sigma_a2: the map is close to losing its contraction.",
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

    def tile(self, start: Array, rows: slice, columns: slice, *, diagonal: bool) -> ImageTile:
        """The kernels of these pairs; by compiled loops where all layers have a closed form, for "flatten"."""
        if not self.readout.flatten or any(method.bent is None for method in self.methods):
            return super().tile(start, rows, columns, diagonal=diagonal)
        depth = range(len(self.layers))
        sides = [
            (
                self._images(side, part),
                np.stack(
                    [
                        self._moments(side, part, k, np.ones_like(self.sides[side].forcing[part]))
                        for k in depth
                    ],
                    1,
                ),
            )
            for side, part in ((0, rows), (-1, columns))
        ]
        layers = np.array(
            [[one.weight, one.inject, one.constant, *self._slopes(k)] for k, one in enumerate(self.layers)]
        )
        values, tangents = np.zeros(start.shape), np.zeros(start.shape)
        for i in range(len(start)):
            count = i + 1 if diagonal else start.shape[1]
            explicit_images(
                sides[0][0][i], sides[1][0][:count], sides[0][1][i], sides[1][1][:count], self._grid(), layers,
                self.readout.weight, self.tangent, values[i, :count], tangents[i, :count],
            )  # fmt: skip
        return self._finished(values, tangents, self._evidence(), diagonal)

    def _evidence(self) -> KernelInfo:
        info = KernelInfo(0, 0.0, 0.0, 0)
        for method, layer in zip(self.methods, self.layers, strict=True):
            one = KernelInfo(0, 0.0, info.error_bound + method.error, 0, (method.name,))
            info = info.merge(one.provided(layer.phi.caveat, layer.phi.shape.inaccuracy))
        return info

    def fill(self, first: int, others: slice) -> tuple[Array, Array | None, KernelInfo]:
        """G and Θ after the last layer."""
        mix, covariances, slopes = self.readout.mix, [], []
        forcing, fields = self._forcing(first, others), self._fields(first, others)
        features = forcing
        for number, (layer, field) in enumerate(zip(self.layers, fields, strict=True)):
            before = mix(features) if number else forcing
            covariance = layer.weight * before + layer.inject * forcing * bool(number) + layer.constant
            np.clip(covariance, -field.bound, field.bound, out=covariance)
            features, slope = field(covariance, self.tangent)
            covariances.append(covariance)
            slopes.append(slope)
        value = self.readout.total(features)
        info = self._evidence()
        if not self.tangent:
            return value, None, info
        tangent, adjoint = value, slopes[-1]
        for number in range(len(self.layers) - 1, -1, -1):
            tangent = tangent + self.readout.total(adjoint * covariances[number])
            if number:
                adjoint = slopes[number - 1] * (self.layers[number].weight * mix(adjoint))
        return value, tangent, info


__all__ = ["ImageEquilibrium", "ImageFeedforward"]
