"""The hook of the site that draws formulas: links to equations, and mistakes that stop the build."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("latex2mathml", reason="the extra docs is not installed")
pytest.importorskip("mkdocs", reason="the extra docs is not installed")

HOOKS = Path(__file__).parents[2] / "docs" / "hooks"
sys.path.insert(0, str(HOOKS))
try:
    import mathematics
    from mathml import MathematicsError, to_mathml
finally:
    sys.path.remove(str(HOOKS))


@pytest.mark.parametrize(
    "latex", [r"\nosuchcommand x", r"\frac{1}{", r"a & b", r"\begin{nothing} a \end{nothing}"]
)
def test_what_cannot_be_shown_is_an_error(latex: str) -> None:
    with pytest.raises(MathematicsError):
        to_mathml(latex, display=True)


def files(**contents: str) -> Any:
    """What the hooks use of mkdocs' files."""
    pages = [
        SimpleNamespace(src_uri=f"{name}.md", content_string=text, url_relative_to=lambda other: "")
        for name, text in contents.items()
    ]
    return SimpleNamespace(documentation_pages=lambda: pages, get_file_from_path=lambda path: None)


def test_a_formula_that_cannot_be_shown_stops_the_strict_build(caplog: pytest.LogCaptureFixture) -> None:
    every = files(page="")
    page = SimpleNamespace(file=every.documentation_pages()[0], toc=[], present_anchor_ids=set())
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        mathematics.on_files(every, None)
        formula = r'<span class="arithmatex">\(\nosuchcommand\)</span>'
        mathematics.on_page_content(formula, page, None, every)
    assert "page.md: a formula has \\nosuchcommand" in caplog.text


def test_a_number_used_twice_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        mathematics.on_files(files(one=r"$$ a \tag{1.1} $$", two=r"$$ b \tag{1.1} $$ and `\tag{2.2}`"), None)
    assert "equation (1.1) is in one.md and in two.md" in caplog.text
