"""The solution at the nodes of a table: Newton's method on interpolants in the angle, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.pairs.compiled_series import FAST, WIDTH

MOST_STEPS = 60


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def solve_at_nodes(  # type: ignore[no-untyped-def]
    values, slopes, gain, pull, above, goal, opposite, epsilon, first, final, least, last, symmetric, value, slope
):  # fmt: skip
    """h = (1 - ρ)/2 of ρ = f P(ρ) + r for every two variances and every r, then F and F' there, scaled.

    Args:
        values: (rows, columns, orders) Chebyshev coefficients of F/√(S_i S_j) in the coordinate (3.28) of h.
        slopes: the same of F'/√(E1_i E1_j).
        gain: f √(S_i S_j)/(s_i s_j).
        pull: f √(E1_i E1_j).
        above: 1 - R₊.
        goal: (rows, columns, nodes) R₊ - r.
        opposite: r - R₋.
        epsilon: that of the coordinate.
        first: where its range begins.
        final: where it ends.
        least: the smallest h.
        last: the smallest 1 - h.
        symmetric: rows and columns are the same, and only one half is solved.
        value: (rows, columns, nodes) receives F.
        slope: the same for F'.
    """
    rows, columns, count = goal.shape
    orders = values.shape[2]
    # The coordinate z, then Clenshaw's sums of F and of F'.
    work = np.zeros(5 * WIDTH)
    guess = np.zeros(WIDTH)
    for i in range(rows):
        if symmetric:
            columns = i + 1
        for j in range(columns):
            for start in range(0, count, WIDTH):
                width = min(WIDTH, count - start)
                for k in range(WIDTH):
                    place = start + min(k, width - 1)
                    whole = goal[i, j, place] + opposite[i, j, place]
                    guess[k] = min(max(goal[i, j, place] / whole, least), 1.0 - last)
                done = False
                for step in range(MOST_STEPS + 1):
                    for k in range(WIDTH):
                        near, far = np.sqrt(guess[k]), np.sqrt(1.0 - guess[k])
                        ratio = (near + np.sqrt(guess[k] + epsilon * epsilon)) / (
                            far + np.sqrt(1.0 - guess[k] + epsilon * epsilon)
                        )
                        work[k] = (2.0 * np.log(ratio) - first - final) / (final - first)
                    _two_sums(values[i, j], slopes[i, j], orders, work)
                    if done or step == MOST_STEPS:
                        break
                    change = 0.0
                    for k in range(width):
                        h = guess[k]
                        gap = 2.0 * h - (above[i, j] - gain[i, j] * work[k + WIDTH]) - goal[i, j, start + k]
                        move = gap / (2.0 * max(1.0 - pull[i, j] * work[k + 3 * WIDTH], 1e-4))
                        fresh = max(h - move, max(0.1 * h, least))
                        fresh = min(fresh, 1.0 - max(0.1 * (1.0 - h), last))
                        change = max(change, abs(fresh - h))
                        guess[k] = fresh
                    done = change <= 1e-15
                for k in range(width):
                    value[i, j, start + k] = work[k + WIDTH]
                    slope[i, j, start + k] = work[k + 3 * WIDTH]
                    if symmetric:
                        value[j, i, start + k] = work[k + WIDTH]
                        slope[j, i, start + k] = work[k + 3 * WIDTH]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _two_sums(values, slopes, orders, work):  # type: ignore[no-untyped-def]
    """Σ_k values[k] T_k(z) and Σ_k slopes[k] T_k(z), into the second and the fourth part of `work`."""
    for j in range(WIDTH):
        work[j + WIDTH] = work[j + 2 * WIDTH] = work[j + 3 * WIDTH] = work[j + 4 * WIDTH] = 0.0
    for k in range(orders - 1, -1, -1):
        one, other, twice = values[k], slopes[k], 2.0 if k > 0 else 1.0
        for j in range(WIDTH):
            z, f, df = twice * work[j], work[j + WIDTH], work[j + 3 * WIDTH]
            work[j + WIDTH] = one + z * f - work[j + 2 * WIDTH]
            work[j + 2 * WIDTH] = f
            work[j + 3 * WIDTH] = other + z * df - work[j + 4 * WIDTH]
            work[j + 4 * WIDTH] = df
