"""Where a package of an extra is missing, a sentence says which one to install; what can go on without it does."""

from __future__ import annotations

import pickle
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from notsodeep.errors import InputError, MissingExtraError
from notsodeep.extras import EXTRA_OF, missing, needed

ROOT = Path(__file__).parents[1]

# As Python answers where a package is not installed. Not sys.modules[name] = None: others look there.
ABSENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {packages!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Absent())
"""


def run_without(packages: set[str], code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ABSENT.format(packages=packages) + code]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)


def typed_without(packages: set[str], *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    code = f"sys.argv = ['notsodeep', *{arguments!r}]\nfrom notsodeep.cli import main\nmain()"
    return run_without(packages, code, folder)


def install(extra: str) -> str:
    return f"pip install '.[{extra}]'"


KERNEL = "nsd.conjugate_kernel(nsd.DEQ('tanh', 0.2), [[1.0, 0.0], [0.0, 1.0]], "


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "call"),
    [
        ("torch", "nsd.nets"),
        ("torch", "import_module('notsodeep.convergence.certify')"),
        ("matplotlib", "import_module('notsodeep.figures')"),
        ("msgspec", "import_module('notsodeep_lab.papers.runner')"),
        ("zarr", KERNEL + "out='G.zarr')"),
        ("zarr", "nsd.open_kernel('G.zarr')"),
        ("distributed", KERNEL + "out='G.zarr', client=1)"),
    ],
)
def test_a_call_that_needs_an_extra_names_it(package: str, call: str, tmp_path: Path) -> None:
    code = f"""
from importlib import import_module
import notsodeep as nsd
try:
    {call}
except nsd.InputError as error:
    print(isinstance(error, ImportError), error.name, error)
"""
    done = run_without({package}, code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"True {package} ")
    assert install(EXTRA_OF[package]) in done.stdout
    assert not (tmp_path / "G.zarr").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "arguments"),
    [
        ("torch", ("certify",)),
        ("torch", ("certify", "--width", "10")),
        ("matplotlib", ("design", "--figure", "twin.png", "--save", "twin.json")),
        ("zarr", ("kernel", "digits", "--n", "30", "--out", "G.zarr")),
        ("msgspec", ("reproduce", "--list")),
    ],
)
def test_a_command_that_needs_an_extra_names_it_before_any_work(
    package: str, arguments: tuple[str, ...], tmp_path: Path
) -> None:
    done = typed_without({package}, *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert install(EXTRA_OF[package]) in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_demo_goes_on_without_figures_and_training(tmp_path: Path) -> None:
    done = typed_without(set(EXTRA_OF), "demo", "--n", "60", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert install("plot") in done.stderr
    assert install("torch") in done.stderr
    assert "Explicit twin" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_installed_package_is_returned_and_a_broken_one_speaks_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zarr

    assert needed("zarr", "A kernel on disk") is zarr
    (tmp_path / "torchdiffeq.py").write_text("raise ImportError('a library of the system is too old')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "torchdiffeq", raising=False)
    with pytest.raises(ImportError, match="too old") as caught:
        needed("torchdiffeq", "A neural ODE")
    assert not isinstance(caught.value, InputError)


def test_the_error_travels_between_processes() -> None:
    error = pickle.loads(pickle.dumps(missing("torch", "Training")))
    assert isinstance(error, MissingExtraError)
    assert (error.name, str(error)) == ("torch", str(missing("torch", "Training")))


def test_every_extra_for_users_has_its_packages_in_the_table() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for package, extra in EXTRA_OF.items():
        assert any(
            requirement.startswith((f"{package}>", f"{package}["))
            for requirement in declared["optional-dependencies"][extra]
        ), f"{package} is not in the extra {extra}"
    assert set(EXTRA_OF.values()) == declared["optional-dependencies"].keys() - {"all", "dev", "docs"}
