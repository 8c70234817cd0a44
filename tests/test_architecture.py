"""The import rule of docs/contributing.md, read from the syntax tree, so that nothing hides in a function."""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE, LAB = "notsodeep", "notsodeep_lab"
SOURCE = Path(__file__).parents[1] / "src"

# Bottom to top. A module imports only from its own layer or from layers below.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        "errors",
        "display",
        "results",
        "validation",
        "files",
        "memory",
        "progress",
        "extras",
        "kernel_names",
        "linalg",
        "intervals",
    ),
    ("gaussian",),
    ("duals",),
    ("cells",),
    ("models", "fingerprint"),
    ("data",),
    ("scale",),
    ("kernels",),
    ("equivalents",),
    ("designs",),
    ("nets",),
    ("convergence",),
    ("operators", "estimators"),
    ("figures",),
    ("forecasts",),
    ("feature_learning",),
    ("learning",),
    ("distillation",),
    ("verdicts",),
    ("cli", "__main__"),
    # The laboratory stands on the library, which never imports it.
    ("lab/plots",),
    ("lab/papers",),
    ("lab/commands",),
)
LAYER = {name: level for level, names in enumerate(LAYERS) for name in names}
TOP = LAYER["cli"]  # of the library
EVERYWHERE = frozenset(LAYER)
FROM_NETS_UP = frozenset(name for name, level in LAYER.items() if level >= LAYER["nets"])

# Which members of the layers may import a third-party package, at any depth in the code.
THIRD_PARTY: dict[str, frozenset[str]] = {
    "numpy": EVERYWHERE,
    "scipy": EVERYWHERE,
    "numba": EVERYWHERE,
    "sklearn": frozenset({"data", "estimators"}),
    "torch": FROM_NETS_UP,
    "dask": frozenset({"scale"}),
    "distributed": frozenset({"scale"}),
    "zarr": frozenset({"scale"}),
    "matplotlib": frozenset({"figures", "lab/plots", "lab/papers"}),
    "pyarrow": frozenset({"data"}),
    "typer": frozenset({"cli", "lab/commands"}),
    "rich": frozenset({"cli", "lab/commands", "progress"}),
    "msgspec": frozenset({"lab/papers"}),
}

# `import notsodeep` must load none of these: each costs a noticeable part of a second, or is optional.
HEAVY = ("numba", "torch", "matplotlib", "sklearn", "scipy.stats", "dask", "distributed", "zarr")


@dataclass(frozen=True)
class Import:
    """One imported name: ``from target import name``, or ``import target`` when name is None."""

    target: str
    name: str | None
    line: int


