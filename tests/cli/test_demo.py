"""`notsodeep demo` tells the whole story and draws its figure."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "notsodeep", "demo", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_all_parts_of_the_story_are_told(tmp_path: Path) -> None:
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
    assert (tmp_path / "notsodeep-demo.png").read_bytes().startswith(b"\x89PNG")
    twin = re.search(r"twin │ ([\d.]+)%", said)
    assert twin is not None
    assert float(twin[1]) > 80.0
    assert re.search(r"plain │ [\d.]+%", said)


def test_all_digits_are_classified_as_well_as_one_expects(tmp_path: Path) -> None:
    """Kernel classifiers of DEQ, twin and plain layers, each at least 96 % right; the twin decides as the DEQ does."""
    done = run("--no-train", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    rows = re.findall(r"(deq|twin, 2 layers|plain, . layers?) │ .*?([\d.]+)% │ (\d+ of 360)? ?│", said)
    assert [name for name, _, _ in rows] == ["deq", "twin, 2 layers", "plain, 1 layer", "plain, 2 layers"]
    assert all(float(right) >= 96.0 for _, right, _ in rows)
    assert rows[1][2] == "0 of 360"


def test_a_figure_that_is_there_stops_it_before_it_starts(tmp_path: Path) -> None:
    (tmp_path / "notsodeep-demo.png").write_text("mine")
    done = run("--samples", "60", "--no-train", folder=tmp_path)
    assert done.returncode == 2
    assert "notsodeep-demo.png is there already" in done.stderr
    assert "digits" not in done.stdout
    assert (tmp_path / "notsodeep-demo.png").read_text() == "mine"
