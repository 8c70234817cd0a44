"""Smoke test without extras: the core works, and every missing extra is reported by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # python -I leaves the script's folder out

from common import expect, is_installed_here, notsodeep, run_all, says

OPTIONAL = ("torch", "matplotlib", "zarr", "dask", "distributed", "msgspec")
HEAVY = ("numpy", "scipy", "numba", "sklearn", "typer")


def environment() -> None:
    """the environment is what it claims to be."""
    is_installed_here()
    there = [name for name in OPTIONAL if find_spec(name) is not None]
    expect(not there, f"There are packages of extras: {there}.")


def light() -> None:
    """import notsodeep loads nothing heavy."""
    code = f"import sys, notsodeep; print(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=True)
    expect(not done.stdout.split(), f"import notsodeep loads {done.stdout}.")


def kernels() -> None:
    """the kernel of a ReLU DEQ solves its equation."""
    import numpy as np

    import notsodeep as nsd
    from notsodeep.data import Preprocessing, load

    X = load("digits", n=100).X
    X = Preprocessing.fit(X).apply(X)
    exact, info = nsd.conjugate_kernel(nsd.DEQ("relu", sigma_a2=0.2), X, return_info=True)
    kernel, gram = np.zeros((100, 100)), X @ X.T
    for _ in range(200):  # docs/theory.md (3.3) to (3.5), with the closed form of E[φ(u)φ(v)]
        covariance = 0.2 * kernel + 0.8 * gram
        norms = np.sqrt(np.diag(covariance))
        cosine = np.clip(covariance / np.outer(norms, norms), -1.0, 1.0)
        angle = np.arccos(cosine)
        kernel = np.outer(norms, norms) * (np.sin(angle) + (np.pi - angle) * cosine) / (2 * np.pi)
    distance = np.abs(exact - kernel).max() / np.abs(kernel).max()
    expect(
        distance < 1e-7, f"The kernel is {distance:.1e} away from the iterated one."
    )  # arccos near one: 1e-8
    expect(info.error_bound < 1e-12, f"The error bound is {info.error_bound:.1e}.")
    tangent = nsd.tangent_kernel(nsd.DEQ("tanh", sigma_a2=0.2), X)
    expect(np.linalg.eigvalsh(tangent)[0] > 0.0, "The tangent kernel is not positive definite.")


def equivalents() -> None:
    """coefficients, equivalent and limiting density agree with the exact kernel."""
    import numpy as np

    import notsodeep as nsd

    mixture = nsd.GaussianMixture.paper(400)
    X, y = mixture.sample(300, seed=0)
    model, stats = nsd.DEQ("tanh", sigma_a2=0.2), nsd.MixtureStatistics.estimate(X, y)
    expect(
        nsd.coefficients(model, stats.tau0).linear > 0.0,
        "The coefficient of the linear part is not positive.",
    )
    dense = nsd.equivalent(model, X, form="refined").to_dense()
    exact = nsd.conjugate_kernel(model, X)
    distance = np.linalg.norm(dense - exact, 2) / np.linalg.norm(exact, 2)
    expect(distance < 0.01, f"The refined equivalent is {distance:.1e} away.")
    error = nsd.equivalence_error(model, X, form="refined")
    expect(
        abs(error - distance) < 0.01 * distance, f"equivalence_error says {error}, the matrices {distance}."
    )
    spectrum = nsd.limiting_density(model, mixture, n=300, form="refined")
    median = float(np.median(np.linalg.eigvalsh(exact)))
    expect(
        abs(float(spectrum.cdf(np.array([median]))[0]) - 0.5) < 0.05, "The predicted median is another one."
    )


def designs() -> None:
    """a design has the coefficients of its DEQ."""
    import numpy as np

    import notsodeep as nsd

    made = nsd.design(nsd.DEQ("tanh", sigma_a2=0.2), tau0=1.0)
    wanted, found = (nsd.coefficients(model, 1.0).as_array() for model in (made.model, made.network))
    expect(made.exact and np.allclose(wanted, found, rtol=1e-8), f"wanted {wanted}, found {found}")


def estimators() -> None:
    """a classifier of scikit-learn's kind tells digits apart."""
    from sklearn.datasets import load_digits

    from notsodeep.estimators import DEQKernelClassifier

    X, y = load_digits(return_X_y=True)
    score = DEQKernelClassifier(kernel="ntk", activation="relu").fit(X[:500], y[:500]).score(X[500:], y[500:])
    expect(score > 0.9, f"{score:.1%} of the digits are right.")


def commands() -> None:
    """the commands work, with the exit codes they promise."""
    says(notsodeep("--version")[0], f"notsodeep {version('notsodeep')}", "--version")
    says(notsodeep("--help")[0], "notsodeep demo", "--help")
    notsodeep("kernel", "digits", "--n", "50", "--save", "digits.npy")
    expect(Path("digits.npy").exists(), "There is no digits.npy.")
    says(notsodeep("design", "--activation", "tanh", "--save", "twin.json")[0], "hard_tanh", "design")
    notsodeep("design", "--activation", "swish", "--family", "leaky_relu", code=3)
    notsodeep("kernel", "nowhere.csv", code=2)


def demo() -> None:
    """the demo goes without figures and training, and says what would bring them."""
    _, heard = notsodeep("demo", "--n", "60")
    for extra in ("plot", "torch"):
        says(heard, f"pip install '.[{extra}]'", "demo")


def missing_in_python() -> None:
    """what needs an extra says which one, in Python."""
    import notsodeep as nsd

    Path("rows.zarr").mkdir(exist_ok=True)

    def stored() -> None:
        nsd.conjugate_kernel(nsd.DEQ("tanh", sigma_a2=0.2), [[1.0, 0.0], [0.0, 1.0]], out="G.zarr")

    def spread() -> None:
        nsd.conjugate_kernel(nsd.DEQ("tanh", sigma_a2=0.2), [[1.0, 0.0], [0.0, 1.0]], client=1, out="G.zarr")

    def drawn() -> None:
        from notsodeep import figures  # noqa: F401

    calls: list[tuple[str, Callable[[], object]]] = [
        ("torch", lambda: nsd.nets),
        ("torch", lambda: nsd.convergence),
        ("plot", drawn),
        ("scale", stored),
        ("scale", spread),
        ("scale", lambda: nsd.open_kernel("G.zarr")),
        ("scale", lambda: nsd.scale.open_rows("rows.zarr")),
    ]
    for extra, call in calls:
        try:
            call()
        except nsd.InputError as error:
            says(str(error), f"pip install '.[{extra}]'", "the error")
        else:
            expect(False, f"A call that needs the extra {extra} went through.")
    expect(not Path("G.zarr").exists(), "A kernel that could not be stored left a folder.")


def missing_in_commands() -> None:
    """what needs an extra says which one, at the command line."""
    Path("rows.csv").write_text("1,2\n3,4\n")
    typed = [
        ("torch", ["certify"]),
        ("plot", ["design", "--figure", "twin.png"]),
        ("scale", ["kernel", "digits", "--n", "50", "--out", "G.zarr"]),
        ("scale", ["kernel", "rows.zarr"]),
        ("tables", ["kernel", "rows.csv"]),
        ("lab", ["reproduce", "--list"]),
    ]
    for extra, arguments in typed:
        _, heard = notsodeep(*arguments, code=2)
        says(heard, f"pip install '.[{extra}]'", " ".join(arguments))


CHECKS = (
    environment, light, kernels, equivalents, designs, estimators, commands, demo, missing_in_python,
    missing_in_commands,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run_all(CHECKS))
