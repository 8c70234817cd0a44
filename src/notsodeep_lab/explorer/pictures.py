"""Figures of what was computed, for the page and as files to take away; drawn once for each state of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from notsodeep import figures
from notsodeep.cli.scenario import ErrorPoint
from notsodeep.designs import Design
from notsodeep.figures.row_selection import words
from notsodeep.learning import LearningCurve
from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.computations import Spectrum, design_of, errors_of, samples_of, spectrum_of
from notsodeep_lab.explorer.first_screen import CallTimes, curves_of, has_labels, times_of
from notsodeep_lab.plots.bar_plots import plot_times
from notsodeep_lab.plots.experiment_lines import plot_epochs
from notsodeep_lab.plots.row_spectra import plot_spectra

if TYPE_CHECKING:
    from notsodeep.distillation import Distilled

KINDS = ("activations", "curves", "times", "spectrum", "errors")
_HEIGHT, _LINE = 2.4, 0.17  # inches: of a figure, and of a line of a legend under it


@dataclass(frozen=True)
class Picture:
    """A figure that can be drawn again, light for files and light or dark for the page.

    Attributes:
        name: of the file, without its ending.
        words: what is seen, for those who cannot see it.
        caption: what it means, under the figure.
        draw: draws it into axes.
        below: lines of its legend, where that stands under the axes.
    """

    name: str
    words: str
    caption: str
    draw: Callable[[Any], Any]
    below: int = 0

    def on_page(self, *, dark: bool) -> str:
        """The figure as SVG text for the page; its margins are fixed, which halves the time to draw it."""
        figure, axes = figures.quick_panel(_HEIGHT + _LINE * self.below, self.below)
        self.draw(axes)
        return (figures.dark_svg if dark else figures.svg)(figure).decode("utf-8")

    def svg(self) -> bytes:
        """The figure as the content of an SVG file."""
        return figures.svg(self._figure())

    def png(self) -> bytes:
        """The figure as the content of a PNG file, for slides."""
        return figures.png(self._figure())

    def _figure(self) -> Any:
        figure, panels = figures.new_figure(height=_HEIGHT + _LINE * self.below)
        self.draw(panels[0])
        return figure


def picture_of(kind: str, choice: Choice) -> Picture:
    """The figure of a choice: one of `kinds_of`."""
    if kind == "activations":
        return _activations(design_of(choice))
    if kind == "curves":
        return _curves(curves_of(choice) or {}, is_from_law=samples_of(choice.data).law is not None)
    if kind == "times":
        return _times(times_of(choice))
    if kind == "spectrum":
        return _spectrum(spectrum_of(choice))
    return _errors(choice, errors_of(choice))


def kinds_of(choice: Choice) -> tuple[str, ...]:
    """The figures that a choice has: no learning curve without labels, no equivalents of kernels of images."""
    missing = set() if has_labels(choice) else {"curves"}
    if choice.images:
        missing |= {"spectrum", "errors"}
    return tuple(kind for kind in KINDS if kind not in missing)


@lru_cache(maxsize=64)
def drawn(kind: str, choice: Choice, dark: bool) -> str:
    """A figure of a choice as SVG text, drawn once for each choice and theme."""
    return picture_of(kind, choice).on_page(dark=dark)


def _activations(made: Design) -> Picture:
    """The DEQ's activation and the designed ones."""
    layers = len(made.network.layers)
    return Picture(
        "activations",
        f"Curves of the activation of the DEQ and of the {layers} designed layer{'s' * (layers > 1)}.",
        "Each curve is drawn over the range that its inputs really take. The curves need not look alike: what counts "
        "are four numbers, which the view Twin and kernel has.",
        lambda axes: figures.plot_design(made, axes),
        below=layers + 1,
    )


