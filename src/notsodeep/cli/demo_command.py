"""`notsodeep demo`: the whole story on handwritten digits."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from notsodeep.cli import options
from notsodeep.cli.common import (
    app,
    console,
    errors,
    figures_if_installed,
    say,
    spinner,
)
from notsodeep.errors import MissingExtraError
from notsodeep.extras import needed
from notsodeep.files import new_path

if TYPE_CHECKING:
    from notsodeep.nets.race import Race

# The first one is the example of the story.
_ACTIVATIONS = ("relu", "tanh", "swish")
_KERNEL_COLUMNS = (
    "φ", "CK", "NTK", "computed by", "error below", "norm of CK", "rank for 99 % of CK",
)  # fmt: skip
_WIDTH, _SEEDS, _EPOCHS = 512, 2, 10
# Ridge of the kernel classifiers, relative to the mean of the diagonal.
_RIDGE = 0.01
# Two kinds of twins, fitted to and measured on so many digits each.
_TWIN_COLUMNS, _TWIN_ROWS = (
    ("φ", "papers' twin", "injected, 2 layers", "DEQ cut after 2", "plain, 1 layer"),
    150,
)
_MACHINE_COLUMNS = ("kernel of", "differs by", "up to a factor", "test accuracy", "other class")


@dataclass
class _Story:
    """The digits that every part of the demo uses."""

    sigma_a2: float
    rows: Any
    labels: Any
    test: tuple[Any, Any]  # rows and labels
    figures: Any  # the package of figures, or None where matplotlib is not installed


@app.command()
def demo(
    output: Annotated[
        Path,
        typer.Option("--save", "--output", metavar="FILE", help="Where the figure goes (png, svg or pdf)."),
    ] = Path("notsodeep-demo.png"),
    samples: Annotated[
        int, typer.Option(metavar="N", min=20, help="How many digits to take kernels of, 1437 at most.")
    ] = 1437,
    sigma_a2: options.Variance = 0.2,
    train: Annotated[bool, typer.Option(help="Train a DEQ, its twin and a plain network.")] = True,
    overwrite: options.Overwrite = False,
) -> None:
    """An infinitely deep network, its kernel, and the shallow one that replaces it.

    On scikit-learn's digits, in half a minute: exact conjugate and tangent
    kernels (CK: inner products of the features; NTK: what gradient descent sees)
    of deep equilibrium models of infinite width; how closely four scalars give
    them without the n × n matrix; the explicit network designed to have the same
    kernel, beside plain ones, as kernel classifiers and as trained networks, with
    accuracy and speed.
    """
    from notsodeep.data import Preprocessing, load

    path = new_path(output, overwrite)
    data, test = load("digits", n=samples), load("digits", split="test")
    prepared = Preprocessing.fit(data.X)
    parts = prepared.apply(data.X), data.y, (prepared.apply(test.X), test.y)
    story = _Story(sigma_a2, *parts, figures_if_installed())
    console.print(
        f"[bold]{len(story.rows)} digits[/] of {story.rows.shape[1]} pixels; models z = φ(σ_a A z + σ_b B x)/√m, "
        f"m → ∞, σ_a² = {sigma_a2:g}, σ_b² = {1 - sigma_a2:g}"
    )
    _show_kernels(story, path)
    _show_equivalents(story)
    _show_twin(story)
    if train:
        _show_training(story)
    if story.figures is not None:
        console.print(
            f"Figure: [bold]{path}[/]  (kernel matrix by digit, and spectra of CK and NTK)", highlight=False
        )
    say("Your own data:  notsodeep kernel --help")


def _show_kernels(story: _Story, path: Path) -> None:
    """Exact kernels of three models: a table, and the figure."""
    spectra: dict[str, Any] = {}
    cells: list[list[str]] = []
    kernels: list[Any] = []
    with spinner() as progress:
        for name in _ACTIVATIONS:
            progress.add_task(f"kernels of the {name} DEQ")
            row, values, kernel = _kernel_row(name, story.sigma_a2, story.rows)
            cells.append(row)
            kernels.append(kernel)
            spectra |= values
    _print(_KERNEL_COLUMNS, cells)
    if story.figures is not None:
        figure, panels = story.figures.new_figure(2, height=2.9)
        story.figures.plot_kernel(
            kernels[0], story.labels, panels[0], title=f"{_ACTIVATIONS[0]} DEQ, conjugate kernel"
        )
        story.figures.plot_eigenvalues(spectra, panels[1], title="exact spectra, infinite depth and width")
        story.figures.save(figure, path)


def _kernel_row(name: str, sigma_a2: float, rows: Any) -> tuple[list[str], dict[str, Any], Any]:
    import numpy as np

    from notsodeep.kernels import both_kernels, conjugate_kernel
    from notsodeep.models import DEQ

    model = DEQ(name, sigma_a2)
    conjugate_kernel(model, rows[:8])  # compiles, or loads what an earlier run compiled
    start = time.perf_counter()
    conjugate_kernel(model, rows)
    middle = time.perf_counter()
    ck, ntk, info = both_kernels(model, rows, return_info=True)
    end = time.perf_counter()
    values = {f"{name} CK": np.linalg.eigvalsh(ck), f"{name} NTK": np.linalg.eigvalsh(ntk)}
    share = np.cumsum(values[f"{name} CK"][::-1]) / np.trace(ck)
    times = [f"{1e3 * (middle - start):.0f} ms", f"{1e3 * (end - middle):.0f} ms"]
    evidence = [", ".join(info.methods), f"{info.error_bound:.0e}"]
    summary = [f"{values[f'{name} CK'][-1]:.1f}", str(int(np.searchsorted(share, 0.99)) + 1)]
    return [name, *times, *evidence, *summary], values, ck


def _show_equivalents(story: _Story) -> None:
    """How far four scalars, or the refined form, go on these digits."""
    from notsodeep.data import MixtureStatistics
    from notsodeep.equivalents import equivalence_error
    from notsodeep.models import DEQ

    stats = MixtureStatistics.estimate(story.rows, story.labels)
    model = DEQ(_ACTIVATIONS[0], story.sigma_a2).centred(stats.tau0)
    asymptotic = float(equivalence_error(model, story.rows, stats))
    refined = float(equivalence_error(model, story.rows, form="refined", order=3, square="sketch"))
    say(
        f"Without the n × n matrix ({_ACTIVATIONS[0]} CK): four scalars leave {asymptotic:.1%}, the refined equivalent "
        f"{refined:.2%} of its norm."
    )


def _show_twin(story: _Story) -> None:
    """The explicit network with the same scalars, beside plain ones: distances, and what classifiers make of them."""
    from notsodeep.designs import design as make_design
    from notsodeep.designs import twin_distances
    from notsodeep.models import DEQ, Explicit
    from notsodeep.validation import root_mean_square_norm

    tau0 = root_mean_square_norm(story.rows)
    with spinner() as progress:
        progress.add_task("its twin, and plain networks")
        model = DEQ(_ACTIVATIONS[0], story.sigma_a2).centred(tau0)
        made = make_design(model, tau0, X=story.rows)
        found = twin_distances(made, story.rows)
        wanted, right = _predicted(model, story)
        rows = [["deq", "", "", f"{right:.1%}", ""]]
        others = {_layers("twin", len(made.network.layers)): (made.network, found.twin)} | {
            _layers("plain", depth): (Explicit([model.activation] * depth).centred(tau0), distance)
            for depth, distance in found.plain.items()
        }
        for name, (network, distance) in others.items():
            classes, right = _predicted(network, story)
            apart = f"{int((classes != wanted).sum())} of {len(wanted)}"
            shares = (f"{100 * share:.2g}%" for share in (distance.relative, distance.up_to_factor))
            rows.append([name, *shares, f"{right:.1%}", apart])
    say(f"Its explicit twin: {made.network}")
    _print(_MACHINE_COLUMNS, rows)
    say(str(found))
    words, injected = _injected_twins(story, tau0)
    say(words)
    _print(_TWIN_COLUMNS, injected)


def _injected_twins(story: _Story, tau0: float) -> tuple[str, list[list[str]]]:
    """The papers' twin of every activation beside the injected one, on digits that it was not fitted to."""
    from notsodeep.designs import INJECTED_IN_WORDS
    from notsodeep.designs import design as make_design
    from notsodeep.designs.baselines import plain_layers
    from notsodeep.designs.evidence import split_samples
    from notsodeep.equivalents.error import kernel_distance
    from notsodeep.kernels import conjugate_kernel
    from notsodeep.models import DEQ

    rows: list[list[str]] = []
    with spinner() as progress:
        progress.add_task("twins of other activations")
        _, others = split_samples(story.rows, _TWIN_ROWS)
        for name in _ACTIVATIONS:
            model = DEQ(name, story.sigma_a2).centred(tau0)
            papers = make_design(model, tau0, family="papers")
            injected = make_design(model, tau0, family="injected", layers=2, X=story.rows, samples=_TWIN_ROWS)
            networks = (papers.network, injected.network, model.unrolled(2), plain_layers(model, 1, tau0))
            wanted = conjugate_kernel(model, others)
            distances = [kernel_distance(wanted, conjugate_kernel(one, others)) for one in networks]
            rows.append([name, *(f"{100 * one.up_to_factor:.2g}%" for one in distances)])
    return (
        f"Another kind of twin keeps the activation. {INJECTED_IN_WORDS} Distances up to a factor, on {len(others)} "
        "digits:"
    ), rows


