"""The code blocks of the documentation: found, run page by page, and held against the output that is printed.

    python tests/docs_pages.py docs/how-to/train.md      # run a page; write its output and pictures into it

A page is one session: its ```python blocks run in order in one namespace, in an empty folder. A ```text block right
after a ```python block is what that block prints. In a ```console block every line that starts with `$ ` is a command,
run if it is `notsodeep …`, and what follows, if anything, is its output. Where output differs from machine to machine,
`…` stands for anything. Numbers with a decimal point may differ in the last digit that is shown.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
LANGUAGES = ("python", "text", "console", "py")

# Commands of console blocks that are not run, and why.
NOT_RUN = {
    "make": "`.ci/run` calls the targets that check; `make demo` takes minutes and has tests of its own",
    "python": "scripts of benchmarks/, which take minutes",
    "pip": "changes the environment",
    "source": "changes the shell",
    "git": "changes the repository",
    "twine": "publishes a release",
    "dask": "needs machines that are reached by SSH",
}
# A `py` block is Python for machines that are not here: clusters. It must compile.
PICTURES = re.compile(r"!\[[^]]*\]\((?:\.\./)*(images/pages/([^)]+))\)")
_NUMBER = re.compile(r"(?<![\w.])[-+−]?\d+(?:\.\d+)?(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Fence:
    """A block of code: its language, its text, the lines it covers, whether it follows the block before at once."""

    language: str
    text: str
    first: int
    last: int
    adjacent: bool


@dataclass
class Session:
    """What running a page left: its names, what each block printed, and where output is not what is printed."""

    names: dict[str, Any]
    printed: dict[int, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def pages() -> list[Path]:
    """Every page with code that people copy."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def fences(text: str) -> Iterator[Fence]:
    """The fenced blocks of a Markdown text, indented ones included."""
    lines, opened, end_of_last = text.splitlines(), None, -1
    for number, line in enumerate(lines):
        match = re.match(r"(\s*)```(.*)$", line)
        if match is None:
            continue
        if opened is None:
            opened = number, match[1], match[2].strip()
            continue
        first, indent, language = opened
        body = "".join(each.removeprefix(indent) + "\n" for each in lines[first + 1 : number])
        adjacent = end_of_last >= 0 and not "".join(lines[end_of_last + 1 : first]).strip()
        yield Fence(language, body, first, number, adjacent)
        opened, end_of_last = None, number
    if opened is not None:
        raise ValueError(f"the block opened in line {opened[0] + 1} is not closed")


def differences(expected: str, actual: str) -> list[str]:
    """How printed output differs from what a page shows; empty if it does not."""
    numbers: list[str] = []
    pattern = ""
    for piece in re.split(rf"({_NUMBER.pattern}|…|\s+)", expected.strip()):
        if piece == "…":
            pattern += ".*?"
        elif _NUMBER.fullmatch(piece):
            numbers.append(piece)
            pattern += rf"({_NUMBER.pattern})"
        else:
            pattern += r"\s+" if piece.isspace() else re.escape(piece)
    match = re.fullmatch(pattern, actual.strip(), flags=re.DOTALL)
    if match is None:
        return [f"shown:\n{expected.strip()}\nprinted:\n{actual.strip()}"]
    return [
        f"shown {shown}, printed {got}"
        for shown, got in zip(numbers, match.groups(), strict=True)
        if not _same_number(shown, got)
    ]


def _same_number(shown: str, got: str) -> bool:
    """Integers agree; others agree up to one and a half units of the last digit shown."""
    shown, got = shown.replace("−", "-"), got.replace("−", "-")
    digits, _, exponent = shown.partition("e")
    if "." not in digits and not exponent:
        return shown == got
    decimals = len(digits.partition(".")[2])
    return abs(float(shown) - float(got)) <= 1.5 * 10.0 ** (int(exponent or 0) - decimals)


def run(text: str, name: str) -> Session:
    """Run a page in the current folder."""
    session = Session({"__name__": "__docs__"})
    if name == "README.md":
        write_trained_network()
    before: Fence | None = None
    for fence in fences(text):
        where = f"{name}, line {fence.first + 1}"
        if fence.language == "python":
            session.printed[fence.first] = _execute(fence.text, f"{where} ff.", session.names)
        elif fence.language == "py":
            compile(fence.text, where, "exec")
        elif fence.language == "text" and fence.adjacent and before and before.language == "python":
            session.printed[fence.first] = session.printed[before.first]
            problems = differences(fence.text, session.printed[before.first])
            session.problems += [f"{where}: {problem}" for problem in problems]
        elif fence.language == "console":
            session.printed[fence.first], problems = _run_console(fence.text, where)
            session.problems += problems
        before = fence
    return session


