"""Every code block of the README and the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from docs_pages import LANGUAGES, NOT_RUN, PICTURES, ROOT, Session, commands, differences, fences, pages, run

pytestmark = pytest.mark.slow

PAGES = {path.relative_to(ROOT).as_posix(): path for path in pages()}


def has_code(path: Path) -> bool:
    return any(fence.language in {"python", "py", "console"} for fence in fences(read(path)))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# --- claims: what the text of a page says about the numbers of its session --------------------------------------


def claims_of_the_readme(session: Session, text: str) -> None:
    """A network of the reader's own gets an answer, and `distill` returns a network that certainly agrees."""
    verdict, small, net = (session.names[name] for name in ("verdict", "small", "net"))
    assert verdict.answer == "replace"
    assert small.certain
    assert small.network(net.inputs.new_zeros(3, 64)).shape == (3, 10)
    assert len(text.split()) <= 700


def claims_about_convergence(session: Session, text: str) -> None:
    usual, small, proved, found = (session.names[name] for name in ("usual", "small", "proved", "found"))
    assert "λ_* = 0.6066" in "".join(session.printed.values())
    quoted = re.findall(r"^> (.*(?:\n> .*)*)", text, flags=re.MULTILINE)
    granted, refused = (quote.replace("\n> ", " ") for quote in quoted)
    assert refused.removeprefix("Not certified. […] ") in usual.explain()
    assert granted == small.explain()
    assert 600 < found.lr / proved.lr < 800
    assert round(proved.losses[-1] / proved.losses[0], 2) == 0.86
    assert round(small.rate**100, 2) == 0.97
    assert found.losses[-1] / found.losses[0] < 1e-22


CLAIMS: dict[str, Callable[[Session, str], None]] = {
    "README.md": claims_of_the_readme,
    "docs/convergence.md": claims_about_convergence,
}


# --- the pages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name, path in PAGES.items() if has_code(path)])
def test_a_page_runs_and_prints_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = read(PAGES[name])
    session = run(text, name)
    assert session.problems == []
    if name in CLAIMS:
        CLAIMS[name](session, text)
    for place, picture in PICTURES.findall(text):
        drawn, kept = (size_of_png(path) for path in (tmp_path / picture, ROOT / "docs" / place))
        assert drawn == kept, f"{picture} is drawn anew by the page; refresh it with tests/docs_pages.py"


def size_of_png(path: Path) -> tuple[int, int]:
    """Width and height, as the header of the file has them."""
    return struct.unpack(">II", path.read_bytes()[16:24])


def test_every_block_says_its_language() -> None:
    unknown = [
        f"{name}, line {fence.first + 1}: {fence.language!r}"
        for name, path in PAGES.items()
        for fence in fences(read(path))
        if fence.language not in LANGUAGES
    ]
    assert unknown == [], f"a block is one of {', '.join(LANGUAGES)}: what it is decides how it is tested"


def test_code_is_fenced() -> None:
    assert {name: lines for name, path in PAGES.items() if (lines := indented_code(read(path)))} == {}
    assert indented_code("text\n\n    python run.py\n") == ["line 3: python run.py"]
    assert indented_code("- item\n\n    of the item\n\ntext\n\n    code\n") == ["line 7: code"]
    assert indented_code("text\n    goes on\n\n```python\n\n    fenced\n```\n") == []


def indented_code(text: str) -> list[str]:
    """Markdown takes a paragraph that is indented by four for code, which no test would see."""
    prose = text.splitlines()
    for fence in fences(text):
        prose[fence.first : fence.last + 1] = [""] * (fence.last + 1 - fence.first)
    inside, found = False, []  # of a list or of an instruction to mkdocstrings, which are indented, too
    for number, (before, line) in enumerate(pairwise(["", *prose]), 1):
        if line.strip() and not line.startswith(" "):
            inside = bool(re.match(r"[-*] |\d+\. |::: ", line))
        elif line.startswith("    ") and not inside and not before.strip():
            found.append(f"line {number}: {line.strip()}")
    return found


