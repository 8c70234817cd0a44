"""Insert measured results into the documentation.

python benchmarks/publish.py                      the tables of benchmarks/results into docs/benchmarks.md
python benchmarks/publish.py --results results    and what `notsodeep reproduce all --size full` left there into the
                                                  marked parts of docs/results.md and docs/errata.md, with figures
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from harness import filled, markdown_table, write_atomically

from notsodeep.cli.common import seconds, shown
from notsodeep.files import atomic_write
from notsodeep_lab.papers import EXPERIMENTS, Row, draw, has_figure
from notsodeep_lab.papers.results_reader import Result, read_results
from notsodeep_lab.plots.row_selection import grouped

HERE = Path(__file__).parent
DOCS = HERE.parent / "docs"
TARGET = DOCS / "benchmarks.md"
RESULTS_PAGE = DOCS / "results.md"
ERRATA_PAGE = DOCS / "errata.md"
FIGURES = DOCS / "images" / "results"

INTRODUCTION = """# Benchmarks

Every table is written by a command and carries its machine, versions, date and load. Ratios are taken within one run,
numerator and denominator in turn, because machines are noisy; correctness stands beside time. To repeat all of it:
`make bench`, then `python benchmarks/publish.py`. All alternatives on one page, with what we lose:
[comparison](comparison.md) (`make bench-peers`).
"""

SECTIONS = (
    ("kernels", "Exact kernels", "`python benchmarks/run.py` (`make bench`)"),
    ("neural_tangents", "Beside neural-tangents", "`python benchmarks/peers/neural_tangents/compare.py`"),
    (
        "neural_tangents_tanh",
        "Beside neural-tangents: tanh",
        "`python benchmarks/peers/neural_tangents/compare.py --only tanh --repeats 1`",
    ),
    ("torchdeq", "Beside TorchDEQ", "`python benchmarks/peers/torchdeq/compare.py`"),
    ("networks", "Networks: a DEQ and its explicit twin", "`python benchmarks/networks.py`"),
    ("verdicts", "How often is the verdict right?", "`python benchmarks/verdicts.py`"),
    ("distillation", "Distillation", "`python benchmarks/distillation.py`"),
    ("estimators", "Estimators", "`python benchmarks/estimators.py`"),
    ("forecast", "Forecasts beside networks", "`python benchmarks/forecast.py`"),
)


def section(name: str, title: str, command: str) -> str:
    """One result file under its title, its own headings two levels down."""
    path = HERE / "results" / f"{name}.md"
    if not path.exists():
        return f"## {title}\n\nNot measured yet: {command}.\n"
    body = re.sub(r"^# .*\n+", "", path.read_text(), count=1)
    body = re.sub(r"^(#+) ", r"#\1 ", body, flags=re.MULTILINE)
    return f"## {title}\n\n{command}\n\n{body.strip()}\n"


def marks(name: str) -> tuple[str, str]:
    return f"<!-- experiment: {name} -->", f"<!-- end: {name} -->"


def told(result: Result) -> str:
    """Render one experiment: its figure, the comparison with the paper, and its provenance."""
    name = result.experiment.name
    rows = [
        {
            "what": each.what,
            "paper": shown(each.paper),
            "ours": shown(each.ours),
            "holds": shown(each.verdict),
            "remark": each.remark,
        }
        for each in result.outcome.expectations
    ]
    # A bar would end the cell.
    escaped = [{key: value.replace("|", "\\|") for key, value in row.items()} for row in rows]
    last = result.provenance["sessions"][-1]
    return (
        f"![{result.experiment.summary}](images/results/{name}.png)\n\n{markdown_table(escaped)}\n"
        f"`{result.command}`: {seconds(result.provenance['task_seconds'])} of computing, commit {last['commit']}, "
        f"settings {result.outcome.spec.hash()}.\n"
    )


def errata_table(rows: list[Row]) -> str:
    """One table of an erratum, with four figures of each number."""
    hidden = ("kind", "table")
    return markdown_table(
        [{name: _four_figures(value) for name, value in row.items() if name not in hidden} for row in rows]
    )


def _four_figures(value: Any) -> Any:
    if isinstance(value, float):
        return "0" if abs(value) < 1e-12 else f"{value:.4g}"
    return ("yes" if value else "no") if isinstance(value, bool) else value


def publish_errata(result: Result) -> None:
    """Fill the tables that the page of errata marks by erratum and number: `<!-- numbers: icml-alpha2/0 -->`."""
    text = ERRATA_PAGE.read_text(encoding="utf-8")
    for (kind, number), rows in grouped(result.outcome.rows, "kind", "table").items():
        start, end = f"<!-- numbers: {kind}/{number} -->", f"<!-- end: {kind}/{number} -->"
        if start in text:
            text = filled(text, start, end, errata_table(rows))
    write_atomically(ERRATA_PAGE, text)


def publish_results(folder: Path) -> None:
    """Fill the marked parts of the page from finished runs at full size; others stay unchanged."""
    text = RESULTS_PAGE.read_text(encoding="utf-8")
    found, doubts = read_results(folder, EXPERIMENTS)
    for doubt in doubts:
        print(doubt)
    FIGURES.mkdir(parents=True, exist_ok=True)
    for result in found:
        name = result.experiment.name
        if result.size != "full" or not result.outcome.finished:
            continue
        if not has_figure(name):
            publish_errata(result)
            continue
        text = filled(text, *marks(name), told(result))
        with atomic_write(FIGURES / f"{name}.png") as temporary:
            draw(name, result.outcome.rows).savefig(temporary, dpi=110, format="png")
        print(f"published: {name}")
    write_atomically(RESULTS_PAGE, text)


def main() -> None:
    """Write the pages."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, help="folder that `notsodeep reproduce` wrote to")
    arguments = parser.parse_args()
    parts = [INTRODUCTION, *(section(*entry) for entry in SECTIONS)]
    write_atomically(TARGET, "\n".join(parts))
    print(f"written: {TARGET.relative_to(HERE.parent)}")
    if arguments.results is not None:
        publish_results(arguments.results)


if __name__ == "__main__":
    main()
