"""Figures are looked at through their artists; files are whole or not there."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import notsodeep as nsd
from notsodeep import figures
from notsodeep.designs import design


def test_a_figure_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    figure, _ = figures.new_figure()
    with pytest.raises(ValueError, match="nonsense"):
        figures.save(figure, tmp_path / "picture.nonsense")
    assert list(tmp_path.iterdir()) == []
    assert figures.save(figure, tmp_path / "new" / "picture.svg").stat().st_size > 0


@pytest.mark.slow
def test_a_spectrum_is_drawn_with_its_isolated_eigenvalues() -> None:
    mixture = nsd.GaussianMixture.paper(80)
    spectrum = nsd.limiting_density(nsd.DEQ("tanh", 0.2), mixture, 100)
    exact = np.linalg.eigvalsh(nsd.conjugate_kernel(nsd.DEQ("tanh", 0.2), mixture.sample(100)[0]))
    axes = figures.plot_spectrum(spectrum, exact)
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["exact kernel", "predicted, no data", "isolated, predicted", "isolated, exact"]
    np.testing.assert_array_equal(axes.get_lines()[1].get_xdata(), spectrum.isolated)


def test_a_design_is_drawn_by_its_kernel_entries() -> None:
    made = design(nsd.DEQ("relu", 0.2), 1.0)
    X = np.random.default_rng(1).standard_normal((20, 30)) / np.sqrt(30)
    axes = figures.plot_design(made, X=X)
    plain, twin = axes.get_lines()[:2]
    kernel = nsd.conjugate_kernel(made.model, X)
    entries = kernel[np.triu_indices(20)] / np.diag(kernel).mean()
    np.testing.assert_allclose(twin.get_xdata(), entries)
    assert np.abs(twin.get_ydata()).max() < 0.05 * np.abs(plain.get_ydata()).max()
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [label.partition(":")[0] for label in labels] == ["plain layer", "twin"]
    assert len(figures.plot_design(made).get_lines()[0].get_xdata()) == 60 * 61 // 2


def test_a_design_whose_model_was_not_saved_is_refused() -> None:
    made = design(nsd.DEQ(nsd.custom_activation(np.tanh), 0.2), 1.0, family="injected")
    with pytest.raises(nsd.InputError, match="custom activation"):
        figures.plot_design(replace(made, model=None))
