"""Smoke test with all extras: networks, certificates, figures, kernels on disk, the demo and the laboratory."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # python -I leaves the script's folder out

from common import expect, is_installed_here, notsodeep, run_all, says

OPTIONAL = ("torch", "matplotlib", "zarr", "dask.array", "distributed")


def environment() -> None:
    """the environment is what it claims to be."""
    is_installed_here()
    for name in OPTIONAL:
        import_module(name)


def networks() -> None:
    """a DEQ and its twin train on digits."""
    import torch

    import notsodeep as nsd
    from notsodeep.data import load

    data = load("digits", n=400, dtype="float32")
    X, y = torch.as_tensor(data.X), torch.as_tensor(data.y)
    net = nsd.nets.DEQNet(nsd.DEQ("tanh", 0.2), in_features=64, width=128, out_features=10)
    small, _ = nsd.nets.explicit_twin(net, X)
    for model in (net, small):
        rows = nsd.nets.fit(model, (X, y), epochs=5).rows
        expect(
            rows[-1].loss < rows[0].loss,
            f"The loss of {type(model).__name__} went from {rows[0]} to {rows[-1]}.",
        )


def certificates() -> None:
    """a certificate of convergence is given where the theorem allows it."""
    import notsodeep as nsd

    X = nsd.UnitSphere(50).sample(2, seed=0)
    found = nsd.convergence.certificate(
        X, [0.01, -0.01], 2000, 1e-4, readout_scale=1e-3, normalise=True, seed=0
    )
    expect(found.certified, found.explain())


def figures() -> None:
    """a figure is drawn in three formats."""
    import numpy as np

    import notsodeep as nsd
    from notsodeep import figures

    X = np.random.default_rng(0).standard_normal((60, 30)) / np.sqrt(30)
    figure, panels = figures.new_figure()
    figures.plot_design(nsd.design(nsd.DEQ("tanh", 0.2), X), panels[0], X)
    for suffix, start in ((".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")):
        path = figures.save(figure, Path(f"spectrum{suffix}"))
        expect(path.read_bytes().startswith(start), f"{path} does not begin like one.")


def stored_kernels() -> None:
    """a kernel on disk, computed by two processes, is the one in memory."""
    import numpy as np

    import notsodeep as nsd
    from notsodeep.data import Preprocessing, load

    notsodeep("kernel", "digits", "--activation", "tanh", "--n", "200", "--out", "G.zarr", "--workers", "2")
    X = load("digits", n=200).X
    exact, info = nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), Preprocessing.fit(X).apply(X), return_info=True)
    stored = nsd.open_kernel("G.zarr")
    # Each states how far it may be from the truth; tables made for tiles have other nodes than one for all pairs.
    sizes = np.sqrt(np.outer(exact.diagonal(), exact.diagonal()))
    apart = float((np.abs(np.asarray(stored[:, :]) - exact) / sizes).max())
    allowed = info.error_bound + stored.info.error_bound
    expect(
        apart <= allowed <= 1e-11, f"They differ by {apart:.1e}, and by their own bounds by {allowed:.1e}."
    )


def estimators() -> None:
    """an estimator is cloned, searched over and used in a pipeline."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import GridSearchCV, train_test_split
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import MinMaxScaler

    from notsodeep.estimators import DEQKernelClassifier

    X, y = load_digits(return_X_y=True)  # in the order of their writers
    X, X_test, y, y_test = train_test_split(X, y, train_size=300, stratify=y, random_state=0)
    pipeline = make_pipeline(MinMaxScaler(), DEQKernelClassifier(kernel="ck"))
    search = GridSearchCV(pipeline, {"deqkernelclassifier__sigma_a2": [0.05, 0.5]}, cv=2).fit(X, y)
    score = search.score(X_test, y_test)
    expect(score > 0.9, f"{score:.1%} of the digits are right.")


def commands() -> None:
    """design and demo end in files and figures."""
    notsodeep("design", "--figure", "twin.png", "--save", "twin.json")
    said, heard = notsodeep("demo", "--n", "120")
    says(said, "times as fast", "demo")
    expect("pip install" not in heard, heard)
    for name in ("twin.png", "notsodeep-demo.png"):
        expect(Path(name).stat().st_size > 10_000, f"{name} is too small to be right.")
    notsodeep("certify", "--width", "200", code=3)


def experiments() -> None:
    """an experiment of a paper runs and writes its page."""
    notsodeep("reproduce", "icml-error")
    pages = list(Path("results").glob("icml-error/*/results.md"))
    expect(len(pages) == 1, "The experiment left no page.")


CHECKS = (
    environment, networks, certificates, figures, stored_kernels, estimators, commands, experiments,
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(run_all(CHECKS))
