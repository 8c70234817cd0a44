"""Run the tests with the lowest versions that pyproject.toml allows.

    python tools/check_lowest.py                              all tests that are not slow
    python tools/check_lowest.py -- tests/kernels -m ""       arguments after -- are passed to pytest
    python tools/check_lowest.py --tested                     torch at its bound, too, if that build is small

Each direct dependency of the package and of its extra `all` is installed at its lower bound, but those of `--tested`
at the version of constraints.txt; what they need in turn, pip chooses. The package itself is installed from the
checkout, not editable. Needs an index to install from; the environment is temporary. Exit code 0: the tests passed; 1:
they did not, or a bound cannot be installed.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from environments import CONSTRAINTS, ROOT, CheckFailed, Environment, require, step

# What the tests import besides the package, at the tested versions: they are not what is being tested.
TEST_TOOLS = ("hypothesis", "mpmath", "pytest", "pytest-xdist", "pyyaml", "skops")


def main() -> int:
    """Install, then test; the exit code."""
    options = _arguments()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        pins = lowest(project, set(options.tested))
        with tempfile.TemporaryDirectory(prefix="notsodeep-lowest-") as name:
            environment = Environment.new(Path(name) / "environment")
            with step(f"installation of {', '.join(pins)}"):
                environment.install(ROOT, *pins, *tested_versions([*options.tested, *TEST_TOOLS]))
            print("tests", flush=True)
            environment.run("-m", "pytest", *_tests(options), folder=ROOT, shown=True)
    except CheckFailed as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    print(f"The lower bounds hold: {', '.join(pins)}.")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument(
        "--tested", nargs="*", default=["torch"], metavar="PACKAGE",
        help="packages at the tested version (default: torch, whose older builds take several GB)",
    )  # fmt: skip
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, behind --")
    return parser.parse_args()


def _tests(options: argparse.Namespace) -> list[str]:
    """What pytest is told: which tests, and to say what it left out."""
    return options.pytest or ["tests", "-m", "not slow", "-n", "auto", "-rs"]


def lowest(project: Mapping[str, Any], tested: set[str]) -> list[str]:
    """Each direct requirement at its lower bound, `numpy>=1.26` as `numpy==1.26`."""
    pins = []
    for requirement in _requirements(project, "all"):
        found = re.fullmatch(r"([A-Za-z0-9._-]+)(\[[\w,]+\])?>=([\w.]+)", requirement)
        require(found, f"{requirement}: only name>=version is understood here.")
        if found is not None and found[1] not in tested:
            pins.append(f"{found[1]}{found[2] or ''}=={found[3]}")
    return pins


def _requirements(project: Mapping[str, Any], extra: str) -> list[str]:
    """Those of the package and of an extra, with the extras that it names in turn, each once."""
    found, waiting = list(project["dependencies"]), [extra]
    while waiting:
        for requirement in project["optional-dependencies"][waiting.pop()]:
            own = re.fullmatch(r"notsodeep\[(.+)\]", requirement)
            if own is not None:
                waiting += own[1].split(",")
            elif requirement not in found:
                found.append(requirement)
    return found


def tested_versions(packages: Sequence[str]) -> list[str]:
    """The packages at the versions of constraints.txt."""
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0].lower(): line for line in lines if "==" in line}
    return [pinned[name] for name in packages]


if __name__ == "__main__":
    sys.exit(main())
