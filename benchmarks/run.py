"""Speed, memory and start-up time of the exact kernels, together with their errors.

  python benchmarks/run.py                        everything (15 minutes on two cores)
  python benchmarks/run.py --quick                everything small, to see that it runs (times mean nothing)
  python benchmarks/run.py --only mixture growth  some of it; the other results in the files stay as they were
  python benchmarks/run.py --data-dir FOLDER      with MNIST from FOLDER/mnist (or set NOTSODEEP_DATA)

Sections
  mixture   the papers' mixture, n = 4000, p = 3200: every built-in activation, CK and CK+NTK over X @ X.T,
            and the largest error on 210 pairs against an independent solver
  memory    peak extra memory of one call in a fresh process, in n² doubles, the output included
  mnist     digits 6 against 8, n = 6000, p = 784, centred and not: relu and tanh over their matrix product
  growth    n = 1000 … 8000, p = 800: time against n, fitted exponent
  startup   import time; first call with an empty cache of compiled code, and with a full one
  data      CK+NTK over X @ X.T on real data of any scale, small tables, near duplicates: an hour on one core;
            --activations, --data, --feedbacks and --minutes hold it to a part, --resume goes on from an earlier run

Every ratio is one of medians of calls taken in turn in one process: product, CK, both, product, CK, both, …
Results: kernels.json and kernels-SECTION.csv in --out, each with its machine, versions, date and load average.
A machine that does something else meanwhile gives wrong figures: look at the load and at the column "spread",
(slowest - fastest)/median of the worst of the three.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import data_sets
import numpy as np
import oracle
from cases import ACTIVATIONS, data_folder, deq, mixture, mnist_6_8
from drawing import (
    GREY,
    column,
    downwards,
    drawn,
    legend_below,
    marked,
    number_in,
    publish,
    rows_of,
    ticks,
    with_figure_only,
)
from harness import (
    LIMITS,
    RESULTS,
    Provenance,
    Row,
    Times,
    cell,
    columns_of,
    interleave,
    markdown_provenance,
    missed,
    write_json,
    write_rows,
)
from matplotlib.axes import Axes
from rich.console import Console
from rich.progress import track
from rich.table import Table

import notsodeep as nsd
from notsodeep.figures import COLOURS, MARKERS
from notsodeep_lab.plots.row_selection import grouped, title, words

CONSOLE = Console(highlight=False, width=None if sys.stdout.isatty() else 140)
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Scale:
    """Sizes and repeats: those of the published tables, or a quick run as a check."""

    n: int = 4000
    p: int = 3200
    mnist: int = 6000
    growth: tuple[int, ...] = (1000, 2000, 4000, 8000)
    growth_p: int = 800
    repeats: int = 7
    starts: int = 11
    data_n: int = 2000
    data_repeats: int = 2
    data_selection: data_sets.Selection = field(default_factory=data_sets.Selection)
    data_dir: Path | None = None


QUICK = Scale(
    n=500, p=400, mnist=600, growth=(200, 400, 800), growth_p=160, repeats=2, starts=3,
    data_n=500, data_repeats=1, data_selection=data_sets.Selection(feedbacks=(0.2,)),
)  # fmt: skip


# --- timing a case -----------------------------------------------------------------------------------
def timed_case(model: Any, x: np.ndarray, repeats: int) -> dict[str, Times]:
    """The matrix product, the CK and both kernels, in turn."""
    return interleave(
        {
            "product": lambda: x @ x.T,
            "ck": lambda: nsd.conjugate_kernel(model, x),
            "both": lambda: nsd.kernels.both_kernels(model, x),
        },
        repeats,
    )


def ratios(times: dict[str, Times]) -> Row:
    """Medians and their ratios to the product; the JSON has all times."""
    product = times["product"].median
    row: Row = {"X Xᵀ (s)": product}
    for name, label in (("ck", "CK"), ("both", "CK+NTK")):
        row[f"{label} (s)"] = times[name].median
        row[f"{label} / X Xᵀ"] = times[name].median / product
    row["spread"] = max(taken.spread for taken in times.values())
    row["seconds"] = {name: list(taken.seconds) for name, taken in times.items()}
    return row


def ratio_limits(ck: float, both: float) -> Row:
    return {LIMITS: {"CK / X Xᵀ": ck, "CK+NTK / X Xᵀ": both}}


def accuracy(name: str, x: np.ndarray, rows: int = 20) -> Row:
    """Errors on all pairs of random rows (20 rows: 210 pairs), and the bound that the solver states."""
    model = deq(name)
    chosen = np.random.default_rng(1).choice(len(x), rows, replace=False)
    ck, ntk, *_ = nsd.kernels.both_kernels(model, x)
    _, info = nsd.conjugate_kernel(model, x, return_info=True)
    true_ck, true_ntk = oracle.kernels(model, x[chosen])
    block = np.ix_(chosen, chosen)
    return {
        "CK error": oracle.largest_error(ck[block], true_ck),
        "NTK error": oracle.largest_error(ntk[block], true_ntk),
        "stated bound": float(info.error_bound),
    }


# --- sections ----------------------------------------------------------------------------------------
def mixture_section(scale: Scale) -> list[Row]:
    x = mixture(scale.n, scale.p)
    rows = []
    for name in steps(ACTIVATIONS, f"mixture, n = {scale.n}"):
        times = timed_case(deq(name), x, scale.repeats)
        rows.append({"activation": name, **ratios(times), **accuracy(name, x), **ratio_limits(2.0, 3.0)})
    return rows


def memory_section(scale: Scale) -> list[Row]:
    rows = []
    for name in steps(("relu", "hard_tanh", "tanh", "erf", "softsign", "polynomial"), "memory"):
        row: Row = {"activation": name, "n": scale.n, LIMITS: {}}
        for kernel, label in (("ck", "CK"), ("both", "CK+NTK")):
            found = probe("memory", name, kernel, "--n", str(scale.n), "--p", str(scale.p))
            row[f"{label} (n² doubles)"] = found["n2_doubles"]
            row[f"{label} (MB)"] = found["megabytes"]
            if found["n2_doubles"] is not None:
                row[LIMITS][f"{label} (n² doubles)"] = 2.5
        rows.append(row)
    return rows


def mnist_section(scale: Scale) -> list[Row]:
    folder = data_folder(scale.data_dir)
    if folder is None:
        CONSOLE.print("mnist skipped: no folder with mnist/ in it. Give --data-dir or set NOTSODEEP_DATA.")
        return []
    rows = []
    for centred, name in steps([(c, a) for c in (True, False) for a in ("relu", "tanh")], "mnist"):
        x = mnist_6_8(folder, scale.mnist, centred=centred)
        limit = {"relu": 4.0, "tanh": 8.0}[name]
        row: Row = {"activation": name, "data": "centred" if centred else "not centred", "n": len(x)}
        times = timed_case(deq(name), x, scale.repeats)
        rows.append({**row, **ratios(times), **accuracy(name, x), **ratio_limits(limit, limit)})
    return rows


def growth_section(scale: Scale) -> list[Row]:
    rows = []
    for name in ("relu", "tanh"):
        taken = []
        for n in steps(scale.growth, f"growth, {name}"):
            times = timed_case(deq(name), mixture(n, scale.growth_p), scale.repeats)
            taken.append(times)
            rows.append({"activation": name, "n": n, **ratios(times)})
        rows.append({"activation": name, "n": "exponent", **exponents(scale.growth, taken)})
    return rows


def exponents(sizes: Iterable[int], taken: list[dict[str, Times]]) -> Row:
    """Slope of log time against log n, by least squares."""

    def slope(name: str) -> float:
        seconds = [times[name].median for times in taken]
        return float(np.polyfit(np.log(list(sizes)), np.log(seconds), 1)[0])

    labels = {"X Xᵀ (s)": "product", "CK (s)": "ck", "CK+NTK (s)": "both"}
    return {label: slope(name) for label, name in labels.items()}


def startup_section(scale: Scale) -> list[Row]:
    programs = {"python": lambda: python("pass"), "import": lambda: python("import notsodeep")}
    times = interleave(programs, scale.starts)
    seconds = times["import"].median - times["python"].median
    rows: list[Row] = [{"what": "import notsodeep", "import (s)": seconds, LIMITS: {"import (s)": 0.5}}]
    for name in steps(("relu", "tanh", "gelu", "hard_tanh"), "startup"):
        with tempfile.TemporaryDirectory() as cache:
            for what in ("empty cache", "second process"):
                found = probe("first-call", name, "both", environment={"NUMBA_CACHE_DIR": cache})
                row: Row = {"what": f"{name}, {what}", "import (s)": found["import"]}
                row |= {"first call (s)": found["first"], "second call (ms)": 1e3 * found["second"]}
                row |= {"later calls (ms)": 1e3 * found["later"], "compiled functions": found["compiled"]}
                if what == "second process":
                    row[LIMITS] = {"first call (s)": 1.0, "later calls (ms)": 3.0}
                rows.append(row)
    return rows


def data_section(scale: Scale) -> list[Row]:
    return data_sets.section(
        scale.data_n, scale.data_repeats, data_folder(scale.data_dir), scale.data_selection
    )


SECTIONS: dict[str, tuple[str, Callable[[Scale], list[Row]]]] = {
    "mixture": ("Every built-in activation on the papers' mixture", mixture_section),
    "memory": ("Peak extra memory of one call", memory_section),
    "mnist": ("MNIST 6 against 8", mnist_section),
    "growth": ("Growth with n", growth_section),
    "startup": ("Import and first call", startup_section),
    "data": ("Data of any scale: CK+NTK of every built-in activation", data_section),
}

# What stands under the table of a section.


# --- subprocesses ------------------------------------------------------------------------------------
def probe(*arguments: str, environment: dict[str, str] | None = None) -> Row:
    """One measurement by probe.py in a fresh process."""
    done = subprocess.run(
        [sys.executable, str(HERE / "probe.py"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **(environment or {})},
    )
    if done.returncode:
        raise RuntimeError(f"probe.py {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    found: Row = json.loads(done.stdout.splitlines()[-1])
    return found


def python(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)


# --- reporting ---------------------------------------------------------------------------------------
def steps(items: Iterable[Any], description: str) -> Iterator[Any]:
    return iter(track(list(items), description=description, console=CONSOLE, transient=True))


def print_rows(title: str, rows: list[Row]) -> None:
    if not rows:
        return
    columns = columns_of(rows)
    table = Table(title=title)
    for name in columns:
        table.add_column(name, justify="left" if name in ("activation", "data", "what") else "right")
    for row in rows:
        table.add_row(*(re.sub(r"\*\*(.*)\*\*", r"[bold red]\1[/]", cell(row, name)) for name in columns))
    CONSOLE.print(table)


def write(path: Path, sections: dict[str, Any]) -> None:
    """Write all files after every section, so that an interrupted run keeps its results."""
    write_json(path.with_suffix(".json"), {"sections": sections})
    for name, section in sections.items():
        note = markdown_provenance(section["provenance"])
        write_rows(path.with_name(f"{path.name}-{name}.csv"), section["rows"], note)


def read(path: Path) -> dict[str, Any]:
    """Sections measured earlier; those measured now replace them."""
    file = path.with_suffix(".json")
    sections: dict[str, Any] = json.loads(file.read_text())["sections"] if file.exists() else {}
    return sections


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes; writes kernels-quick.json and tables"
    )
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), metavar="NAME", help=", ".join(SECTIONS))
    parser.add_argument("--data-dir", type=Path, help="folder that holds mnist/ (default: NOTSODEEP_DATA)")
    parser.add_argument(
        "--out", type=Path, default=RESULTS, help="folder of the results (benchmarks/results)"
    )
    parser.add_argument("--activations", nargs="+", default=[], metavar="NAME", help="of the section data")
    parser.add_argument(
        "--data", nargs="+", default=[], metavar="PART", help="data sets with this in their name"
    )
    parser.add_argument("--feedbacks", nargs="+", type=float, default=[], help="values of σ_a²")
    parser.add_argument(
        "--minutes", type=float, default=float("inf"), help="of the section data: then summed up"
    )
    parser.add_argument(
        "--resume", action="store_true", help="of the section data: keep what earlier runs measured"
    )
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a limit does not hold")
    return with_figure_only(parser)


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
        part = grouped(rows, "activation")[activation,]
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
    rows = grouped(rows_of("kernels-data"), "in")["products",]
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


def main() -> int:
    options = parse()
    scale = replace(QUICK if options.quick else Scale(), data_dir=options.data_dir)
    path = options.out / ("kernels-quick" if options.quick else "kernels")
    kept = path.with_name(f"{path.name}-data.jsonl")
    if not options.resume:
        kept.unlink(missing_ok=True)
    chosen = replace(
        scale.data_selection,
        activations=options.activations,
        data=options.data,
        feedbacks=options.feedbacks or scale.data_selection.feedbacks,
        minutes=options.minutes,
        file=kept,
    )
    scale = replace(scale, data_selection=chosen)
    sections, misses = read(path), []
    for name in options.only or SECTIONS:
        title, measure = SECTIONS[name]
        provenance = Provenance()
        rows = judged(measure(scale), judge=not options.quick)
        if rows:
            sections[name] = {"title": title, "provenance": provenance.record(), "rows": rows}
            write(path, sections)
            print_rows(title, rows)
            misses += [
                f"{name}, {next(iter(row.values()))}: {limit}" for row in rows for limit in missed(row)
            ]
    if options.out == RESULTS and not options.quick:
        publish()
    CONSOLE.print(f"Written: {path.with_suffix('.json')} and one table for each section")
    if not options.quick:
        CONSOLE.print("\n  ".join([f"Limits missed: {len(misses)}", *misses]))
    return 1 if options.strict and misses else 0


def judged(rows: list[Row], *, judge: bool) -> list[Row]:
    """Rows with their limits; a quick run has none."""
    return rows if judge else [{key: value for key, value in row.items() if key != LIMITS} for row in rows]


if __name__ == "__main__":
    sys.exit(main())
