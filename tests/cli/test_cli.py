"""The command line as a newcomer uses it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep.designs import Design

pytestmark = pytest.mark.slow


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "notsodeep", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def test_kernel_of_a_file_is_the_kernel_of_the_library(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((12, 5))
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",")
    done = run(
        "kernel", "rows.csv", "--scale", "none", "--activation", "relu", "--ntk", "--json", folder=tmp_path
    )
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)
    expected = nsd.tangent_kernel(nsd.DEQ("relu", 0.2), np.loadtxt(tmp_path / "rows.csv", delimiter=","))
    np.testing.assert_array_equal(np.load(tmp_path / facts["file"]), expected)
    assert facts["error_bound"] < 1e-12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("kernel", "missing.csv"), "no file"),
        (("kernel", "digits", "--activation", "thah"), "no activation"),
        (("kernel", "digits", "--sigma-a2", "-1"), "negative"),
        (("kernel", "mnist:6,x"), "mnist"),
    ],
)
def test_mistakes_get_a_sentence_and_exit_code_two(
    arguments: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    done = run(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_help_teaches(tmp_path: Path) -> None:
    text = run("--help", folder=tmp_path).stdout
    assert "notsodeep demo" in text
    assert "Example" in run("kernel", "--help", folder=tmp_path).stdout


def test_spectrum_is_predicted_and_checked(tmp_path: Path) -> None:
    done = run("spectrum", "--n", "500", "--p", "400", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "isolated eigenvalue" in done.stdout
    distance = float(re.search(r"one sample:\s+([\d.]+)", done.stdout).group(1))  # type: ignore[union-attr]
    assert distance < 0.05
    assert (tmp_path / "notsodeep-spectrum.png").exists()


def test_design_of_a_tanh_deq_is_a_hard_tanh_layer(tmp_path: Path) -> None:
    done = run("design", "--activation", "tanh", "--json", "--save", "twin.json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == json.loads((tmp_path / "twin.json").read_text())
    assert Design.load(tmp_path / "twin.json").exact


def test_a_family_that_cannot_match_says_so_with_exit_code_three(tmp_path: Path) -> None:
    done = run("design", "--activation", "swish", "--family", "leaky_relu", folder=tmp_path)
    assert done.returncode == 3
    assert "do not all agree" in done.stdout
    assert "What to do" in done.stdout
