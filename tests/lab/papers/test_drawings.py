"""The figure of every experiment, looked at through its artists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from figure_rows import SAMPLES, accuracies, errors, hld
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from notsodeep import figures
from notsodeep.errors import InputError
from notsodeep.figures.style import PAGE, SMALLEST
from notsodeep_lab.papers.drawings import DRAWINGS, draw
from notsodeep_lab.plots.bar_plots import plot_race
from notsodeep_lab.plots.experiment_lines import plot_accuracy
from notsodeep_lab.plots.row_spectra import plot_spectra

NAMES = sorted(SAMPLES)


def labels_of(axes: Axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


def test_every_figure_has_sample_rows() -> None:
    assert set(SAMPLES) == set(DRAWINGS)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_legible_in_a_paper(name: str) -> None:
    drawn = draw(name, SAMPLES[name])
    canvas = FigureCanvasAgg(drawn)
    canvas.draw()
    assert drawn.get_figwidth() <= PAGE
    shown = [text for text in drawn.findobj(Text) if text.get_text() and text.get_visible()]
    assert min(text.get_fontsize() for text in shown) >= SMALLEST
    legends = [*drawn.legends, *(legend for axes in drawn.axes if (legend := axes.get_legend()))]
    explained = {text.get_text() for legend in legends for text in legend.get_texts()}
    for axes in drawn.axes:
        assert set(labels_of(axes)) <= explained
        assert axes.get_xlabel() or any(label.get_text() for label in axes.get_xticklabels())
        assert axes.get_ylabel()
        assert axes.get_title()
        for text in (axes.title, axes.xaxis.label, axes.yaxis.label):
            box = text.get_window_extent(canvas.get_renderer())
            assert -1.0 <= box.x0 <= box.x1 <= drawn.bbox.x1 + 1.0, f"{text.get_text()} leaves the picture"


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_rows_give_the_same_file(ending: str, tmp_path: Path) -> None:
    files = [
        figures.save(draw("icml-error", SAMPLES["icml-error"]), tmp_path / f"{number}.{ending}")
        for number in range(2)
    ]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].stat().st_size > 1000


def test_accuracy_is_the_mean_over_seeds_with_its_deviation() -> None:
    rows = [row for row in accuracies() if row["data"] == "mnist" and row["activation"] == "relu"]
    axes = plot_accuracy(rows)
    assert labels_of(axes) == ["DEQ", "explicit twin", "plain network"]
    expected = [row["accuracy"] for row in rows if row["model"] == "twin" and row["width"] == 64]
    line = axes.containers[1].lines
    place = list(line[0].get_xdata()).index(64)
    assert line[0].get_ydata()[place] == pytest.approx(100 * np.mean(expected))
    low, high = line[2][0].get_segments()[place][:, 1]
    assert (high - low) / 2 == pytest.approx(100 * np.std(expected, ddof=1))


def test_the_line_beside_errors_falls_with_the_root() -> None:
    axes = figures.plot_errors(errors(("asymptotic",), ("features",)))
    slope = next(line for line in axes.get_lines() if "{-1/2}" in str(line.get_label()))
    x, y = np.log(slope.get_xdata()), np.log(slope.get_ydata())
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(-0.5)
    lowest = min(float(line.lines[0].get_ydata().min()) for line in axes.containers)
    assert slope.get_ydata()[-1] < lowest


def test_no_line_stands_beside_errors_that_do_not_fall() -> None:
    """As on real data, whose dimension stays: 0.4 % at n = 125, 0.85 % at 250, 0.5 % at 1000."""
    sizes = zip((125, 250, 1000), (0.004, 0.0085, 0.0052), strict=True)
    rows = [{"kind": "error", "form": "refined", "n": n, "relative": error} for n, error in sizes]
    axes = figures.plot_errors(rows, by=("form",))
    assert labels_of(axes) == ["refined equivalent"]


def test_histograms_count_every_eigenvalue_on_common_bins() -> None:
    rows = [row for row in hld() if row.get("kernel") == "preactivations"]
    axes = plot_spectra(rows, sources=("deq", "twin"))
    first, second = (patch.get_data() for patch in axes.patches)
    assert first.values.sum() == second.values.sum() == 202
    np.testing.assert_array_equal(first.edges, second.edges)
    assert labels_of(axes) == ["DEQ", "explicit twin"]
    assert "0.131" in axes.get_title()


@pytest.mark.slow
def test_a_paper_s_number_stands_beside_ours() -> None:
    rows = [row for row in SAMPLES["iclr-1"] if row["data"] == "mnist"]
    assert "0.131 (paper 1.57)" in plot_spectra(rows, sources=("deq", "equivalent")).get_title()
    assert plot_spectra(rows, sources=("deq", "refined")).get_title() == ""


def test_times_are_bars_from_zero_and_shares_are_points() -> None:
    rows = SAMPLES["twins"]
    bars = plot_race(rows, "inference_seconds")
    assert bars.get_ylim()[0] == 0.0
    assert [patch.get_height() for patch in bars.containers[1].patches] == pytest.approx([1e3 * 0.05 / 6] * 4)
    points = plot_race(rows, "accuracy")
    assert len(points.patches) == 0
    np.testing.assert_allclose(points.containers[1].lines[0].get_ydata(), 95.0)
    assert max(points.get_yticks()) <= 100.0


def test_a_model_that_was_not_measured_leaves_a_gap() -> None:
    rows = [row for row in SAMPLES["twins"] if row["model"] != "plain" or row["data"] == "mnist"]
    heights = [patch.get_height() for patch in plot_race(rows, "epoch_seconds").containers[2].patches]
    assert np.isnan(heights[:2]).all()
    assert np.isfinite(heights[2:]).all()


def test_distances_are_means_over_seeds_at_the_size_that_is_drawn() -> None:
    spectra = [
        {"kind": "spectrum", "source": source, "n": 2, "eigenvalues": [1.0, 2.0]}
        for source in ("twin", "deq")
    ]
    distance = {"kind": "distance", "kernel": "features", "first": "deq", "second": "twin", "reading": ""}
    measured = ((2, 0.1), (2, 0.3), (1, 5.0))
    distances = [distance | {"main": True, "n": n, "absolute": value} for n, value in measured]
    axes = plot_spectra([*spectra, *distances])
    assert axes.get_title() == "‖G − explicit twin‖ = 0.2"
    assert labels_of(axes) == ["DEQ", "explicit twin"]  # the model first, whatever the order of the rows


def test_two_spectra_of_one_source_are_told_apart() -> None:
    rows = [
        {"kind": "spectrum", "source": source, "label": label, "eigenvalues": [1.0, 2.0]}
        for source, label in (("deq", "a"), ("monte-carlo", "b"), ("monte-carlo", "c"))
    ]
    lines = plot_spectra(rows).patches[1:]
    assert lines[0].get_edgecolor() != lines[1].get_edgecolor()


def test_sources_that_are_not_there_are_refused() -> None:
    with pytest.raises(InputError, match="no spectrum of twin"):
        plot_spectra([{"kind": "spectrum", "source": "deq", "eigenvalues": [1.0]}], sources=("twin",))


def test_negative_eigenvalues_are_drawn_on_a_linear_axis() -> None:
    row = {"kind": "spectrum", "source": "deq", "eigenvalues": [-0.1, 0.2, 0.3, 90.0]}
    axes = plot_spectra([row])
    assert axes.get_xscale() == "linear"
    assert axes.patches[0].get_data().values.sum() == 4


def test_equal_eigenvalues_can_be_drawn() -> None:
    axes = plot_spectra([{"kind": "spectrum", "source": "deq", "eigenvalues": [1.0, 1.0]}])
    assert axes.patches[0].get_data().values.sum() == 2


@pytest.mark.slow
def test_names_are_never_formulas(tmp_path: Path) -> None:
    rows = [row | {"activation": r"$\frac{$", "data": "$x$ <b>"} for row in errors(("asymptotic",), ("ntk",))]
    assert figures.save(draw("icml-error", rows), tmp_path / "a.svg").stat().st_size > 1000


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_the_wanted_kind_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="Nothing to draw"):
        draw(name, [{"kind": "something else"}])


def test_an_unknown_figure_is_refused_with_the_names_that_are_there() -> None:
    with pytest.raises(InputError, match="icml-error"):
        draw("icml-errors", [])


def test_panels_can_be_drawn_into_given_axes() -> None:
    figure, panels = figures.new_figure(2)
    assert plot_accuracy(accuracies(), panels[0]) is panels[0]
    assert len(figure.axes) == 2
    assert panels[1].get_lines() == []