def _curves(curves: Mapping[str, LearningCurve], *, is_from_law: bool) -> Picture:
    """Predicted learning curves of the DEQ, its twin and one plain layer."""
    last = ", ".join(
        f"{words(name)} {curve.accuracy[-1]:.1%}"
        if curve.is_classification
        else f"{words(name)} {curve.mse[-1]:.3g}"
        for name, curve in curves.items()
    )
    origin = (
        "Predicted from the law of the classes, without a sample"
        if is_from_law
        else "Predicted from a part of the samples; thin: beyond them, by theory"
    )
    return Picture(
        "curves",
        f"Predicted test accuracy or error against the number of training samples; at the largest number: {last}.",
        f"{origin}. Bands: where nine of ten training sets end. Where the dashed line of the twin covers the DEQ's, "
        "nothing is lost.",
        lambda axes: figures.plot_learning_curves(curves, axes),
    )


def _times(found: CallTimes) -> Picture:
    """Milliseconds of a call of the three networks."""
    said = ", ".join(f"{words(name)} {value:.3g} ms" for name, value in found.milliseconds.items())
    return Picture(
        "times",
        f"Bars: the time of one call of each network: {said}.",
        f"Processor time on this machine for a batch of {found.batch}, width {found.width}. The DEQ solves for its "
        "equilibrium in every call; the others go through their layers once.",
        lambda axes: plot_times(found.milliseconds, axes),
    )


def _spectrum(found: Spectrum) -> Picture:
    """Exact eigenvalues and their prediction."""
    if found.limit is not None:
        limit = found.limit
        return Picture(
            "spectrum",
            f"Histogram of the {len(found.exact)} exact eigenvalues, the predicted density as a line over it, and "
            f"{len(limit.isolated)} predicted isolated eigenvalues as markers.",
            "Bars: eigenvalues of the exact kernel matrix of the samples. Line: their density, predicted without "
            "looking at a single sample. Diamonds: predicted eigenvalues outside the bulk, where the classes show; "
            "crosses: exact ones.",
            lambda axes: figures.plot_spectrum(limit, found.exact, axes),
        )
    rows: list[dict[str, Any]] = [
        {"kind": "spectrum", "source": "deq", "label": "exact kernel", "eigenvalues": found.exact},
        {
            "kind": "spectrum",
            "source": "refined",
            "label": "four scalars and X",
            "eigenvalues": found.equivalent,
        },
    ]
    return Picture(
        "spectrum",
        "Histograms of the exact eigenvalues and of those of the formula that stands for the kernel.",
        "Filled: eigenvalues of the exact kernel matrix. Line: those of the formula that the theory puts in its place. "
        "The distribution of real data is not known, so that here the prediction looks at the samples.",
        lambda axes: plot_spectra(rows, axes),
    )


def _errors(choice: Choice, points: tuple[ErrorPoint, ...]) -> Picture:
    """The error of the equivalents against n."""
    rows = [point.as_row() for point in points]
    if choice.data.source in ("mixture", "sphere"):
        promise = "with p/n kept. The theory promises that the error falls"
    else:
        promise = "on parts of the rows. Their dimension stays, so that nothing promises that the error falls"
    last = ", ".join(f"{point.form} {point.relative:.2g}" for point in points if point.n == points[-1].n)
    return Picture(
        "errors",
        f"Relative error of the formulas against the number of samples n; at the largest n: {last}.",
        f"How far the theory's formulas are from the exact kernel matrix as n grows, {promise}; the refined formula "
        "has in it what is known of finite n.",
        lambda axes: figures.plot_errors(rows, axes, by=("form",)),
    )


def race_picture(rows: list[dict[str, Any]]) -> Picture:
    """Test accuracy by epoch."""
    return Picture(
        "race",
        "Test accuracy of the DEQ, its twin and a plain network after each epoch.",
        "If the theory holds, the twin's line stays with the DEQ's. The plain network has the DEQ's own activation "
        "and no design.",
        lambda axes: plot_epochs(rows, axes),
    )


def front_picture(found: Distilled) -> Picture:
    """Time against disagreement with the teacher, of every candidate of a distillation."""
    return Picture(
        "front",
        f"Time against the share of images with another class than the DEQ's, of {len(found.candidates)} candidates; "
        f"chosen: {found.name}.",
        "Down and left is better: faster, and more often of the DEQ's opinion.",
        lambda axes: figures.plot_front(found, axes),
    )
