"""Render self-contained HTML pages from templates; all input is escaped."""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from notsodeep import __version__
from notsodeep.cli.common import scaled, seconds, shown
from notsodeep.files import atomic_write, explained_errors, new_path

# Signatures of the image formats that a page may contain.
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"<?xml": "image/svg+xml", b"<svg": "image/svg+xml"}
_NARROW = 4.0  # inches: a figure of one column


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading.

    Attributes:
        title: the heading.
        body: the content, as markup from `render` or `parts`.
        anchor: identifier for links.
    """

    title: str
    body: tuple[Markup, ...]
    anchor: str


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("notsodeep_lab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_encodable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"scaled": scaled, "seconds": seconds, "shown": shown}
    return environment


def _encodable(value: Any) -> Any:
    """Replace characters that UTF-8 cannot encode; markup was created from such text."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


def render(template: str, **values: Any) -> Markup:
    """Render a template of this package."""
    return Markup(_environment().get_template(template).render(**values))


def parts() -> Any:
    """Return the macros of parts.html as functions: paragraph, heading, command, table, link, verdict."""
    return _environment().get_template("parts.html").module


def picture(content: bytes, description: str, caption: str = "") -> Markup:
    """Embed an image as a data URI, where scripts in an SVG do not run.

    Args:
        content: content of a PNG or SVG file.
        description: alternative text for screen readers.
        caption: text below the image.

    Raises:
        ValueError: if the content is neither PNG nor SVG.
    """
    kind = next((kind for start, kind in _PICTURES.items() if content.startswith(start)), None)
    if kind is None:
        raise ValueError("the content is neither PNG nor SVG")
    source = f"data:{kind};base64,{base64.b64encode(content).decode('ascii')}"
    size = "wide" if _inches(content, kind) > _NARROW else "narrow"
    return Markup(parts().picture(source, size, description, caption))


def _inches(content: bytes, kind: str) -> float:
    """The width of an image written by `figures`: in points, or at 240 dots per inch; 0 if unknown."""
    if kind == "image/png":
        return int.from_bytes(content[16:20], "big") / 240.0
    width = re.search(rb'<svg[^>]*\swidth="([0-9.]{1,9})pt"', content[:4000])
    return float(width[1]) / 72.0 if width else 0.0


def page(title: str, opening: Sequence[Markup], sections: Sequence[Section], typed: str) -> str:
    """Render a complete page.

    Args:
        title: title of the page.
        opening: content before the sections.
        sections: the sections.
        typed: the command that created the page.
    """
    time = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    return str(
        render(
            "page.html",
            title=title,
            opening=opening,
            sections=sections,
            typed=typed,
            time=time,
            version=__version__,
        )
    )


def write_page(content: str, path: Path, *, overwrite: bool = False) -> Path:
    """Write a page atomically; an existing file is an error unless `overwrite`."""
    target = new_path(path, overwrite)
    with explained_errors(target.parent), atomic_write(target) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return target
