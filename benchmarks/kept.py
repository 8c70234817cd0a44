"""Figures and tables of docs/evidence whose rows no script of this folder makes: they are drawn again from kept files.

  python benchmarks/kept.py

Rows of `notsodeep reproduce NAME --size full` are in results/reproduce; `learning.csv`, `twins.csv`, `aistats.csv` and
`peers-*.csv` were measured by scripts of earlier versions.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from drawing import (
    CROSS,
    GREY,
    POINT,
    WIN,
    column,
    diagonal,
    downwards,
    drawn,
    legend_below,
    marked,
    marked_table,
    publish,
    rows_of,
    ticks,
)
from harness import RESULTS, Row
from matplotlib.axes import Axes

from notsodeep.figures import COLOURS, MARKERS
from notsodeep.figures.style import tidy_log
from notsodeep_lab.plots.experiment_lines import plot_errors, plot_widths
from notsodeep_lab.plots.learning_plots import plot_double_descent, plot_learning_rows
from notsodeep_lab.plots.row_selection import chosen, grouped, title, words
from notsodeep_lab.plots.row_spectra import plot_entries, plot_isolated, plot_prediction


def reproduced(name: str, **fields: Any) -> list[Row]:
    """Stored rows of an experiment of `notsodeep reproduce`."""
    stored = json.loads((RESULTS / "reproduce" / f"{name}.json").read_text(encoding="utf-8"))
    return chosen(stored["rows"], **fields)


@drawn("kernel-entries", 3.8)
def kernel_entries(axes: Axes) -> None:
    rows = reproduced("icml-matching", kind="entries", data="mnist", activation="relu")
    plot_entries([row | {"label": ""} for row in rows], axes)
    axes.set_title("ReLU, MNIST, 260 entries")


@drawn("equivalent-errors")
def equivalent_errors(axes: Axes) -> None:
    plot_errors(reproduced("icml-error", kernel="features"), axes)
    axes.set_title("Gaussian mixture, conjugate kernel")


@drawn("predicted-spectrum")
def predicted_spectrum(axes: Axes) -> None:
    rows = reproduced("spectrum")
    plot_prediction([row for row in rows if row["kind"] == "spectrum" or "grid" in row], axes)


@drawn("isolated-eigenvalues", 3.2)
def isolated_eigenvalues(axes: Axes) -> None:
    plot_isolated(reproduced("spectrum"), axes)


def accuracy_gaps(axes: Axes, training: str) -> None:
    """Accuracy of every network minus that of the DEQ, with standard errors, by data, activation and width."""
    rows = chosen(rows_of("twins"), training=training)
    names = [name for (name,) in grouped(rows, "network") if name != "DEQ"]
    data = [name for (name,) in grouped(rows, "data")]
    for group in grouped(rows, "data", "φ", "m").values():
        (deq,) = chosen(group, network="DEQ")
        number = data.index(deq["data"])
        shift = 0.1 * ((number - 1) * 2 + (deq["φ"] == "tanh")) + 0.04 * (deq["m"] > 500)
        for row in group:
            if row is not deq:
                bar = np.hypot(row["error"], deq["error"])
                face = COLOURS[number] if deq["φ"] == "ReLU" else "none"
                style = marked(number, markerfacecolor=face, elinewidth=0.8)
                place = names.index(row["network"]) + shift
                axes.errorbar(row["accuracy"] - deq["accuracy"], place, xerr=bar, **style)
    for number, name in enumerate(data):
        axes.plot([], [], **marked(number, label=name))
    axes.axvline(0.0, color=GREY, linewidth=0.8, zorder=0)
    downwards(axes, names)
    axes.set(xlabel="accuracy − the DEQ's (points)")
    legend_below(axes, columns=3)


@drawn("accuracy-readout", 3.4)
def accuracy_readout(axes: Axes) -> None:
    accuracy_gaps(axes, "readout")
    axes.set_title("readout trained")


@drawn("accuracy-all", 3.4)
def accuracy_all(axes: Axes) -> None:
    accuracy_gaps(axes, "all")
    axes.set_title("all weights trained")


@drawn("loss-by-width", 3.2)
def loss_by_width(axes: Axes) -> None:
    for number, ((data, rate), rows) in enumerate(grouped(rows_of("aistats"), "data", "step size").items()):
        widths, losses = column(rows, "m"), column(rows, "loss")
        style = {"color": COLOURS[number // 2], "marker": MARKERS[number // 2], "linestyle": "-:"[number % 2]}
        axes.plot(widths, losses / losses[0], label=f"{title(data)}, {rate}", **style)
    axes.axhline(1.0, color=GREY, linewidth=0.6, zorder=0)
    axes.set(xscale="log", xlabel="width $m$", ylabel="loss after 120 steps / at $m$ = 250")
    ticks(axes.xaxis, 250, 500, 1000, 2000)
    legend_below(axes)


@drawn("learning-accuracy", 3.2)
def learning_accuracy(axes: Axes) -> None:
    rows = rows_of("learning")
    for number, ((name,), part) in enumerate(grouped(rows, "data").items()):
        for beyond, face in ((False, COLOURS[number]), (True, "none")):
            some = [row for row in part if (row["n"] > row["pool"]) == beyond]
            label = "_" if beyond else words(name).replace("CIFAR-10, ", "")
            style = marked(number, markersize=2.5, markerfacecolor=face, label=label, rasterized=True)
            axes.plot(column(some, "predicted"), column(some, "measured"), **style)
    diagonal(axes, 15, 100)
    axes.set(xlabel="predicted accuracy (%)", ylabel="measured accuracy (%)")
    axes.set_title("open: more samples than were given")
    axes.legend(markerscale=1.5)


@drawn("learning-curve", 3.0)
def learning_curve(axes: Axes) -> None:
    plot_learning_rows(reproduced("learning-curves", kind="learning", activation="relu"), axes)
    axes.get_legend().remove()
    axes.set_title("ReLU, MNIST, 1000 samples given")
    axes.legend()


@drawn("learning-miss", 3.2)
def learning_miss(axes: Axes) -> None:
    rows = rows_of("learning")
    shares = sorted({row["n"] / row["pool"] for row in rows})
    misses = [
        [abs(row["predicted"] - row["measured"]) for row in rows if row["n"] / row["pool"] == share]
        for share in shares
    ]
    for share, miss in zip(shares, misses, strict=True):
        axes.plot(
            [share] * len(miss), miss, ".", color=COLOURS[5], markersize=2.5, alpha=0.5, rasterized=True
        )
    for level, number, label in ((0.5, 0, "median"), (0.9, 1, "nine of ten below")):
        axes.plot(
            shares, [np.quantile(miss, level) for miss in misses], color=COLOURS[number],
            marker=MARKERS[number], label=label,
        )  # fmt: skip
    axes.axvline(1.0, color=GREY, linewidth=0.8, linestyle=":", label="all samples given")
    axes.set(xscale="log", xlabel="samples / samples given", ylabel="miss of the accuracy (points)")
    tidy_log(axes.xaxis)
    ticks(axes.xaxis, 0.05, 0.1, 0.25, 0.5, 1, 2, 4)
    axes.legend()


@drawn("finite-width", 3.2)
def finite_width(axes: Axes) -> None:
    plot_widths(reproduced("width", kernel="features"), axes)
    axes.set_title("conjugate kernel, MNIST")


@drawn("double-descent", 3.2)
def double_descent(axes: Axes) -> None:
    plot_double_descent(reproduced("learning-curves", kind="double-descent", activation="relu"), axes)
    axes.set_title("ReLU, Gaussian mixture")
    axes.get_legend().remove()
    legend_below(axes)


Task = tuple[str, tuple[str, ...], list[Row]]
TASKS = {
    "kernel": "exact CK and NTK",
    "cheaper": "cheaper than a kernel",
    "ridge": "ridge classification",
    "DEQ": "DEQ, outputs and gradients",
}


def ratios(measure: str, tasks: Sequence[Task] | None = None) -> dict[str, list[float]]:
    """The peer's value over ours in every comparable pair of rows, by task and peer; below 1 we lose."""
    found: dict[str, list[float]] = {}
    for task, keys, rows in compared() if tasks is None else tasks:
        for group in grouped(rows, *keys).values():
            ours = [row for row in group if row["contestant"].startswith("notsodeep") and row.get(measure)]
            others = [row for row in group if row not in ours and row.get(measure)]
            for mine in ours:
                for other in others:
                    if measure.endswith("error") and max(mine[measure], other[measure]) < 1e-13:
                        continue
                    found.setdefault(f"{task}: {peer_of(other['contestant'])}", []).append(
                        other[measure] / mine[measure]
                    )
    return found


