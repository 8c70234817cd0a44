"""Draw the figures and fill the marked tables of docs/evidence from the files of benchmarks/results.

python benchmarks/publish.py    all figures and tables, in seconds
"""

from __future__ import annotations

import argparse

from evidence_figures import FIGURES
from evidence_tables import TABLES
from harness import ROOT, filled, write_atomically

from notsodeep import figures

EVIDENCE, IMAGES = ROOT / "docs" / "evidence", ROOT / "docs" / "images" / "evidence"


def main() -> None:
    """Draw the figures and fill the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=list(FIGURES), metavar="FIGURE", choices=list(FIGURES))
    arguments = parser.parse_args()
    for name in arguments.only:
        figures.save(FIGURES[name](), IMAGES / f"{name}.svg")
    for (page, mark), table in TABLES.items():
        path = EVIDENCE / f"{page}.md"
        text = path.read_text(encoding="utf-8")
        write_atomically(path, filled(text, f"<!-- table: {mark} -->", f"<!-- end: {mark} -->", table()))
    print(f"{len(arguments.only)} figures, {len(TABLES)} tables")


if __name__ == "__main__":
    main()
