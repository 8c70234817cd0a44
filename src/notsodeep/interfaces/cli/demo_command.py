"""`notsodeep demo`: the whole story on handwritten digits."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from notsodeep.errors import MissingExtraError
from notsodeep.extras import needed
from notsodeep.files import free_path
from notsodeep.interfaces.cli import options
from notsodeep.interfaces.cli.common import (
    app,
    console,
    errors,
    figures_if_installed,
    print_distance,
    say,
    spinner,
)

if TYPE_CHECKING:
    from markupsafe import Markup

    from notsodeep.interfaces.report import Section
    from notsodeep.nets.race import Race

_ACTIVATIONS = ("tanh", "relu", "swish")
_KERNEL_COLUMNS = (
    "φ", "CK", "NTK", "Newton steps", "error below", "norm of CK", "rank for 99 % of CK",
)  # fmt: skip
_WIDTH, _SEEDS, _EPOCHS = 512, 2, 10


@dataclass
class _Story:
    """What is known so far, for the page."""

    sigma_a2: float
    rows: Any
    labels: Any
    figures: Any  # the package of figures, or None where matplotlib is not installed
    sections: list[Section] = field(default_factory=list)

    def add(self, title: str, *body: Any) -> None:
        """One more part of the page; plain text becomes a paragraph."""
        from notsodeep.interfaces.report.rendering import Section, as_paragraph

        parts = tuple(as_paragraph(part) for part in body if part is not None)
        self.sections.append(Section(title, parts, f"part-{len(self.sections) + 1}"))

    def picture(self, figure: Any, description: str) -> Markup:
        """A figure for the page."""
        from notsodeep.interfaces.report.rendering import picture

        return picture(self.figures.svg(figure), description)


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Where the figure goes (png, svg or pdf).")] = Path(
        "notsodeep-demo.png"
    ),
    page: Annotated[Path, typer.Option(help="Where the page goes.")] = Path("notsodeep-demo.html"),
    samples: Annotated[
        int, typer.Option(min=20, help="How many digits to take kernels of, 1437 at most.")
    ] = 1000,
    sigma_a2: options.Variance = 0.2,
    train: Annotated[bool, typer.Option(help="Train a DEQ, its twin and a plain network.")] = True,
    overwrite: options.Overwrite = False,
) -> None:
    """An infinitely deep network, its kernel, and the shallow network that replaces it, in under two minutes.

    On scikit-learn's digits: exact conjugate and tangent kernels (CK: inner products of the features; NTK: what
    gradient descent sees) of deep equilibrium models of infinite width; how closely four scalars give them without
    the n × n matrix; the explicit network designed to have the same kernel; both trained, with accuracy and speed; and
    a page that shows it all.
    """
    from notsodeep.data import Preprocessing, load

    data = load("digits", n=samples)
    story = _Story(sigma_a2, Preprocessing.fit(data.X).apply(data.X), data.y, figures_if_installed())
    path = free_path(output, overwrite)
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
    console.print(f"Page: [bold]{_write_page(story, page, overwrite)}[/]", highlight=False)
    say("Your own data:  notsodeep kernel --help")


def _show_kernels(story: _Story, path: Path) -> None:
    """Exact kernels of three models: a table, and the figure."""
    from notsodeep.interfaces.report.rendering import parts

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
    printed = Table(*_KERNEL_COLUMNS)
    for row in cells:
        printed.add_row(*row)
    console.print(printed)
    drawn = None
    if story.figures is not None:
        figure, panels = story.figures.new_figure(2, height=2.9)
        story.figures.plot_kernel(kernels[0], story.labels, panels[0], title="tanh DEQ, conjugate kernel")
        story.figures.plot_eigenvalues(spectra, panels[1], title="exact spectra, infinite depth and width")
        story.figures.save(figure, path)
        drawn = story.picture(figure, "kernel matrix sorted by digit, and spectra of the kernels")
    story.add(
        "1. A deep equilibrium model and its exact kernel",
        "A deep equilibrium model outputs the fixed point z = φ(σ_a A z + σ_b B x)/√m: an infinitely deep network "
        "with one layer of weights. At infinite width its kernels are solved for exactly, here on "
        f"{len(story.rows)} handwritten digits. CK: inner products of the features. NTK: what gradient descent on "
        "all weights sees.",
        drawn,
        parts().table(_KERNEL_COLUMNS, cells, "exact kernels"),
    )


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
    evidence = [str(info.iterations) if info.iterations else "closed form", f"{info.error_bound:.0e}"]
    summary = [f"{values[f'{name} CK'][-1]:.1f}", str(int(np.searchsorted(share, 0.99)) + 1)]
    return [name, *times, *evidence, *summary], values, ck


def _show_equivalents(story: _Story) -> None:
    """How far four scalars, or the refined form, go on these digits."""
    from notsodeep.data import MixtureStatistics
    from notsodeep.equivalents import equivalence_error
    from notsodeep.interfaces.report.rendering import parts
    from notsodeep.models import DEQ

    model = DEQ("tanh", story.sigma_a2)
    stats = MixtureStatistics.estimate(story.rows, story.labels)
    asymptotic = float(equivalence_error(model, story.rows, stats))
    refined = float(equivalence_error(model, story.rows, form="refined", order=3, square="sketch"))
    say(
        f"Without the n × n matrix (tanh CK): four scalars leave {asymptotic:.1%}, the refined equivalent "
        f"{refined:.2%} of its norm."
    )
    story.add(
        "2. What of the model its kernel depends on",
        "On high-dimensional data the kernel is close to one that depends on the activation through four scalars "
        "only, and is a sum of products of thin matrices: no n × n matrix is needed. Digits of 64 pixels are "
        "hardly high-dimensional; the refined form, which keeps what is lost at finite dimension, is close all the "
        "same.",
        parts().table(
            ("equivalent of the tanh CK", "distance to the exact kernel, relative to its norm"),
            [("four scalars", f"{asymptotic:.1%}"), ("refined", f"{refined:.2%}")],
            "equivalents",
        ),
    )


def _show_twin(story: _Story) -> None:
    """The explicit network with the same scalars."""
    from notsodeep.designs import design as make_design
    from notsodeep.interfaces.report.sections import design_body
    from notsodeep.interfaces.scenario import typical_norm
    from notsodeep.models import DEQ

    made = make_design(DEQ("tanh", story.sigma_a2), typical_norm(story.rows))
    say(f"Its explicit twin: {made.network}")
    near, far = print_distance(made, story.rows)["ck"]
    story.add(
        "3. The shallow network with the same kernel",
        f"On these digits the exact kernel of the designed network is {near:.2g} away from that of the DEQ "
        f"(relative to its norm), that of the DEQ's own activation in one plain layer {far:.2g}.",
        design_body(made),
    )


def _show_training(story: _Story) -> None:
    """A DEQ, its twin and a plain network, trained alike."""
    from notsodeep.interfaces.report.sections import training_body

    result = _race(story.sigma_a2)
    if result is None:
        return
    table = Table("model", "test accuracy", "agrees with DEQ", "1000 samples")
    for one in result.standings:
        agreement = "" if one.agreement is None else f"{one.agreement:.1%}"
        table.add_row(one.model, f"{one.accuracy:.1%}", agreement, f"{1e3 * one.inference_seconds:.3g} ms")
    console.print(table)
    deq, twin = (next(one for one in result.standings if one.model == name) for name in ("deq", "twin"))
    faster = deq.inference_seconds / twin.inference_seconds
    verdict = (
        f"the twin chooses the same class as the DEQ for {twin.agreement:.1%} of the test digits, a second DEQ for "
        f"{deq.agreement:.1%}; it answers {faster:{'.0f' if faster > 10 else '.2g'}} times as fast."
    )
    say(f"Trained alike (width {_WIDTH}, readout, {_SEEDS} seeds): {verdict}")
    shared = {"data": "digits", "width": _WIDTH, "train": "readout", "lr": result.lr, "seeds": _SEEDS}
    rows = [shared | row for row in result.as_dicts()]
    drawn = None
    if story.figures is not None:
        from notsodeep.papers import draw

        figure = draw("twins", [{"kind": "race", **row} for row in rows])
        drawn = story.picture(figure, "accuracy, agreement, time and memory of the three models")
    story.add(
        "4. Both trained",
        f"Only the readout is trained, {_EPOCHS} epochs, with the same data and the same learning rate for all, on "
        f"one thread: {verdict}",
        drawn,
        training_body(rows),
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
        return race(DEQ("tanh", sigma_a2), train, test, settings, progress=True)
    finally:
        torch.set_num_threads(threads)


def _write_page(story: _Story, path: Path, overwrite: bool) -> Path:
    from notsodeep.interfaces.report.rendering import as_paragraph, page, write_page

    opening = as_paragraph(
        "A deep equilibrium model is an infinitely deep network. Here is what kernel it has, what that kernel depends "
        "on, and a shallow network that has the same one."
    )
    content = page("Not so deep after all", [opening], story.sections, "notsodeep demo")
    return write_page(content, path, overwrite=overwrite)
