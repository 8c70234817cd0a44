"""Predicted test error beside what is really trained.

  python benchmarks/learning_curves.py                       everything that is not done yet
  python benchmarks/learning_curves.py --part mixtures       one part
  python benchmarks/learning_curves.py --minutes 20          as much as fits; the next call goes on
  python benchmarks/learning_curves.py --summary --publish   the tables from what is done, into docs/learning.md and
                                                             docs/comparison.md
  NOTSODEEP_DATA names the folder with the data sets

Parts (what each measures, and how, stands at the top of its module in learning/ and on the page):
  mixtures     no data: kernels on Gaussian mixtures
  widths       no data: networks of finite width on Gaussian mixtures
  trained      real data: kernels and random networks that are really trained
  samples      predictions from pools of labelled rows, beside them
  descent      full-batch gradient descent
  uncertainty  Gaussian processes: do intervals hold what they say?
  choices      is the predicted order of models right?

Journals: learning-PART.jsonl in --out, the rows of a task in one piece.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from harness import RESULTS, Provenance, filled, markdown_provenance, write_atomically
from learning import choices, descent, mixtures, samples, trained, uncertainty, widths
from learning.journal import CONSOLE

DOCS = Path(__file__).parent.parent / "docs"
MODULES = (mixtures, widths, trained, samples, descent, uncertainty, choices)
PARTS = {module.PART.name: module.PART for module in MODULES}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    provenance = Provenance()
    if not options.summary:
        options.out.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + 60.0 * options.minutes
        for name in options.part:
            PARTS[name].run(options.out, until)
    for name in options.part:
        CONSOLE.print(PARTS[name].shown(options.out), markup=False)
    if options.publish:
        publish(options.out, markdown_provenance(provenance.record()))


def publish(folder: Path, provenance: str) -> None:
    """Fill the marked parts of the documentation from the journals."""
    tables = [text for part in PARTS.values() if (text := part.shown(folder))]
    _fill("learning.md", "\n".join([*tables, provenance]))
    _fill("comparison.md", samples.formulas(PARTS["samples"].done(folder) + PARTS["trained"].done(folder)))


def _fill(name: str, content: str) -> None:
    path = DOCS / name
    marks = "<!-- measured: learning -->", "<!-- end: learning -->"
    write_atomically(path, filled(path.read_text("utf-8"), *marks, content))


if __name__ == "__main__":
    main()
