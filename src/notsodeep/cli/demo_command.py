"""`notsodeep demo`: kernels, equivalents, twins and training on handwritten digits."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from notsodeep.cli import options
from notsodeep.cli.common import app, console, errors, figures_if_installed, say
from notsodeep.errors import MissingExtraError
from notsodeep.extras import needed
from notsodeep.files import new_path
from notsodeep.progress import progress_bar

if TYPE_CHECKING:
    from notsodeep.nets.race import Race

# The first one is the example of the later parts.
_ACTIVATIONS = ("relu", "tanh", "swish")
_WIDTH, _SEEDS, _EPOCHS = 512, 2, 10
# Ridge of the kernel classifiers; the diagonal of the kernels is about 0.4.
_RIDGE = 0.004


@dataclass
class _Digits:
    """The digits that every part of the demo uses."""

    sigma_a2: float
    rows: Any
    labels: Any
    test: tuple[Any, Any]  # rows and labels


@app.command()
def demo(
    n: Annotated[
        int, typer.Option("--n", metavar="N", min=20, max=1437, help="Number of digits to take kernels of.")
    ] = 1437,
    sigma_a2: options.Variance = 0.2,
    train: Annotated[bool, typer.Option(help="Train a DEQ, its twin and a plain network.")] = True,
    figure: Annotated[
        Path, typer.Option(metavar="FILE", help="File of the figure (png, svg or pdf).")
    ] = Path("notsodeep-demo.png"),
    overwrite: options.Overwrite = False,
) -> None:
    """Show what notsodeep does, on scikit-learn's digits, in half a minute.

    Exact conjugate and tangent kernels (CK: inner products of the features; NTK:
    what gradient descent sees) of deep equilibrium models of infinite width; how
    well four scalars describe them; the explicit twin with nearly the same kernel
    next to plain networks, as kernel classifiers and as trained networks, with
    accuracy and speed.

    Example: notsodeep demo --n 200 --no-train
    """
    from notsodeep.data import Preprocessing, load

    path = new_path(figure, overwrite)
    data, test = load("digits", n=n), load("digits", split="test")
    scaling = Preprocessing.fit(data.X)
    digits = _Digits(sigma_a2, scaling.apply(data.X), data.y, (scaling.apply(test.X), test.y))
    console.print(
        f"[bold]{n} digits[/] of {digits.rows.shape[1]} pixels; models z = φ(σ_a A z + σ_b B x)/√m, "
        f"m → ∞, σ_a² = {sigma_a2:g}, σ_b² = {1 - sigma_a2:g}"
    )
    drawn = _show_kernels(digits, path)
    _show_equivalents(digits)
    _show_twin(digits)
    if train:
        _show_training(sigma_a2)
    if drawn:
        console.print(
            f"Figure: [bold]{path}[/]  (kernel matrix by digit, and spectra of CK and NTK)", highlight=False
        )
    say("Your own data:  notsodeep kernel --help")


def _show_kernels(digits: _Digits, path: Path) -> bool:
    """Print a table of the exact kernels of three models; draw the figure if matplotlib is installed."""
    import numpy as np

    from notsodeep.kernels import both_kernels, conjugate_kernel
    from notsodeep.models import DEQ

    spectra: dict[str, Any] = {}
    first = None
    table = Table("φ", "CK", "CK and NTK", "method", "error below", "norm of CK", "rank for 99 %")
    with progress_bar("exact kernels"):
        for name in _ACTIVATIONS:
            model = DEQ(name, digits.sigma_a2)
            conjugate_kernel(model, digits.rows[:8])  # compiles, or loads compiled code
            start = time.perf_counter()
            conjugate_kernel(model, digits.rows)
            middle = time.perf_counter()
            ck, ntk, info = both_kernels(model, digits.rows, return_info=True)
            times = [f"{1e3 * seconds:.0f} ms" for seconds in (middle - start, time.perf_counter() - middle)]
            values = np.linalg.eigvalsh(ck)
            spectra |= {f"{name} CK": values, f"{name} NTK": np.linalg.eigvalsh(ntk)}
            first = ck if first is None else first
            rank = int(np.searchsorted(np.cumsum(values[::-1]) / np.trace(ck), 0.99)) + 1
            evidence = [", ".join(info.methods), f"{info.error_bound:.0e}"]
            table.add_row(name, *times, *evidence, f"{values[-1]:.1f}", str(rank))
    console.print(table)
    figures = figures_if_installed()
    if figures is None:
        return False
    drawing, panels = figures.new_figure(2, height=2.9)
    title = f"{_ACTIVATIONS[0]} DEQ, conjugate kernel"
    figures.plot_kernel(first, digits.labels, panels[0], title=title)
    figures.plot_eigenvalues(spectra, panels[1], title="exact spectra, infinite depth and width")
    figures.save(drawing, path)
    return True


def _show_equivalents(digits: _Digits) -> None:
    """Print the errors of the asymptotic and of the refined equivalent on these digits."""
    from notsodeep.data import MixtureStatistics
    from notsodeep.equivalents import equivalence_error
    from notsodeep.models import DEQ

    stats = MixtureStatistics.estimate(digits.rows, digits.labels)
    model = DEQ(_ACTIVATIONS[0], digits.sigma_a2).centred(stats.tau0)
    asymptotic = float(equivalence_error(model, digits.rows, stats))
    refined = float(equivalence_error(model, digits.rows, form="refined", order=3, square="sketch"))
    say(
        f"Error of the {_ACTIVATIONS[0]} CK without the n × n matrix: {asymptotic:.1%} from four scalars, "
        f"{refined:.2%} with the refined equivalent."
    )


def _show_twin(digits: _Digits) -> None:
    """Print kernel errors of the twin and of plain networks, and the accuracy of kernel classifiers."""
    from notsodeep.designs import design, twin_distances
    from notsodeep.models import DEQ, Explicit
    from notsodeep.validation import root_mean_square_norm

    tau0 = root_mean_square_norm(digits.rows)
    table = Table("kernel of", "kernel error", "up to a factor", "accuracy", "other class")
    with progress_bar("the twin, and plain networks"):
        model = DEQ(_ACTIVATIONS[0], digits.sigma_a2).centred(tau0)
        twin = design(model, tau0, X=digits.rows)
        distances = twin_distances(twin, digits.rows)
        classes, accuracy = _classified(model, digits)
        table.add_row("deq", "", "", f"{accuracy:.1%}", "")
        others = {_layers("twin", len(twin.network.layers)): (twin.network, distances.twin)} | {
            _layers("plain", depth): (Explicit([model.activation] * depth).centred(tau0), distance)
            for depth, distance in distances.plain.items()
        }
        for name, (network, distance) in others.items():
            found, accuracy = _classified(network, digits)
            different = f"{int((found != classes).sum())} of {len(classes)}"
            shares = (f"{100 * share:.2g}%" for share in (distance.relative, distance.up_to_factor))
            table.add_row(name, *shares, f"{accuracy:.1%}", different)
    say(f"Explicit twin: {twin.network}")
    console.print(table)
    say(str(distances))


def _layers(name: str, depth: int) -> str:
    return f"{name}, {depth} layer{'s' * (depth > 1)}"


def _classified(model: Any, digits: _Digits) -> tuple[Any, float]:
    """Classify the test digits with the kernel of a model; return the classes and the accuracy."""
    from notsodeep.estimators import DEQKernelClassifier

    machine = DEQKernelClassifier(model=model, kernel="ck", alpha=_RIDGE, center=False, scale=None)
    classes = machine.fit(digits.rows, digits.labels).predict(digits.test[0])
    return classes, float((classes == digits.test[1]).mean())


def _show_training(sigma_a2: float) -> None:
    """Train a DEQ, its twin and a plain network alike, and print accuracy, agreement and time."""
    result = _race(sigma_a2)
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
    say(
        f"Networks of width {_WIDTH}, readout trained for {_EPOCHS} epochs, {_SEEDS} seeds: the twin predicts the same "
        f"class as the DEQ for {twin.agreement:.1%} of the test digits, a plain network of its depth for "
        f"{plain.agreement:.1%}, a second DEQ for {deq.agreement:.1%}. The twin is "
        f"{faster:{'.0f' if faster > 10 else '.2g'}} times as fast as the DEQ."
    )


def _race(sigma_a2: float) -> Race | None:
    """Train the networks; None if torch is not installed."""
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
    # Several threads that wait for each other on a busy machine would give meaningless times.
    torch.set_num_threads(1)
    try:
        settings = RaceSettings(width=_WIDTH, seeds=_SEEDS, epochs=_EPOCHS)
        return race(DEQ(_ACTIVATIONS[0], sigma_a2), train, test, settings, progress=True)
    finally:
        torch.set_num_threads(threads)