def compared() -> list[Task]:
    """The compared tasks: name, columns that comparable rows share, rows."""
    kernels = [row for row in rows_of("peers-kernels") if "random network" not in row["contestant"]]
    ridge = [row | {"error": 1.0 - row["test accuracy"]} for row in rows_of("peers-estimators")]
    return [
        ("kernel", ("φ", "n"), kernels),
        ("cheaper", ("data", "kind"), rows_of("peers-approximations")),
        ("ridge", ("data", "kind"), ridge),
        ("DEQ", ("φ", "m", "residual ≤", "what"), rows_of("peers-networks")),
    ]


def peer_of(contestant: str) -> str:
    """The package of a contestant."""
    for name in ("neural-tangents", "NumPy", "TorchDEQ"):
        if contestant.startswith(name):
            return name
    return "Nyström" if "Nyström" in contestant else "exact RBF"


def ratio_strips(axes: Axes, lines: dict[str, list[float]], label: str) -> None:
    """Draw the ratios of each line as points on a row of its own, spread over its height."""
    for place, values in enumerate(lines.values()):
        shift = np.linspace(-0.28, 0.28, len(values)) if len(values) > 1 else [0.0]
        for value, offset in zip(sorted(values), shift, strict=True):
            style = CROSS if value < 1.0 else {"marker": "o", "color": WIN}
            axes.plot(value, place + offset, **POINT | style)
    axes.set_yticks(range(len(lines)), list(lines))
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.axvline(1.0, color=GREY, linewidth=1.0, zorder=0)
    axes.plot([], [], marker="o", color=WIN, label="as good or better", **POINT)
    axes.plot([], [], label="notsodeep loses", **POINT | CROSS)
    axes.set(xscale="log", xlabel=label)
    legend_below(axes)