def write_trained_network() -> None:
    """Train a DEQ on digits, and write the files of the README: its weights, and samples it has not seen."""
    from notsodeep import DEQ
    from notsodeep.data import Preprocessing, load
    from notsodeep.nets import DEQNet, fit

    digits = load("digits")
    X = Preprocessing.fit(digits.X).apply(digits.X)
    net = DEQNet(DEQ("relu", 0.2), 64, 64, 10, seed=0, contractive=True)
    fit(net, (X[:600], digits.y[:600]), lr=3e-3, epochs=8, batch_size=50)
    weights = net.plain_weights()
    np.savez("my_deq.npz", W=weights.recurrent, U=weights.inputs, b=weights.bias, V=weights.readout)
    np.save("held_out.npy", X[600:])


def _execute(code: str, name: str, names: dict[str, Any]) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return printed.getvalue()


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, comments removed, each with the output that is shown."""
    for written, shown in _commands_as_written(text):
        yield re.sub(r"\s+#.*$", "", written.replace("\\\n", "")), shown


def _commands_as_written(text: str) -> Iterator[tuple[str, str]]:
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        written, _, shown = part.partition("\n")
        while written.endswith("\\"):
            more, _, shown = shown.partition("\n")
            written += f"\n{more}"
        yield written, shown


def _run_console(text: str, where: str) -> tuple[str, list[str]]:
    """The block with the output that was printed, where another one is shown; and what is wrong."""
    block, problems = "", []
    for (written, _), (command, shown) in zip(_commands_as_written(text), commands(text), strict=True):
        printed, found = _run_command(command, shown)
        problems += [f"{where}: {command}{problem}" for problem in found]
        block += f"$ {written}\n{printed if found else shown}"
    return block, problems


def _run_command(command: str, shown: str) -> tuple[str, list[str]]:
    """What a command printed, and how that differs from what is shown."""
    words = shlex.split(command)
    if {Path(words[0]).name, " ".join(words[:2])} & set(NOT_RUN):
        return shown, []
    if any(word.startswith(("/shared/", "tcp://")) for word in words):
        return shown, []
    if "--size full" in command:  # the paper's setting: minutes
        return shown, []
    if words[0] != "notsodeep":
        return shown, [f": neither `notsodeep` nor one of {', '.join(NOT_RUN)}"]
    status, output = call(words[1:])
    printed = "".join(f"{line.rstrip()}\n" for line in output.strip().splitlines())
    if status != 0:
        return shown, [f" ended with {status}: {printed}"]
    return printed, [f": {problem}" for problem in differences(shown, printed)] if shown.strip() else []


def call(arguments: list[str]) -> tuple[int, str]:
    """`notsodeep` with arguments, in this process: its status and what it printed."""
    from typer.testing import CliRunner

    from notsodeep.cli.entry import app

    result = CliRunner().invoke(app, arguments, env={"COLUMNS": "120", "NO_COLOR": "1"})
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def refreshed(text: str, session: Session) -> str:
    """The page with the output that was printed, where the one shown is not equal up to the rules above."""
    lines = text.splitlines()
    for fence in reversed(list(fences(text))):
        if fence.language in ("text", "console") and fence.first in session.printed:
            printed = session.printed[fence.first]
            if differences(fence.text, printed):
                lines[fence.first + 1 : fence.last] = printed.rstrip().splitlines()
    return "\n".join(lines) + "\n"


def refresh(path: Path) -> None:
    """Run a page; write its output and its pictures into the repository, to be looked at before a commit."""
    text = path.read_text(encoding="utf-8")
    start = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            session = run(text, path.name)
            for place, name in PICTURES.findall(text):
                target = ROOT / "docs" / place
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(name, target)
        finally:
            os.chdir(start)
    path.write_text(refreshed(text, session), encoding="utf-8")
    print(*session.problems or [f"{path.name}: as printed"], sep="\n")


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        refresh(Path(argument))
