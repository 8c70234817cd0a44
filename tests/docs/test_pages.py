"""Every code block of the README and the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import csv
import re
import struct
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from docs_pages import LANGUAGES, PICTURES, ROOT, Session, differences, fences, pages, run

pytestmark = pytest.mark.slow

PAGES = {path.relative_to(ROOT).as_posix(): path for path in pages()}
CLUSTERS = "docs/how-to/large-data.md"

# The largest number of words of each page of docs/, code and tables included; of other pages in folders, 700.
WORDS = {
    "index.md": 350,
    "start.md": 600,
    "play.md": 300,
    "how-to/neural-odes.md": 600,
    "how-to/longer-loops.md": 600,
    "evidence/papers.md": 1300,
    "evidence/predictions.md": 1300,
    "evidence/verdicts.md": 1200,
    "evidence/comparison.md": 1150,
    "evidence/speed.md": 850,
    "theory.md": 14_100,
    "notation.md": 1000,
    "errata.md": 1100,
    "contributing.md": 1300,
}
ALL_WORDS = 34_000
# Pages whose tables are for readers, not for reference.
READ = ("start.md", "how-to/", "concepts/", "evidence/")
ROWS = 12


def has_code(path: Path) -> bool:
    return any(fence.language in {"python", "py", "console"} for fence in fences(read(path)))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# --- claims: what the text of a page says about the numbers of its session --------------------------------------


def claims_of_the_readme(session: Session, text: str) -> None:
    """`distill` returns a network that certainly agrees, and it has the outputs of the teacher."""
    small, net = session.names["small"], session.names["net"]
    assert small.certain
    assert small.network(net.inputs.new_zeros(3, 64)).shape == (3, 10)
    assert len(text.split()) <= 700


def claims_about_need(session: Session, text: str) -> None:
    assert session.names["found"].answer == "replace"
    assert session.names["chain"].answer == "keep"


def claims_about_distillation(session: Session, text: str) -> None:
    """What the page builds is certain to agree, and the teacher's help does not make it agree less often."""
    small, teacher, test = (session.names[name] for name in ("small", "teacher", "test"))
    assert small.certain
    assert small.network(test).shape == teacher(test).shape
    assert session.names["guarded"] >= session.names["alone"] > 0.95


def claims_about_the_start(session: Session, text: str) -> None:
    """Every digit of the forecast settles, and the twin is far closer than a plain layer."""
    assert session.names["forecast"].settles.all()
    assert session.names["distances"].gain > 100


CLAIMS: dict[str, Callable[[Session, str], None]] = {
    "README.md": claims_of_the_readme,
    "docs/start.md": claims_about_the_start,
    "docs/how-to/need.md": claims_about_need,
    "docs/how-to/distill.md": claims_about_distillation,
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


def test_every_page_keeps_to_its_number_of_words() -> None:
    counts = {path.relative_to(ROOT / "docs").as_posix(): words(path) for path in documents()}
    written = {name: count for name, count in counts.items() if not name.startswith("api/")}
    assert set(WORDS) <= set(written), "a page that is gone"
    limits = {name: WORDS.get(name, 700 if "/" in name else 0) for name in written}
    too_long = {name: f"{count} of {limits[name]}" for name, count in written.items() if count > limits[name]}
    assert too_long == {}
    assert sum(counts.values()) <= ALL_WORDS


def test_tables_are_short() -> None:
    long = {
        name: rows
        for path in documents()
        if (name := path.relative_to(ROOT / "docs").as_posix()).startswith(READ)
        and (rows := max(table_rows(read(path)), default=0)) > ROWS
    }
    assert long == {}
    assert table_rows("| a | b |\n|---|---|\n| 1 | 2 |\n| 3 | 4 |\n\ntext\n") == [2]


def test_output_is_shown_in_full() -> None:
    """`…` stands for what differs from machine to machine: pages print what does not differ."""
    shortened = [
        f"{name}, line {fence.first + 1}"
        for name, path in PAGES.items()
        if name.removeprefix("docs/").startswith(("README.md", "index.md", *READ))
        for fence in fences(read(path))
        if fence.language in ("text", "console") and "…" in fence.text
    ]
    assert shortened == []


def documents() -> list[Path]:
    """The pages of docs/."""
    return [path for path in PAGES.values() if path.is_relative_to(ROOT / "docs")]


def words(path: Path) -> int:
    return len(read(path).split())


def table_rows(text: str) -> list[int]:
    """The number of rows of each table below its head."""
    return [len(table.splitlines()) - 2 for table in re.findall(r"(?:^\|.*\n)+", text, flags=re.MULTILINE)]


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
    """A `py` block is compiled and not run: recipes for clusters, and nothing else may hide there."""
    found = {name: [f for f in fences(read(path)) if f.language == "py"] for name, path in PAGES.items()}
    assert [name for name, blocks in found.items() if blocks] == [CLUSTERS]
    for block in found[CLUSTERS]:
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
        ("3 of 4", "3   of\n4", True),
        ("in … s, done", "in 0.345 s, done", True),
        ("first\n…\nlast 2.0", "first\nx 1\ny 2\nlast 2.1", True),
        ("[0.1 −0.20]", "[0.1 -0.19]", True),
        ("a 0.123 b", "a 0.125 b", False),
        ("1.5e-03", "1.5e-02", False),
        ("3 of 4", "3 of 5", False),
        ("first\n…\nlast", "first\nx 1", False),
        ("", "something", False),
    ],
)
def test_output_that_counts_as_equal(shown: str, printed: str, equal: bool) -> None:
    assert (differences(shown, printed) == []) == equal


def test_every_link_leads_somewhere() -> None:
    """Links of pages as they are read in the repository; the site's own are checked by its strict build."""
    missing = [
        f"{name}: {link}"
        for name, path in PAGES.items()
        for link in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", read(path))
        if not (path.parent / link).exists()
    ]
    assert missing == []


def test_the_speeds_of_the_front_page_are_those_of_kept_rows() -> None:
    def rows(name: str) -> list[dict[str, str]]:
        lines = (ROOT / "benchmarks" / "results" / name).read_text(encoding="utf-8").splitlines()
        return list(csv.DictReader(line for line in lines if not line.startswith("#")))

    ratios = [float(row["CK+NTK / X Xᵀ"]) for row in rows("kernels-mixture.csv")]
    relu = [row for row in rows("peers-kernels.csv") if row["φ"] == "relu"]
    theirs, ours = (
        [float(row["seconds"]) for row in relu if row["contestant"] == name]
        for name in ("neural-tangents, 20 layers", "notsodeep, infinite depth")
    )
    peers = [slow / fast for slow, fast in zip(theirs, ours, strict=True)]
    front = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (
        f"take {min(ratios):.1f} to {max(ratios):.1f} times the product X Xᵀ ({len(ratios)} activations)"
        in front
    )
    assert f"takes {min(peers):.1f} to {max(peers):.1f} times as long" in front
