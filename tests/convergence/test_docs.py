"""The example of docs/convergence.md runs, and says what the text says it says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_example_runs_and_its_text_is_true(capsys):
    text = (ROOT / "docs" / "convergence.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert len(blocks) == 3
    session: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "convergence.md", "exec"), session)
    said = capsys.readouterr().out
    assert "λ_* = 0.6066" in said
    usual, small, proved, found = (session[name] for name in ("usual", "small", "proved", "found"))
    quoted = re.findall(r"^> (.*(?:\n> .*)*)", text, flags=re.MULTILINE)
    refused, granted = (quote.replace("\n> ", " ") for quote in quoted)
    assert refused.removeprefix("Not certified. […] ") in usual.explain()
    assert granted == small.explain()
    assert 600 < found.lr / proved.lr < 800
    assert round(proved.losses[-1] / proved.losses[0], 2) == 0.86
    assert round(small.rate**100, 2) == 0.97
    assert found.losses[-1] / found.losses[0] < 1e-22


def test_every_link_leads_somewhere():
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "docs" / "convergence.md").read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (ROOT / "docs" / link).exists()] == []
