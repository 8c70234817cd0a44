"""`notsodeep demo` prints all its tables and draws its figure."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "notsodeep", "demo", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_all_parts_are_shown(tmp_path: Path) -> None:
    done = run("--n", "120", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    for words in ("120 digits", "another seed", "Explicit twin: Explicit([", "plain, 2 layers"):
        assert words in said, words
    assert "times as fast as the DEQ" in said
    assert (tmp_path / "notsodeep-demo.png").read_bytes().startswith(b"\x89PNG")
    twin = re.search(r"twin │ ([\d.]+)%", said)
    assert twin is not None
    assert float(twin[1]) > 80.0
    again = run("--n", "60", "--no-train", folder=tmp_path)
    assert again.returncode == 2
    assert "notsodeep-demo.png exists" in again.stderr
    assert again.stdout == ""


def test_all_digits_are_classified_as_well_as_one_expects(tmp_path: Path) -> None:
    """Kernel classifiers of DEQ, twin and plain networks, each at least 96 % right; the twin agrees with the DEQ."""
    done = run("--no-train", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    rows = re.findall(r"(deq|twin, 2 layers|plain, . layers?) │ .*?([\d.]+)% │ (\d+ of 360)? ?│", said)
    assert [name for name, _, _ in rows] == ["deq", "twin, 2 layers", "plain, 1 layer", "plain, 2 layers"]
    assert all(float(right) >= 96.0 for _, right, _ in rows)
    assert rows[1][2] == "0 of 360"
