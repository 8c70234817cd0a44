"""The inner loops of solution tables: coordinates of the pairs of a tile, then values and slopes, docs/theory.md (3.27) ff.

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
    both_ends, lower, chosen, coordinate, rate, todo,
):  # fmt: skip
    """t and dt/dr of the pairs of a tile, docs/theory.md (3.27) and (3.28).

    The ends of r are Σ_e end_rows[i, 0 or 1, e] end_columns[strip, e, j], as distances to ±1; ±1 without any.  An odd function is asked
    for |r|: the sign of r is that of `rate`.  Returns the smallest and the largest d, the smallest 1 - d, the smallest
    and the largest t and the largest dt/dr of pairs with d ≥ floor, and how many have not: these are marked in `todo`.
    Strips without a pair that is `chosen` are left as they are.
    """
    rows, columns = c.shape
    r, sign = np.zeros(WIDTH), np.ones(WIDTH)
    near, far = np.ones(WIDTH), np.ones(WIDTH)
    above, below, over = np.zeros(WIDTH), np.zeros(WIDTH), np.ones(WIDTH)
    ratio, t, steep = np.ones(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    mantissa, exponent = np.ones(WIDTH), np.zeros(WIDTH)
    ratio_bits, mantissa_bits = ratio.view(np.int64), mantissa.view(np.int64)
    smallest, largest, opposite = 1.0, 0.0, 1.0
    first_t, last_t, fastest = np.inf, -np.inf, 0.0
    left_over = 0
    square = epsilon * epsilon
    beyond = 1.0 / (2.0 + square + 2.0 * np.sqrt(1.0 + square))
    tabulated = end_rows.shape[2] > 0
    for j in range(WIDTH):
        over[j] = 0.5
    for i in range(rows):
        if lower:
            columns = i
        for strip in range((columns + WIDTH - 1) // WIDTH):
            first = strip * WIDTH
            width = min(WIDTH, columns - first)
            wanted = 0
            for j in range(width):
                wanted += chosen[i, first + j]
            if wanted == 0:
                continue
            for j in range(width):
                target = kappa * c[i, first + j] + shift_left[i] + shift_right[first + j]
                r[j] = target * inverse_left[i] * inverse_right[first + j]
            for j in range(width, WIDTH):
                r[j] = r[0]
            if tabulated:
                _products(end_rows[i, 0], end_columns[strip], above)
                if not odd:
                    _products(end_rows[i, 1], end_columns[strip], below)
                for j in range(WIDTH):
                    over[j] = 1.0 / (2.0 - above[j] - (above[j] if odd else below[j]))
            if odd:
                for j in range(WIDTH):
                    sign[j] = -1.0 if r[j] < 0.0 else 1.0
                for j in range(WIDTH):
                    near[j] = min(max(((1.0 - abs(r[j])) - above[j]) * over[j], 0.0), 1.0)
                    far[j] = min(max(((1.0 + abs(r[j])) - above[j]) * over[j], 0.0), 1.0)
            else:
                for j in range(WIDTH):
                    near[j] = min(max(((1.0 - r[j]) - above[j]) * over[j], 0.0), 1.0)
                    far[j] = min(max(((1.0 + r[j]) - below[j]) * over[j], 0.0), 1.0)
            low = 1.0
            for j in range(width):
                low = min(low, near[j])
            for j in range(width):
                largest = max(largest, near[j])
            for j in range(width):
                opposite = min(opposite, far[j])
            smallest = min(smallest, low)
            if low < floor:
                for j in range(width):
                    todo[i, first + j] = near[j] < floor
                    left_over += near[j] < floor
                for j in range(WIDTH):
                    near[j], far[j] = max(near[j], floor), min(far[j], 1.0 - floor)
            # arsinh(√d/ε) = ½ log((2 d + ε² + 2 s)/ε²) with s = √(d (d + ε²)), and its derivative in d is 1/(2 s).
            if both_ends:
                for j in range(WIDTH):
                    d, e = near[j], far[j]
                    x, y = np.sqrt(d * (d + square)), np.sqrt(e * (e + square))
                    ratio[j] = (d + d + square + x + x) / (e + e + square + y + y)
                    # At an end it is not used.
                    steep[j] = 0.5 * over[j] * (x + y) / max(x * y, 1e-300)
            else:
                for j in range(WIDTH):
                    d = near[j]
                    x = np.sqrt(d * (d + square))
                    ratio[j] = (d + d + square + x + x) * beyond
                    steep[j] = 0.5 * over[j] / max(x, 1e-300)
            _logarithm(ratio_bits, mantissa_bits, mantissa, exponent, t)
            for j in range(WIDTH):
                t[j] *= 0.5
            for j in range(width):
                first_t = min(first_t, t[j])
            for j in range(width):
                last_t = max(last_t, t[j])
            for j in range(width):
                fastest = max(fastest, steep[j])
            for j in range(width):
                coordinate[i, first + j] = t[j]
                rate[i, first + j] = sign[j] * steep[j]
    return smallest, largest, opposite, first_t, last_t, fastest, left_over


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _products(factors, columns, result):  # type: ignore[no-untyped-def]
    """result_j = Σ_e factors[e] columns[e, j]; the number of factors is even."""
    for j in range(WIDTH):
        result[j] = factors[0] * columns[0, j] + factors[1] * columns[1, j]
    for e in range(2, len(factors), 2):
        a0, a1, c0, c1 = factors[e], factors[e + 1], columns[e], columns[e + 1]
        for j in range(WIDTH):
            result[j] += a0 * c0[j] + a1 * c1[j]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _logarithm(bits, mantissa_bits, mantissa, exponent, result):  # type: ignore[no-untyped-def]
    """Natural logarithm on a strip, written out so that it is vectorised.

    x = 2^e m with m in [1/√2, √2), and log m = 2 atanh f, f = (m - 1)/(m + 1), |f| < 0.172.
    """
    for j in range(WIDTH):
        exponent[j] = float((bits[j] >> 52) - 1023)
        mantissa_bits[j] = (bits[j] & 0x000FFFFFFFFFFFFF) | 0x3FF0000000000000
    for j in range(WIDTH):
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
        result[j] = e * 0.6931471805599453 + 2.0 * f * (1.0 + s * p)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def table_values(  # type: ignore[no-untyped-def]
    table, size, lengths, columns, start, stop, left, right, odd, lower, chosen, coordinate, rate, result
):  # fmt: skip
    """Values of a local table at the coordinates of a tile, times left_i right_j.

    For row i, order k < size and column j the coefficient is table[i, k] + Σ_r products[r//2, k, r%2] columns[strip, r,
    j], where products (pairs of orders, size, 2) are the rest of table[i]; lengths[r//2] of their orders, a multiple of
    ORDER_STEP, are not zero.
    """
    rows, width_of_tile = coordinate.shape
    z, f1, f2 = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    buffer = np.zeros((size, WIDTH))
    scale, middle = 2.0 / (stop - start), 0.5 * (stop + start)
    for i in range(rows):
        end = i if lower else width_of_tile
        for strip in range((end + WIDTH - 1) // WIDTH):
            first = strip * WIDTH
            width = min(WIDTH, end - first)
            if not _any(chosen[i, first : first + width]):
                continue
            for j in range(width):
                z[j] = min(max((coordinate[i, first + j] - middle) * scale, -1.0), 1.0)
            filled = _contract(table[i], size, lengths, columns[strip], buffer)
            _sums(table[i], size, filled, buffer, z, f1, f2)
            for j in range(width):
                result[i, first + j] = (f1[j] - z[j] * f2[j]) * left[i] * right[first + j]
            if odd:
                for j in range(width):
                    result[i, first + j] *= -1.0 if rate[i, first + j] < 0.0 else 1.0


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def table_values_and_slopes(  # type: ignore[no-untyped-def]
    table, size, lengths, columns, start, stop, left, right, over_left, over_right, feedback, odd, lower, chosen,
    coordinate, rate, value, slope,
):  # fmt: skip
    """F and F' from a local table of F alone, docs/theory.md (3.33): F' from the derivative of the same series.

    `left` and `right` are √S, `over_left` and `over_right` √S/√q; `coordinate` may be `value` and `rate` may be
    `slope`.
    """
    rows, width_of_tile = coordinate.shape
    z, f1, f2 = np.zeros(WIDTH), np.zeros(WIDTH), np.zeros(WIDTH)
    g1, g2 = np.zeros(WIDTH), np.zeros(WIDTH)
    buffer = np.zeros((size, WIDTH))
    scale, middle = 2.0 / (stop - start), 0.5 * (stop + start)
    for i in range(rows):
        end = i if lower else width_of_tile
        for strip in range((end + WIDTH - 1) // WIDTH):
            first = strip * WIDTH
            width = min(WIDTH, end - first)
            if not _any(chosen[i, first : first + width]):
                continue
            for j in range(width):
                z[j] = min(max((coordinate[i, first + j] - middle) * scale, -1.0), 1.0)
            filled = _contract(table[i], size, lengths, columns[strip], buffer)
            _sums_and_derivatives(table[i], size, filled, buffer, z, f1, f2, g1, g2)
            scaled = -scale * over_left[i]
            if odd:
                for j in range(width):
                    turned = -1.0 if rate[i, first + j] < 0.0 else 1.0
                    value[i, first + j] = (f1[j] - z[j] * f2[j]) * left[i] * right[first + j] * turned
            else:
                for j in range(width):
                    value[i, first + j] = (f1[j] - z[j] * f2[j]) * left[i] * right[first + j]
            for j in range(width):
                # dP/dr = F'/(1 - f F').
                rise = g1[j] - f2[j] - z[j] * g2[j]
                whole = rise * scaled * over_right[first + j] * abs(rate[i, first + j])
                slope[i, first + j] = whole / (1.0 + feedback * whole)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _any(chosen):  # type: ignore[no-untyped-def]
    count = 0
    for j in range(len(chosen)):
        count += chosen[j]
    return count > 0


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _contract(table, size, lengths, columns, buffer):  # type: ignore[no-untyped-def]
    """Coefficients of the pairs of a strip for all orders that differ from column to column; returns their number."""
    filled = lengths[0] if len(lengths) else 0
    for pair in range(len(lengths)):
        c0, c1 = columns[2 * pair], columns[2 * pair + 1]
        products = table[size + 2 * size * pair : 3 * size + 2 * size * pair]
        for k in range(0, lengths[pair], ORDER_STEP):
            b0, b1, b2, b3 = buffer[k], buffer[k + 1], buffer[k + 2], buffer[k + 3]
            p0, q0, p1, q1 = products[2 * k], products[2 * k + 1], products[2 * k + 2], products[2 * k + 3]
            p2, q2, p3, q3 = products[2 * k + 4], products[2 * k + 5], products[2 * k + 6], products[2 * k + 7]
            if pair == 0:
                a0, a1, a2, a3 = table[k], table[k + 1], table[k + 2], table[k + 3]
                for j in range(WIDTH):
                    x, y = c0[j], c1[j]
                    b0[j] = a0 + p0 * x + q0 * y
                    b1[j] = a1 + p1 * x + q1 * y
                    b2[j] = a2 + p2 * x + q2 * y
                    b3[j] = a3 + p3 * x + q3 * y
            else:
                for j in range(WIDTH):
                    x, y = c0[j], c1[j]
                    b0[j] += p0 * x + q0 * y
                    b1[j] += p1 * x + q1 * y
                    b2[j] += p2 * x + q2 * y
                    b3[j] += p3 * x + q3 * y
    return filled


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _sums(constants, size, filled, buffer, z, f1, f2):  # type: ignore[no-untyped-def]
    """Clenshaw's recursion down to order 0, from orders without columns to those in the buffer."""
    for j in range(WIDTH):
        f1[j] = 0.0
        f2[j] = 0.0
    for k in range(size - ORDER_STEP, filled - 1, -ORDER_STEP):
        a0, a1, a2, a3 = constants[k], constants[k + 1], constants[k + 2], constants[k + 3]
        for j in range(WIDTH):
            x, f, g = 2.0 * z[j], f1[j], f2[j]
            g = x * f + (a3 - g)
            f = x * g + (a2 - f)
            g = x * f + (a1 - g)
            f = x * g + (a0 - f)
            f1[j] = f
            f2[j] = g
    for k in range(filled - ORDER_STEP, -1, -ORDER_STEP):
        b0, b1, b2, b3 = buffer[k], buffer[k + 1], buffer[k + 2], buffer[k + 3]
        for j in range(WIDTH):
            x, f, g = 2.0 * z[j], f1[j], f2[j]
            g = x * f + (b3[j] - g)
            f = x * g + (b2[j] - f)
            g = x * f + (b1[j] - g)
            f = x * g + (b0[j] - f)
            f1[j] = f
            f2[j] = g


@njit(cache=True, nogil=True, error_model="numpy", fastmath=FAST)
def _sums_and_derivatives(constants, size, filled, buffer, z, f1, f2, g1, g2):  # type: ignore[no-untyped-def]
    """The same, and the derivatives of both sums in z."""
    for j in range(WIDTH):
        f1[j] = 0.0
        f2[j] = 0.0
        g1[j] = 0.0
        g2[j] = 0.0
    for k in range(size - ORDER_STEP, filled - 1, -ORDER_STEP):
        a0, a1, a2, a3 = constants[k], constants[k + 1], constants[k + 2], constants[k + 3]
        for j in range(WIDTH):
            x, f, g, df, dg = 2.0 * z[j], f1[j], f2[j], g1[j], g2[j]
            dg = x * df + (2.0 * f - dg)
            g = x * f + (a3 - g)
            df = x * dg + (2.0 * g - df)
            f = x * g + (a2 - f)
            dg = x * df + (2.0 * f - dg)
            g = x * f + (a1 - g)
            df = x * dg + (2.0 * g - df)
            f = x * g + (a0 - f)
            f1[j] = f
            f2[j] = g
            g1[j] = df
            g2[j] = dg
    for k in range(filled - ORDER_STEP, -1, -ORDER_STEP):
        b0, b1, b2, b3 = buffer[k], buffer[k + 1], buffer[k + 2], buffer[k + 3]
        for j in range(WIDTH):
            x, f, g, df, dg = 2.0 * z[j], f1[j], f2[j], g1[j], g2[j]
            dg = x * df + (2.0 * f - dg)
            g = x * f + (b3[j] - g)
            df = x * dg + (2.0 * g - df)
            f = x * g + (b2[j] - f)
            dg = x * df + (2.0 * f - dg)
            g = x * f + (b1[j] - g)
            df = x * dg + (2.0 * g - df)
            f = x * g + (b0[j] - f)
            f1[j] = f
            f2[j] = g
            g1[j] = df
            g2[j] = dg


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
def cut_series(folded, row_cut, middle, half, rise, limit):  # type: ignore[no-untyped-def]
    """The coefficients (m, K, m') of a tile, cut to what matters, the number of orders in t kept for each of the m'
    orders of the columns, and a bound of what was dropped.

    `folded` (M, K, m') is cut to the norms of the rows by `row_cut` (M, m), and to the range of t given by its middle
    and half length.  With a rise the derivative V in t is cut, of which rise · V matters; else the series itself.
    """
    count, orders, width = folded.shape
    short = np.zeros((row_cut.shape[1], orders, width))
    local = np.zeros_like(short)
    cut = restriction(orders, middle, half)
    for a in range(len(short)):
        flat, into = short[a].reshape(-1), local[a]
        for m in range(count):
            factor, source = row_cut[m, a], folded[m].reshape(-1)
            for x in range(len(flat)):
                flat[x] += factor * source[x]
        for k in range(orders):
            for j in range(k + 1):
                factor = cut[k, j]
                for b in range(width):
                    into[j, b] += factor * short[a, k, b]
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
    return local, lengths, dropped
