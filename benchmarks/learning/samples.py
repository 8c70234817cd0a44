"""From a sample: predictions from pools of labelled rows beside what is really trained on other rows.

Pools of 2000 and 4000 rows of MNIST, Fashion-MNIST, CIFAR-10 and VGG-19 features of CIFAR-10 and of 200 and 800 rows
of digits; ReLU and tanh, σ_a² = 0.2; the conjugate kernel, the tangent kernel and networks of width 128, 512 and 4096
whose readout is trained by ridge; ridges 0.001, 0.03 and 1; n = 100 … 8000 (digits: 50 … 800). Everything is predicted
from one pool of 2000 and from ten pools of digits; the conjugate kernel of ReLU and its networks from three further
pools of 2000 and from one of 4000. How the data sets are cut, and how often each figure was measured:
learning/real_data.py, learning/trained.py. The 90 % bands are for the accuracy of one training set (and network),
widened by what the number of test rows adds. The standard error of a measurement is that of its training sets and of
its test rows.

Beside the prediction, for the squared error: "eigenlearning", the formula of Simon et al. (11.1) and (11.2) with the
pool's own eigenvalues and coefficients in the place of the population's (and (11.5) for networks), and plain
generalised cross-validation, which knows neither widths nor n beyond the pool.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from harness import Row, markdown_table

from learning.journal import Part, chosen, gaps
from learning.real_data import CUTS, DATA, POOLS, SIZES, USUAL_POOLS, USUAL_SIZES, pool_of
from learning.trained import ACTIVATIONS, NETWORKS, RIDGES, SIGMA_A2, widths
from notsodeep.learning import Spectrum, ridge_error
from notsodeep.learning.sample_curve import sample_curve
from notsodeep.learning.sample_pool import Pool
from notsodeep.models import DEQ

# Half of the width of a band of 90 %, in standard deviations.
NINETY = 1.645
# Further cuts and pools of a data set: (cut, number of the pool). The conjugate kernel of ReLU and its networks are
# predicted there.
FURTHER = {
    "mnist": [(0, number) for number in (1, 2, 3)],
    "fashion_mnist": [(0, number) for number in (1, 2, 3)],
    "cifar10_vgg19": [(0, number) for number in (1, 2, 3)],
    "cifar10": [(0, 1), (1, 0), (2, 0)],
}


def tasks() -> list[Row]:
    """One pool of 2000 of each data set with everything, all cuts of digits, further pools, pools of 4000."""
    pairs = list(product(ACTIVATIONS, ("ck", "ntk")))
    small, large = USUAL_POOLS
    kernels = [_task(data, small, *pair) for pair in pairs for data in DATA if data != "digits"]
    kernels += [
        _task("digits", size, *pair, cut)
        for cut in range(CUTS["digits"][2])
        for pair in pairs
        for size in POOLS["digits"]
    ]
    further = [_task(data, small, *pairs[0], *place) for data, places in FURTHER.items() for place in places]
    largest = [_task(data, large, *pairs[0]) for data in DATA if data != "digits"]
    # Networks have the conjugate kernel.
    networks = [task | {"networks": True} for task in kernels + further + largest if task["kernel"] == "ck"]
    return kernels + further + largest + networks


def _task(data: str, size: int, activation: str, kernel: str, cut: int = 0, number: int = 0) -> Row:
    names = {"data": data, "cut": cut, "activation": activation, "kernel": kernel}
    return names | {"pool": size, "number": number, "networks": False}


def rows(task: Row) -> Iterator[Row]:
    """All predictions from one pool."""
    model = DEQ(task["activation"], SIGMA_A2)
    X, y = pool_of(task["data"], task["cut"], task["pool"], task["number"])
    pool = Pool(model, X, y, task["kernel"])
    sizes = np.array(SIZES.get(task["data"], USUAL_SIZES))
    for width in widths(task["cut"]) if task["networks"] else (None,):
        for ridge in RIDGES:
            curve = sample_curve(pool, sizes, ridge, width, kernel=task["kernel"], model=model)
            for place, n in enumerate(sizes.tolist()):
                yield {
                    "width": width,
                    "n": n,
                    "ridge": ridge,
                    "predicted": float(curve.accuracy[place]),
                    "low": float(curve.interval[place, 0]),
                    "high": float(curve.interval[place, 1]),
                    "extrapolated": bool(curve.extrapolated[place]),
                    "predicted_mse": float(curve.mse[place]),
                    "eigenlearning_mse": eigenlearning(pool, n, ridge, width),
                    "gcv_mse": gcv(pool, n, ridge, width),
                }


def eigenlearning(pool: Pool, n: int, ridge: float, width: int | None) -> float:
    """(11.2) and (11.5) with eigenvalues and coefficients of the pool in the place of the population's."""
    whole = pool.whole
    squares = np.mean((whole.vectors.T @ whole.targets) ** 2, axis=1) / pool.size
    return ridge_error(Spectrum(whole.values / pool.size), squares, n, ridge, width=width).mse


