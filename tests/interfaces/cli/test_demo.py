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
        "hard_tanh",
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
    shown = [float(number) for number in re.findall(r"([\d.]+) % ±", page)]
    assert len(shown) == 3
    assert abs(shown[1] - float(twin[1])) <= 0.06  # one decimal in the terminal, two in the page


def test_without_training_the_page_has_three_parts_and_replaces_nothing(tmp_path: Path) -> None:
    for name in ("notsodeep-demo.html", "notsodeep-demo.png"):
        (tmp_path / name).write_text("mine")
    done = run("--samples", "60", "--no-train", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    for name in ("notsodeep-demo.html", "notsodeep-demo.png"):
        assert (tmp_path / name).read_text() == "mine"
    assert (tmp_path / "notsodeep-demo-2.png").exists()
    page = (tmp_path / "notsodeep-demo-2.html").read_text()
    assert re.findall(r"<h2[^>]*>(\d)\.", page) == ["1", "2", "3"]
