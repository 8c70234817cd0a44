"""How long the explorer takes from a control's change to the finished view, at n = 1000.

  python benchmarks/explorer.py            every control of every view, two new values each
  python benchmarks/explorer.py --quick    every control once with few samples, to see that it runs
  python benchmarks/explorer.py --strict   exit with 1 when a limit is not met

The page is run by streamlit's own test runner in this process: the script from its first line to its last, every figure
drawn, without the browser that shows them. A second process of the page computes predictions at the same time.

Columns
  new       a value that was not there before: the slowest of the values, seconds of the processor, page and second
            process each on a core of its own: the longer of the two.
  passed    seconds that passed meanwhile, which is what a reader waits. Limit 2 seconds, on a machine with two cores
            and no other work: the load average stands above the table.
  back      the value before again, seconds of the processor: everything is remembered.

The first row is the first page of a fresh process: what is imported, compiled or loaded from the cache of compiled
code, and warmed up, once. Results: explorer.json and explorer.md in --out, after every row.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from pathlib import Path
from typing import Any

# As the server is started (`server_environment`), and before NumPy is imported, which the package does: the numerical
# libraries read these once. Left to themselves, two threads of BLAS wait for each other on small matrices.
os.environ.update({"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", **os.environ})

import numpy as np
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

# What is moved in which view, on which data: kind of widget, its key, the value before, new values.
DIGITS = {
    "σ_a²": ("slider", "sigma_a2", 0.2, (0.3, 0.6)),
    "activation": ("selectbox", "activation", "relu", ("tanh", "gelu")),
    "kernel": ("selectbox", "kernel", "ck", ("ntk", "both")),
    "family": ("selectbox", "family", "auto", ("polynomial", "quadratic")),
    "width": ("select_slider", "width", 256, (128, 1024)),
    "n": ("slider", "n", 1000, (900, 500)),
    "seed": ("number_input", "seed", 0, (1, 2)),
}
MIXTURE = {
    "σ_a²": ("slider", "sigma_a2", 0.2, (0.3, 0.6)),
    "separation": ("slider", "mean", 8.0, (4.0, 10.5)),
    "covariance gap": ("slider", "gap", 8.0, (4.0, 10.5)),
    "p": ("slider", "p", 800, (700, 1200)),
}
FORMULA = {
    "formula": (
        "text_input",
        "expression",
        "x * sigmoid(x)",
        ("x*sigmoid(2*x)", "tanh(x) + 0.1*x", "max(x, 0.2*x)"),
    )
}
SCALE = {"scaling of the file": ("selectbox", "scale", "auto", ("none", "standard"))}
IMAGES = {name: DIGITS[name] for name in ("σ_a²", "activation", "width")} | {
    "kernel": ("selectbox", "kernel", "ck", ("ntk",))
}
# View, what is set before, controls.
PLANS: tuple[tuple[str, tuple[tuple[str, str, Any], ...], dict[str, Any]], ...] = (
    ("verdict", (("radio", "source", "digits"),), DIGITS),
    ("verdict", (("selectbox", "activation", "formula"),), FORMULA),
    ("verdict", (("selectbox", "activation", "relu"), ("radio", "source", "file")), SCALE),
    ("verdict", (("radio", "source", "digits"), ("radio", "images", True)), IMAGES),
    ("verdict", (("radio", "images", False), ("radio", "source", "mixture")), MIXTURE),
    ("verdict", (("selectbox", "activation", "formula"),), FORMULA),
    ("learning", (("selectbox", "activation", "relu"),), {"σ_a²": ("slider", "sigma_a2", 0.2, (0.35, 0.65))}),
    ("theory", (), {"σ_a²": ("slider", "sigma_a2", 0.2, (0.4, 0.7)), "n": ("slider", "n", 1000, (900,))}),
)


def unscaled_file() -> bytes:
    """A CSV file whose columns are thousands and millionths, far from what networks are made for."""
    rng = np.random.default_rng(0)
    rows = 1e3 + 10.0 ** rng.uniform(-6, 6, 100) * rng.standard_normal((1000, 100))
    return "\n".join(",".join(f"{cell:.6g}" for cell in row) for row in rows).encode()


def children_seconds() -> float:
    """Processor time of the second process of the page, while it runs."""
    total = 0.0
    for process in multiprocessing.active_children():
        words = Path(f"/proc/{process.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        total += (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
    return total


def finished(page: AppTest) -> tuple[float, float]:
    """Run the page and see that it is whole; seconds of the processor, and seconds that passed."""
    start, own, other = time.perf_counter(), time.process_time(), children_seconds()
    page.run()
    own, other = time.process_time() - own, children_seconds() - other
    if page.exception or page.error:
        raise RuntimeError(
            f"the page is not whole: {[error.value for error in (*page.exception, *page.error)]}"
        )
    return max(own, other), time.perf_counter() - start


def moved(page: AppTest, kind: str, key: str, value: Any) -> tuple[float, float]:
    getattr(page, kind)(key=key).set_value(value)
    if (key, value) == ("source", "file"):
        # Without a file the page asks for one; with it, it answers.
        page.run()
        page.file_uploader(key="upload").set_value(("rows.csv", unscaled_file(), "text/csv"))
    return finished(page)


def measure(page: AppTest, view: str, name: str, control: tuple[str, str, Any, Any], quick: bool) -> Row:
    kind, key, before, values = control
    moved(page, kind, key, before)
    new, back = [], []
    for value in values[:1] if quick else values:
        new.append(moved(page, kind, key, value))
        back.append(moved(page, kind, key, before)[0])
    seconds, passed = (max(part) for part in zip(*new, strict=True))
    return {
        "view": view,
        "data": page.session_state["source"] + (", images" if page.session_state["images"] else ""),
        "control": name,
        "values": ", ".join(str(value) for value in values),
        "new": round(seconds, 2),
        "passed": round(passed, 2),
        "back": round(max(back), 2),
        "limit met": passed <= LIMIT,
    }


def report(results: dict[str, Any]) -> str:
    first = f"First page of a fresh process: {results['first page']} s of the processor.\n"
    title = f"## Seconds from a change to the finished view, n = {results['n']}\n"
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
    page = AppTest.from_file(MAIN, default_timeout=1200)
    first = round(finished(page)[0], 1)
    size = 100 if arguments.quick else 1000
    rows: list[Row] = []
    results: dict[str, Any] = {"n": size, "first page": first, "controls": rows}
    for view, settings, controls in PLANS:
        page.segmented_control(key="view").set_value(view)
        for kind, key, value in settings:
            moved(page, kind, key, value)
        moved(page, "slider", "n", size)
        for name, control in controls.items():
            rows.append(measure(page, view, name, control, arguments.quick))
            CONSOLE.print(f"{rows[-1]}")
            if not arguments.quick or arguments.out != RESULTS:
                results["provenance"] = provenance.record()
                write_json(arguments.out / "explorer.json", results)
                write_atomically(arguments.out / "explorer.md", report(results))
    CONSOLE.print(report(results | {"provenance": provenance.record()}), markup=False)
    sys.exit(1 if arguments.strict and not all(row["limit met"] for row in rows) else 0)


if __name__ == "__main__":
    main()
