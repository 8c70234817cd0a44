"""`notsodeep demo` tells the whole story and writes it down."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "notsodeep", "demo", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_the_story_ends_with_a_page_of_all_its_parts(tmp_path: Path) -> None:
    done = run("--samples", "120", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    for words in (
        "120 digits",
        "relu",
        "swish",
        "four scalars leave",
        "Its explicit twin",
        "leaky_relu",
        "up to a factor",
        "plain, 2 layers",
        "the same class as the DEQ",
        "times as fast",
    ):
        assert words in said, words
    assert "Page: notsodeep-demo.html" in said
    assert (tmp_path / "notsodeep-demo.png").read_bytes().startswith(b"\x89PNG")
    page = (tmp_path / "notsodeep-demo.html").read_text()
    parts = re.findall(r"<h2[^>]*>(\d)\.", page)
    assert parts == ["1", "2", "3", "4"]
    assert page.count("<img ") == 3
    twin = re.search(r"twin │ ([\d.]+)%", said)
    assert twin is not None
    assert float(twin[1]) > 80.0
    assert re.search(r"plain │ [\d.]+%", said)
    shown = [float(number) for number in re.findall(r"([\d.]+) % ±", page)]
    assert len(shown) == 3
    assert abs(shown[1] - float(twin[1])) <= 0.06  # one decimal in the terminal, two in the page


def test_all_digits_are_classified_as_well_as_one_expects(tmp_path: Path) -> None:
    """Kernel classifiers of DEQ, twin and plain layers, each at least 96 % right; the twin decides as the DEQ does."""
    done = run("--no-train", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    rows = re.findall(r"(deq|twin, 2 layers|plain, . layers?) │ .*?([\d.]+)% │ (\d+ of 360)? ?│", said)
    assert [name for name, _, _ in rows] == ["deq", "twin, 2 layers", "plain, 1 layer", "plain, 2 layers"]
    assert all(float(right) >= 96.0 for _, right, _ in rows)
    assert rows[1][2] == "0 of 360"
    page = (tmp_path / "notsodeep-demo.html").read_text()
    assert re.findall(r"<h2[^>]*>(\d)\.", page) == ["1", "2", "3"]


def test_files_that_are_there_stop_it_before_it_starts(tmp_path: Path) -> None:
    for name in ("notsodeep-demo.html", "notsodeep-demo.png"):
        (tmp_path / name).write_text("mine")
        done = run("--samples", "60", "--no-train", folder=tmp_path)
        assert done.returncode == 2
        assert f"{name} is there already" in done.stderr
        assert "digits" not in done.stdout
        assert (tmp_path / name).read_text() == "mine"
        (tmp_path / name).unlink()
