r"""Formulas as MathML at build time: nothing is fetched, and nothing runs, when a page is read.

`pymdownx.arithmatex` marks what stands between dollars; `mathml.py` converts it. An equation with `\tag{3.2}` shows
its number at the right and has the anchor `3.2`, so that `theory.md#3.2` is a link to it. A number that is cited in
the text, (3.2), becomes such a link by itself, in docstrings too. A formula that cannot be converted is a warning,
and `mkdocs build --strict` stops at it.
"""

from __future__ import annotations

import html
import logging
import re
from typing import Any

from mathml import MathematicsError, to_mathml

log = logging.getLogger("mkdocs.hooks.mathematics")

TAG = re.compile(r"\\tag\{([^}]+)\}")
FORMULA = re.compile(
    r'<(?P<element>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<latex>.*?)\\[)\]]</(?P=element)>',
    re.DOTALL,
)
PLACE = re.compile(r"(<[^>]+>)")
CITATION = re.compile(r"\(((?:[1-9]\d?|[A-Z])\.\d+)\)")
# In these a number in brackets is code, a link already, or a heading of its own.
UNTOUCHED = ("a", "code", "pre", "math", "script", "style", "h1", "h2", "h3", "h4", "title")

# Which page has an equation: "3.2" → "theory.md". Filled anew for every build.
_pages: dict[str, str] = {}


def on_files(files: Any, config: Any) -> None:
    """Find all numbered equations before the first page is made."""
    _pages.clear()
    for file in files.documentation_pages():
        for number in TAG.findall(_without_code(file.content_string)):
            if number in _pages:
                log.warning(f"equation ({number}) is in {_pages[number]} and in {file.src_uri}")
            _pages[number] = file.src_uri


def on_page_content(content: str, page: Any, config: Any, files: Any) -> str:
    """Convert the formulas of a page, and link the equations it cites."""
    for item in page.toc:
        _plain_titles(item)
    numbers: list[str] = []

    def show(match: re.Match[str]) -> str:
        latex = html.unescape(match["latex"])
        tags = TAG.findall(latex)
        numbers.extend(tags)
        try:
            shown = to_mathml(TAG.sub("", latex), display=match["open"] == "[")
        except MathematicsError as error:
            log.warning(f"{page.file.src_uri}: a formula {error}")
            return match[0]
        return shown if match["open"] == "(" else _equation(shown, tags)

    content = FORMULA.sub(show, content)
    page.present_anchor_ids |= set(numbers)
    return _cite(content, page, files)


def _without_code(markdown: str) -> str:
    """Markdown without fences and code spans, where a tag is an example of one."""
    fences = r"^ *```[\s\S]*?^ *```"
    spans = r"(?<!`)(`+)(?!`)[^\n]*?(?<!`)\1(?!`)"
    return re.sub(f"{fences}|{spans}", "", markdown, flags=re.MULTILINE)


def _equation(shown: str, tags: list[str]) -> str:
    if not tags:
        return f'<div class="equation" data-search-exclude>{shown}</div>'
    number = tags[0]
    link = f'<a class="equation-number" href="#{number}" title="Link to this equation">({number})</a>'
    return f'<div class="equation" id="{number}" data-search-exclude><div>{shown}</div>{link}</div>'


def _plain_titles(item: Any) -> None:
    r"""A formula in a heading, `\(F\)` in the table of contents, as plain text there."""
    item.title = re.sub(r"\\\((.*?)\\\)", r"\1", item.title)
    for child in item.children:
        _plain_titles(child)


def _cite(content: str, page: Any, files: Any) -> str:
    """(3.2) in running text becomes a link to the equation, on this page or on another."""

    def link(match: re.Match[str]) -> str:
        number = match[1]
        if number not in _pages:
            return match[0]
        target = files.get_file_from_path(_pages[number])
        place = "" if target is page.file else target.url_relative_to(page.file)
        return f'(<a href="{place}#{number}">{number}</a>)'

    pieces, inside = PLACE.split(content), 0
    for place, piece in enumerate(pieces):
        if piece.startswith("<"):
            name = re.match(r"</?([a-z0-9]+)", piece)
            if name and name[1] in UNTOUCHED and not piece.endswith("/>"):
                inside += -1 if piece.startswith("</") else 1
        elif not inside:
            pieces[place] = CITATION.sub(link, piece)
    return "".join(pieces)
