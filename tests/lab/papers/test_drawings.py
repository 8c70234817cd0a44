"""The figures of the experiments, checked through their artists; test_catalogue.py draws each from its own rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from figure_rows import accuracies, errors, spectra
from matplotlib.axes import Axes

from notsodeep import figures
from notsodeep.errors import InputError
from notsodeep_lab.papers.drawings import draw
from notsodeep_lab.plots.experiment_lines import plot_accuracy_gaps, plot_errors
from notsodeep_lab.plots.row_spectra import plot_entries, plot_spectra


def labels_of(axes: Axes) -> list[str]:
    return axes.get_legend_handles_labels()[1]


def spectrum(source: str, *eigenvalues: float, **fields: object) -> dict[str, object]:
    return {"kind": "spectrum", "source": source, "eigenvalues": [*eigenvalues], **fields}


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_the_same_rows_give_the_same_file(ending: str, tmp_path: Path) -> None:
    # A name that would be a formula is drawn as text.
    rows = [row | {"activation": r"$\frac{$", "data": "$x$ <b>"} for row in errors(("asymptotic",), ("ntk",))]
    files = [figures.save(draw("icml-error", rows), tmp_path / f"{number}.{ending}") for number in range(2)]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[0].stat().st_size > 1000


def test_accuracy_is_a_difference_of_means_over_seeds_with_its_standard_error() -> None:
    rows = [row for row in accuracies() if row["data"] == "mnist"]
    _, panels = figures.new_figure(2)
    axes = plot_accuracy_gaps(rows, panels[0])
    assert axes is panels[0]
    assert panels[1].get_lines() == []
    assert labels_of(axes) == ["MNIST: explicit twin", "MNIST: plain network"]
    deq, twin = (
        [row["accuracy"] for row in rows if row["model"] == model and row["width"] == 64]
        for model in ("deq", "twin")
    )
    line = axes.containers[0].lines
    place = 1  # the second width
    assert line[0].get_ydata()[place] == pytest.approx(100 * (np.mean(twin) - np.mean(deq)))
    low, high = line[2][0].get_segments()[place][:, 1]
    error = np.sqrt((np.var(twin, ddof=1) + np.var(deq, ddof=1)) / len(twin))
    assert (high - low) / 2 == pytest.approx(100 * error)


def test_a_line_of_slope_minus_one_half_only_beside_errors_that_fall() -> None:
    axes = plot_errors(errors(("asymptotic",), ("features",)))
    slope = next(line for line in axes.get_lines() if "{-1/2}" in str(line.get_label()))
    x, y = np.log(slope.get_xdata()), np.log(slope.get_ydata())
    assert (y[1] - y[0]) / (x[1] - x[0]) == pytest.approx(-0.5)
    lowest = min(float(line.lines[0].get_ydata().min()) for line in axes.containers)
    assert slope.get_ydata()[-1] < lowest
    # On real data the dimension is fixed: 0.4 % at n = 125, 0.85 % at 250, 0.5 % at 1000.
    sizes = zip((125, 250, 1000), (0.004, 0.0085, 0.0052), strict=True)
    rows = [{"kind": "error", "form": "refined", "n": n, "relative": error} for n, error in sizes]
    assert labels_of(plot_errors(rows, by=("form",))) == ["refined equivalent"]


def test_histograms_have_common_bins_and_isolated_eigenvalues_are_ticks() -> None:
    axes = plot_spectra(spectra(), sources=("deq", "twin"))
    first, second = (patch.get_data() for patch in axes.patches)
    ticks = [line.get_xdata() for line in axes.get_lines()]
    assert [*map(len, ticks)] == [202 - patch.values.sum() for patch in (first, second)]
    assert all(values[-1] == 45.0 for values in ticks)
    np.testing.assert_array_equal(first.edges, second.edges)
    assert labels_of(axes) == ["DEQ", "explicit twin"]
    assert "0.131" in axes.get_title()


def test_entries_of_a_twin_are_drawn_over_those_of_a_plain_network() -> None:
    fields = {"kind": "entries", "deq": [0.1, 0.3]}
    pairs = {"plain": [0.2, 0.6], "twin": [0.1, 0.31]}
    rows = [fields | {"source": source, "approximation": values} for source, values in pairs.items()]
    axes = plot_entries(rows)
    plain, twin, diagonal = axes.get_lines()
    np.testing.assert_allclose(plain.get_ydata(), [0.1, 0.3])  # its best factor is a half
    np.testing.assert_allclose(twin.get_ydata(), pairs["twin"], rtol=0.04)
    assert plain.get_label() == "plain network, times 0.5"
    assert [*diagonal.get_xdata()] == [*diagonal.get_ydata()] == [0.1, 0.3]


def test_the_number_of_the_paper_is_shown_with_ours() -> None:
    rows = [row | {"paper": 1.57} for row in spectra(("deq", "equivalent", "refined"))]
    assert "0.131 (paper 1.57)" in plot_spectra(rows, sources=("deq", "equivalent")).get_title()
    assert plot_spectra(rows, sources=("deq", "refined")).get_title() == ""


def test_distances_are_means_over_seeds_at_the_size_that_is_drawn() -> None:
    pair = [spectrum(source, 1.0, 2.0, n=2) for source in ("twin", "deq")]
    distance = {"kind": "distance", "kernel": "features", "first": "deq", "second": "twin", "reading": ""}
    measured = ((2, 0.1), (2, 0.3), (1, 5.0))
    axes = plot_spectra(
        [*pair, *(distance | {"main": True, "n": n, "absolute": value} for n, value in measured)]
    )
    assert axes.get_title() == "‖G − explicit twin‖ = 0.2"
    assert labels_of(axes) == ["DEQ", "explicit twin"]  # the model first, whatever the order of the rows


def test_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="no spectrum of twin"):
        plot_spectra([spectrum("deq", 1.0)], sources=("twin",))
    with pytest.raises(InputError, match="icml-error"):
        draw("icml-errors", [])
