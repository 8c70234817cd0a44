"""The figures of the page, also for download; each is drawn once for each state of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from notsodeep import figures
from notsodeep.designs import Design
from notsodeep.learning import LearningCurve
from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.computations import KernelSpectrum, design_of, samples_of, spectrum_of
from notsodeep_lab.explorer.first_screen import CallTimes, curves_of, has_labels, times_of
from notsodeep_lab.plots.bar_plots import plot_times
from notsodeep_lab.plots.experiment_lines import plot_epochs
from notsodeep_lab.plots.learning_plots import plot_learning_curves
from notsodeep_lab.plots.page_figures import dark_svg, quick_panel
from notsodeep_lab.plots.row_selection import words
from notsodeep_lab.plots.row_spectra import plot_spectra

if TYPE_CHECKING:
    from notsodeep.distillation import Distilled

KINDS = ("activations", "curves", "times", "spectrum")
_HEIGHT, _LINE = 2.4, 0.17  # inches: of a figure, and of a line of a legend under it


@dataclass(frozen=True)
class Picture:
    """A figure of the page: drawn light for files, light or dark for the page.

    Attributes:
        name: name of the file, without extension.
        words: description of the figure, for screen readers.
        caption: caption below the figure.
        draw: function that draws into given axes.
        below: number of lines of a legend below the axes.
    """

    name: str
    words: str
    caption: str
    draw: Callable[[Any], Any]
    below: int = 0

    def on_page(self, *, dark: bool) -> str:
        """Draw the figure as SVG text for the page; fixed margins halve the time."""
        figure, axes = quick_panel(_HEIGHT + _LINE * self.below, self.below)
        self.draw(axes)
        return (dark_svg if dark else figures.svg)(figure).decode("utf-8")

    def svg(self) -> bytes:
        """Draw the figure as the content of an SVG file."""
        return figures.svg(self._figure())

    def png(self) -> bytes:
        """Draw the figure as the content of a PNG file."""
        return figures.png(self._figure())

    def _figure(self) -> Any:
        figure, panels = figures.new_figure(height=_HEIGHT + _LINE * self.below)
        self.draw(panels[0])
        return figure


def picture_of(kind: str, choice: Choice) -> Picture:
    """Return one of the figures in `kinds_of(choice)`."""
    if kind == "activations":
        return _activations(design_of(choice))
    if kind == "curves":
        return _curves(curves_of(choice) or {}, is_from_law=samples_of(choice.data).law is not None)
    if kind == "times":
        return _times(times_of(choice))
    return _spectrum(spectrum_of(choice))


def kinds_of(choice: Choice) -> tuple[str, ...]:
    """List the figures of a choice: no learning curve without labels, no spectra for images."""
    missing = set() if has_labels(choice) else {"curves"}
    if choice.images:
        missing.add("spectrum")
    return tuple(kind for kind in KINDS if kind not in missing)


@lru_cache(maxsize=64)
def drawn(kind: str, choice: Choice, dark: bool) -> str:
    """Draw a figure as SVG text, cached by choice and theme."""
    return picture_of(kind, choice).on_page(dark=dark)


def _activations(designed: Design) -> Picture:
    """The DEQ's activation and the designed ones."""
    layers = len(designed.network.layers)
    return Picture(
        "activations",
        f"Curves of the activation of the DEQ and of the {layers} designed layer{'s' * (layers > 1)}.",
        "Each curve is drawn over the range of its inputs. The curves need not look alike: four scalars decide, which "
        "the view Twin and kernel lists.",
        lambda axes: figures.plot_design(designed, axes),
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
        "Predicted from the distribution of the classes, without samples"
        if is_from_law
        else "Predicted from a subset of the samples; thin lines: extrapolated beyond them"
    )
    return Picture(
        "curves",
        f"Predicted test accuracy or error against the number of training samples; at the largest number: {last}.",
        f"{origin}. Bands: nine of ten training sets. Where the dashed line of the twin covers that of the DEQ, "
        "the twin is as accurate.",
        lambda axes: plot_learning_curves(curves, axes),
    )


def _times(times: CallTimes) -> Picture:
    """Milliseconds of a call of the three networks."""
    listed = ", ".join(f"{words(name)} {value:.3g} ms" for name, value in times.milliseconds.items())
    return Picture(
        "times",
        f"Bars of the time of one call of each network: {listed}.",
        f"Processor time on this machine for a batch of {times.batch} at width {times.width}. The DEQ solves for its "
        "equilibrium in every call; the other networks evaluate their layers once.",
        lambda axes: plot_times(times.milliseconds, axes),
    )


def _spectrum(spectrum: KernelSpectrum) -> Picture:
    """Exact eigenvalues and their prediction."""
    if spectrum.limit is not None:
        limit = spectrum.limit
        return Picture(
            "spectrum",
            f"Histogram of the {len(spectrum.exact)} exact eigenvalues, the predicted density as a line, and "
            f"{len(limit.isolated)} predicted isolated eigenvalues as markers.",
            "Bars: eigenvalues of the exact kernel matrix of the samples. Line: their density, predicted without any "
            "samples. Diamonds: predicted eigenvalues outside the bulk, which show the classes; crosses: exact ones.",
            lambda axes: figures.plot_spectrum(limit, spectrum.exact, axes),
        )
    rows: list[dict[str, Any]] = [
        {"kind": "spectrum", "source": "deq", "label": "exact kernel", "eigenvalues": spectrum.exact},
        {
            "kind": "spectrum",
            "source": "refined",
            "label": "refined equivalent",
            "eigenvalues": spectrum.equivalent,
        },
    ]
    return Picture(
        "spectrum",
        "Histograms of the eigenvalues of the exact kernel and of its equivalent.",
        "Filled: eigenvalues of the exact kernel matrix. Line: those of its equivalent, the formula of the theory. "
        "The distribution of real data is unknown, so this prediction uses the samples.",
        lambda axes: plot_spectra(rows, axes),
    )


def race_picture(rows: list[dict[str, Any]]) -> Picture:
    """Test accuracy by epoch."""
    return Picture(
        "race",
        "Test accuracy of the DEQ, its twin and a plain network after each epoch.",
        "If the theory holds, the twin's line follows the DEQ's. The plain network has the DEQ's activation in every "
        "layer.",
        lambda axes: plot_epochs(rows, axes),
    )


def front_picture(distilled: Distilled) -> Picture:
    """Time against disagreement with the teacher, for every candidate of a distillation."""
    return Picture(
        "front",
        f"Time against the share of images classified differently from the DEQ, for {len(distilled.candidates)} "
        f"candidates; chosen: {distilled.name}.",
        "Lower left is better: faster, and in agreement with the DEQ more often.",
        lambda axes: figures.plot_front(distilled, axes),
    )
