"""The report as text: it is complete, fetches nothing, and escapes all input."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report_pages import EXPERIMENTS, HOSTILE, run_hostile, run_plain, write_design, write_training
from typer.testing import CliRunner

from notsodeep import figures
from notsodeep.cli.entry import app
from notsodeep.errors import InputError
from notsodeep_lab.papers.results_folder import ROWS
from notsodeep_lab.report import report, write_page
from notsodeep_lab.report.rendering import parts, picture

TAGS = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "footer", "section", "h1", "h2", "h3", "p", "a",
    "span", "div", "strong", "ul", "li", "table", "thead", "tbody", "tr", "th", "td", "pre", "code", "figure", "img",
    "figcaption", "details", "summary",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "role", "tabindex", "aria-label",
    "scope", "src", "alt",
}  # fmt: skip


class Read(HTMLParser):
    """Tags, attributes and text of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(str(page))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")


def page_of(root: Path, include: Sequence[Path] = ()) -> Read:
    return Read(report(root, include, EXPERIMENTS))


@pytest.mark.slow
def test_the_page_shows_what_was_run_and_how_to_repeat_it(tmp_path: Path) -> None:
    outcome = run_plain(tmp_path)
    read = page_of(tmp_path)
    for words in (
        "icml-error (quick)", "A paper, Figure 1. error against n", "3 of 3 tasks finished", "exponent of the error",
        "-0.4871", "✓ yes", "✗ no", "fitted to the means over seeds", "sizes", "250, 500, 1000",
        "notsodeep reproduce icml-error --size quick", "numpy", str(outcome.folder), "1 of 2",
        f"notsodeep report --root {tmp_path}",
    ):  # fmt: skip
        assert words in read.text, words
    assert read.tags.count("img") == 1
    assert read.open == []
    for content in (b"{", b'{"sessions": [1]}', b'{"sessions": {}}'):
        (outcome.folder / "provenance.json").write_bytes(content)
        assert "Provenance" not in page_of(tmp_path).text


@pytest.mark.slow
def test_claims_are_listed_once_from_the_full_run(tmp_path: Path) -> None:
    quick = run_plain(tmp_path, "quick").folder / ROWS
    assert page_of(tmp_path).text.count("exponent of the error") == 2
    quick.write_bytes(b"".join(quick.read_bytes().splitlines(keepends=True)[:2]))
    unfinished = page_of(tmp_path).text
    assert "2 of 3 tasks finished" in unfinished
    assert "the command below continues it" in unfinished
    for size in ("quick", "full"):
        run_plain(tmp_path, size)
    hostile = run_hostile(tmp_path)
    text = page_of(tmp_path).text
    assert "notsodeep reproduce icml-error --size full" in text
    assert "Differences from the paper: the larger half" in text
    assert f"notsodeep reproduce hostile --spec {hostile.folder}/spec.toml" in text
    assert text.index("icml-error (full)") < text.index("icml-error (quick)")
    claims = text[text.index("Claims") :]
    assert text.count("exponent of the error") == 3
    assert "icml-error (full)" in claims[: claims.index("A paper, Figure 1")]


@pytest.mark.slow
def test_nothing_that_came_from_outside_is_markup(tmp_path: Path) -> None:
    run_hostile(tmp_path)
    write_design(tmp_path / "<img src=x onerror=alert(1)>.json")
    hostile = write_training(
        tmp_path / "train.json", model=HOSTILE[0], network=HOSTILE[1], accuracy=HOSTILE[2], memory=HOSTILE[0],
        stopped=HOSTILE[1], data=HOSTILE[4], seconds_per_epoch=HOSTILE[3], accuracy_sd=HOSTILE[0], optimizer="\ud800",
    )  # fmt: skip
    read = page_of(tmp_path, [tmp_path / "<img src=x onerror=alert(1)>.json", hostile])
    assert set(read.tags) <= TAGS
    assert {name for name, _ in read.attributes} <= ATTRIBUTES
    assert read.tags.count("h1") == 1
    assert read.tags.count("style") == 1
    assert read.open == []
    for text in HOSTILE:
        assert read.text.count(text) >= 8


@pytest.mark.slow
def test_nothing_is_fetched(tmp_path: Path) -> None:
    run_plain(tmp_path)
    run_hostile(tmp_path)
    read = page_of(tmp_path, [write_design(tmp_path / "design.json")])
    targets = {f"#{value}" for name, value in read.attributes if name == "id"}
    assert {value for name, value in read.attributes if name == "href"} <= targets
    for name, value in read.attributes:
        assert value is not None
        if name == "src":
            assert value.startswith("data:image/")
    page = report(tmp_path, (), EXPERIMENTS)
    assert "url(" not in page
    assert "@import" not in page