@dataclass(frozen=True, eq=False)
class Module:
    """A module of the package: its dotted name, whether it is an ``__init__``, its syntax tree."""

    dotted: str
    is_package: bool
    tree: ast.Module

    @property
    def member(self) -> str:
        """The first component below the package: what the layers are made of."""
        return member_of(self.dotted)

    @property
    def is_progress(self) -> bool:
        return self.dotted.rsplit(".", 1)[-1].strip("_") == "progress"

    @functools.cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @functools.cached_property
    def imports(self) -> list[Import]:
        found = []
        for node in self.nodes:
            if isinstance(node, ast.Import):
                found += [Import(alias.name, None, node.lineno) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                found += [Import(self._absolute(node), alias.name, node.lineno) for alias in node.names]
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        parts = self.dotted.split(".")
        base = parts[: len(parts) - node.level + self.is_package]
        return ".".join([*base, node.module] if node.module else base)


def member_of(dotted: str) -> str:
    """`gaussian` of notsodeep.gaussian.price, `lab/papers` of notsodeep_lab.papers.runner."""
    package, *rest = dotted.split(".")
    prefix = "lab/" if package == LAB else ""
    return prefix + rest[0] if rest else ""


@functools.cache
def read_packages(source: Path) -> dict[str, Module]:
    """All modules below a folder; each file is parsed once."""
    modules = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        dotted = ".".join(parts[:-1] if is_package else parts)
        modules[dotted] = Module(dotted, is_package, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return modules


def known_names(modules: dict[str, Module]) -> set[str]:
    """Dotted names of the modules and of the folders that hold them (a folder may lack its ``__init__``)."""
    return {dotted.rsplit(".", up)[0] for dotted in modules for up in range(dotted.count(".") + 1)}


def inner_target(imported: Import, names: set[str]) -> str:
    """The module of the package that an import reaches: the submodule if the name is one, else its source."""
    submodule = f"{imported.target}.{imported.name}"
    return submodule if submodule in names else imported.target


def misplaced(modules: dict[str, Module]) -> list[str]:
    """Members of the package that no layer names."""
    members = {module.member for module in modules.values()} - {""}
    return [f"{member} has no layer" for member in sorted(members - set(LAYER))]


def upward_imports(modules: dict[str, Module]) -> list[str]:
    names = known_names(modules)
    found = []
    for module in modules.values():
        level = LAYER.get(module.member)
        if level is None:
            continue
        for imported in module.imports:
            target = inner_target(imported, names)
            if target.split(".")[0] not in (PACKAGE, LAB) or imported.name == "__version__":
                continue
            where = f"{module.dotted}:{imported.line}"
            if target == PACKAGE:
                if level < TOP:
                    found.append(f"{where} imports the package's front door; import from the defining module")
            elif (above := LAYER.get(member_of(target), len(LAYERS))) > level:
                found.append(f"{where} (layer {level}) imports {target} (layer {above})")
    return found


def foreign_imports(modules: dict[str, Module]) -> list[str]:
    found = []
    for module in modules.values():
        for imported in module.imports:
            top = imported.target.split(".")[0]
            if top in (PACKAGE, LAB) or top in sys.stdlib_module_names:
                continue
            if top == "rich" and module.is_progress:
                continue
            if module.member not in THIRD_PARTY.get(top, frozenset()):
                found.append(f"{module.dotted}:{imported.line} may not import {top}")
    return found


def cycle(modules: dict[str, Module]) -> list[str]:
    names = known_names(modules)
    graph = {
        module.dotted: {
            target
            for imported in module.imports
            if (target := inner_target(imported, names)) in modules and target != module.dotted
        }
        for module in modules.values()
        if module.dotted != PACKAGE
    }
    for targets in graph.values():
        targets.discard(PACKAGE)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" -> ".join(reversed(error.args[1]))]
    return []


def star_imports(modules: dict[str, Module]) -> list[str]:
    return [
        f"{module.dotted}:{imported.line} imports * from {imported.target}"
        for module in modules.values()
        for imported in module.imports
        if imported.name == "*"
    ]


def assertions(modules: dict[str, Module]) -> list[str]:
    """``assert`` vanishes under ``python -O``: the package raises errors that say what to do instead."""
    return [
        f"{module.dotted}:{node.lineno} asserts"
        for module in modules.values()
        for node in module.nodes
        if isinstance(node, ast.Assert)
    ]


def names_of_the_laboratory(modules: dict[str, Module]) -> list[str]:
    """The library does not name the laboratory in a string either: it would import it by name."""
    return [
        f"{module.dotted}:{node.lineno} names {LAB}"
        for module in modules.values()
        if not module.dotted.startswith(LAB)
        for node in module.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and LAB in node.value
    ]


FACE = f"{LAB}.papers"
# Modules whose `open` opens no text.
BINARY_OPENERS = frozenset({"os", "webbrowser", "gzip", "zarr"})


def texts_without_encoding(modules: dict[str, Module]) -> list[str]:
    """Text is UTF-8 wherever it is read or written: the default of Python depends on the system."""
    return [
        f"{module.dotted}:{node.lineno} reads or writes text without an encoding"
        for module in modules.values()
        for node in module.nodes
        if isinstance(node, ast.Call)
        and _takes_text(node)
        and not any(keyword.arg == "encoding" for keyword in node.keywords)
    ]


def _takes_text(call: ast.Call) -> bool:
    constants = [ast.unparse(part) for part in (*call.args, *(keyword.value for keyword in call.keywords))]
    name = ast.unparse(call.func)
    if any(keyword.arg == "text" for keyword in call.keywords):
        return "True" in constants
    if name.rsplit(".", 1)[-1] != "open":
        return name.endswith((".read_text", ".write_text", ".TextIOWrapper", ".fdopen"))
    binary = any(re.fullmatch(r"'[rwax+]*b[rwax+]*'", constant) for constant in constants)
    return name.split(".")[0] not in BINARY_OPENERS and not binary


def ways_around_the_face(modules: dict[str, Module]) -> list[str]:
    """What other layers need of `papers` is named in its `__init__`."""
    names = known_names(modules)
    return [
        f"{module.dotted}:{imported.line} reaches past {FACE} into {target}"
        for module in modules.values()
        for imported in module.imports
        if (target := inner_target(imported, names)).startswith(f"{FACE}.")
        and not module.dotted.startswith(FACE)
    ]


def repeated_names(modules: dict[str, Module]) -> list[str]:
    """One name, one meaning: the name of a module, the package left out, occurs once."""
    homes: dict[str, list[str]] = {}
    for module in modules.values():
        if not module.is_package:
            homes.setdefault(module.dotted.rsplit(".", 1)[-1], []).append(module.dotted)
    return [
        f"{name}: {', '.join(found)}"
        for name, found in homes.items()
        if len(found) > 1 and name != "__main__"
    ]


RULES = (
    repeated_names,
    ways_around_the_face,
    names_of_the_laboratory,
    misplaced,
    upward_imports,
    foreign_imports,
    cycle,
    star_imports,
    assertions,
    texts_without_encoding,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_both_packages_obey(rule):
    modules = read_packages(SOURCE)
    assert {PACKAGE, LAB} <= modules.keys(), f"a package is missing under {SOURCE}"
    assert rule(modules) == []


# Each rule is shown to bite: files of a small package, and the rule that must object to it.
BROKEN = {
    "a new member without a layer": ({"utils.py": ""}, misplaced),
    "a layer above": (
        {"gaussian/a.py": "from notsodeep.kernels import dual", "kernels/dual.py": ""},
        upward_imports,
    ),
    "a layer above, in a function": (
        {"kernels/a.py": "def f():\n    import notsodeep.designs.match", "designs/match.py": ""},
        upward_imports,
    ),
    "a layer above, as a submodule of the top-level package": (
        {"errors.py": "from notsodeep import cli", "cli.py": ""},
        upward_imports,
    ),
    "a member that does not exist": ({"cli.py": "import notsodeep.nowhere"}, upward_imports),
    "the front door from below": ({"kernels/a.py": "from notsodeep import DEQ"}, upward_imports),
    "torch in a low layer": ({"kernels/a.py": "def f():\n    import torch.nn"}, foreign_imports),
    "an undeclared package": ({"data/a.py": "import pandas"}, foreign_imports),
    "two modules in a ring": (
        {"data/a.py": "from notsodeep.data.b import y", "data/b.py": "def f():\n    from .a import x"},
        cycle,
    ),
    "a star": ({"data/a.py": "from numpy import *"}, star_imports),
    "an assertion": ({"data/a.py": "def f(x):\n    assert x > 0"}, assertions),
    "a way around the face of papers": (
        {
            "../notsodeep_lab/commands/a.py": "from notsodeep_lab.papers.runner import reproduce",
            "../notsodeep_lab/papers/runner.py": "",
        },
        ways_around_the_face,
    ),
    "the laboratory from the library": (
        {"cli/a.py": "def f():\n    from notsodeep_lab import papers", "../notsodeep_lab/papers.py": ""},
        upward_imports,
    ),
    "the laboratory by name": (
        {"cli/a.py": "import_module('notsodeep_lab.papers')"},
        names_of_the_laboratory,
    ),
    "a layer of the laboratory above": (
        {"../notsodeep_lab/papers/a.py": "from ..commands import page", "../notsodeep_lab/commands.py": ""},
        upward_imports,
    ),
    "a name with two meanings": ({"data/tables.py": "", "scale/tables.py": ""}, repeated_names),
    "open without an encoding": ({"data/a.py": "open('x', 'w')"}, texts_without_encoding),
    "text read without one": ({"data/a.py": "Path('x').read_text()"}, texts_without_encoding),
    "the output of a command without one": ({"data/a.py": "run(command, text=True)"}, texts_without_encoding),
}

SOUND = {
    "__init__.py": "from notsodeep.models import DEQ\n__version__ = '0'",
    "models.py": "from .gaussian.moments import second_moment\nfrom . import errors",
    "../notsodeep_lab/papers/__init__.py": "from notsodeep_lab.papers.runner import reproduce",
    "../notsodeep_lab/papers/runner.py": "import notsodeep as nsd\nfrom notsodeep.cli import scenario",
    "../notsodeep_lab/commands.py": "from notsodeep_lab.papers import reproduce",
    "errors.py": "import os\nopen('x', 'rb')\nos.open('x', 0)\npath.open(mode='wb')\npath.read_text(encoding='utf-8')",
    "gaussian/__init__.py": "from .moments import second_moment",
    "gaussian/moments.py": "import numpy.linalg, scipy.special\nfrom . import rules\nfrom .. import errors",
    "gaussian/rules.py": "from numba import njit",
    "data/digits.py": "def load():\n    from sklearn.datasets import load_digits",
    "kernels/_progress.py": "import rich.progress",
    "cli/scenario.py": "import typer, rich\nimport notsodeep as nsd\nfrom notsodeep import __version__, models",
}


def write_package(folder: Path, files: dict[str, str]) -> dict[str, Module]:
    root = folder / PACKAGE
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_packages(folder)


@pytest.mark.parametrize(("files", "rule"), BROKEN.values(), ids=list(BROKEN))
def test_the_rules_object_to(tmp_path, files, rule):
    assert rule(write_package(tmp_path, files))


def test_the_rules_accept_a_sound_package(tmp_path):
    modules = write_package(tmp_path, SOUND)
    assert [problem for rule in RULES for problem in rule(modules)] == []


def test_importing_the_package_loads_nothing_heavy():
    code = f"import sys, {PACKAGE}.data; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == []


def test_the_table_of_layers_has_every_member():
    page = (SOURCE.parent / "docs" / "contributing.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| (\d+)(?:–\d+)? \| (.*?) \|", page, flags=re.MULTILINE))
    for level, names in enumerate(LAYERS):
        row = rows[str(min(level, TOP + 1))]  # the laboratory has one row
        assert [
            name for name in names if f"`{name.removeprefix('lab/')}" not in row and name != "__main__"
        ] == []


def test_cited_equations_exist():
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