def test_code_for_machines_that_are_not_here_is_on_one_page() -> None:
    """A `py` block is compiled and not run: two recipes for clusters, and nothing else may hide there."""
    found = {name: [f for f in fences(read(path)) if f.language == "py"] for name, path in PAGES.items()}
    assert {name: len(blocks) for name, blocks in found.items() if blocks} == {"docs/scale.md": 2}
    for block in found["docs/scale.md"]:
        assert re.search(r"SLURMCluster|KubeCluster", block.text)


def test_commands_in_running_text_exist() -> None:
    """`notsodeep kernel … --out` in a sentence: the command is there, and so are its options."""
    import typer

    from notsodeep.cli.entry import app

    group: Any = typer.main.get_command(app)
    options = {
        name: {
            option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
        }
        for name, command in group.commands.items()
    }
    checked = 0
    for name, path in PAGES.items():
        for code in re.findall(r"`notsodeep ([a-z][^`]*)`", read(path)):
            command, *rest = code.split()
            assert command in options, f"{name}: notsodeep {code}"
            used = {word.partition("=")[0] for word in rest if word.startswith("--")}
            assert used <= options[command] | {"--help"}, f"{name}: notsodeep {code}"
            checked += 1
    assert checked > 10


# --- the rules themselves -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shown", "printed", "equal"),
    [
        ("a 0.123 b", "a 0.124 b", True),
        ("1.5e-03", "1.6e-3", True),
        ("3 of 4", "3   of\n4", True),
        ("in … s, done", "in 0.345 s, done", True),
        ("first\n…\nlast 2.0", "first\nx 1\ny 2\nlast 2.1", True),
        ("[0.1 −0.20]", "[0.1 -0.19]", True),
        ("a 0.123 b", "a 0.125 b", False),
        ("1.5e-03", "1.7e-03", False),
        ("1.5e-03", "1.5e-02", False),
        ("3 of 4", "3 of 5", False),
        ("first\n…\nlast", "first\nx 1", False),
        ("x = 1", "y = 1", False),
        ("", "something", False),
        ("v1.2.3", "v1.2.4", False),
    ],
)
def test_output_that_counts_as_equal(shown: str, printed: str, equal: bool) -> None:
    assert (differences(shown, printed) == []) == equal


PAGE = """
```python
x = 2
print(f"{x / 3:.2f}")
```

```text
0.67
```

Some text, and a block that is no output:

```text
a ──► b
```

```python
print(x)
```

```text
3
```

```console
$ make demo   # not run
$ rm -rf /
```
"""


def test_a_page_is_one_session_and_its_faults_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    session = run(PAGE, "page.md")
    wrong_number, unknown_command = session.problems
    assert wrong_number.startswith("page.md, line 21: shown 3, printed 2")
    assert "rm -rf /: neither `notsodeep` nor one of" in unknown_command
    with pytest.raises(ZeroDivisionError) as failure:
        run("text\n\n```python\n1 / 0\n```\n", "page.md")
    assert "page.md, line 3" in str(failure.traceback[-1].path)
    with pytest.raises(ValueError, match="line 2 is not closed"):
        list(fences("\n```python\nx = 1\n"))


def test_commands_and_their_output_are_told_apart() -> None:
    text = "$ notsodeep design \\\n    --json   # why\n{}\n$ make test\n"
    assert list(commands(text)) == [("notsodeep design     --json", "{}\n"), ("make test", "")]
    assert "notsodeep" not in NOT_RUN


def test_every_link_leads_somewhere() -> None:
    """Links of pages as they are read in the repository; the site's own are checked by its strict build."""
    missing = [
        f"{name}: {link}"
        for name, path in PAGES.items()
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", read(path))
        if not (path.parent / link).exists()
    ]
    assert missing == []
