"""The import rules of docs/contributing.md, read from the syntax tree, so that nothing hides in a function."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE, LAB = "notsodeep", "notsodeep_lab"
SOURCE = Path(__file__).parents[1] / "src"

# Bottom to top. A module imports only from its own layer or from layers below.
LAYERS = [line.split() for line in """
    errors display results validation files memory progress extras kernel_names linalg intervals
    gaussian
    duals
    cells
    models fingerprint
    data
    scale
    kernels
    equivalents
    designs
    nets
    convergence
    estimators
    figures
    forecasts
    feature_learning
    learning
    distillation
    verdicts
    cli __main__
    lab/plots
    lab/papers
    lab/commands
""".strip().splitlines()]  # fmt: skip
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
TOP = LEVEL["cli"]  # of the library
ABOVE_NETS = {name for name, level in LEVEL.items() if level >= LEVEL["nets"]}
# Which members of the layers may import a third-party package, at any depth in the code.
THIRD_PARTY = {name: set(LEVEL) for name in ("numpy", "scipy", "numba")} | {
    "sklearn": {"data", "estimators"},
    "pandas": {"data"},
    "psutil": {"memory"},
    "torch": ABOVE_NETS,
    "torchdiffeq": {"nets"},
    "dask": {"scale"},
    "distributed": {"scale"},
    "zarr": {"scale"},
    "matplotlib": {"figures", "lab/plots", "lab/papers"},
    "typer": {"cli", "lab/commands"},
    "rich": {"cli", "lab/commands", "progress"},
    "msgspec": {"lab/papers"},
}
# `import notsodeep` must load none of these: each costs a noticeable part of a second, or is optional.
HEAVY = ("numba", "torch", "matplotlib", "sklearn", "scipy.stats", "dask", "distributed", "zarr")
# Modules whose `open` opens no text.
BINARY_OPENERS = ("os.", "webbrowser.", "gzip.", "zarr.")

Trees = dict[str, ast.Module]


def read(source: Path) -> Trees:
    """The syntax trees of all modules below a folder, by dotted name; packages end in `.__init__`."""
    return {
        ".".join(path.relative_to(source).with_suffix("").parts): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(source.rglob("*.py"))
    }


def member_of(dotted: str) -> str:
    """`gaussian` of notsodeep.gaussian.price, `lab/papers` of notsodeep_lab.papers.runner."""
    package, *rest = dotted.removesuffix(".__init__").split(".")
    return ("lab/" if package == LAB else "") + rest[0] if rest else ""


def imports(dotted: str, tree: ast.Module, names: set[str]) -> Iterator[tuple[str, str, int]]:
    """What a module imports: the module reached (the submodule if the name is one), the name, the line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "", node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = dotted.split(".")[: -node.level] if node.level else []
            target = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                inner = f"{target}.{alias.name}"
                yield inner if inner in names else target, alias.name, node.lineno


def takes_text(call: ast.Call) -> bool:
    """Whether a call reads or writes text whose encoding would be that of the system."""
    name, words = (
        ast.unparse(call.func),
        {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords},
    )
    if "encoding" in words:
        return False
    if name.rsplit(".", 1)[-1] == "open":
        modes = [ast.unparse(part) for part in call.args] + list(words.values())
        return not name.startswith(BINARY_OPENERS) and not any(
            re.fullmatch(r"'[rwax+]*b[rwax+]*'", m) for m in modes
        )
    return words.get("text") == "True" or name.endswith(
        (".read_text", ".write_text", ".TextIOWrapper", ".fdopen")
    )


def problems(trees: Trees) -> Iterator[str]:
    names = {dotted.removesuffix(".__init__").rsplit(".", up)[0] for dotted in trees for up in range(4)}
    graph: dict[str, set[str]] = {}
    stems = [dotted.rsplit(".", 1)[-1] for dotted in trees]
    yield from (
        f"two modules named {stem}" for stem in set(stems) - {"__init__", "__main__"} if stems.count(stem) > 1
    )
    for dotted, tree in trees.items():
        member, module = member_of(dotted), dotted.removesuffix(".__init__")
        level = LEVEL.get(member, -1)
        if member and level < 0:
            yield f"{member} has no layer"
        for target, name, line in imports(dotted, tree, names):
            top, where = target.split(".")[0], f"{dotted}:{line}"
            if name == "*":
                yield f"{where} imports * from {target}"
            if top in (PACKAGE, LAB):
                graph.setdefault(module, set()).add(target)
                if target == PACKAGE and member and name != "__version__" and level < TOP:
                    yield f"{where} imports from the top-level package"
                elif member and LEVEL.get(member_of(target), 0) > level:
                    yield f"{where} imports {target}, a layer above"
                if target.startswith(f"{LAB}.papers.") and not dotted.startswith(f"{LAB}.papers"):
                    yield f"{where} reaches past {LAB}.papers"
            elif top not in sys.stdlib_module_names and member not in THIRD_PARTY.get(top, set()):
                yield f"{where} may not import {top}"
        for node in ast.walk(tree):
            if isinstance(node, ast.Assert):
                yield f"{dotted}:{node.lineno} asserts, which vanishes under python -O"
            elif isinstance(node, ast.Call) and takes_text(node):
                yield f"{dotted}:{node.lineno} reads or writes text without an encoding"
            elif isinstance(node, ast.Constant) and LAB in str(node.value) and not dotted.startswith(LAB):
                yield f"{dotted}:{node.lineno} names {LAB}"
    try:
        TopologicalSorter(
            {one: others - {one, PACKAGE} for one, others in graph.items() if one != PACKAGE}
        ).prepare()
    except CycleError as error:
        yield " -> ".join(reversed(error.args[1]))


