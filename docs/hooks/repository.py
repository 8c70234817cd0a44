"""The site has more than `docs/`: what a page links to elsewhere in the repository is taken in.

One rule. A link is written as it works in the repository, `../benchmarks/README.md` from a page of `docs/`,
`docs/theory.md` from the README. A file that is linked and stands outside of `docs/` becomes a page (or a plain file)
of the site under `repository/`, and so do the files that it links to; the README is the first page. A link to what is
not there is left as it is, and the strict build stops at it.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

HOME = "README.md"
# Taken in without a link: the navigation names them.
ALWAYS = (HOME, "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md")
LINK = re.compile(r"(\]\()([^)\s#:<>]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"(^```.*?^```|`[^`\n]+`)", re.DOTALL | re.MULTILINE)

# Where a file of the site stands in the repository: "index.md" → "README.md". Filled anew for every build.
_origin: dict[str, str] = {}


def site_path(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path == HOME:
        return "index.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def repository_path(uri: str) -> str:
    """The inverse: where a file of the site stands in the repository."""
    return _origin.get(uri, f"docs/{uri}")


def links_of(markdown: str, path: str) -> Iterator[str]:
    """Paths in the repository that the file at `path` links to."""
    for part in FENCE.split(markdown)[::2]:
        for match in LINK.finditer(part):
            yield _target(path, match[2])


def _target(path: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), link))


def on_files(files: Any, config: Any) -> Any:
    """Take in what is linked, and what that links to."""
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
    """Write the links as they are on the site."""
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
