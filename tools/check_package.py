"""Build the package, check its contents, install it into an empty environment, and run smoke tests.

    python tools/check_package.py                     both environments: without extras, and with all of them
    python tools/check_package.py --extras none       the small one alone
    python tools/check_package.py --dist dist         keep the archives that passed, for the upload

Needs the extra `dev` and a package index. Everything happens in a temporary folder. Exit code 0: all checks passed; 1:
one failed.
"""

from __future__ import annotations

import argparse
import email
import re
import shutil
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping
from email.message import Message
from pathlib import Path, PurePosixPath

from environments import CONSTRAINTS, ROOT, CheckFailed, Environment, require, run, step

NAME = "notsodeep"
PACKAGES = (NAME, f"{NAME}_lab")
SMOKE = {"none": ROOT / "tools" / "smoke" / "bare.py", "all": ROOT / "tools" / "smoke" / "complete.py"}
WITHOUT_EXTRAS = "none"

# Files of one machine or one run, which must not be published.
UNWANTED = re.compile(
    r"(^|/)(__pycache__|\.venv[^/]*|\.git|\.hypothesis|\.pytest_cache|\.mypy_cache|\.ruff_cache|\.DS_Store)(/|$)"
    r"|\.(pyc|nbi|nbc|jsonl)$|^benchmarks/results/.*\.json$|^(results|figures|site|build|dist)/|^report[^/]*\.html$"
)
FOREIGN_PATH = re.compile(r"(?<![\w.~$}])/(root|home|Users|tmp)/\w")
Files = Mapping[str, bytes]


def main() -> int:
    """Run the checks and return the exit code."""
    options = _arguments()
    try:
        with tempfile.TemporaryDirectory(prefix=f"{NAME}-package-") as name:
            scratch = Path(name)
            sdist, wheel = build(scratch)
            with step("contents of the sdist and the wheel"):
                check_contents(sdist, wheel)
            with step("README and citation (twine, cffconvert)"):
                check_texts(scratch, sdist, wheel)
            for extras in options.extras:
                use(scratch, wheel, extras)
            if options.dist is not None:
                keep(options.dist, sdist, wheel)
    except CheckFailed as problem:
        print(f"\n{problem}", file=sys.stderr)
        return 1
    print("The package can be published.")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").split("\n\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    parser.add_argument(
        "--extras",
        nargs="+",
        choices=list(SMOKE),
        default=list(SMOKE),
        help="extras to install, each in its own environment",
    )
    parser.add_argument("--dist", type=Path, help="folder for the archives that passed")
    return parser.parse_args()


# --- build -------------------------------------------------------------------------------------------
def build(scratch: Path) -> tuple[Path, Path]:
    """Build the sdist and a wheel from it; a wheel built from the checkout must be equal."""
    direct, published = scratch / "direct", scratch / "published"
    with step("sdist, and a wheel from it"):
        run([sys.executable, "-m", "build", "--outdir", published, ROOT], scratch)
    with step("wheel from the checkout, for comparison"):
        run([sys.executable, "-m", "build", "--wheel", "--outdir", direct, ROOT], scratch)
        wheel = _only(published, "*.whl")
        require(
            _without_record(read_wheel(wheel)) == _without_record(read_wheel(_only(direct, "*.whl"))),
            "The wheels built from the sdist and from the checkout differ: the sdist is incomplete.",
        )
    return _only(published, "*.tar.gz"), wheel


def _only(folder: Path, pattern: str) -> Path:
    built = list(folder.glob(pattern))
    require(len(built) == 1, f"Expected one {pattern}; got {len(built)}.")
    return built[0]


def read_wheel(path: Path) -> Files:
    """Name and contents of each file."""
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _without_record(files: Files) -> Files:
    return {name: data for name, data in files.items() if not name.endswith("/RECORD")}


def read_sdist(path: Path) -> Files:
    """Name, below the archive's one folder, and contents of each file."""
    files = {}
    with tarfile.open(path) as archive:
        for member in archive.getmembers():
            place = PurePosixPath(member.name)
            require(
                not place.is_absolute() and ".." not in place.parts and not member.issym(),
                f"{path.name} has the member {member.name}, which leaves its folder.",
            )
            data = archive.extractfile(member)
            if data is not None:
                files[str(PurePosixPath(*place.parts[1:]))] = data.read()
    return files


