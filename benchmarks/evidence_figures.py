"""The figures of docs/evidence, each drawn from files of benchmarks/results: `FIGURES[name]()`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from evidence_axes import (
    CROSS,
    FIGURES,
    GREY,
    POINT,
    WIN,
    column,
    diagonal,
    downwards,
    drawn,
    legend_below,
    marked,
    number_in,
    reproduced,
    rows_of,
    strips,
    ticks,
)
from harness import RESULTS, Row
from matplotlib.axes import Axes

from notsodeep.figures.style import COLOURS, MARKERS, tidy_log
from notsodeep_lab.plots.experiment_lines import plot_errors, plot_widths
from notsodeep_lab.plots.learning_plots import plot_double_descent, plot_learning_rows
from notsodeep_lab.plots.row_selection import chosen, grouped, title, words
from notsodeep_lab.plots.row_spectra import plot_entries, plot_isolated, plot_prediction

__all__ = ["FIGURES", "ratios"]

# --- papers --------------------------------------------------------------------------------------------


@drawn("kernel-entries", 3.8)
def kernel_entries(axes: Axes) -> None:
    rows = reproduced("icml-matching", kind="entries", data="mnist", activation="relu")
    plot_entries([row | {"label": ""} for row in rows], axes)
    axes.set_title("ReLU, MNIST, 260 entries")


@drawn("twin-errors", 3.8)
def twin_errors(axes: Axes) -> None:
    """Kernel errors of all networks, data and activations."""
    rows = rows_of("twins-kernels")
    networks = list(dict.fromkeys(row["network"] for row in rows))
    activations = list(dict.fromkeys(row["activation"] for row in rows))
    for number, activation in enumerate(activations):
        for strength, face in ((0.2, COLOURS[number]), (0.5, "none")):
            part = chosen(rows, activation=activation, sigma_a2=strength)
            places = [networks.index(row["network"]) + 0.2 * (number - 1) for row in part]
            label = f"{title(activation)}, $\\sigma_a^2$ = {strength}"
            style = marked(number, markerfacecolor=face, label=label)
            axes.plot(100 * column(part, "kernel error"), places, **style)
    downwards(axes, [name.replace(" of ", "\nof ") for name in networks])
    axes.set(xscale="log", xlabel="kernel error (%)")
    legend_below(axes, columns=3)


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


# --- predictions ---------------------------------------------------------------------------------------


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


def forecast_points(axes: Axes, fields: Iterable[tuple[str, str, bool]]) -> None:
    """Measured against predicted values, by width; open where told."""
    rows = rows_of("forecast")
    for number, ((width,), part) in enumerate(grouped(rows, "width").items()):
        for predicted, measured, is_open in fields:
            known = [row for row in part if row[predicted] and row[measured]]
            more = {"markerfacecolor": "none"} if is_open else {"label": f"width {width:.0f}"}
            axes.plot(column(known, predicted), column(known, measured), **marked(number, **more))
    axes.set(xscale="log", yscale="log")


@drawn("forecast-steps", 3.0)
def forecast_steps(axes: Axes) -> None:
    forecast_points(
        axes, (("predicted_1e-03", "steps_1e-03", True), ("predicted_1e-06", "steps_1e-06", False))
    )
    diagonal(axes, 4, 460)
    axes.set(xlabel="predicted steps", ylabel="measured steps")
    axes.set_title("residual $10^{-3}$ (open) and $10^{-6}$ (filled)")
    axes.legend()


@drawn("forecast-gradient", 3.0)
def forecast_gradient(axes: Axes) -> None:
    forecast_points(axes, (("predicted_gradient", "gradient", False),))
    diagonal(axes, 0.005, 1.0)
    axes.set(xlabel="predicted relative error", ylabel="measured relative error")
    axes.set_title("gradient through three steps")
    axes.legend()


@drawn("forecast-settles", 3.0)
def forecast_settles(axes: Axes) -> None:
    for number, ((width,), part) in enumerate(grouped(rows_of("forecast"), "width").items()):
        style = marked(number, label=f"width {width:.0f}")
        axes.plot(column(part, "rate"), 100 * column(part, "settled"), **style)
    axes.axvline(1.0, color=GREY, linewidth=0.8, label="predicted edge")
    axes.set(xlabel="predicted rate", ylabel="samples that settled (%)")
    axes.legend(loc="lower left")


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


# --- verdicts ------------------------------------------------------------------------------------------


@drawn("verdicts", 4.8, width=4.2)
def verdicts(axes: Axes) -> None:
    """How far the equilibrium is ahead of the best cheap network after training, by verdict before it."""
    judged, trained = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("verdicts", "verdicts-trained")
    )
    order = sorted(trained, key=lambda name: trained[name]["ahead"])
    answers = ("keep", "replace", "unsure")
    for place, name in enumerate(order):
        found, answer = trained[name], judged[name]["answer"]
        number = answers.index(answer)
        right = answer == ("keep" if found["ahead"] > 1.0 else "replace")
        ends = np.abs(np.array([found["interval"]]).T - found["ahead"])
        style = {"color": COLOURS[number]} | ({"marker": MARKERS[number], "markersize": 4.0} if right else {})
        axes.errorbar(found["ahead"], place, xerr=ends, elinewidth=0.8, linestyle="none", **(CROSS | style))
    for number in (0, 1):
        axes.plot([], [], **marked(number, label=f"verdict “{answers[number]}”"))
    for number, label in ((0, "wrong “keep”"), (2, "“unsure”, counted as wrong")):
        axes.plot([], [], label=label, linestyle="none", **CROSS | {"color": COLOURS[number]})
    axes.axvline(1.0, color=GREY, linewidth=0.8, linestyle=":", label="one point")
    short = {" of nodes have": "", " nodes have": "", "connected with a mark": "connected"}
    axes.set_yticks(range(len(order)), [_shortened(name, short) for name in order])
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set(xlabel="equilibrium ahead by (points)")
    legend_below(axes, -0.09)


def _shortened(name: str, replacements: dict[str, str]) -> str:
    for long, short in replacements.items():
        name = name.replace(long, short)
    return name


@drawn("distill-agreement", 3.4)
def distill_agreement(axes: Axes) -> None:
    rows = rows_of("distillation")
    places = range(len(rows))
    for place, row in zip(places, rows, strict=True):
        low, high = (number_in(row["stated agreement %"], end) for end in (0, 1))
        style = {"color": COLOURS[0] if row["certain"] == "yes" else COLOURS[4]}
        axes.plot([low, high], [place, place], linewidth=3.0, alpha=0.5, solid_capstyle="butt", **style)
        axes.plot(row["fresh %"], place, marker="o", color=COLOURS[6], **POINT)
    axes.plot([], [], color=COLOURS[0], linewidth=3, alpha=0.5, label="stated, certain")
    axes.plot([], [], color=COLOURS[4], linewidth=3, alpha=0.5, label="stated, not certain")
    axes.plot([], [], marker="o", color=COLOURS[6], label="fresh samples", **POINT)
    axes.axvline(98.0, color=GREY, linewidth=0.8, linestyle=":", label="target")
    axes.set_yticks(places, [row["teacher"].replace(", strong feedback", "*") for row in rows])
    axes.invert_yaxis()
    axes.set_xticks([97, 98, 99, 100])
    axes.set_xlabel("agreement with the teacher (%)", loc="right")
    legend_below(axes)


@drawn("distill-time", 3.4)
def distill_time(axes: Axes) -> None:
    rows = rows_of("distillation")
    places = np.arange(len(rows))
    axes.plot(
        column(rows, "times as fast as the teacher"), places, marker="o", color=WIN, label="teacher", **POINT
    )
    for is_loss, label in ((False, "fastest baseline"), (True, "fastest baseline, which is faster")):
        part = [
            (1.0 / row["time / baseline"], place)
            for row, place in zip(rows, places, strict=True)
            if row["time / baseline"] and (row["time / baseline"] > 1.0) == is_loss
        ]
        style = CROSS if is_loss else {"marker": "s", "color": COLOURS[2]}
        axes.plot(*np.array(part).T, label=label, **POINT | style)
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    axes.set_yticks(places, [row["teacher"].replace(", strong feedback", "*") for row in rows])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("its time / the chosen network's", loc="right")
    ticks(axes.xaxis, 0.7, 1, 2, 5, 10, 30)
    legend_below(axes, columns=1)


# --- comparison ----------------------------------------------------------------------------------------


Task = tuple[str, tuple[str, ...], list[Row]]


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
    for name in ("neural-tangents", "NumPy", "TorchDEQ"):
        if contestant.startswith(name):
            return name
    return "Nyström" if "Nyström" in contestant else "exact RBF"


def ratio_strips(axes: Axes, lines: dict[str, list[float]], label: str) -> None:
    def style(value: float) -> dict[str, Any]:
        return CROSS if value < 1.0 else {"marker": "o", "color": WIN}

    strips(axes, lines, style)
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


# --- speed ---------------------------------------------------------------------------------------------


@drawn("kernel-growth", 3.6)
def kernel_growth(axes: Axes) -> None:
    # The last row of an activation has its exponents.
    rows = [row for row in rows_of("kernels-growth") if row["n"] != "exponent"]
    lines = {"$XX^T$": ("relu", "X Xᵀ (s)")} | {
        f"{kernel}, {title(name)}": (name, f"{kernel} (s)")
        for name in ("relu", "tanh")
        for kernel in ("CK", "CK+NTK")
    }
    for number, (label, (activation, name)) in enumerate(lines.items()):
        part = chosen(rows, activation=activation)
        style = {"color": COLOURS[number], "marker": MARKERS[number], "linestyle": ("-", "--")[number > 2]}
        axes.plot(column(part, "n"), column(part, name), label=label, **style)
    sizes = np.array([1000.0, 8000.0])
    axes.plot(sizes, 0.006 * (sizes / 1000) ** 2, color=GREY, linestyle=":", linewidth=1.0, label="$n^2$")
    axes.set_title("version 0.1, two threads")
    axes.set(xscale="log", yscale="log", xlabel="number of samples $n$", ylabel="seconds")
    ticks(axes.xaxis, 1000, 2000, 4000, 8000)
    axes.legend()


@drawn("kernel-products", 3.6)
def kernel_products(axes: Axes) -> None:
    """CK and NTK over the product, for data of any scale: the median and the slowest activation."""
    rows = chosen(rows_of("kernels-data"), **{"in": "products"})
    names = {"mixture": "Gaussian mixture"} | {name: words(name) for name in (
        "cifar10", "mnist", "fashion_mnist", "cifar10_vgg19", "digits")}  # fmt: skip
    for place, name in enumerate(names):
        part = [row for row in rows if row["data"].split(",")[0] == name]
        cells = [value for row in part for key, value in row.items() if key.startswith("σ_a²") and value]
        for shift, number in ((-0.12, 0), (0.12, 1)):
            spread = np.linspace(-0.1, 0.1, len(cells))
            label = "_" if place else ("median activation", "slowest activation")[number]
            values = [number_in(cell, number) for cell in cells]
            axes.plot(values, place + shift + spread, **marked(number, markersize=2.5, label=label))
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    downwards(axes, names.values())
    axes.set_title("version 0.2")
    axes.set(xscale="log", xlabel="time of CK and NTK / time of $XX^T$")
    ticks(axes.xaxis, 1, 2, 5, 10)
    legend_below(axes)


@drawn("twin-time", 3.3)
def twin_time(axes: Axes) -> None:
    for number, ((activation, tolerance), part) in enumerate(
        grouped(rows_of("networks-twins"), "φ", "tolerance").items()
    ):
        label = f"{title(activation)}, {tolerance:g}"
        lines = {
            "times faster": {"linestyle": "-", "label": label},
            "times faster, gradient": {"linestyle": ":"},
        }
        for name, line in lines.items():
            axes.plot(column(part, "m"), column(part, name), **marked(number, **line))
    axes.set(xscale="log", yscale="log", xlabel="width $m$", ylabel="time of the DEQ / of its twin")
    ticks(axes.xaxis, 1024, 2048, 4096)
    ticks(axes.yaxis, 2, 5, 10, 20, 50)
    axes.set_title("outputs (lines), gradient (dotted)")
    legend_below(axes)


@drawn("training-memory", 3.3)
def training_memory(axes: Axes) -> None:
    for number, ((gradient,), part) in enumerate(grouped(rows_of("networks-iterations"), "gradient").items()):
        style = {"color": COLOURS[number], "marker": MARKERS[number], "label": gradient}
        axes.plot(column(part, "iterations"), column(part, "MB"), **style)
    axes.set(xscale="log", yscale="log", xlabel="solver steps", ylabel="peak memory (MB)")
    ticks(axes.xaxis, 10, 50, 200)
    ticks(axes.yaxis, 10, 30, 100, 200)
    axes.set_title("training step, width 1024")
    axes.legend()
