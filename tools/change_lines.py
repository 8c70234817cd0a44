"""Change one numerical line at a time by 1 to 2 %, and see whether a test notices.

    python tools/change_lines.py --seed 1 --changes 40 --table changes.csv

A suite that notices few of these changes would let a wrong factor through. What is changed: a value computed in an
assignment or a `return` of a function, by arithmetic or a numerical function, in `notsodeep` and `notsodeep_lab`; at
most one line of a module. Tolerances, limits, messages and indices stay. The seed orders the lines by their text and
function, not by their place, so that after lines were moved or deleted the same seed chooses the others as before:
tables of two commits are comparable.

The tests run in a clone of the commit that is checked out, under --folder. All changes are in it at once, each with a
switch, and a list of those that have been noticed. Every test runs once with all others switched on. If it passes, it
notices none of them (unless two changes cancel). If it fails, it is repeated without a change, and then with each
change alone whose line it runs; what it notices is switched off from then on. So one run of the suite answers for all
changes, as `make test-all` for each of them would. A test that fails without a change, too, may have kept a value of an
earlier one: such tests are repeated at the end in new processes, one for each change not noticed. Lines of compiled
functions have no switch: each is tried in a process of its own, up to the first failure.

Columns: file, line, function, statement, factor, answer, the first test that failed, tests that run the line (0: none
does; empty: not known, compiled). Changes that never meet a floating-point value or that do not compile are
replaced by the next ones. A run that was interrupted continues if it is started again. Which of the changes not noticed
are equivalent (a starting value, the cost of a method) must be judged by hand.
"""

from __future__ import annotations

import argparse
import ast
import csv
import functools
import gc
import hashlib
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("src/notsodeep", "src/notsodeep_lab")
COLUMNS = ("file", "line", "function", "statement", "factor", "answer", "test", "tests_that_run_it")
LONGEST = 600  # seconds for one test; more counts as a failure
WITH_VALUE = ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Return
BLOCKS = ast.stmt | ast.ExceptHandler | ast.match_case
NOT_ENTERED = ast.JoinedStr | ast.Compare | ast.BoolOp | ast.Lambda
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Pow, ast.MatMult)
FUNCTIONS = re.compile(
    "sqrt|exp|expm1|log|log1p|tanh|sin|cos|arccos|arcsin|erf|erfc|sum|mean|prod|dot|vdot|einsum|trace|norm|solve|lstsq|"
    "eigvalsh|eigh|svd|outer|cumsum|diff|cov|var|std|interp|hypot|maximum|minimum|cholesky|matmul|tensordot|square|quad"
)
COUNTS = re.compile("range|len|zeros|empty|reshape|int|round|slice|print|format|join|linspace|array_split")
NOT_NUMERICAL = re.compile(
    r"toleran|\b[ar]?tol\b|_eps\b|EPS|TINY|[sS]econds|SECONDS|perf_counter|clock|bytes|memory|budget|font|figsize"
)
SWITCH = '__import__("notsodeep._switches", fromlist=["change"]).change'
# In the package, so that processes started by tests find it.
SWITCHES = '''"""Multiply values by a factor if the environment says so, and write down which changes were reached."""
import os

reached = set()

def change(value, number, factor):
    kind = str(getattr(value, "dtype", type(value).__name__))
    met = "met" if "float" in kind or "complex" in kind else "seen"
    if (met, number) not in reached and "CHANGE_LINES_REACHED" in os.environ:
        reached.add((met, number))
        open(os.path.join(os.environ["CHANGE_LINES_REACHED"], f"{met}-{number}"), "w").close()
    if met == "met" and str(number) in os.environ.get("CHANGE_LINES_ON", "").split(","):
        try:
            return value * factor
        except TypeError:
            pass
    return value
'''


@dataclass(frozen=True)
class Change:
    """A numerical expression of one statement, and the factor for its value."""

    file: str
    line: int
    function: str
    text: str
    node: ast.expr
    compiled: bool
    key: str

    @property
    def factor(self) -> float:
        """Between 1 and 2 % up or down."""
        size = 0.01 + 0.01 * int(self.key[-8:], 16) / 16**8
        return round(1 + size if int(self.key[-9], 16) % 2 else 1 - size, 4)

    def apply(self, root: Path, number: str) -> bytes:
        """Write the change into the file, with a switch unless it is compiled; the source as it was."""
        path = root / self.file
        source = path.read_bytes()
        starts = [0, *itertools.accumulate(map(len, source.splitlines(keepends=True)))]
        start = starts[self.node.lineno - 1] + self.node.col_offset
        stop = starts[(self.node.end_lineno or 0) - 1] + (self.node.end_col_offset or 0)
        old = source[start:stop].decode()
        new = f"(({old}) * {self.factor})" if self.compiled else f"{SWITCH}({old}, {number}, {self.factor})"
        path.write_bytes(source[:start] + new.encode() + source[stop:])
        return source