def test_both_packages_obey() -> None:
    trees = read(SOURCE)
    assert {f"{PACKAGE}.__init__", f"{LAB}.__init__"} <= trees.keys()
    assert list(problems(trees)) == []


# Each rule is shown to bite: a file of a small package, and what must be said of it.
BROKEN = [
    ("notsodeep/utils.py", "", "utils has no layer"),
    ("notsodeep/gaussian/a.py", "def f():\n    import notsodeep.designs.b", "a layer above"),
    ("notsodeep/kernels/a.py", "from notsodeep import DEQ", "top-level package"),
    ("notsodeep/kernels/a.py", "from ..nets import fit", "a layer above"),
    ("notsodeep/gaussian/a.py", "import torch", "may not import torch"),
    ("notsodeep/gaussian/a.py", "from os.path import *", "imports *"),
    ("notsodeep/gaussian/a.py", "assert True", "asserts"),
    ("notsodeep/gaussian/a.py", "open('x', 'w')", "without an encoding"),
    ("notsodeep/gaussian/a.py", "run(command, text=True)", "without an encoding"),
    ("notsodeep/gaussian/a.py", "name = 'notsodeep_lab.papers'", "names notsodeep_lab"),
    ("notsodeep_lab/commands/a.py", "from notsodeep_lab.papers.b import reproduce", "reaches past"),
    ("notsodeep/gaussian/a.py", "from notsodeep.gaussian.b import c", "notsodeep.gaussian"),
    ("notsodeep/gaussian/b.py", "", "two modules named b"),
]


@pytest.mark.parametrize(("place", "text", "words"), BROKEN)
def test_the_rules_object_to(tmp_path: Path, place: str, text: str, words: str) -> None:
    files = {
        "notsodeep/designs/b.py" if "named" in words else "notsodeep/designs/d.py": "",
        "notsodeep/nets/__init__.py": "",
        "notsodeep/gaussian/b.py": "from notsodeep.gaussian.a import c" if place.endswith("/a.py") else "",
        "notsodeep_lab/papers/__init__.py": "",
        "notsodeep_lab/papers/b.py" if "past" in words else "notsodeep_lab/papers/e.py": "",
    } | {place: text}
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content, encoding="utf-8")
    assert any(words in problem for problem in problems(read(tmp_path)))


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = f"import sys, {PACKAGE}.data; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_the_table_of_layers_has_every_member() -> None:
    page = (SOURCE.parent / "docs" / "contributing.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d+)(?:–\d+)? \| (.*?) \|", page, flags=re.MULTILINE))
    for level, names in enumerate(LAYERS):
        row = rows[str(min(level, TOP + 1))]  # the laboratory has one row
        assert [n for n in names if f"`{n.removeprefix('lab/')}" not in row and n != "__main__"] == []


def test_cited_equations_exist() -> None:
    theory = (SOURCE.parent / "docs" / "theory.md").read_text(encoding="utf-8")
    numbers = re.findall(r"\\tag\{(\d+\.\d+)\}", theory)
    assert len(numbers) == len(set(numbers)), "an equation number is used twice"
    cited = {
        f"{path.relative_to(SOURCE)} cites ({number})": number
        for path in SOURCE.rglob("*.py")
        for number in re.findall(r"theory\.md \((\d+\.\d+)\)", path.read_text(encoding="utf-8"))
    }
    for page in ("theory", "errata", "notation", "contributing"):
        text = (SOURCE.parent / "docs" / f"{page}.md").read_text(encoding="utf-8")
        cited |= {f"{page}.md cites ({n})": n for n in re.findall(r"\((\d+\.\d+)\)", text)}
    assert [where for where, number in cited.items() if number not in numbers] == []