@drawn("peers-time", 3.3)
def peers_time(axes: Axes) -> None:
    lines = ratios("seconds")
    for row in rows_of("peers-conv-networks"):
        lines.setdefault("image DEQ: TorchDEQ", []).append(row["TorchDEQ / ConvDEQNet"])
    ratio_strips(axes, lines, "time of the other / ours")


@drawn("peers-memory", 3.3)
def peers_memory(axes: Axes) -> None:
    ratio_strips(axes, ratios("extra GB"), "memory of the other / ours")


@drawn("peers-error", 3.3)
def peers_error(axes: Axes) -> None:
    lines = {name.replace("kernel", "CK"): values for name, values in ratios("CK error").items()}
    for name, values in ratios("NTK error").items():
        lines[name.replace("kernel", "NTK")] = values
    lines |= ratios("error")
    lines |= {name.replace("DEQ:", "gradient:"): values for name, values in ratios("gradient error").items()}
    ratio_strips(axes, lines, "error of the other / ours")


@drawn("peers-accuracy", 3.3)
def peers_accuracy(axes: Axes) -> None:
    """Accuracy of ridge classification minus that of the exact RBF kernel, with two standard errors."""
    rows = rows_of("peers-estimators")
    names = list(dict.fromkeys(row["contestant"] for row in rows if "RBF kernel" not in row["contestant"]))
    for number, ((data,), part) in enumerate(grouped(rows, "data").items()):
        reference = next(row for row in part if "RBF kernel" in row["contestant"])["test accuracy"]
        for row in part:
            if row["contestant"] in names:
                accuracy, count = row["test accuracy"], row["test rows"]
                bar = 200 * np.sqrt((accuracy * (1 - accuracy) + reference * (1 - reference)) / count)
                place = names.index(row["contestant"]) + 0.2 * number
                axes.errorbar(100 * (accuracy - reference), place, xerr=bar, **marked(number, elinewidth=0.8))
        axes.plot([], [], **marked(number, label=words(data)))
    axes.axvline(0.0, color=GREY, linewidth=0.8, zorder=0)
    labels = [name.replace("notsodeep: ", "").replace("scikit-learn: ", "") for name in names]
    downwards(axes, labels)
    axes.set_xticks([-10, -5, 0])
    axes.set_xlabel("accuracy − the RBF kernel's (points)", loc="right")
    legend_below(axes)


@marked_table("predictions", "learning")
def learning() -> list[Row]:
    """The miss of predicted accuracies by data set and by samples over samples given."""
    parts = {"inside": lambda share: share <= 1.0, "twice": lambda share: share == 2.0,
             "four times": lambda share: share == 4.0}  # fmt: skip
    rows = []
    for (name,), part in [
        *grouped(rows_of("learning"), "data").items(),
        (("all cases",), rows_of("learning")),
    ]:
        row: Row = {"data": words(name).replace("CIFAR-10, VGG", "VGG")}
        for heading, is_in in parts.items():
            miss = [abs(one["predicted"] - one["measured"]) for one in part if is_in(one["n"] / one["pool"])]
            row[heading] = (
                f"{np.median(miss):.2f}, {np.quantile(miss, 0.9):.1f}, {max(miss):.1f} ({len(miss)})"
            )
        rows.append(row)
    return rows


@marked_table("comparison", "losses")
def losses() -> list[Row]:
    """How many comparisons notsodeep loses, by task and other package, and by how much at worst."""
    measures = {
        "slower": ratios("seconds"),
        "more memory": ratios("extra GB"),
        "larger error": ratios("CK error") | ratios("error") | ratios("gradient error"),
    }
    lines = dict.fromkeys(line for found in measures.values() for line in found)
    rows = []
    for line in lines:
        task, peer = line.split(": ")
        row: Row = {"task": TASKS[task], "other": peer}
        rows.append(row | {name: _lost(found.get(line, [])) for name, found in measures.items()})
    return rows


def _lost(values: list[float]) -> str:
    lost = [value for value in values if value < 1.0]
    if not values:
        return "–"
    return f"{len(lost)} of {len(values)}" + (f", up to {_times(1.0 / min(lost))}×" if lost else "")


def _times(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 10.0 else f"{ratio:.2g}"


if __name__ == "__main__":
    publish()
