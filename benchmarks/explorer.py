"""How long the explorer takes from a control's change to the finished page, at n = 1000, p = 800.

  python benchmarks/explorer.py            every control, three new values each (three minutes on two cores)
  python benchmarks/explorer.py --quick    every control once with few samples, to see that it runs
  python benchmarks/explorer.py --strict   exit with 1 when a median is above its limit

The page is run by streamlit's own test runner in this process: the script from its first line to its last, every figure
drawn, without the browser that shows them.

Columns
  new     a value that was not there before: samples, kernels, spectrum, design, errors, figures, as far as the control
          touches them. Median over the values. Limit 2 seconds.
  slowest the slowest of them.
  back    the value before again: everything is remembered.

The first row is the first page of a fresh process: what is imported, compiled or loaded from the cache of compiled
code, and warmed up, once. Results: explorer.json and explorer.md in --out.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from notsodeep.interfaces.cli.explore_command import server_environment

# As the server is started, and before NumPy is imported: the numerical libraries read these once.
os.environ.update(server_environment())

from harness import (
    RESULTS,
    Provenance,
    Row,
    markdown_provenance,
    markdown_table,
    write_atomically,
    write_json,
)
from rich.console import Console
from streamlit.testing.v1 import AppTest

import notsodeep.interfaces.app

CONSOLE = Console(highlight=False, width=150)
MAIN = str(Path(notsodeep.interfaces.app.__file__).with_name("main.py"))
LIMIT = 2.0  # seconds

# What is moved: kind of widget, its key, the value before, new values.
CONTROLS: dict[str, tuple[str, str, Any, tuple[Any, ...]]] = {
    "σ_a²": ("slider", "sigma_a2", 0.2, (0.3, 0.45, 0.6)),
    "activation": ("selectbox", "activation", "tanh", ("relu", "gelu", "erf")),
    "kernel": ("selectbox", "kernel", "ck", ("ntk", "both", "ntk_paper")),
    "family": ("selectbox", "family", "auto", ("smooth", "cubic", "piecewise_linear")),
    "separation": ("slider", "mean", 8.0, (4.0, 10.5, 13.0)),
    "covariance gap": ("slider", "gap", 8.0, (4.0, 10.5, 13.0)),
    "n": ("slider", "n", 1000, (900, 950, 1050)),
    "p": ("slider", "p", 800, (700, 1000, 1200)),
    "seed": ("number_input", "seed", 0, (1, 2, 3)),
    "samples": ("selectbox", "source", "mixture", ("sphere", "digits")),
    "formula": (
        "text_input",
        "expression",
        "x * sigmoid(x)",
        ("x*sigmoid(2*x)", "tanh(x) + 0.1*x", "max(x, 0.2*x)"),
    ),
}


def finished(page: AppTest) -> float:
    """Run the page and see that it is whole; seconds."""
    start = time.perf_counter()
    page.run()
    seconds = time.perf_counter() - start
    if page.exception or page.error or len(page.code) != 2:
        raise RuntimeError(
            f"the page is not whole: {[error.value for error in (*page.exception, *page.error)]}"
        )
    return seconds


def moved(page: AppTest, kind: str, key: str, value: Any) -> float:
    getattr(page, kind)(key=key).set_value(value)
    return finished(page)


def measure(page: AppTest, name: str, quick: bool) -> Row:
    kind, key, before, values = CONTROLS[name]
    if name == "formula":
        moved(page, "selectbox", "activation", "formula")
    new, back = [], []
    for value in values[:1] if quick else values:
        new.append(moved(page, kind, key, value))
        back.append(moved(page, kind, key, before))
    if name == "formula":
        moved(page, "selectbox", "activation", "tanh")
    row = {"control": name, "values": ", ".join(str(value) for value in values)}
    times = {"new": statistics.median(new), "slowest": max(new), "back": statistics.median(back)}
    return (
        row | {name: round(value, 2) for name, value in times.items()} | {"limit met": times["new"] <= LIMIT}
    )


def report(results: dict[str, Any]) -> str:
    size = results["size"]
    first = f"First page of a fresh process: {results['first page']} s.\n"
    title = f"## Seconds from a change to the finished page, n = {size['n']}, p = {size['p']}\n"
    parts = ["# The explorer\n", markdown_provenance(results["provenance"]), first, title]
    return "\n".join([*parts, markdown_table(results["controls"])])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few samples, to see that it runs")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a limit is not met")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    provenance = Provenance()
    page = AppTest.from_file(MAIN, default_timeout=600)
    first = round(finished(page), 1)
    size = {"n": 100, "p": 50} if arguments.quick else {"n": 1000, "p": 800}
    if arguments.quick:
        for key, value in size.items():
            moved(page, "slider", key, value)
    rows = []
    for name in CONTROLS:
        rows.append(measure(page, name, arguments.quick))
        CONSOLE.print(f"{rows[-1]}")
    results: dict[str, Any] = {"size": size, "first page": first, "controls": rows}
    results["provenance"] = provenance.record()
    CONSOLE.print(report(results), markup=False)
    if not arguments.quick or arguments.out != RESULTS:
        write_json(arguments.out / "explorer.json", results)
        write_atomically(arguments.out / "explorer.md", report(results))
    sys.exit(1 if arguments.strict and not all(row["limit met"] for row in rows) else 0)


if __name__ == "__main__":
    main()
