"""Predicted test error beside what is really trained.

  python benchmarks/learning_curves.py                       everything that is not done yet, then the page
  python benchmarks/learning_curves.py --part mixtures       one part
  python benchmarks/learning_curves.py --minutes 20          as much as fits; the next call goes on
  python benchmarks/learning_curves.py --summary             the page from what is done
  NOTSODEEP_DATA names the folder with the data sets

Parts (what each measures, and how, stands at the top of its module in learning/ and on the page):
  mixtures     no data: kernels on Gaussian mixtures
  widths       no data: networks of finite width on Gaussian mixtures
  trained      real data: kernels and random networks that are really trained
  samples      predictions from pools of labelled rows, beside them
  descent      full-batch gradient descent
  uncertainty  Gaussian processes: do intervals hold what they say?
  choices      is the predicted order of models right?

Journals: learning-PART.jsonl in --out, the rows of a task in one piece. The page: learning_curves.md there.
"""

from __future__ import annotations

import argparse
import math
import time
from pathlib import Path

from harness import RESULTS, Provenance, markdown_provenance, write_atomically
from learning import choices, descent, mixtures, samples, trained, uncertainty, widths
from learning.journal import CONSOLE

MODULES = (mixtures, widths, trained, samples, descent, uncertainty, choices)
PARTS = {module.PART.name: module.PART for module in MODULES}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--part", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--summary", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    provenance = Provenance()
    if not options.summary:
        options.out.mkdir(parents=True, exist_ok=True)
        until = time.monotonic() + 60.0 * options.minutes
        for name in options.part:
            PARTS[name].run(options.out, until)
    sections = [text for part in PARTS.values() if (text := part.shown(options.out))]
    head = f"# Test error before training\n\n{markdown_provenance(provenance.record())}"
    write_atomically(options.out / "learning_curves.md", "\n".join([head, *sections]))
    for name in options.part:
        CONSOLE.print(PARTS[name].shown(options.out), markup=False)


if __name__ == "__main__":
    main()