# --- contents ----------------------------------------------------------------------------------------
def check_contents(sdist: Path, wheel: Path) -> None:
    """Check that the archives are complete and contain nothing else."""
    source, installed = read_sdist(sdist), read_wheel(wheel)
    modules = {
        path.relative_to(ROOT / "src").as_posix()
        for package in PACKAGES
        for path in (ROOT / "src" / package).rglob("*")
        if path.suffix in (".py", ".typed", ".svg", ".json") or path.parent.name == "templates"
    }
    information = _folder_of_metadata(installed)
    _compare(wheel.name, modules, {name for name in installed if not name.startswith(information)})
    expected = {f"src/{name}" for name in modules} | {
        "README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE", "Makefile", "constraints.txt", "pyproject.toml",
        "tests/conftest.py", "docs/theory.md",
    }  # fmt: skip
    require(expected <= source.keys(), f"{sdist.name} lacks {sorted(expected - source.keys())}.")
    for archive, files in ((sdist.name, source), (wheel.name, installed)):
        check_clean(archive, files)
    require(
        f"{information}licenses/LICENSE" in installed
        and all(f"{package}/py.typed" in installed for package in PACKAGES),
        f"{wheel.name} lacks the licence or py.typed.",
    )
    check_metadata(email.message_from_bytes(installed[f"{information}METADATA"]), wheel.name)


def _folder_of_metadata(files: Files) -> str:
    return next(name.removesuffix("METADATA") for name in files if name.endswith(".dist-info/METADATA"))


def _compare(archive: str, expected: set[str], files: set[str]) -> None:
    require(expected <= files, f"{archive} lacks {sorted(expected - files)}.")
    require(files <= expected, f"{archive} has {sorted(files - expected)}, which is not part of the package.")


def check_clean(archive: str, files: Files) -> None:
    """Check that an archive has no caches, no raw results, and no paths of one machine."""
    unwanted = [name for name in files if UNWANTED.search(name)]
    require(not unwanted, f"{archive} has {unwanted}.")
    here = (str(ROOT), str(Path.home()) + "/")
    for name, data in files.items():
        try:
            text = data.decode()
        except UnicodeDecodeError:
            continue  # a picture
        foreign = FOREIGN_PATH.search(text) or next((path for path in here if path in text), None)
        require(not foreign, f"{archive}: {name} has a path of one machine, {foreign}.")


def check_metadata(metadata: Message, archive: str) -> None:
    """Check the version, the extras and the README in the metadata."""
    sys.path.insert(0, str(ROOT / "src"))
    import notsodeep

    require(
        metadata["Version"] == notsodeep.__version__,
        f"{archive} is version {metadata['Version']}, the package {notsodeep.__version__}.",
    )
    extras = set(metadata.get_all("Provides-Extra", []))
    require(
        {"torch", "plot", "scale", "lab", "all"} <= extras, f"{archive} offers the extras {sorted(extras)}."
    )
    require(str(metadata.get_payload()).startswith(f"# {NAME}"), f"{archive} has no README.")


def check_texts(scratch: Path, sdist: Path, wheel: Path) -> None:
    """Check that the README renders and the citation is valid, with tools in an environment of their own."""
    environment = Environment.new(scratch / "texts")
    environment.install("twine", "cffconvert")
    environment.run("-m", "twine", "check", "--strict", sdist, wheel, folder=scratch)
    environment.run("-m", "cffconvert.cli.cli", "--validate", "-i", ROOT / "CITATION.cff", folder=scratch)


# --- use ---------------------------------------------------------------------------------------------
def use(scratch: Path, wheel: Path, extras: str) -> None:
    """Install the wheel into an empty environment and run the smoke test in an empty folder."""
    environment = Environment.new(scratch / f"environment-{extras}")
    folder = scratch / f"use-{extras}"
    folder.mkdir()
    bare = extras == WITHOUT_EXTRAS
    with step("installation without extras" if bare else f"installation with [{extras}]"):
        # Without extras: the newest versions, as for a new user. With extras: the tested versions, because a range
        # for torch may fetch a build of several GB.
        environment.install(
            wheel if bare else f"{wheel}[{extras}]", constraints=None if bare else CONSTRAINTS
        )
    print(f"smoke test, extras: {extras}")
    environment.run(SMOKE[extras], folder=folder, shown=True)


def keep(target: Path, *files: Path) -> None:
    """Copy the archives to a folder and remove older builds there."""
    target.mkdir(parents=True, exist_ok=True)
    for old in (*target.glob(f"{NAME}-*.whl"), *target.glob(f"{NAME}-*.tar.gz")):
        old.unlink()
    for path in files:
        print(f"kept: {shutil.copy(path, target)}")


if __name__ == "__main__":
    sys.exit(main())
