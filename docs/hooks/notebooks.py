"""The notebooks of docs/notebooks as pages of the site: text, code, and the output that is kept in the file.

Nothing is run when the site is built; `python tests/notebook_runner.py` writes the output, and tests run all cells. A
link to a notebook leads to its page, which offers the file.
"""

from __future__ import annotations

import json
import re
from pathlib import PurePosixPath
from typing import Any

from mkdocs.structure.files import File

LINK = re.compile(r"(\]\([^)\s:]+)\.ipynb(\)(?!\{))")


def page_of(text: str, name: str) -> str:
    """A notebook as Markdown; `name` is that of its file."""
    first, *cells = json.loads(text)["cells"]
    title, _, introduction = source_of(first).partition("\n")
    file = f"[This page as a notebook]({name}){{download}}: all cells run in some seconds, and nothing is downloaded."
    return "\n\n".join(
        [title, file, introduction.strip(), *(part for cell in cells for part in parts_of(cell))]
    )


def source_of(cell: dict[str, Any]) -> str:
    """The text of a cell."""
    return "".join(cell["source"])


def parts_of(cell: dict[str, Any]) -> list[str]:
    """Text, or code and what it printed and showed."""
    if cell["cell_type"] == "markdown":
        return [source_of(cell)]
    return [fenced("python", source_of(cell)), *(shown(output) for output in cell["outputs"])]


def shown(output: dict[str, Any]) -> str:
    """One output: what was printed, else a table or drawing, else plain text."""
    if output["output_type"] == "stream":
        return fenced("text", "".join(output["text"]))
    data = output["data"]
    if "text/html" in data:
        return f'<div class="notebook-output">{"".join(data["text/html"])}</div>'
    return fenced("text", "".join(data["text/plain"]))


def fenced(language: str, text: str) -> str:
    """A block of code."""
    return f"```{language}\n{text.rstrip()}\n```"


def on_files(files: Any, config: Any) -> Any:
    """Add a page for each notebook."""
    for file in list(files):
        path = PurePosixPath(file.src_uri)
        if path.suffix == ".ipynb":
            page = page_of(file.content_string, path.name)
            files.append(File.generated(config, str(path.with_suffix(".md")), content=page))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to notebooks lead to their pages, except where the file is offered."""
    return LINK.sub(r"\1.md\2", markdown)
