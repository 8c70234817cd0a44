"""Pages from templates: one HTML file without external references, everything that comes from outside escaped."""

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
from notsodeep.cli.value_formats import scaled, seconds, shown
from notsodeep.files import atomic_write, explained_errors, new_path

# How picture files of a known kind begin; nothing else is put into a page.
_PICTURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"<?xml": "image/svg+xml", b"<svg": "image/svg+xml"}
_NARROW = 4.0  # inches: a figure of one column


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading.

    Attributes:
        title: the heading.
        body: what stands under it, as markup from `render` or `parts`.
        anchor: where links to it lead.
    """

    title: str
    body: tuple[Markup, ...]
    anchor: str


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("notsodeep_lab.report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_encodable,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"scaled": scaled, "seconds": seconds, "shown": shown}
    return made


def _encodable(value: Any) -> Any:
    """Text without what UTF-8 has no bytes for; markup was made from such text."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return value.encode("utf-8", "replace").decode("utf-8")
    return value


def render(template: str, **values: Any) -> Markup:
    """A template of this package, with these values in it."""
    return Markup(_environment().get_template(template).render(**values))


def parts() -> Any:
    """The macros of parts.html as functions: paragraph, heading, command, table, link, verdict."""
    return _environment().get_template("parts.html").module


def picture(content: bytes, description: str, caption: str = "") -> Markup:
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
    return Markup(parts().picture(source, size, description, caption))


def _inches(content: bytes, kind: str) -> float:
    """The width of a picture as our figures are written: in points, or at 240 dots per inch; 0 if it is not known."""
    if kind == "image/png":
        return int.from_bytes(content[16:20], "big") / 240.0
    width = re.search(rb'<svg[^>]*\swidth="([0-9.]{1,9})pt"', content[:4000])
    return float(width[1]) / 72.0 if width else 0.0


def page(title: str, opening: Sequence[Markup], sections: Sequence[Section], typed: str) -> str:
    """A whole page.

    Args:
        title: of the page.
        opening: what stands before the sections.
        sections: each under its heading.
        typed: the command that made the page.
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
    """Write the page completely or not at all; a page that is there is an error unless it is to be replaced."""
    target = new_path(path, overwrite)
    with explained_errors(target.parent), atomic_write(target) as temporary:
        temporary.write_text(content, encoding="utf-8")
    return target