def gcv(pool: Pool, n: int, ridge: float, width: int | None) -> float | None:
    """Generalised cross-validation of the kernel at n samples of the pool; it knows neither widths nor n > N."""
    if width is not None or n > pool.size:
        return None
    one = pool.fold(n, 0).trained
    left = ridge / (one.values + ridge)
    residual = np.mean((left[:, None] * (one.vectors.T @ one.targets)) ** 2)
    return float(residual / np.mean(left) ** 2)


def beside(found: list[Row]) -> list[Row]:
    """Each prediction that was also measured, with the mean over training sets and how many are inside the band."""
    fields = ("data", "cut", "activation", "width", "kernel", "n", "ridge")
    measured: dict[tuple[object, ...], list[Row]] = {}
    for row in found:
        if "predicted" not in row:
            measured.setdefault(tuple(row[name] for name in fields), []).append(row)
    both = []
    for row in found:
        sets = measured.get(tuple(row[name] for name in fields), [])
        if "predicted" not in row or not sets:
            continue
        accuracy = np.array([one["accuracy"] for one in sets])
        # Test rows are samples too: the band of a training set is widened by what their number adds.
        noise = NINETY * np.sqrt(row["predicted"] * (1.0 - row["predicted"]) / sets[0]["test_rows"])
        low = row["predicted"] - np.hypot(row["predicted"] - row["low"], noise)
        high = row["predicted"] + np.hypot(row["high"] - row["predicted"], noise)
        # Of a mean over training sets, and of test rows that all of them share.
        sets_variance = float(accuracy.var(ddof=1)) / len(sets) if len(sets) > 1 else 0.0
        rows_variance = float(accuracy.mean() * (1.0 - accuracy.mean())) / sets[0]["test_rows"]
        both.append(
            row
            | {
                "measured": float(accuracy.mean()),
                "error": float(np.sqrt(sets_variance + rows_variance)),
                "inside": int(np.sum((accuracy >= low) & (accuracy <= high))),
                "sets": len(sets),
                "measured_mse": float(np.mean([one["mse"] for one in sets])),
            }
        )
    return both


def page(found: list[Row]) -> str:
    about = "\n".join((__doc__ or "").split("\n")[2:]).strip()
    both = beside(found)
    inside = [row for row in both if not row["extrapolated"]]
    shares = {
        "inside the pool": inside,
        "inside the pool, N ≥ 2000": [row for row in inside if row["pool"] >= min(USUAL_POOLS)],
        "inside the pool, N ≤ 1000": [row for row in inside if row["pool"] < min(USUAL_POOLS)],
        "twice the pool": [row for row in both if row["n"] == 2 * row["pool"]],
        "four times the pool": [row for row in both if row["n"] == 4 * row["pool"]],
        "four times the pool, N ≥ 2000": [
            row for row in both if row["n"] == 4 * row["pool"] >= 4 * min(USUAL_POOLS)
        ],
    }
    everything = [_line(some, {"n": name}) for name, some in shares.items() if some]
    by_kind = [
        _line(part, {"n": name, "what": kind})
        for name, some in shares.items()
        if "N" not in name
        for kind, part in _kinds(some).items()
    ]
    worst = sorted(both, key=lambda row: -abs(row["predicted"] - row["measured"]))
    return "\n".join(
        [
            f"### From a sample\n\n{about}\n",
            markdown_table(everything),
            "By data set, activation, kernel or width, ridge and n:\n",
            markdown_table(by_kind),
            "Bands, conjugate kernel of ReLU. All figures from one pool are off together, so that the number of pools "
            "decides how well a share is known:\n",
            markdown_table(_bands(both)),
            "The largest differences inside the pool (in brackets the number of training sets):\n",
            markdown_table([_named(row) for row in worst if not row["extrapolated"]][:8]),
            "The largest differences beyond it:\n",
            markdown_table([_named(row) for row in worst if row["extrapolated"]][:8]),
            "### From a sample: squared error beside eigenlearning and generalised cross-validation\n",
            formulas(found),
            "### From a sample: all figures\n",
            "Accuracy in percent, predicted → measured (number of trained machines); *beyond the pool*.\n",
            markdown_table(_all_figures(both)),
        ]
    )


