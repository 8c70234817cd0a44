"""HTML that nothing can be injected into: plain strings are escaped by construction, only `Html` is markup.

Markup is made by `element` alone. Its names come from the code; its children and the values of its attributes may come
from anywhere, and are escaped unless they are elements themselves.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_VOID = frozenset({"br", "hr", "img", "meta"})
# How picture files of a known kind begin; nothing else is put into a page.
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"<?xml": "image/svg+xml", b"<svg": "image/svg+xml"}
_SENTENCE = 40  # letters
_NARROW = 4.0  # inches: a figure of one column


@dataclass(frozen=True)
class Html:
    """Text that is markup already. Only `element`, `joined` and the page itself make it."""

    text: str


Child = Html | str


def escaped(text: str) -> str:
    """Text for a page: no markup, and nothing that UTF-8 has no bytes for."""
    return html.escape(text.encode("utf-8", "replace").decode("utf-8"), quote=True)


def joined(children: Iterable[Child]) -> Html:
    """Children one after the other."""
    return Html("".join(child.text if isinstance(child, Html) else escaped(child) for child in children))


def element(tag: str, *children: Child, **attributes: str) -> Html:
    """An element; a trailing underscore of an attribute's name is dropped (`class_`), others become hyphens."""
    names = {name.rstrip("_").replace("_", "-"): value for name, value in attributes.items()}
    head = "".join(f' {name}="{escaped(value)}"' for name, value in names.items())
    if tag in _VOID:
        return Html(f"<{tag}{head}>")
    return Html(f"<{tag}{head}>{joined(children).text}</{tag}>")


def paragraph(*children: Child, **attributes: str) -> Html:
    """A paragraph."""
    return element("p", *children, **attributes)


def command(text: str) -> Html:
    """Something to type."""
    return element("pre", element("code", text))


def table(header: Sequence[Child], rows: Iterable[Sequence[Child]], label: str) -> Html:
    """A table in a box of its own, which scrolls where the screen is too narrow for it.

    Args:
        header: words above the columns; the first column names the rows.
        rows: cells.
        label: what the table is, for those who cannot see it.
    """
    head = element("thead", element("tr", *(element("th", cell, scope="col") for cell in header)))
    body = [
        element("tr", element("th", first, scope="row"), *(_cell(cell) for cell in rest))
        for first, *rest in rows
    ]
    return _scrolling(element("table", head, element("tbody", *body)), label)


def _cell(content: Child) -> Html:
    # A sentence squeezed into the width of a number would be as high as the screen.
    if isinstance(content, str) and len(content) > _SENTENCE:
        return element("td", content, class_="sentence")
    return element("td", content)


def picture(content: bytes, description: str, caption: Child = "") -> Html:
    """A picture inside the page, as a data URI: scripts in an SVG do not run there.

    Args:
        content: of a PNG or SVG file.
        description: what it shows, for those who cannot see it.
        caption: below it.

    Raises:
        ValueError: if the content is of another kind.
    """
    kind = next((kind for start, kind in _PICTURES.items() if content.startswith(start)), None)
    if kind is None:
        raise ValueError("the content is neither PNG nor SVG")
    source = f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    size = "wide" if _inches(content, kind) > _NARROW else "narrow"
    shown = [_scrolling(element("img", src=source, alt=description, class_=size), description)]
    if caption:
        shown.append(element("figcaption", caption))
    return element("figure", *shown)


def _inches(content: bytes, kind: str) -> float:
    """The width of a picture as our figures are written: in points, or at 240 dots per inch; 0 if it is not said."""
    if kind == "image/png":
        return int.from_bytes(content[16:20], "big") / 240.0
    width = re.search(rb'<svg[^>]*\swidth="([0-9.]{1,9})pt"', content[:4000])
    return float(width[1]) / 72.0 if width else 0.0


def _scrolling(content: Html, label: str) -> Html:
    # Reached by keyboard too: a box that scrolls must be focusable.
    return element("div", content, class_="scroll", role="region", tabindex="0", aria_label=label)


__all__ = ["Child", "Html", "command", "element", "escaped", "joined", "paragraph", "picture", "table"]