def test_designs_and_trainings_of_one_s_own_are_shown(tmp_path: Path) -> None:
    files = [write_design(tmp_path / "design.json"), write_training(tmp_path / "train.json")]
    read = page_of(tmp_path / "nothing", files)
    for words in (
        "Design: design.json", "the four numbers agree", "hard_tanh", "Training: train.json", "95.12 % ± 0.4 %",
        "95.12 %", "97 %", "200 ms", "12.3 ms", "width 64", "--include",
    ):  # fmt: skip
        assert words in read.text, words
    assert read.tags.count("img") == 1


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '[{"model": "deq"}]', '{"format": "notsodeep.designs"}', "[" * 100_000],
)
def test_other_files_are_refused_with_what_is_needed(content: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(InputError, match="design"):
        report(tmp_path, [path], EXPERIMENTS)
    path.write_bytes(b"\xff\xfe\x00")
    for name in ("missing.json", "file.json"):
        with pytest.raises(InputError, match=name):
            report(tmp_path, [tmp_path / name], EXPERIMENTS)


def test_a_folder_that_cannot_be_read_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    run_plain(tmp_path)
    broken = tmp_path / "icml-error" / "0123456789ab"
    broken.mkdir()
    (broken / "spec.toml").write_text("<b>not toml")
    (tmp_path / "icml-error" / "notes.txt").write_text("not a folder")
    read = page_of(tmp_path)
    assert f"{broken} is skipped" in read.text
    assert "icml-error (quick)" in read.text
    assert "b" not in read.tags


def test_a_picture_that_is_none_is_left_out(tmp_path: Path) -> None:
    outcome = run_plain(tmp_path)
    (outcome.folder / "figure.svg").write_bytes(b"<html><script>1</script>")
    read = page_of(tmp_path)
    assert "neither PNG nor SVG" in read.text
    assert "img" not in read.tags
    with pytest.raises(ValueError, match="neither PNG nor SVG"):
        picture(b"GIF89a", "a picture")


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_figure_of_one_column_is_known_from_one_of_a_page(ending: str, tmp_path: Path) -> None:
    for columns, size in ((1, "narrow"), (2, "wide")):
        path = figures.save(figures.new_figure(columns)[0], tmp_path / f"{columns}.{ending}")
        assert ("class", size) in Read(picture(path.read_bytes(), "a figure")).attributes


@pytest.mark.slow
@given(st.text(st.characters(exclude_categories=("Cs",))))
def test_text_survives_as_it_is(text: str) -> None:
    read = Read(parts().picture("data:", "narrow", text, text))
    assert read.tags == ["figure", "div", "img", *(["figcaption"] if text else [])]
    assert read.text == text
    assert ("aria-label", text) in read.attributes
    assert ("alt", text) in read.attributes


def test_what_utf_8_cannot_hold_is_replaced() -> None:
    assert parts().paragraph("a\ud800b").encode() == b"<p>a?b</p>"


def test_the_command_writes_a_page_of_included_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    empty = CliRunner().invoke(app, ["report"])
    assert isinstance(empty.exception, InputError)
    assert "reproduce --list" in str(empty.exception)
    assert list(tmp_path.iterdir()) == []
    write_design(tmp_path / "design.json")
    write_training(tmp_path / "train.json")
    done = CliRunner().invoke(app, ["report", "--include", "design.json", "train.json"])
    assert done.exit_code == 0, done.output
    assert "report.html" in done.stdout
    text = (tmp_path / "report.html").read_text()
    assert "Design: design.json" in text
    assert re.search(r"--include design\.json --include train\.json", text)


def test_a_page_replaces_nothing_unless_told(tmp_path: Path) -> None:
    page = write_page(parts().paragraph("text"), tmp_path / "new" / "report.html")
    for place, words in ((page, "exists"), (page / "report.html", "cannot be written")):
        with pytest.raises(InputError, match=words):
            write_page(parts().paragraph("other"), place)
    assert page.read_text() == "<p>text</p>"
    assert write_page(parts().paragraph("other"), page, overwrite=True) == page
    assert page.read_text() == "<p>other</p>"
    assert [path.name for path in page.parent.iterdir()] == ["report.html"]
