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


class Files:
    """What the hooks use of mkdocs' files."""

    def __init__(self, **contents: str) -> None:
        self.pages = {
            f"{name}.md": SimpleNamespace(
                src_uri=f"{name}.md",
                content_string=text,
                url_relative_to=lambda other, name=name: f"{name}.html",
            )
            for name, text in contents.items()
        }

    def documentation_pages(self) -> list[Any]:
        return list(self.pages.values())

    def get_file_from_path(self, path: str) -> Any:
        return self.pages.get(path)


def shown_page(files: Files, name: str, content: str) -> tuple[str, Any]:
    mathematics.on_files(files, None)
    page = SimpleNamespace(file=files.pages[name], toc=[], present_anchor_ids=set())
    return mathematics.on_page_content(content, page, None, files), page


def test_a_numbered_equation_has_an_anchor_and_is_linked_where_it_is_cited() -> None:
    files = Files(theory=r"$$ a = b \tag{1.1} $$", guide="by (1.1)")
    content, page = shown_page(
        files, "theory.md", r'<div class="arithmatex">\[ a = b \tag{1.1} \]</div><p>by (1.1)</p>'
    )
    assert '<div class="equation" id="1.1"' in content
    assert '<p>by (<a href="#1.1">1.1</a>)</p>' in content
    assert page.present_anchor_ids == {"1.1"}
    content, _ = shown_page(files, "guide.md", "<p>by (1.1), (1.2)</p><code>f(1.1)</code>")
    assert content == '<p>by (<a href="theory.html#1.1">1.1</a>), (1.2)</p><code>f(1.1)</code>'


def test_a_formula_that_cannot_be_shown_stops_the_strict_build(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        shown_page(Files(page=""), "page.md", r'<span class="arithmatex">\(\nosuchcommand\)</span>')
    assert "page.md: a formula has \\nosuchcommand" in caplog.text


def test_a_number_used_twice_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="mkdocs"):
        mathematics.on_files(Files(one=r"$$ a \tag{1.1} $$", two=r"$$ b \tag{1.1} $$ and `\tag{2.2}`"), None)
    assert "equation (1.1) is in one.md and in two.md" in caplog.text
