"""Draw the figures and fill the marked tables of docs/evidence from the files of benchmarks/results.

python benchmarks/publish.py                      all figures and tables, in seconds
python benchmarks/publish.py --results results    first store what `notsodeep reproduce NAME --size full` left there in
                                                  benchmarks/results/reproduce, and fill docs/errata.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from evidence_figures import FIGURES
from evidence_tables import TABLES
from harness import RESULTS, ROOT, Row, filled, markdown_table, write_atomically

from notsodeep import figures
from notsodeep_lab.papers import EXPERIMENTS
from notsodeep_lab.papers.results_reader import Result, read_results
from notsodeep_lab.plots.row_selection import grouped

EVIDENCE, IMAGES = ROOT / "docs" / "evidence", ROOT / "docs" / "images" / "evidence"
ERRATA_PAGE = ROOT / "docs" / "errata.md"
# Rows that figures need, by experiment and kind; of spectra and densities the first alone.
STORED = {
    "icml-error": ("error",),
    "icml-matching": ("entries",),
    "spectrum": ("prediction", "spectrum"),
    "width": ("width",),
    "learning-curves": ("double-descent", "learning"),
}
LARGE = ("eigenvalues", "grid", "density")
UNUSED = ("absolute", "norm", "atoms")


def stored(result: Result) -> dict[str, Any]:
    """What is kept of a run: its claims, and the rows that figures need, with six digits."""
    rows, seen = [], set()
    for row in result.outcome.rows:
        if row["kind"] not in STORED.get(result.experiment.name, ()) or row.get("kernel") == "ntk_paper":
            continue
        kind = (row["kind"], row.get("form"))
        left_out = (*UNUSED, *LARGE) if kind in seen else UNUSED
        seen.add(kind)
        if row["kind"] != "spectrum" or "eigenvalues" not in left_out:
            rows.append({name: _rounded(value) for name, value in row.items() if name not in left_out})
    last = result.provenance["sessions"][-1]
    return {
        "command": result.command,
        "commit": last["commit"],
        "claims": [
            {"what": each.what, "paper": each.paper, "ours": each.ours, "holds": each.verdict, "remark": each.remark}
            for each in result.outcome.expectations
        ],
        "rows": rows,
    }  # fmt: skip


def _rounded(value: Any) -> Any:
    return float(f"{value:.6g}") if isinstance(value, float) else value


def store(folder: Path) -> None:
    """Store the finished runs of full size below `folder`."""
    results, problems = read_results(folder, EXPERIMENTS)
    print(*problems, sep="\n")
    for result in results:
        name = result.experiment.name
        if result.size != "full" or not result.outcome.finished:
            continue
        if name == "errata":
            publish_errata(result.outcome.rows)
            continue
        text = json.dumps(stored(result), ensure_ascii=False, separators=(",", ":"), default=str)
        write_atomically(RESULTS / "reproduce" / f"{name}.json", text + "\n")
        print(f"stored: {name}")


def publish_errata(rows: list[Row]) -> None:
    """Fill the tables that the page of errata marks by erratum and number: `<!-- numbers: icml-alpha2/0 -->`."""
    text = ERRATA_PAGE.read_text(encoding="utf-8")
    for (kind, number), part in grouped(rows, "kind", "table").items():
        start, end = f"<!-- numbers: {kind}/{number} -->", f"<!-- end: {kind}/{number} -->"
        if start in text:
            cells = [{name: _four_digits(value) for name, value in row.items()} for row in part]
            hidden = ("kind", "table")
            shown = [{name: cell for name, cell in row.items() if name not in hidden} for row in cells]
            text = filled(text, start, end, markdown_table(shown))
    write_atomically(ERRATA_PAGE, text)


def _four_digits(value: Any) -> Any:
    if isinstance(value, float):
        return "0" if abs(value) < 1e-12 else f"{value:.4g}"
    return ("yes" if value else "no") if isinstance(value, bool) else value


def main() -> None:
    """Draw the figures and fill the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--results", type=Path, help="folder that `notsodeep reproduce` wrote to")
    parser.add_argument("--only", nargs="+", default=list(FIGURES), metavar="FIGURE", choices=list(FIGURES))
    arguments = parser.parse_args()
    if arguments.results is not None:
        store(arguments.results)
    for name in arguments.only:
        figures.save(FIGURES[name](), IMAGES / f"{name}.svg")
    for (page, mark), table in TABLES.items():
        path = EVIDENCE / f"{page}.md"
        text = path.read_text(encoding="utf-8")
        write_atomically(path, filled(text, f"<!-- table: {mark} -->", f"<!-- end: {mark} -->", table()))
    print(f"{len(arguments.only)} figures, {len(TABLES)} tables")


if __name__ == "__main__":
    main()