def changes(seed: int) -> Iterator[Change]:
    """All that can be changed, in the order that the seed decides, each module once."""
    every: list[Change] = []
    for path in sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        counts: dict[str, int] = {}
        for statement, function, compiled in _statements(ast.parse(source), "", False):
            text, nodes = ast.unparse(statement), list(_numerical(statement))
            if nodes and not NOT_NUMERICAL.search(text):
                counts[function + text] = counts.get(function + text, 0) + 1
                label = f"{seed}|{function}|{text}|{counts[function + text]}"
                key = hashlib.sha256(label.encode()).hexdigest()
                file, node = path.relative_to(ROOT).as_posix(), nodes[int(key[9:15], 16) % len(nodes)]
                every.append(Change(file, statement.lineno, function, text, node, compiled, key))
    modules = set()
    for change in sorted(every, key=lambda change: change.key):
        if change.file not in modules:
            modules.add(change.file)
            yield change


def _statements(tree: ast.AST, function: str, compiled: bool) -> Iterator[tuple[ast.stmt, str, bool]]:
    """Those of functions that have a value, with the name of the function, and whether it is compiled."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.FunctionDef):
            jit = any("jit" in ast.unparse(decorator) for decorator in child.decorator_list)
            yield from _statements(child, f"{function}.{child.name}".lstrip("."), compiled or jit)
        elif isinstance(child, WITH_VALUE) and child.value is not None and function:
            yield child, function, compiled
        elif isinstance(child, BLOCKS):
            yield from _statements(child, function, compiled)


def _numerical(statement: Any) -> Iterator[ast.expr]:
    """The outermost expressions of a statement whose value is computed."""
    simple = isinstance(statement.value, ast.Name | ast.Attribute | ast.Subscript)
    yield from (
        [statement.value] if simple and isinstance(statement, ast.AugAssign) else _outermost(statement.value)
    )


def _outermost(node: ast.AST) -> Iterator[ast.expr]:
    name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
    if isinstance(node, ast.BinOp):
        sides, sum_ = (node.left, node.right), isinstance(node.op, ast.Add | ast.Sub)
        text = any(isinstance(side, ast.JoinedStr | ast.List | ast.Tuple) for side in sides)
        words = any(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in ast.walk(node))
        index = sum_ and any(isinstance(side, ast.Constant) and isinstance(side.value, int) for side in sides)
        if isinstance(node.op, ARITHMETIC) and not (text or words or index):
            yield node
    elif isinstance(node, ast.Call) and FUNCTIONS.fullmatch(name) and "out=" not in ast.unparse(node):
        yield node
    elif isinstance(node, ast.Subscript):
        yield from _outermost(node.value)
    elif not COUNTS.fullmatch(name) and not isinstance(node, NOT_ENTERED):
        for child in ast.iter_child_nodes(node):
            yield from _outermost(child)


class Inside:
    """What happens in the process of the tests: this file is a plugin of pytest, too."""

    def __init__(self) -> None:
        self.path = Path(os.environ["CHANGE_LINES_STATE"])
        self.state: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        self.reached = Path(os.environ["CHANGE_LINES_REACHED"])
        self.tables: list[tuple[dict[Any, Any], dict[Any, Any]]] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave out what ran before an interruption; quick tests come first, what starts commands and pages last."""
        items[:] = [item for item in items if item.nodeid not in self.state["done"]]
        ours = [module for name, module in sys.modules.items() if name.startswith("notsodeep")]
        names = [(module, name) for module in ours for name in vars(module) if not name.startswith("__")]
        values = [getattr(module, name) for module, name in names]
        self.tables = [(value, dict(value)) for value in values if isinstance(value, dict)]
        items.sort(key=lambda item: item.get_closest_marker("slow") is not None)
        items.sort(
            key=lambda item: item.nodeid.startswith(("tests/cli", "tests/docs", "tests/lab", "tests/scale"))
        )

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run a test with all changes; if it fails, without any, and with each that it reaches."""
        waiting = [n for n in self.state["changes"] if n not in self.state["noticed"]]
        failed, reached = self._run(item, nextitem, waiting)
        if failed:
            self._forget(item)
            unchanged, again = self._run(item, None, [])
            reached |= again
            alone = [n for n in waiting if f"met-{n}" in reached]
            if unchanged:
                self.state["unreliable"][item.nodeid] = alone
            for n in () if unchanged else alone:
                self._forget(item)
                if self._run(item, None, [n])[0]:
                    self.state["noticed"][n] = item.nodeid
            self._forget(item)
        for name in reached:
            self.state["reached"][name] = self.state["reached"].get(name, 0) + 1
        self.state["done"].append(item.nodeid)
        self.path.with_suffix(".new").write_text(json.dumps(self.state), encoding="utf-8")
        self.path.with_suffix(".new").replace(self.path)
        return True

    def _run(self, item: pytest.Item, after: pytest.Item | None, on: Sequence[str]) -> tuple[bool, set[str]]:
        """Whether the test fails with these changes switched on, and the changes that it reaches."""
        for path in self.reached.iterdir():
            path.unlink()
        getattr(sys.modules.get("notsodeep._switches"), "reached", set()).clear()
        os.environ["CHANGE_LINES_ON"] = ",".join(on)
        signal.signal(signal.SIGALRM, _too_long)
        signal.alarm(LONGEST)
        try:
            failed = any(report.failed for report in runtestprotocol(item, nextitem=after, log=False))
        finally:
            signal.alarm(0)
        return failed, {path.name for path in self.reached.iterdir()}

    def _forget(self, item: pytest.Item) -> None:
        """Shared fixtures, tables of modules, caches and cached properties may hold values of other changes."""
        item.session._setupstate.teardown_exact(None)
        for table, before in self.tables:
            table.clear()
            table.update(before)
        for thing in gc.get_objects():
            if type(thing) in weakref.ProxyTypes:
                continue  # what it stands for may be gone
            if isinstance(thing, functools._lru_cache_wrapper) and _ours(thing):
                thing.cache_clear()
            elif _ours(type(thing)) and isinstance(kept := getattr(thing, "__dict__", None), dict):
                for name in list(kept):
                    if isinstance(getattr(type(thing), name, None), functools.cached_property):
                        del kept[name]


def _ours(thing: object) -> bool:
    return str(getattr(thing, "__module__", "")).startswith(("notsodeep", "test"))


def _too_long(*_: object) -> None:
    raise TimeoutError(f"The test took longer than {LONGEST} seconds.")


class Copy:
    """A clone of the commit with the changes in it; new, or continued."""

    def __init__(self, folder: Path, seed: int, count: int) -> None:
        self.folder, self.root, self.state = folder, folder / "copy", folder / "state.json"
        # A third of them more: some meet no floating-point value, and the next ones take their places.
        self.changes = list(itertools.islice(changes(seed), count + count // 3 + 1))
        texts = [change.text for change in self.changes]
        if self.state.exists():
            if json.loads(self.state.read_text(encoding="utf-8"))["texts"] != texts:
                sys.exit(
                    f"{folder} belongs to other lines: the seed or the sources changed. Give another --folder."
                )
            return
        if subprocess.call(["git", "-C", str(ROOT), "diff", "--quiet", "HEAD", "--", "src"]):
            sys.exit("The clone would not have the changes in src/ that are not committed. Commit them.")
        (folder / "reached").mkdir(parents=True)
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.root)], check=True)
        (self.root / "src/notsodeep/_switches.py").write_text(SWITCHES, encoding="utf-8")
        names = [str(n) for n, change in enumerate(self.changes) if not change.compiled]
        for name in names:
            self.changes[int(name)].apply(self.root, name)
        start = {"texts": texts, "changes": names, "noticed": {}, "unreliable": {}, "reached": {}, "done": []}
        self.state.write_text(json.dumps(start), encoding="utf-8")

    def suite(self, tests: Sequence[str]) -> dict[str, Any]:
        """Run the tests with the switches; what became of the changes."""
        reached = {"CHANGE_LINES_REACHED": str(self.folder / "reached")}
        code = self._pytest(
            ["-p", "change_lines", *tests], {"CHANGE_LINES_STATE": str(self.state), **reached}
        )
        if code not in (0, 5):  # 5: all tests had run before an interruption
            sys.exit(f"pytest ended with exit code {code}; see {self.folder / 'output.txt'}.")
        state: dict[str, Any] = json.loads(self.state.read_text(encoding="utf-8"))
        return state

    def failures(self, arguments: Sequence[str], extra: Mapping[str, str]) -> list[str]:
        """Run tests in a new process; those that fail."""
        (self.folder / "arguments.txt").write_text("\n".join(arguments), encoding="utf-8")
        with tempfile.TemporaryDirectory() as cache:
            self._pytest(["-o", f"cache_dir={cache}", f"@{self.folder / 'arguments.txt'}"], extra)
            failed = Path(cache) / "v/cache/lastfailed"
            return list(json.loads(failed.read_text(encoding="utf-8"))) if failed.exists() else []

    def _pytest(self, arguments: Sequence[str], extra: Mapping[str, str]) -> int:
        path = os.pathsep.join([str(ROOT / "tools"), str(self.root / "src")])
        own = {"PYTHONPATH": path, "NUMBA_CACHE_DIR": str(self.folder / "numba")}
        with (self.folder / "output.txt").open("w", encoding="utf-8") as output:
            command = [sys.executable, "-m", "pytest", *arguments]
            environment = {**os.environ, **own, **extra}
            return subprocess.call(command, cwd=self.root, env=environment, stdout=output, stderr=output)

    def compiled(self, change: Change, tests: Sequence[str]) -> str | None:
        """The first test that notices a change of a compiled line; None if it does not compile."""
        before = change.apply(self.root, "")
        try:
            # Another cache: it may not have machine code of the unchanged line.
            with tempfile.TemporaryDirectory() as numba:
                failed = self.failures(["-x", *tests], {"NUMBA_CACHE_DIR": numba})
        finally:
            (self.root / change.file).write_bytes(before)
        output = (self.folder / "output.txt").read_text(encoding="utf-8")
        return None if re.search("TypingError|LoweringError", output) else next(iter(failed), "")


def main() -> None:
    """Choose, run and write the table."""
    text = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=text)
    add = parser.add_argument
    add("--seed", type=int, default=1, help="which changes (default: %(default)s)")
    add("--changes", type=int, default=40, help="how many (default: %(default)s)")
    add("--folder", type=Path, default=ROOT / "build/changes", help="of the clone (default: %(default)s)")
    add("--table", type=Path, default=Path("changes.csv"), help="to write (default: %(default)s)")
    add("--list", action="store_true", help="print the changes, and run nothing")
    add("tests", nargs="*", default=["tests"], help="arguments of pytest (default: %(default)s)")
    options = parser.parse_args()
    if options.list:
        for change in itertools.islice(changes(options.seed), options.changes):
            print(f"{change.file}:{change.line} × {change.factor}  {change.text}")
        return
    copy = Copy(options.folder.resolve(), options.seed, options.changes)
    state = copy.suite(options.tests)
    unreliable: dict[str, list[str]] = state["unreliable"]
    broken = copy.failures(list(unreliable), {}) if unreliable else []
    rows: list[list[object]] = []
    for n, change in enumerate(copy.changes):
        name, runs = str(n), state["reached"].get(f"met-{n}", 0)
        test: str | None = state["noticed"].get(name, "")
        again = [one for one, changes in unreliable.items() if name in changes and one not in broken]
        if len(rows) == options.changes or (f"seen-{n}" in state["reached"] and not runs):
            continue
        if change.compiled:
            test = copy.compiled(change, [*options.tests, *(f"--deselect={one}" for one in broken)])
        elif not test and again:
            test = next(iter(copy.failures(["-x", *again], {"CHANGE_LINES_ON": name})), "")
        if test is not None:
            place = [change.file, change.line, change.function, change.text, change.factor]
            rows.append([*place, "noticed" if test else "not noticed", test, "" if change.compiled else runs])
            print(*rows[-1], sep="  ", flush=True)
    with options.table.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([COLUMNS, *rows])
    print(f"{sum(row[5] == 'noticed' for row in rows)} of {len(rows)} changes were noticed: {options.table}")


if __name__ == "__main__":
    main()
elif "CHANGE_LINES_STATE" in os.environ:

    def pytest_configure(config: pytest.Config) -> None:
        """Pytest loads this file as a plugin."""
        config.pluginmanager.register(Inside())
