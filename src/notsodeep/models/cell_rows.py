"""Kernels of cells of rows: tiles of pairs through the plan, by Newton's method where there is an equilibrium.

Most of the time goes into evaluations of F.  The first guess costs none; then F is evaluated roughly until steps are
short, and usually once to all digits: F and F' are carried along the last step to first order (docs/theory.md, (3.5)).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from notsodeep.cells.structure import Cell
from notsodeep.duals.dual import Dual, DualEvidence
from notsodeep.duals.near_parallel import NearPairs, PairEquation
from notsodeep.duals.sides import Side
from notsodeep.errors import ConvergenceError
from notsodeep.gaussian.activations import Activation
from notsodeep.kernel_names import Kernel
from notsodeep.models.own_terms import Affine, Own, solve_own
from notsodeep.models.plan import EVERY, GRAM, RECURRENT, Polynomial, Slot, Symbol, compile_plan
from notsodeep.models.plan_sweeps import FULL, GUESS, ROUGH, SETTLED, WRITE, combine, sweep
from notsodeep.models.programs import (
    CORRELATION_ROUNDING,
    ROUNDING,
    EntrywiseTile,
    RowProgram,
    guess_terms,
    is_kinked,
    slope_condition,
    slope_rounding,
    straight_rounding,
)
from notsodeep.models.protocol import Samples
from notsodeep.models.spot_check import SpotCheck
from notsodeep.models.tiling import mirror_lower
from notsodeep.results import KernelInfo
from notsodeep.validation import Array, IntArray

# Newton steps, at most, and those with F of a few digits; the length of a step from which F is evaluated to all digits.
MAX_STEPS, ROUGH_STEPS, SHORT = 60, 4, 1.5e-3
# After so many steps those below this length that no longer get shorter are the last: near the loss of contraction
# rounding is amplified by 1/(1 - J).
PATIENCE, STALLED = 20, 1e-10
# Root of the error of F' that carrying it along the last step may leave; where several follow each other errors add up.
CARRIED, CARRIED_ON = 1e-6, 2e-7
# How far rounding may move a correlation, in units of that of a number.
NOISE = 1000.0 * 2.0**-52


class Tables:
    """The polynomials of a plan with the numbers of two sets of samples, as arrays for compiled loops.

    Args:
        polynomials: the polynomials.
        registers: the number of each register.
        left: what is known of the samples of the rows.
        right: the same of the columns.
    """

    def __init__(
        self, polynomials: dict[Symbol, Polynomial], registers: dict[Symbol, int], left: Own, right: Own
    ) -> None:
        rows, columns = len(left.squares), len(right.squares)
        self.number = {name: number for number, name in enumerate(polynomials)}
        starts, first, factors, wide = [0], [0], [], []
        lefts: list[Array] = []
        rights: list[Array] = []
        for terms in polynomials.values():
            # Terms with the same registers and the same right side are one term.
            merged: dict[Any, tuple[Array, Array | None]] = {}
            for term in terms:
                own, other = _product(term.left, left, term.scale), _product(term.right, right, 1.0)
                whole = None if other.size == 1 else other
                own = own * other[0] if whole is None else own
                key = (
                    tuple(sorted(registers[one] for one in term.registers)),
                    None if whole is None else whole.tobytes(),
                )
                merged[key] = (merged[key][0] + own if key in merged else own), whole
            # Shorter terms first, which have loops of their own.
            for (places, _), (own, whole) in sorted(
                merged.items(), key=lambda item: _ORDER.get(len(item[0][0]), 4)
            ):
                factors += places
                first.append(len(factors))
                lefts.append(np.broadcast_to(own, rows))
                rights.append(np.broadcast_to(1.0 if whole is None else whole, columns))
                wide.append(whole is not None)
            starts.append(len(lefts))
        self.starts, self.first = np.array(starts), np.array(first)
        self.factors = np.array([*factors, 0], dtype=np.int64)
        self.left = np.array(lefts).reshape(len(lefts), rows)
        self.right = np.array(rights).reshape(len(rights), columns)
        self.wide = np.array([*wide, False], dtype=np.bool_)

    def part(self, columns: slice) -> tuple[Any, ...]:
        """The tables for tiles with these columns."""
        right = np.ascontiguousarray(self.right[:, columns])
        return self.starts, self.first, self.factors, self.left, right, self.wide


# Terms with one register come first, then those with two, none, or more.
_ORDER = {1: 0, 2: 1, 0: 2}


def _product(slots: tuple[Slot, ...], own: Own, scale: float) -> Array:
    """The product of what is known of samples; one number if it is the same for all."""
    value = np.full(1, scale)
    for slot in slots:
        part = own.slots[slot]
        value = value * (part[:1] if len(part) and (part == part[0]).all() else part)
    return value


@dataclass
class _Tile:
    """One rectangle of pairs while it is computed."""

    rows: slice
    columns: slice
    diagonal: bool
    registers: Array
    tables: tuple[Any, ...]
    near: NearPairs | None
    evidence: dict[int, DualEvidence] = field(default_factory=dict)
    turned: float = 0.0
    steps: int = 0
    residual: float = 0.0
    rate: float = 0.0

    @property
    def number(self) -> int:
        """A number of this tile: the spot check notes another pair in each."""
        return int(self.rows.start + 3 * self.columns.start)


class CellRows(RowProgram):
    """A cell of rows prepared for two sets of samples.

    Args:
        cell: the cell.
        steps: how often it is applied; None for the equilibrium.
        left: samples of the rows.
        right: samples of the columns; None for the same.
        kernels: the kernels to compute.
        ends: of a loop, the steps after which rows and columns are read; both after the last if not given.
        paper: which weights the papers' tangent kernel counts.
    """

    def __init__(
        self,
        cell: Cell,
        steps: int | None,
        left: Samples,
        right: Samples | None,
        kernels: tuple[Kernel, ...],
        ends: tuple[int, int] | None = None,
        paper: int = RECURRENT,
    ) -> None:
        super().__init__(left, right)
        self.kernels, self.tangent = kernels, any(kernel.is_tangent for kernel in kernels)
        self.plan = compile_plan(cell, steps, kernels, ends, paper)
        rows, columns = self.squares
        self.own = [solve_own(self.plan, rows, tangent=self.tangent)]
        self.own.append(
            self.own[0] if columns is None else solve_own(self.plan, columns, tangent=self.tangent)
        )
        self.symmetric = columns is None and (ends is None or ends[0] == ends[1])
        self.same = columns is None
        self._prepare_duals()
        self.affine = self._chain()
        self._check_slopes()
        self.watch = self.tangent and self.affine is not None and any(map(is_kinked, self.plan.activations))
        self._number_registers()
        self.tables = Tables(self.plan.polynomials, self.registers, *self.own)
        self._prepare_sweeps()
        self._memory = threading.local()

    def integrate_all_pairs(self) -> None:
        """Compute F of every pair by quadrature."""
        for dual in self._duals.values():
            dual.careful = True

    # --- preparations -------------------------------------------------------------------------------------------------

    def _prepare_duals(self) -> None:
        """One engine of pairs for each activation, over all variances that occur; and the sides of expectations."""
        plan, (left, right) = self.plan, self.own
        self._duals: dict[Activation, Dual] = {}
        self._expect_sides: list[tuple[Side, Side]] = []
        used = [node[1] for node in plan.order if node[0] == "A"]
        for phi in plan.activations:
            mine = [plan.expects[e] for e in used if plan.expects[e].phi == phi]
            spans = [o.variances[v] for one in mine for o, v in ((left, one.one), (right, one.two))]
            pairs = len(left.squares) * len(right.squares) * len(mine)
            self._duals[phi] = Dual(phi, np.concatenate(spans or [np.ones(1)]), pairs=pairs)
        rows: dict[Any, Side] = {}
        for expect in plan.expects:
            dual, key = self._duals[expect.phi], (expect.phi, expect.one)
            if key not in rows:
                rows[key] = dual.rows(left.variances[expect.one][None])
            if self.same and expect.one == expect.two:
                self._expect_sides.append((rows[key], dual.columns_like(rows[key])))
            else:
                self._expect_sides.append((rows[key], dual.columns(right.variances[expect.two][None])))
        self._checks = {phi: SpotCheck(self._duals[phi].phi, self.tangent) for phi in self._duals}
        self.checks = list(self._checks.values())
        bends = [
            np.inf if is_kinked(dual.phi) else slope_condition(dual.phi.shape, dual.range)
            for dual in self._duals.values()
            if not dual.is_constant
        ]
        self.condition = max([1.0, *bends])

    def _chain(self) -> dict[int, Affine] | None:
        """What enters each expectation, if each reads the one before it, itself and the inputs alone."""
        plan, before, chain = self.plan, None, {}
        for node in plan.order:
            number = node[1]
            affine = Affine.of(plan, node, before) if node[0] == "A" else None
            if affine is None or plan.expects[number].one != plan.expects[number].two:
                return None
            chain[number], before = affine, number
        return chain if len(plan.unknown) <= 1 else None

    def _check_slopes(self) -> None:
        """Refuse the tangent kernel of a DEQ whose derivatives grow, and note its largest slope."""
        self.steepest = 0.0
        if self.plan.unknown and self.affine is not None and len(self.affine) == 1:
            ((number, equation),) = self.affine.items()
            steep = max(float(side.steep.max()) for side in self._expect_sides[number])
            self.steepest = equation.feedback * steep
            if self.tangent and self.steepest >= 1.0:
                raise ConvergenceError(
                    f"The tangent kernel diverges: σ_a² E[φ'²] = {self.steepest:.4g} ≥ 1.",
                    f"Lower sigma_a2 below {equation.feedback / self.steepest:.4g}, or use an activation with smaller "
                    "slopes.",
                )

    @cached_property
    def noise(self) -> float:
        """How far rounding of F may move a correlation: an offset may be nearly all of it."""
        worst = 1.0
        if self.affine is not None:
            for number, equation in self.affine.items():
                for side in self._expect_sides[number]:
                    size = np.where(side.silent, 0.0, side.energy + 2.0 * side.phi.offset**2)
                    worst = max(worst, 0.01 * equation.feedback * float((size / side.variances).max()))
        return NOISE * worst

    def _number_registers(self) -> None:
        """A number for each register; of a loop those that are not needed any more are used again."""
        plan = self.plan
        self._lines: dict[Symbol, list[Symbol]] = {}
        for line in (line for lines in plan.tangent_lines.values() for line in lines):
            self._lines.setdefault(line[1], []).append(line)
        self.registers: dict[Symbol, int] = {GRAM: 0} | {("U", k): 1 + k for k in range(len(plan.unknown))}
        self.registers |= {node: self.registers["U", k] for k, node in enumerate(plan.unknown)}
        if plan.unknown:
            self._number_equilibrium()
        else:
            self._number_loop()
        self.moving = np.ones(self.count, dtype=np.int64)
        if plan.unknown:
            self.moving[self.first_line : self.last_line] = 0

    def _number_equilibrium(self) -> None:
        plan, count = self.plan, len(self.plan.unknown)
        places = self.registers
        for node in plan.order:
            kinds = ("A", "F", "dF", "ddF") if node[0] == "A" else ("C",)
            for kind in kinds:
                places.setdefault((kind, node[1]), len(set(places.values())))
        self.first_line = len(set(places.values()))
        lines = dict.fromkeys(
            [*plan.step_lines, *(line for part in plan.tangent_lines.values() for line in part)]
        )
        places |= {line: self.first_line + k for k, line in enumerate(lines)}
        self.base = self.first_line + len(lines)
        places |= {("t", k): self.base + k for k in range(count)}
        # Two linear equations, four free lines and the moves of all registers.
        self.last_line = self.base + 2 * (count + count**2) + 4 + len(plan.loop)
        self.outputs = {kernel: self.last_line + k for k, kernel in enumerate(self.kernels)}
        self.count = self.last_line + len(self.kernels)

    def _number_loop(self) -> None:
        """Registers that no later operation reads are free again."""
        plan, places = self.plan, self.registers
        operations: list[tuple[Symbol, list[Symbol]]] = []
        for node in plan.order:
            reads = _registers_of(plan.polynomials[node])
            operations.append((node, reads))
            if node[0] == "A":
                operations += [((kind, node[1]), [node]) for kind in ("F", "dF")]
            operations += [
                (line, _registers_of(plan.polynomials[line])) for line in self._lines.get(node, [])
            ]
        results = [
            (("out", kernel), _registers_of(plan.polynomials["out", kernel])) for kernel in self.kernels
        ]
        last: dict[Symbol, int] = {}
        for place, (name, reads) in enumerate([*operations, *results]):
            last |= dict.fromkeys([name, *reads], place)
        for node in plan.order:
            if node[0] == "A":
                # F and F' are written together.
                last["F", node[1]] = max(last["F", node[1]], last["dF", node[1]])
                last["A", node[1]] = max(last["A", node[1]], last["F", node[1]])
        ending: dict[int, list[Symbol]] = {}
        for name, end in last.items():
            ending.setdefault(end, []).append(name)
        free: list[int] = []
        self.count = 1
        for place, (name, _) in enumerate(operations):
            free += [places[old] for old in ending.get(place - 1, []) if old in places and old != GRAM]
            if name not in places:
                places[name] = free.pop() if free else self.count
                self.count = max(self.count, places[name] + 1)
        self.outputs = {kernel: self.count + k for k, kernel in enumerate(self.kernels)}
        self.count += len(self.kernels)

    def _prepare_sweeps(self) -> None:
        """What the compiled sweep is given."""
        plan, number, places = self.plan, self.tables.number, self.registers
        count = range(len(plan.unknown))
        if not plan.unknown:
            return
        self.bounds = [self._unknown_terms(side) for side in (0, 1)]
        forcing = [number["forcing", k] for k in count]
        self.equations = (
            len(plan.unknown),
            self.base,
            _pairs((number[line], places[line]) for line in plan.step_lines),
            np.array([number["R", k] for k in count]),
            np.array([[number["J", k, o] for o in count] for k in count]),
            np.array(forcing),
        )
        self.nodes = np.zeros((len(plan.loop), 8), dtype=np.int64)
        guesses: list[list[Array]] = [[], []]
        for place, node in enumerate(plan.loop):
            unknown = plan.unknown.index(node) if node in plan.unknown else None
            self.nodes[place, 0] = places[node]
            self.nodes[place, 4] = number["D", node, 0] if unknown is None else -1 - unknown
            self.nodes[place, 5] = number[node] if unknown is None else -1
            if node[0] == "A":
                e = node[1]
                self.nodes[place, 1:4] = [places[kind, e] for kind in ("F", "dF", "ddF")]
                self.nodes[place, 6] = plan.expects[e].phi.parity == -1
                self.nodes[place, 7] = len(guesses[0])
                for side, part in zip(self._expect_sides[e], guesses, strict=True):
                    part.append(self._guess_terms(side))
        self.guesses = [np.array(part) if part else np.zeros((0, 5, 1)) for part in guesses]
        values = [kernel for kernel in self.kernels if not kernel.is_tangent]
        self.writing = []
        for kind in sorted(plan.tangent_lines) or [EVERY]:
            tangents = [kernel for kernel in self.kernels if plan.kinds.get(kernel) == kind]
            lines = plan.tangent_lines.get(kind, [])
            self.writing.append(
                (
                    _pairs((number["out", kernel], self.outputs[kernel]) for kernel in values),
                    _pairs((number[line], places[line]) for line in lines),
                    np.array([number["RT", k, kind] if tangents else 0 for k in count]),
                    _pairs((number["out", kernel], self.outputs[kernel]) for kernel in tangents),
                )
            )

    def _unknown_terms(self, which: int) -> Array:
        """√q of each unknown, 1/√q, and what the first guess is multiplied with: what enters, or the Gram matrix."""
        plan, own = self.plan, self.own[which]
        terms = np.ones((3, len(plan.unknown), len(own.squares)))
        for k, node in enumerate(plan.unknown):
            q, forcing = own.of_unknown(plan, node, which), plan.polynomials["forcing", k]
            alone = sum(
                (
                    _product(term.left, own, term.scale)
                    * _product(term.right, own, 1.0)
                    * (own.squares if term.registers else 1.0)
                    for term in forcing
                ),
                np.zeros(len(q)),
            )
            alone = alone if forcing else own.squares
            growth = np.sqrt(np.divide(q, alone, out=np.ones_like(q), where=alone > 0.0))
            root = np.sqrt(q)
            terms[:, k] = root, np.divide(1.0, root, out=np.zeros_like(q), where=q > 0.0), growth
        return terms

    def _guess_terms(self, side: Side) -> Array:
        """Terms of the first guess of F, and 1/√q."""
        terms = guess_terms(side)[:, 0]
        if self.steepest >= 1.0:
            # Next to ρ = 1 the map is no contraction: Newton's method must start from the linear part of F.
            terms[2:] = 0.0
        return np.concatenate([terms, 1.0 / side.root[:1]])

    # --- one tile -----------------------------------------------------------------------------------------------------

    def tile(self, c: Array, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        """The kernels of a rectangle of pairs."""
        registers = self._workspace(*c.shape)
        lower = diagonal and self.symmetric
        if lower:
            # What lies above the diagonal must be no large correlation.
            registers[1 : 1 + len(self.plan.unknown)] = 0.0
        registers[0] = c
        near = self.near_parallel(c, rows, columns, diagonal) if self.watch else None
        tile = _Tile(rows, columns, lower, registers, self.tables.part(columns), near)
        if self.plan.unknown:
            self._solve(tile)
        else:
            self._apply(tile)
        info = self._info(tile)
        for kernel in self.kernels:
            if lower:
                mirror_lower(registers[self.outputs[kernel]])
        return EntrywiseTile({kernel: registers[place] for kernel, place in self.outputs.items()}, info)

    def _workspace(self, rows: int, columns: int) -> Array:
        """The registers of this thread: the same memory for every tile."""
        size = self.count * rows * columns
        if getattr(self._memory, "size", 0) < size:
            self._memory.size, self._memory.flat = size, np.zeros(size)
        flat: Array = self._memory.flat
        return flat[:size].reshape(self.count, rows, columns)

    def _combine(self, tile: _Tile, name: Symbol, into: int) -> None:
        combine(
            tile.tables,
            self.tables.number[name],
            tile.registers,
            self.moving,
            into,
            tile.rows.start,
            tile.diagonal,
        )

    def _expect(self, tile: _Tile, e: int, level: int) -> bool:
        """F, F' and, at the last level, F''; returns whether pairs were integrated one by one."""
        plan, places, registers = self.plan, self.registers, tile.registers
        expect, (left, right) = plan.expects[e], self._expect_sides[e]
        rows, columns = left[tile.rows], right[tile.columns]
        own = tile.diagonal and expect.one == expect.two
        a, value, slope = (registers[places[kind, e]][None] for kind in ("A", "F", "dF"))
        bends = level == FULL and e not in plan.free and bool(plan.unknown)
        bend = registers[places["ddF", e]][None] if bends else None
        dual = self._duals[expect.phi]
        tile.evidence[e] = dual.tiles(rows, columns, a, value, slope, bend, lower=own, rough=level == ROUGH)
        for side, lines, others in ((rows, value[0], columns), (columns, value[0].T, rows)):
            if side.silent.any():
                # A sample of variance zero is independent of every other.
                lines[side.silent[0]] = side.still * others.mean[0]
        if own:
            np.fill_diagonal(value[0], rows.energy[0])
            np.fill_diagonal(slope[0], rows.steep[0])
        return bool(tile.evidence[e].fallback_pairs)

    def _apply(self, tile: _Tile) -> None:
        """A cell without unknowns: every register once."""
        plan = self.plan
        for node in plan.order:
            self._combine(tile, node, self.registers[node])
            if node[0] == "A":
                e = node[1]
                if tile.diagonal and plan.expects[e].one == plan.expects[e].two:
                    np.fill_diagonal(
                        tile.registers[self.registers[node]], self._expect_sides[e][0][tile.rows].root[0] ** 2
                    )
                self._expect(tile, e, WRITE)
                self._correct(tile, e)
                self._note(tile, e)
            for line in self._lines.get(node, []):
                self._combine(tile, line, self.registers[line])
        for kernel, place in self.outputs.items():
            self._combine(tile, ("out", kernel), place)

    def _correct(self, tile: _Tile, e: int) -> bool:
        """Replace F' of nearly parallel pairs; returns whether there are any."""
        if tile.near is None or self.affine is None:
            return False
        equation, near = self.affine[e], tile.near
        feedback = PairEquation()
        if self.plan.unknown:
            feedback = PairEquation(equation.feedback, equation.gain, equation.constant)
        elif equation.before:
            near.enter(equation.before, equation.gain, equation.constant)
        else:
            near.enter(equation.gain, 0.0, equation.constant)
        rows, columns = self._expect_sides[e][0][tile.rows], self._expect_sides[e][1][tile.columns]
        near.correct(
            self._duals[self.plan.expects[e].phi].phi,
            feedback,
            rows,
            columns,
            tile.registers[self.registers["dF", e]],
        )
        return True

    def _note(self, tile: _Tile, e: int) -> None:
        """Note a few pairs for the spot check, and by how much rounding may turn F'."""
        expect, (left, right) = self.plan.expects[e], self._expect_sides[e]
        rows, columns = left[tile.rows], right[tile.columns]
        a, value, slope = (tile.registers[self.registers[kind, e]][None] for kind in ("A", "F", "dF"))
        own = tile.diagonal and expect.one == expect.two
        if own:
            # Samples with themselves are known.
            a = a.copy()
            np.fill_diagonal(a[0], 0.0)
        noted = self._checks[expect.phi].add(rows, columns, a, value, slope, tile.number)
        dual = self._duals[expect.phi]
        if not self.tangent or dual.is_constant:
            return
        if not is_kinked(expect.phi):
            if self.affine is None:
                tile.turned += CORRELATION_ROUNDING * slope_condition(expect.phi.shape, dual.range)
        elif self.affine is None or expect.phi.shape.pieces is None:
            tile.turned += slope_rounding(dual, rows, columns, a, diagonal=own)
        else:
            tile.turned += straight_rounding(dual, noted, a[0], tile.near, rows, columns)

    def _solve(self, tile: _Tile) -> None:
        """Newton's method for the unknowns of all pairs."""
        plan = self.plan
        for node in plan.order:
            if node[0] == "A" and node[1] in plan.free:
                self._combine(tile, node, self.registers[node])
                self._expect(tile, node[1], FULL)
        right, guesses = (
            np.ascontiguousarray(part[..., tile.columns]) for part in (self.bounds[1], self.guesses[1])
        )

        def step(level: int, writing: int = 0) -> tuple[float, float, float]:
            return sweep(  # type: ignore[no-any-return]
                tile.tables, tile.registers, self.moving, tile.rows.start, tile.diagonal, level, self.equations,
                self.nodes, self.bounds[0], right, self.guesses[0], guesses, 1.0 / self.condition,
                self.writing[writing],
            )  # fmt: skip

        step(GUESS)
        rough, before = True, np.inf
        carried = CARRIED if len(plan.loop) == 1 else CARRIED_ON
        for number in range(1, MAX_STEPS + 1):
            one_by_one = self._evaluate_loop(tile, ROUGH if rough else FULL)
            if not self._is_finite(tile):
                # The caller notices it, and computes all pairs again by quadrature.
                tile.registers[list(self.outputs.values())] = np.nan
                tile.steps, tile.residual = number, np.inf
                return
            largest, error, rate = step(ROUGH if rough else FULL)
            if rough:
                rough = largest > SHORT and number < ROUGH_STEPS
                continue
            floor = self.noise if number < PATIENCE else max(self.noise, STALLED)
            carry = not one_by_one and error <= carried
            # Rounding may prevent shorter steps; the last one is part of the error bound.
            if carry or largest <= SETTLED or (largest <= floor and largest >= 0.5 * before):
                tile.steps, tile.residual, tile.rate = number, error**2 if carry else largest, rate
                break
            before = largest
        else:
            raise ConvergenceError(
                f"The covariances of some pairs did not converge: the last of {MAX_STEPS} Newton steps was "
                f"{largest:.2g}.",
                "Lower sigma_a2, or the variances of the weights: the map is close to losing its contraction.",
            )
        corrected = False
        for node in plan.order:
            if node[0] == "A":
                corrected |= self._correct(tile, node[1])
                self._note(tile, node[1])
        for writing in range(0 if corrected else 1, len(self.writing)):
            step(WRITE, writing)

    def _evaluate_loop(self, tile: _Tile, level: int) -> bool:
        """All registers that change from step to step; returns whether pairs were integrated one by one."""
        one_by_one = False
        for node in self.plan.loop:
            if node not in self.plan.unknown:
                self._combine(tile, node, self.registers[node])
            if node[0] == "A":
                one_by_one |= self._expect(tile, node[1], level)
        return one_by_one

    def _is_finite(self, tile: _Tile) -> bool:
        places = [self.registers["F", node[1]] for node in self.plan.loop if node[0] == "A"]
        return all(np.isfinite(tile.registers[place].sum()) for place in places)

    def _info(self, tile: _Tile) -> KernelInfo:
        """How far the kernels may be off: errors of all expectations, of the solution, and of rounding."""
        margin, together = max(1.0 - tile.rate, 1e-9), DualEvidence()
        error = tile.residual + tile.turned / margin
        for evidence in tile.evidence.values():
            together = together.merge(evidence)
            error += evidence.error + ROUNDING
        info = KernelInfo(
            tile.steps,
            tile.residual,
            max(error, ROUNDING) / margin,
            together.fallback_pairs,
            together.methods,
        )
        for phi in self.plan.activations:
            info = info.with_caveat(phi.caveat, phi.shape.inaccuracy / margin) if phi.caveat else info
        return info


def _registers_of(terms: Polynomial) -> list[Symbol]:
    return [symbol for term in terms for symbol in term.registers]


def _pairs(items: Any) -> IntArray:
    """Pairs of numbers as an array (n, 2)."""
    return np.array(list(items), dtype=np.int64).reshape(-1, 2)


__all__ = ["CellRows"]