def _print(columns: tuple[str, ...], rows: list[list[str]]) -> None:
    table = Table(*columns)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def _layers(name: str, depth: int) -> str:
    return f"{name}, {depth} layer{'s' * (depth > 1)}"


def _predicted(model: Any, story: _Story) -> tuple[Any, float]:
    """The classes that kernel ridge regression gives the test digits, and the share that is right."""
    import numpy as np
    from scipy.linalg import solve

    from notsodeep.kernels import conjugate_kernel

    K = conjugate_kernel(model, story.rows)
    K[np.diag_indices_from(K)] += _RIDGE * np.trace(K) / len(K)
    names = np.unique(story.labels)
    weights = solve(K, (story.labels[:, None] == names).astype(float), assume_a="pos")
    scores = conjugate_kernel(model, story.test[0], story.rows) @ weights
    classes = names[scores.argmax(axis=1)]
    return classes, float(np.mean(classes == story.test[1]))


def _show_training(story: _Story) -> None:
    """A DEQ, its twin and a plain network, trained alike."""
    result = _race(story.sigma_a2)
    if result is None:
        return
    table = Table("model", "test accuracy", "agrees with DEQ", "1000 samples")
    for one in result.standings:
        agreement = "" if one.agreement is None else f"{one.agreement:.1%}"
        table.add_row(one.model, f"{one.accuracy:.1%}", agreement, f"{1e3 * one.inference_seconds:.3g} ms")
    console.print(table)
    by_name = {one.model: one for one in result.standings}
    deq, twin, plain = (by_name[name] for name in ("deq", "twin", "plain"))
    faster = deq.inference_seconds / twin.inference_seconds
    verdict = (
        f"the twin chooses the same class as the DEQ for {twin.agreement:.1%} of the test digits, a plain network of "
        f"its depth for {plain.agreement:.1%}, a second DEQ for {deq.agreement:.1%}; the twin answers "
        f"{faster:{'.0f' if faster > 10 else '.2g'}} times as fast as the DEQ."
    )
    say(
        f"Networks trained alike (width {_WIDTH}, readout, {_EPOCHS} epochs, {_SEEDS} seeds; the classifiers above are "
        f"what they tend to): {verdict}"
    )


def _race(sigma_a2: float) -> Race | None:
    """The race; None where torch is not installed."""
    try:
        torch = needed("torch", "Training")
    except MissingExtraError as error:
        errors.print(f"No training. {error}", highlight=False, markup=False, soft_wrap=True)
        return None
    from notsodeep.data import load
    from notsodeep.models import DEQ
    from notsodeep.nets.race import RaceSettings, race

    parts = [load("digits", split=split, dtype="float32") for split in ("train", "test")]
    train, test = ((part.X, part.y) for part in parts)
    threads = torch.get_num_threads()
    # Several threads that wait for each other on a busy machine would make times that mean nothing.
    torch.set_num_threads(1)
    try:
        settings = RaceSettings(width=_WIDTH, seeds=_SEEDS, epochs=_EPOCHS)
        return race(DEQ(_ACTIVATIONS[0], sigma_a2), train, test, settings, progress=True)
    finally:
        torch.set_num_threads(threads)
