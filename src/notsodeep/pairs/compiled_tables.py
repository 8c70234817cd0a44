"""The inner loops of solution tables: coordinates of the pairs of a tile, values and slopes, docs/theory.md (3.27) ff.

Columns are taken in strips of WIDTH; loops over a strip are innermost, free of branches and written out over a few
orders, which is what lets the compiler use the vector units and keep sums in registers.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from notsodeep.pairs.compiled_series import FAST, WIDTH

# Orders of a series are taken in steps of this, which is written out below.
ORDER_STEP = 4


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def table_coordinates(  # type: ignore[no-untyped-def]
    c, kappa, shift_left, shift_right, inverse_left, inverse_right, end_rows, end_columns, epsilon, floor, odd,
    both_ends, lower, coordinate, delay, todo,
):  # fmt: skip
    """t and |dr/dt| of the pairs of a tile, docs/theory.md (3.27) and (3.28).

    The ends of r are Σ_e end_rows[i, 0 or 1, e] end_columns[e, j], as distances to ±1; ±1 without any.  An odd function
    is asked for |r|: the sign of r is that of `delay`.  A negative epsilon stands for roots in the place of arsinh.
    Pairs with d < floor are marked in `todo`, and placed at the floor.  Returns the smallest and the largest d, the
    smallest 1 - d, and how many pairs are marked.
    """
    rows, columns = c.shape
    near, far, over = np.ones(columns), np.ones(columns), np.full(columns, 0.5)
    above, below = np.zeros(columns), np.zeros(columns)
    smallest, largest, opposite = 1.0, 0.0, 1.0
    left_over = 0
    tabulated = end_rows.shape[2] > 0
    for i in range(rows):
        if lower:
            columns = i
        line, shift, inverse = c[i], shift_left[i], inverse_left[i]
        t, slow = coordinate[i], delay[i]
        for j in range(columns):
            r = (kappa * line[j] + shift + shift_right[j]) * inverse * inverse_right[j]
            far[j] = abs(r) if odd else r
            slow[j] = r
        if tabulated:
            _products(end_rows[i, 0], end_columns, above)
            _products(end_rows[i, 0 if odd else 1], end_columns, below)
            for j in range(columns):
                r = far[j]
                over[j] = 1.0 / (2.0 - above[j] - below[j])
                near[j] = ((1.0 - r) - above[j]) * over[j]
                far[j] = ((1.0 + r) - below[j]) * over[j]
        else:
            for j in range(columns):
                near[j] = 0.5 - 0.5 * far[j]
            for j in range(columns):
                far[j] = 0.5 + 0.5 * far[j]
        low, high, last = 1.0, 0.0, 1.0
        for j in range(columns):
            low = min(low, near[j])
        for j in range(columns):
            high = max(high, near[j])
        for j in range(columns):
            last = min(last, far[j])
        smallest, largest, opposite = min(smallest, low), max(largest, high), min(opposite, last)
        if low < floor or last < 0.0:
            # Without a floor what is beyond the end of r is so by rounding.
            if floor > 0.0:
                for j in range(columns):
                    todo[i, j] = near[j] < floor
                    left_over += near[j] < floor
            for j in range(columns):
                near[j] = min(max(near[j], floor), 1.0)
                far[j] = min(max(far[j], 0.0), 1.0 - floor)
        _place(near, far, over, epsilon, both_ends, columns, t, slow)
    return max(smallest, 0.0), min(largest, 1.0), max(opposite, 0.0), left_over


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _products(factors, columns, result):  # type: ignore[no-untyped-def]
    """result_j = Σ_e factors[e] columns[e, j]; the number of factors is even."""
    for e in range(0, len(factors), 2):
        a0, a1, c0, c1 = factors[e], factors[e + 1], columns[e], columns[e + 1]
        if e == 0:
            for j in range(len(result)):
                result[j] = a0 * c0[j] + a1 * c1[j]
        else:
            for j in range(len(result)):
                result[j] += a0 * c0[j] + a1 * c1[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _place(near, far, over, epsilon, both_ends, count, t, slow):  # type: ignore[no-untyped-def]
    """t and |dr/dt|, (3.28), from d = `near`, 1 - d = `far` and 1/(R₊ - R₋) = `over`; `slow` has the sign to keep."""
    square = epsilon * epsilon
    if epsilon < 0.0:
        if both_ends:
            for j in range(count):
                x, y = np.sqrt(near[j]), np.sqrt(far[j])
                t[j] = x - y
                slow[j] = np.copysign(2.0 * x * y / ((x + y) * over[j]), slow[j])
        else:
            for j in range(count):
                x = np.sqrt(near[j])
                t[j] = x - 1.0
                slow[j] = np.copysign(2.0 * x / over[j], slow[j])
        return
    # arsinh(√d/ε) = ½ log((2 d + ε² + 2 s)/ε²) with s = √(d (d + ε²)), and its derivative in d is 1/(2 s).
    if both_ends:
        for j in range(count):
            d, e = near[j], far[j]
            x, y = np.sqrt(d * (d + square)), np.sqrt(e * (e + square))
            t[j] = (d + d + square + x + x) / (e + e + square + y + y)
            slow[j] = np.copysign(2.0 * x * y / ((x + y) * over[j]), slow[j])
    else:
        beyond = 1.0 / (2.0 + square + 2.0 * np.sqrt(1.0 + square))
        for j in range(count):
            d = near[j]
            x = np.sqrt(d * (d + square))
            t[j] = (d + d + square + x + x) * beyond
            slow[j] = np.copysign(2.0 * x / over[j], slow[j])
    _half_logarithm(t, t.view(np.int64), count, near, near.view(np.int64), far)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _half_logarithm(result, bits, count, mantissa, mantissa_bits, exponent):  # type: ignore[no-untyped-def]
    """½ log of positive numbers, in place, written out so that it is vectorised.

    x = 2^e m with m in [1/√2, √2), and log m = 2 atanh f, f = (m - 1)/(m + 1), |f| < 0.172.
    """
    for j in range(count):
        exponent[j] = float((bits[j] >> 52) - 1023)
        mantissa_bits[j] = (bits[j] & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000
    for j in range(count):
        m, e = mantissa[j], exponent[j]
        large = m > 1.4142135623730951
        m = 0.5 * m if large else m
        e = e + 1.0 if large else e
        f = (m - 1.0) / (m + 1.0)
        s = f * f
        p = 1.0 / 19.0
        p = p * s + 1.0 / 17.0
        p = p * s + 1.0 / 15.0
        p = p * s + 1.0 / 13.0
        p = p * s + 1.0 / 11.0
        p = p * s + 1.0 / 9.0
        p = p * s + 1.0 / 7.0
        p = p * s + 1.0 / 5.0
        p = p * s + 1.0 / 3.0
        result[j] = e * 0.34657359027997264 + f * (1.0 + s * p)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def table_values(  # type: ignore[no-untyped-def]
    table, size, lengths, columns, start, stop, left, right, over_left, over_right, feedback, odd, derivative, lower,
    coordinate, delay, value, slope,
):  # fmt: skip
    """Values of a local table at the coordinates of a tile, times left_i right_j, and with `derivative` also F'.

    For row i, order k < size and column j the coefficient is table[i, k] + Σ_r products[r//2, k, r%2] columns[strip, r,
    j], where products (pairs of orders, size, 2) are the rest of table[i]; lengths[r//2] of their orders, a multiple of
    ORDER_STEP, are not zero.  F' follows from the derivative of the same series, docs/theory.md (3.33), where
    over_left_i over_right_j is √(S_i S_j)/(s_i s_j).  `coordinate` may be `value` and `delay` may be `slope`.
    """
    rows, width_of_tile = coordinate.shape
    # Parts of one array: the compiler need not ask at run time whether they overlap.
    work = np.zeros(7 * WIDTH)
    buffer = np.zeros(size * WIDTH)
    scale, middle = 2.0 / (stop - start), 0.5 * (stop + start)
    for i in range(rows):
        end = i if lower else width_of_tile
        scaled = -scale * over_left[i]
        for strip in range((end + WIDTH - 1) // WIDTH):
            first = strip * WIDTH
            last = min(first + WIDTH, end)
            t, slow = coordinate[i, first:last], delay[i, first:last]
            for j in range(len(t)):
                work[j] = min(max((t[j] - middle) * scale, -1.0), 1.0)
            filled = _contract(table[i], size, lengths, columns[strip], buffer)
            _sums(table[i], size, filled, buffer, work, derivative)
            f, right_part = value[i, first:last], right[first:last]
            for j in range(len(f)):
                found = (
                    (work[j + 3 * WIDTH] - work[j + WIDTH] * work[j + 4 * WIDTH]) * left[i] * right_part[j]
                )
                f[j] = np.copysign(1.0, slow[j]) * found if odd else found
            if derivative:
                df, over_part = slope[i, first:last], over_right[first:last]
                for j in range(len(df)):
                    # dP/dr = F'/(1 - f F').
                    rise = work[j + 5 * WIDTH] - work[j + 2 * WIDTH] * work[j + 4 * WIDTH]
                    rise = (rise - work[j + WIDTH] * work[j + 6 * WIDTH]) * scaled * over_part[j]
                    df[j] = rise / (abs(slow[j]) + feedback * rise)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _contract(table, size, lengths, columns, buffer):  # type: ignore[no-untyped-def]
    """Coefficients of the pairs of a strip for all orders that differ from column to column; returns their number."""
    filled = lengths[0] if len(lengths) else 0
    for pair in range(len(lengths)):
        c = columns[2 * WIDTH * pair : 2 * WIDTH * (pair + 1)]
        products = table[size + 2 * size * pair : 3 * size + 2 * size * pair]
        for k in range(0, lengths[pair], ORDER_STEP):
            b = buffer[k * WIDTH : (k + ORDER_STEP) * WIDTH]
            p0, q0, p1, q1 = products[2 * k], products[2 * k + 1], products[2 * k + 2], products[2 * k + 3]
            p2, q2, p3, q3 = (
                products[2 * k + 4],
                products[2 * k + 5],
                products[2 * k + 6],
                products[2 * k + 7],
            )
            if pair == 0:
                a0, a1, a2, a3 = table[k], table[k + 1], table[k + 2], table[k + 3]
                for j in range(WIDTH):
                    x, y = c[j], c[j + WIDTH]
                    b[j] = a0 + p0 * x + q0 * y
                    b[j + WIDTH] = a1 + p1 * x + q1 * y
                    b[j + 2 * WIDTH] = a2 + p2 * x + q2 * y
                    b[j + 3 * WIDTH] = a3 + p3 * x + q3 * y
            else:
                for j in range(WIDTH):
                    x, y = c[j], c[j + WIDTH]
                    b[j] += p0 * x + q0 * y
                    b[j + WIDTH] += p1 * x + q1 * y
                    b[j + 2 * WIDTH] += p2 * x + q2 * y
                    b[j + 3 * WIDTH] += p3 * x + q3 * y
    return filled


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _sums(constants, size, filled, buffer, work, derivative):  # type: ignore[no-untyped-def]
    """Σ_m (a_{4m} + a_{4m+1} z + a_{4m+2} z² + a_{4m+3} z³) T_m(y), y = T_4(z), is f1 - y f2: Clenshaw's recursion.

    From orders without columns to those in the buffer.  `work` holds z, y, dy/dz, f1, f2, and the derivatives g1 and g2
    of the last two.
    """
    for j in range(WIDTH):
        double = 2.0 * work[j] * work[j] - 1.0
        work[j + WIDTH] = 2.0 * double * double - 1.0
        work[j + 2 * WIDTH] = 16.0 * work[j] * double
        work[j + 3 * WIDTH] = 0.0
        work[j + 4 * WIDTH] = 0.0
        work[j + 5 * WIDTH] = 0.0
        work[j + 6 * WIDTH] = 0.0
    for k in range(size - ORDER_STEP, filled - 1, -ORDER_STEP):
        a0, a1, a2, a3 = constants[k], constants[k + 1], constants[k + 2], constants[k + 3]
        if derivative:
            for j in range(WIDTH):
                x, twice, f, g = work[j], 2.0 * work[j + WIDTH], work[j + 3 * WIDTH], work[j + 5 * WIDTH]
                first = a3 * x + a2
                second = first * x + a1
                rise = (a3 * x + first) * x + second
                work[j + 5 * WIDTH] = twice * g + (
                    2.0 * work[j + 2 * WIDTH] * f + (rise - work[j + 6 * WIDTH])
                )
                work[j + 6 * WIDTH] = g
                work[j + 3 * WIDTH] = twice * f + (second * x + (a0 - work[j + 4 * WIDTH]))
                work[j + 4 * WIDTH] = f
        else:
            for j in range(WIDTH):
                x, f = work[j], work[j + 3 * WIDTH]
                here = ((a3 * x + a2) * x + a1) * x + a0
                work[j + 3 * WIDTH] = 2.0 * work[j + WIDTH] * f + (here - work[j + 4 * WIDTH])
                work[j + 4 * WIDTH] = f
    for k in range(filled - ORDER_STEP, -1, -ORDER_STEP):
        b = buffer[k * WIDTH : (k + ORDER_STEP) * WIDTH]
        if derivative:
            for j in range(WIDTH):
                x, twice, f, g = work[j], 2.0 * work[j + WIDTH], work[j + 3 * WIDTH], work[j + 5 * WIDTH]
                top = b[j + 3 * WIDTH]
                first = top * x + b[j + 2 * WIDTH]
                second = first * x + b[j + WIDTH]
                rise = (top * x + first) * x + second
                work[j + 5 * WIDTH] = twice * g + (
                    2.0 * work[j + 2 * WIDTH] * f + (rise - work[j + 6 * WIDTH])
                )
                work[j + 6 * WIDTH] = g
                work[j + 3 * WIDTH] = twice * f + (second * x + (b[j] - work[j + 4 * WIDTH]))
                work[j + 4 * WIDTH] = f
        else:
            for j in range(WIDTH):
                x, f = work[j], work[j + 3 * WIDTH]
                here = ((b[j + 3 * WIDTH] * x + b[j + 2 * WIDTH]) * x + b[j + WIDTH]) * x + b[j]
                work[j + 3 * WIDTH] = 2.0 * work[j + WIDTH] * f + (here - work[j + 4 * WIDTH])
                work[j + 4 * WIDTH] = f


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def packed(local, lengths):  # type: ignore[no-untyped-def]
    """The coefficients of `cut_series` in the form of `table_values`, with their size and lengths.

    Of the shape (m, size · (1 + 2 · pairs of orders)).  Coefficients of T_k become those of `_sums`: T_{4m+i} = 2 T_i
    T_{4m} - T_{4m-i}, from the last step down to the second; then T_2 and T_3 in powers of z.
    """
    rank = 0
    for b in range(len(lengths)):
        rank += lengths[b] > 0
    pairs = rank // 2
    size = -(-lengths[0] // ORDER_STEP) * ORDER_STEP
    flat, c = np.zeros((len(local), size * (1 + 2 * pairs))), np.zeros(size)
    rounded = np.zeros(pairs, dtype=np.int64)
    for pair in range(pairs):
        rounded[pair] = -(-lengths[2 * pair + 1] // ORDER_STEP) * ORDER_STEP
    for a in range(len(local)):
        for b in range(rank):
            for k in range(size):
                c[k] = local[a, k, b] if k < lengths[b] else 0.0
            for k in range(size - ORDER_STEP, -1, -ORDER_STEP):
                if k > 0:
                    for i in range(1, ORDER_STEP):
                        c[k - i] -= c[k + i]
                        c[k + i] *= 2.0
                c[k] -= c[k + 2]
                c[k + 1] -= 3.0 * c[k + 3]
                c[k + 2] *= 2.0
                c[k + 3] *= 4.0
            begin, stride = (0, 1) if b == 0 else (size * (1 + 2 * ((b - 1) // 2)) + (b - 1) % 2, 2)
            for k in range(size):
                flat[a, begin + stride * k] = c[k]
    return flat, size, rounded


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def restriction(count, middle, half):  # type: ignore[no-untyped-def]
    """T_k(middle + half z) = Σ_j result[k, j] T_j(z) for k < count, by the three-term recursion."""
    result = np.zeros((count, count))
    result[0, 0] = 1.0
    if count > 1:
        result[1, 0], result[1, 1] = middle, half
    for k in range(1, count - 1):
        now, after = result[k], result[k + 1]
        for j in range(k + 1):
            after[j] = 2.0 * middle * now[j] - result[k - 1, j]
        # 2 z T_j = T_{j+1} + T_{|j-1|}
        for j in range(k + 1):
            after[j + 1] += half * now[j]
            after[abs(j - 1)] += half * now[j]
    return result


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def cut_series(local, rise, limit):  # type: ignore[no-untyped-def]
    """How many of the orders in t of a tile's coefficients (m, K, m') matter; sets the others to zero.

    Returns the number for each of the m' orders of the columns, and a bound of what was dropped.  With a rise the
    derivative V in t is cut, of which rise · V matters; else the series itself.
    """
    count, orders, width = local.shape
    short = np.zeros_like(local) if rise > 0.0 else local
    for a in range(count):
        into = local[a]
        if rise > 0.0:
            # v_j = v_{j+2} + 2 (j+1) c_{j+1}, v_0 halved; c_0 stays where it is, so that v_j stands at j + 1.
            first = into[0].copy()
            for j in range(orders - 2, -1, -1):
                for b in range(width):
                    short[a, j + 1, b] = 2.0 * (j + 1) * into[j + 1, b]
                    if j + 3 < orders:
                        short[a, j + 1, b] += short[a, j + 3, b]
            for b in range(width):
                short[a, 0, b] = first[b]
                if orders > 1:
                    short[a, 1, b] *= 0.5
    source = short if rise > 0.0 else local
    lengths, dropped = np.zeros(width, dtype=np.int64), 0.0
    for b in range(width - 1, -1, -1):
        rest, length = 0.0, orders
        while length > 0:
            size = 0.0
            for a in range(len(source)):
                size += abs(source[a, length - 1, b])
            # The series is at most 1/order of its derivative.
            weight = max(rise, 1.0 / max(length - 2, 1)) if rise > 0.0 and length > 1 else 1.0
            if rest + weight * size > limit / width:
                break
            rest += weight * size
            length -= 1
        lengths[b] = length if b == width - 1 else max(length, lengths[b + 1])
        dropped += rest
    lengths[0] = max(lengths[0], 1)
    for a in range(len(source)):
        for b in range(width):
            for k in range(lengths[b], orders):
                source[a, k, b] = 0.0
    if rise > 0.0:
        # c_k = (v_{k-1} - v_{k+1})/(2k); c_1 = v_0 - v_2/2.
        for a in range(len(local)):
            for k in range(1, orders):
                for b in range(width):
                    after = short[a, k + 2, b] if k + 2 < orders else 0.0
                    before = 2.0 * short[a, 1, b] if k == 1 else short[a, k, b]
                    local[a, k, b] = (before - after) / (2.0 * k)
    return lengths, dropped
