"""Compiled loops: polynomials of registers, and Newton's method for all pairs of a tile, line by line.

Registers are one array (registers, rows, columns). Those that a line alone needs use their first line: `moving` is 0
for them and 1 for the others, so that the line i of register r is regs[r, i * moving[r]]. What a line needs stays in
the first cache. There are no slices in these loops: each would cost a reference count, as much as thirty columns.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.duals.strips import OPTIONS

# Least 1 - J that Newton's method divides by: below it the equation has all but lost its solution.
STEEPEST = 1e-4
# Steps, relative to √(q q'), below which F' need not be carried along them.
SETTLED = 2e-15
# What a sweep does: form the first guess; take a step with F of a few digits; take a step, move F and F' along it and
# write the kernels; write the kernels.
GUESS, ROUGH, FULL, WRITE = 0, 1, 2, 3


@njit(**OPTIONS, forceinline=True)
def _line(tables, p, regs, moving, i, row, stop, o, at):  # type: ignore[no-untyped-def]
    """Line i of polynomial p, up to column `stop`, into line `at` of register o; `row` is the first of the tile."""
    starts, first, factors, lefts, rights, wide = tables
    t, end = starts[p], starts[p + 1]
    new = True
    if end - t > 1 and first[t + 2] - first[t] == 2 and first[t + 1] - first[t] == 1:
        # Most begin with two registers: one loop for both.
        x, y, c, d = factors[first[t]], factors[first[t] + 1], lefts[t, row + i], lefts[t + 1, row + i]
        u, v = i * moving[x], i * moving[y]
        if wide[t] or wide[t + 1]:
            for j in range(stop):
                regs[o, at, j] = c * rights[t, j] * regs[x, u, j] + d * rights[t + 1, j] * regs[y, v, j]
        else:
            for j in range(stop):
                regs[o, at, j] = c * regs[x, u, j] + d * regs[y, v, j]
        t, new = t + 2, False
    if new:
        for j in range(stop):
            regs[o, at, j] = 0.0
    while t < end:
        c, more = lefts[t, row + i], first[t + 1] - first[t]
        x, y = (factors[first[t]] if more else 0), (factors[first[t] + 1] if more > 1 else 0)
        u, v = i * moving[x], i * moving[y]
        if more > 2:
            long = np.empty(stop)
            for j in range(stop):
                long[j] = c * rights[t, j]
            for k in range(first[t], first[t + 1]):
                z, w = factors[k], i * moving[factors[k]]
                for j in range(stop):
                    long[j] *= regs[z, w, j]
            for j in range(stop):
                regs[o, at, j] += long[j]
        elif wide[t]:
            if more == 0:
                for j in range(stop):
                    regs[o, at, j] += c * rights[t, j]
            elif more == 1:
                for j in range(stop):
                    regs[o, at, j] += c * rights[t, j] * regs[x, u, j]
            else:
                for j in range(stop):
                    regs[o, at, j] += c * rights[t, j] * regs[x, u, j] * regs[y, v, j]
        elif more == 0:
            for j in range(stop):
                regs[o, at, j] += c
        elif more == 1:
            for j in range(stop):
                regs[o, at, j] += c * regs[x, u, j]
        else:
            for j in range(stop):
                regs[o, at, j] += c * regs[x, u, j] * regs[y, v, j]
        t += 1


@njit(**OPTIONS)
def combine(tables, p, regs, moving, o, row, lower):  # type: ignore[no-untyped-def]
    """Polynomial p into register o; with `lower` up to the diagonal, and zero beyond it."""
    for i in range(regs.shape[1]):
        _line(tables, p, regs, moving, i, row, i + 1 if lower else regs.shape[2], o, i)
        if lower:
            for j in range(i + 1, regs.shape[2]):
                regs[o, i, j] = 0.0


@njit(**OPTIONS, forceinline=True)
def _eliminate(regs, base, count, stop):  # type: ignore[no-untyped-def]
    """Solve (1 - J) x = right for each pair of a line: registers from `base` on have the right side, then J by rows."""
    if count == 1:
        for j in range(stop):
            regs[base, 0, j] /= max(1.0 - regs[base + 1, 0, j], STEEPEST)
        return
    matrix = base + count
    for k in range(count):
        for o in range(count):
            one = 1.0 if k == o else 0.0
            for j in range(stop):
                regs[matrix + k * count + o, 0, j] = one - regs[matrix + k * count + o, 0, j]
    for k in range(count):
        pivot = matrix + k * count
        for j in range(stop):
            regs[pivot + k, 0, j] = 1.0 / max(regs[pivot + k, 0, j], STEEPEST)
        for o in range(k + 1, count):
            other = matrix + o * count
            for j in range(stop):
                regs[other + k, 0, j] *= regs[pivot + k, 0, j]
            for j in range(stop):
                regs[base + o, 0, j] -= regs[other + k, 0, j] * regs[base + k, 0, j]
            for c in range(k + 1, count):
                for j in range(stop):
                    regs[other + c, 0, j] -= regs[other + k, 0, j] * regs[pivot + c, 0, j]
    for k in range(count - 1, -1, -1):
        for c in range(k + 1, count):
            for j in range(stop):
                regs[base + k, 0, j] -= regs[matrix + k * count + c, 0, j] * regs[base + c, 0, j]
        for j in range(stop):
            regs[base + k, 0, j] *= regs[matrix + k * count + k, 0, j]


@njit(**OPTIONS, forceinline=True)
def _guess(left, right, e, i, odd, regs, line, c, f, df, stop, free):  # type: ignore[no-untyped-def]
    """A line of F and F' that are exact at ρ = 0 and, for equal variances, at ρ = 1.

    F ≈ M_0M_0' + M_1M_1'c + (α + β ρ²) ρ^p, p = 2, or 3 for an odd activation. The registers `free` and the two after
    it are overwritten.
    """
    power = 3.0 if odd else 2.0
    mean, first, rest, steep, inverse = (
        left[e, 0, i],
        left[e, 1, i],
        left[e, 2, i],
        left[e, 3, i],
        left[e, 4, i],
    )
    rho, alpha, beta = free, free + 1, free + 2
    # Loops over few arrays: with more the compiler cannot rule out that they overlap, and uses no vectors.
    for j in range(stop):
        regs[rho, 0, j] = min(max(regs[c, line, j] * (inverse * right[e, 4, j]), -1.0), 1.0)
    for j in range(stop):
        whole = rest * right[e, 2, j]
        part = min(max(0.5 * (steep * right[e, 3, j] - power * whole), 0.0), whole)
        regs[beta, 0, j] = part
        regs[alpha, 0, j] = whole - part
    for j in range(stop):
        x = regs[rho, 0, j]
        lead = x * x * (x if odd else 1.0) * (regs[alpha, 0, j] + regs[beta, 0, j] * x * x)
        regs[f, line, j] = mean * right[e, 0, j] + first * right[e, 1, j] * regs[c, line, j] + lead
    for j in range(stop):
        x = regs[rho, 0, j]
        lead = (
            x * (x if odd else 1.0) * (power * regs[alpha, 0, j] + (power + 2.0) * regs[beta, 0, j] * x * x)
        )
        regs[df, line, j] = first * right[e, 1, j] + lead * (inverse * right[e, 4, j])


@njit(**OPTIONS)
def sweep(  # type: ignore[no-untyped-def]
    tables, regs, moving, row, lower, level, equations, nodes, left, right, guess, guesses, narrowest, writing
):  # fmt: skip
    """One Newton step for all pairs of a tile, line by line; what it does is said by `level`.

    F' is at most √(E1 E1') in the whole unit disc of ρ, so that by Cauchy's estimate the square of step/(1 - |ρ|)
    bounds what carrying it along the step leaves out; for smooth activations that of step/narrowest does as well.

    Args:
        tables: the polynomials.
        regs: the registers; those of the unknowns are 1, 2, ….
        moving: 0 for registers of a line, 1 for the others.
        row: the first of the tile; what belongs to columns is cut to the tile, so that its index is that of the line.
        lower: pairs above the diagonal are not needed, and those on it are known.
        level: GUESS, ROUGH, FULL or WRITE.
        equations: number of unknowns, the first of the registers of the linear equation (right sides, matrix, and four
            free ones), and the polynomials of the lines of a step (with their registers), residuals, matrix, forcing.
        nodes: what changes from step to step, in order: register of A or C, of F, F' and F'' (0 for C), the first
            polynomial of ∂/∂U or -1-k for the unknown k, that of A or C, whether the activation is odd, its guess.
        left: (3, unknowns, samples): √q, 1/√q, and what the first guess is multiplied with.
        right: the same of the columns.
        guess: (expectations, 5, samples), terms of the first guess of F.
        guesses: the same of the columns.
        narrowest: reciprocal of the largest relative change of F' over that of a correlation.
        writing: polynomials and registers of values; of tangent kernels the lines, the right sides, the kernels.

    Returns:
        The largest change of a correlation, the root of the error of F' that carrying it leaves, and the rate r for
        which errors grow by 1/(1 - r).
    """
    n, m = regs.shape[1:]
    count, base, lines, residual, jacobian, forcing = equations
    values, tangent_lines, rights, tangents = writing
    matrix, free = base + count, base + count + count * count
    spare = free + 4
    delta = spare + count + count * count
    worst, error, growth = np.zeros(m), np.zeros(m), np.zeros(m)
    for i in range(n):
        stop = i + 1 if lower else m
        if level == GUESS:
            for k in range(count):
                bound, grown = left[0, k, row + i], left[2, k, row + i]
                if tables[0][forcing[k]] < tables[0][forcing[k] + 1]:
                    _line(tables, forcing[k], regs, moving, i, row, stop, free, 0)
                else:
                    for j in range(stop):
                        regs[free, 0, j] = regs[0, i, j]
                for j in range(stop):
                    most = bound * right[0, k, j]
                    regs[1 + k, i, j] = min(max(regs[free, 0, j] * (grown * right[2, k, j]), -most), most)
                if lower:
                    regs[1 + k, i, i] = bound * right[0, k, i]
            for e in range(len(nodes)):
                if nodes[e, 4] >= 0:
                    _line(tables, nodes[e, 5], regs, moving, i, row, stop, nodes[e, 0], i)
                if nodes[e, 1] > 0:
                    _guess(
                        guess, guesses, nodes[e, 7], row + i, nodes[e, 6] == 1, regs, i, nodes[e, 0], nodes[e, 1],
                        nodes[e, 2], stop, free,
                    )  # fmt: skip
        if level != WRITE:
            for p in range(len(lines)):
                _line(tables, lines[p, 0], regs, moving, i, row, stop, lines[p, 1], 0)
            for k in range(count):
                _line(tables, residual[k], regs, moving, i, row, stop, base + k, 0)
                for o in range(count):
                    _line(tables, jacobian[k, o], regs, moving, i, row, stop, matrix + k * count + o, 0)
            if count == 1:  # one loop for all
                own = left[0, 0, row + i]
                for j in range(stop):
                    bound, known = own * right[0, 0, j], regs[1, i, j]
                    fresh = known + (regs[base, 0, j] - known) / max(1.0 - regs[matrix, 0, j], STEEPEST)
                    regs[base, 0, j] = min(max(fresh, -bound), bound) - known
            else:
                for k in range(count):
                    for j in range(stop):
                        regs[base + k, 0, j] -= regs[1 + k, i, j]
                _eliminate(regs, base, count, stop)
                for k in range(count):
                    own = left[0, k, row + i]
                    for j in range(stop):
                        bound, known = own * right[0, k, j], regs[1 + k, i, j]
                        regs[base + k, 0, j] = min(max(known + regs[base + k, 0, j], -bound), bound) - known
            for k in range(count):
                if lower:
                    regs[base + k, 0, i] = 0.0
                for j in range(stop):
                    regs[1 + k, i, j] += regs[base + k, 0, j]
        if level == GUESS:
            continue
        if level == FULL:
            # Errors grow by the row sums of (1 - |J|)⁻¹.
            past = i if lower else m
            if count == 1:
                for j in range(past):
                    growth[j] = max(growth[j], abs(regs[matrix, 0, j]))
            elif count > 1:
                for k in range(count):
                    for j in range(stop):
                        regs[spare + k, 0, j] = 1.0
                    for o in range(count):
                        at = spare + count + k * count + o
                        _line(tables, jacobian[k, o], regs, moving, i, row, stop, at, 0)
                        for j in range(stop):
                            regs[at, 0, j] = abs(regs[at, 0, j])
                _eliminate(regs, spare, count, stop)
                for k in range(count):
                    for j in range(past):
                        growth[j] = max(growth[j], 1.0 - 1.0 / max(abs(regs[spare + k, 0, j]), 1.0))
        for k in range(count if level != WRITE else 0):
            over = left[1, k, row + i]
            if level == ROUGH:
                for j in range(stop):
                    worst[j] = max(worst[j], abs(regs[base + k, 0, j]) * (over * right[1, k, j]))
                continue
            for j in range(stop):
                scale = over * right[1, k, j]
                length = abs(regs[base + k, 0, j]) * scale
                worst[j] = max(worst[j], length)
                room = max(max(1.0 - abs(regs[1 + k, i, j]) * scale, narrowest), 1e-30)
                error[j] = max(error[j], (length if length > SETTLED else 0.0) / room)
        if level == ROUGH:
            continue
        if level == FULL:
            # All arguments move before F and F' do, which their derivatives contain.
            for e in range(len(nodes)):
                first, moved = nodes[e, 4], delta + e
                if first < 0:
                    continue
                for j in range(stop):
                    regs[moved, 0, j] = 0.0
                for k in range(count):
                    if tables[0][first + k] < tables[0][first + k + 1]:
                        _line(tables, first + k, regs, moving, i, row, stop, free, 0)
                        for j in range(stop):
                            regs[moved, 0, j] += regs[free, 0, j] * regs[base + k, 0, j]
                for j in range(stop):
                    regs[nodes[e, 0], i, j] += regs[moved, 0, j]
            for e in range(len(nodes)):
                f, df, ddf = nodes[e, 1], nodes[e, 2], nodes[e, 3]
                if f == 0:
                    continue
                moved = delta + e if nodes[e, 4] >= 0 else base - 1 - nodes[e, 4]
                for j in range(stop):
                    regs[f, i, j] += regs[df, i, j] * regs[moved, 0, j]
                for j in range(stop):
                    regs[df, i, j] += regs[ddf, i, j] * regs[moved, 0, j]
        for p in range(len(values)):
            _line(tables, values[p, 0], regs, moving, i, row, stop, values[p, 1], i)
        if len(tangents):
            for p in range(len(lines)):
                _line(tables, lines[p, 0], regs, moving, i, row, stop, lines[p, 1], 0)
            for p in range(len(tangent_lines)):
                _line(tables, tangent_lines[p, 0], regs, moving, i, row, stop, tangent_lines[p, 1], 0)
            # The tangent kernel of the unknowns solves a linear equation with the same matrix.
            for k in range(count):
                _line(tables, rights[k], regs, moving, i, row, stop, base + k, 0)
                for o in range(count):
                    _line(tables, jacobian[k, o], regs, moving, i, row, stop, matrix + k * count + o, 0)
            _eliminate(regs, base, count, stop)
            for p in range(len(tangents)):
                _line(tables, tangents[p, 0], regs, moving, i, row, stop, tangents[p, 1], i)
    return worst.max(), error.max(), growth.max()


__all__ = ["FULL", "GUESS", "ROUGH", "SETTLED", "WRITE", "combine", "sweep"]
