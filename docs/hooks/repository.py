"""Files outside `docs/` that a page links to become part of the site.

A link is written as it works in the repository, `../benchmarks/README.md` from a page of `docs/`, `docs/theory.md`
from the changelog. A linked file outside `docs/` becomes a page (or a plain file) of the site under `repository/`,
and so do the files that it links to. A link to a missing file is left as it is, and the strict build stops at it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

# Included without a link, because the navigation names it.
ALWAYS = ("CHANGELOG.md",)
LINK = re.compile(r"(\]\()([^)\s#:<>]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)

# Repository path of each included file: "repository/CHANGELOG.md" → "CHANGELOG.md". Rebuilt for every build.
_origin: dict[str, str] = {}


def site_path(path: str) -> str:
    """Where a file of the repository is on the site."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def repository_path(uri: str) -> str:
    """The inverse of `site_path`."""
    return _origin.get(uri, f"docs/{uri}")


def links_of(markdown: str, path: str) -> Iterator[str]:
    """Paths in the repository that the file at `path` links to."""
    for part in FENCE.split(markdown)[::2]:
        for match in LINK.finditer(part):
            yield _target(path, match[2])


def _target(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def on_files(files: Any, config: Any) -> Any:
    """Include linked files, and the files that they link to."""
    root = Path(config.config_file_path).parent
    _origin.clear()
    waiting = list(ALWAYS)
    for file in files.documentation_pages():
        waiting.extend(links_of(file.content_string, f"docs/{file.src_uri}"))
    while waiting:
        path = waiting.pop()
        uri = site_path(path)
        if path.startswith(("docs/", "../")) or uri in _origin or not (root / path).is_file():
            continue
        _origin[uri] = path
        files.append(File.generated(config, uri, abs_src_path=os.fspath(root / path)))
        if path.endswith(".md"):
            waiting.extend(links_of((root / path).read_text(encoding="utf-8"), path))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """Rewrite links to their places on the site."""
    uri = page.file.src_uri
    path = repository_path(uri)

    def relative(match: re.Match[str]) -> str:
        target = site_path(_target(path, match[2]))
        if files.get_file_from_path(target) is None:
            return match[0]
        return match[1] + posixpath.relpath(target, posixpath.dirname(uri) or ".") + match[3]

    parts = FENCE.split(markdown)
    parts[::2] = [LINK.sub(relative, part) for part in parts[::2]]
    return "".join(parts)