def _kinds(rows: list[Row]) -> dict[str, list[Row]]:
    """Rows by each thing that varies."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        kernel = row["kernel"] if row["width"] is None else f"width {row['width']}"
        numbers = f"pool {row['pool']}", f"ridge {row['ridge']:g}", f"n = {row['n']}"
        for kind in (row["data"], row["activation"], kernel, *numbers):
            found.setdefault(kind, []).append(row)
    order = (*DATA, *ACTIVATIONS, "ck", "ntk", *(f"width {width}" for width in NETWORKS))
    first = {kind: found.pop(kind) for kind in order if kind in found}
    return first | dict(sorted(found.items(), key=lambda item: (item[0][0], float(item[0].split()[-1]))))


def _bands(both: list[Row]) -> list[Row]:
    """Shares of trained machines inside their band for each data set and size of pools."""
    lines = []
    for data, size in dict.fromkeys((row["data"], row["pool"]) for row in both):
        some = chosen(both, data=data, pool=size, activation="relu", kernel="ck", width=None)
        line: Row = {"data": data, "pool": size, "pools": len({(row["cut"], row["number"]) for row in some})}
        for title, part in {
            "inside the pool": [row for row in some if not row["extrapolated"]],
            "twice": chosen(some, n=2 * size),
            "four times": chosen(some, n=4 * size),
        }.items():
            line[title] = _share(part)
        lines.append(line)
    return lines


def _share(some: list[Row]) -> str:
    machines = sum(row["sets"] for row in some)
    return f"{100 * sum(row['inside'] for row in some) / machines:.0f} % of {machines}" if machines else "–"


def _line(some: list[Row], first: Row) -> Row:
    away = gaps(some)
    return {
        **first,
        "cases": len(some),
        "median, points": f"{np.median(away):.2f}",
        "nine of ten below": f"{np.quantile(away, 0.9):.2f}",
        "worst": f"{away.max():.2f}",
        "above 2.5": int(np.sum(away > 2.5)),
        "standard error of the measurement, median": f"{100 * np.median([row['error'] for row in some]):.2f}",
        "in the 90 % band": f"{100 * sum(row['inside'] for row in some) / sum(row['sets'] for row in some):.0f} %",
        "trained machines": sum(row["sets"] for row in some),
    }


def _named(row: Row) -> Row:
    return {
        **{name: row[name] for name in ("data", "activation")},
        "kernel": row["kernel"] if row["width"] is None else f"width {row['width']}",
        **{name: row[name] for name in ("ridge", "pool", "n")},
        "measured, %": f"{100 * row['measured']:.2f} ± {100 * row['error']:.2f} ({row['sets']})",
        "predicted, %": f"{100 * row['predicted']:.2f}",
        "band": f"{100 * row['low']:.1f} … {100 * row['high']:.1f}",
    }


def formulas(found: list[Row]) -> str:
    """Squared errors by three formulas, inside the pool, at its size and beyond."""
    both = beside(found)
    parts = {
        "kernel, n ≤ N/2": lambda row: row["width"] is None and 2 * row["n"] <= row["pool"],
        "kernel, n = N": lambda row: row["width"] is None and row["n"] == row["pool"],
        "kernel, n > N": lambda row: row["width"] is None and row["extrapolated"],
        "networks, n ≤ N": lambda row: row["width"] is not None and not row["extrapolated"],
        "networks, n > N": lambda row: row["width"] is not None and row["extrapolated"],
    }
    lines = []
    for name, belongs in parts.items():
        some = [row for row in both if belongs(row)]
        if some:
            line: Row = {"what": name, "cases": len(some)}
            for title, field in (
                ("here", "predicted_mse"),
                ("eigenlearning", "eigenlearning_mse"),
                ("GCV", "gcv_mse"),
            ):
                known = [row for row in some if row[field] is not None]
                away = [abs(row[field] / row["measured_mse"] - 1.0) for row in known]
                line[title] = f"{100 * np.median(away):.1f} %, {100 * max(away):.0f} %" if away else "–"
            lines.append(line)
    cases = f"{len(both)} cases, {sum(row['sets'] for row in both)} trained machines"
    return f"Predicted over measured squared error, distance from 1: median, worst. {cases}.\n\n{markdown_table(lines)}"


def _all_figures(both: list[Row]) -> list[Row]:
    groups: dict[tuple[object, ...], dict[int, Row]] = {}
    for row in both:
        if row["number"] == row["cut"] == 0:
            kernel = row["kernel"] if row["width"] is None else f"width {row['width']}"
            key = (row["data"], row["activation"], kernel, row["ridge"], row["pool"])
            groups.setdefault(key, {})[row["n"]] = row
    sizes = sorted({row["n"] for row in both})
    lines = []
    for key, rows_of_n in groups.items():
        line: Row = dict(zip(("data", "activation", "kernel", "ridge", "pool"), key, strict=True))
        for n in sizes:
            row = rows_of_n.get(n)
            text = (
                "–"
                if row is None
                else f"{100 * row['predicted']:.1f} → {100 * row['measured']:.1f} ({row['sets']})"
            )
            line[f"n = {n}"] = f"*{text}*" if row is not None and row["extrapolated"] else text
        lines.append(line)
    return lines


PART = Part("samples", tasks, rows, page, beside="trained")
