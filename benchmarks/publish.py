"""Put the measured tables into docs/benchmarks.md: `python benchmarks/publish.py` after the benchmarks have run."""

from __future__ import annotations

import re
from pathlib import Path

from harness import write_atomically

HERE = Path(__file__).parent
TARGET = HERE.parent / "docs" / "benchmarks.md"

INTRODUCTION = """# Benchmarks

Every table is written by a command and carries its machine, versions, date and load. Ratios are taken within one run,
numerator and denominator in turn, because machines are noisy; correctness stands beside time. To repeat all of it:
`make bench`, then `python benchmarks/publish.py`.
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
    ("accuracy", "Networks: accuracy of DEQs, twins and plain networks", "`python benchmarks/accuracy.py`"),
    ("convergence", "Training of wide DEQs", "`python benchmarks/convergence.py`"),
    ("equivalents", "High-dimensional equivalents", "`python benchmarks/equivalents.py`"),
    ("spectrum", "Spectra predicted without data", "`python benchmarks/spectrum.py`"),
    ("scale", "Kernels beyond memory", "`python benchmarks/scale.py`"),
)


def section(name: str, title: str, command: str) -> str:
    """One result file under its title, its own headings two levels down."""
    path = HERE / "results" / f"{name}.md"
    if not path.exists():
        return f"## {title}\n\nNot measured yet: {command}.\n"
    body = re.sub(r"^# .*\n+", "", path.read_text(), count=1)
    body = re.sub(r"^(#+) ", r"#\1 ", body, flags=re.MULTILINE)
    return f"## {title}\n\n{command}\n\n{body.strip()}\n"


def main() -> None:
    """Write the page."""
    parts = [INTRODUCTION, *(section(*entry) for entry in SECTIONS)]
    write_atomically(TARGET, "\n".join(parts))
    print(f"written: {TARGET.relative_to(HERE.parent)}")


if __name__ == "__main__":
    main()
