"""Panels of the page: samples, the design, the kernel, and export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from notsodeep.designs import INJECTED_IN_WORDS
from notsodeep_lab.explorer import computations, exports
from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.page_errors import errors_on_page
from notsodeep_lab.explorer.pictures import drawn, picture_of
from notsodeep_lab.explorer.recipes import as_commands, as_python, on_short_lines
from notsodeep_lab.explorer.words import design_summary, next_steps, plain, spectrum_summary

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from notsodeep.designs import Design

_SCALARS = {
    "diagonal": "size of its entries",
    "linear": "linear part",
    "norm": "sensitivity to the norms of the samples",
    "trace": "sensitivity to the covariances of the classes",
}


def is_dark() -> bool:
    """Whether the reader's theme is dark."""
    return getattr(st.context.theme, "type", None) == "dark"


def show_picture(place: DeltaGenerator, kind: str, choice: Choice) -> None:
    """Show a figure with its caption and a description for screen readers."""
    one = picture_of(kind, choice)
    place.image(drawn(kind, choice, is_dark()), width="stretch", alt=one.words)
    place.caption(one.caption)


def show_samples(place: DeltaGenerator, choice: Choice) -> None:
    """Say how the rows of a file were preprocessed, and warn if they are unusual."""
    samples = computations.samples_of(choice.data)
    if choice.data.is_file:
        place.caption(plain(" ".join([*samples.notes, _labels_in_words(choice)])))
    if samples.advice:
        place.warning(plain(samples.advice), icon=":material/straighten:")


def _labels_in_words(choice: Choice) -> str:
    upload = choice.data.upload
    if upload is None or upload.label_column is None:
        return ""
    return f"Labels: column {upload.label_column}."


def show_theory(choice: Choice) -> None:
    """Show the design with its four scalars, the spectrum and its prediction, and the kernel error."""
    if choice.images:
        _show_image_design(choice)
        return
    computations.start_prediction(choice)
    columns = (st.columns(2, gap="large"), st.columns(2, gap="large"))
    (activations, twin), (spectrum, distances) = columns
    below = st.container()
    show_design(activations, twin, choice)
    show_distances(distances, choice)
    with errors_on_page(spectrum):
        show_spectrum(spectrum, choice)
        show_next_steps(below, choice)


def _show_image_design(choice: Choice) -> None:
    """Show the layers of a convolutional twin; spectra are predicted for dense networks only."""
    designed = computations.design_of(choice)
    left, right = st.columns(2, gap="large")
    left.subheader("The activations", anchor=False)
    show_picture(left, "activations", choice)
    right.subheader("The twin", anchor=False)
    for line in designed.explain().splitlines():
        right.markdown(plain(line))
    right.caption("Spectra and their predictions are available for dense networks only.")


# --- design -------------------------------------------------------------------------------------------


def show_design(left: DeltaGenerator, right: DeltaGenerator, choice: Choice) -> None:
    """Show a summary of the design, the activations, and the target and reached scalars."""
    designed, distances = computations.design_of(choice), computations.distances_of(choice)
    good = (designed.exact or designed.misfit is not None) and distances.is_clearly_closer
    left.subheader("The activations", anchor=False)
    show_picture(left, "activations", choice)
    right.subheader("Is there a shallow twin?", anchor=False)
    (right.success if good else right.warning)(
        plain(design_summary(designed, distances)),
        icon=":material/check_circle:" if good else ":material/info:",
    )
    _show_layers(right, designed)
    right.table(scalar_rows(designed), width="stretch")
    right.caption(
        "In high dimension four scalars determine the kernel. Target: those of the DEQ; reached: those of the twin."
        if designed.misfit is None
        else plain(INJECTED_IN_WORDS)
    )
    with right.expander("Details of the design"):
        for line in designed.explain().splitlines():
            st.markdown(plain(line))


def _show_layers(place: DeltaGenerator, designed: Design) -> None:
    for number, layer in enumerate(designed.layer_words(), 1):
        place.markdown(f"Layer {number}: {plain(layer)}")


def scalar_rows(designed: Design) -> dict[str, list[str]]:
    """Return the table of the scalars as columns of text."""
    names, (target, reached) = list(designed.residuals), designed.scalar_columns()
    return {
        "scalar": [f"{name}: {_SCALARS[name]}" for name in names],
        "target": [f"{value:.6g}" for value in target],
        "reached": [f"{value:.6g}" for value in reached],
        "relative error": [f"{designed.residuals[name]:.1e}" for name in names],
    }


# --- kernel -------------------------------------------------------------------------------------------


def show_spectrum(place: DeltaGenerator, choice: Choice) -> None:
    """Show the exact eigenvalues, their prediction, and a comparison of the two."""
    spectrum = computations.spectrum_of(choice)
    place.subheader("The spectrum", anchor=False)
    show_picture(place, "spectrum", choice)
    place.markdown(plain(spectrum_summary(spectrum)))


def show_distances(place: DeltaGenerator, choice: Choice) -> None:
    """Show how close the twin is on these samples."""
    place.subheader("How close is the twin?", anchor=False)
    place.markdown(plain(str(computations.distances_of(choice))))


def show_next_steps(place: DeltaGenerator, choice: Choice) -> None:
    """Suggest what to try next."""
    steps = next_steps(choice, computations.design_of(choice), computations.spectrum_of(choice))
    place.markdown("**Try next**\n" + "\n".join(f"- {plain(step)}" for step in steps))


# --- export -------------------------------------------------------------------------------------------


def show_recipes(choice: Choice) -> None:
    """Show the script and the commands that reproduce the page, with buttons to copy them."""
    st.subheader("Export", anchor=False)
    python, shell = st.tabs(["Copy as Python", "Copy as command"])
    python.code(as_python(choice), language="python", wrap_lines=True)
    shell.code(on_short_lines(as_commands(choice)), language="bash", wrap_lines=True)
    if choice.data.source == "file":
        st.caption("Run them in the folder that contains your file.")


def show_downloads(choice: Choice) -> None:
    """Offer the design, the figures and the report for download; each is created on demand."""
    design, figures, report = st.columns(3)
    shared: dict[str, Any] = {"on_click": "ignore", "width": "stretch"}
    design.download_button(
        "Design (JSON)", lambda: computations.design_of(choice).to_json(), "design.json", "application/json",
        key="download_design", help="Load it again with notsodeep.Design.load.", **shared,
    )  # fmt: skip
    figures.download_button(
        "Figures (PNG, SVG)", lambda: exports.figures_zip(choice), "figures.zip", "application/zip",
        key="download_figures", help="All figures of this page in the light theme, for slides and papers.", **shared,
    )  # fmt: skip
    report.download_button(
        "Report (HTML)", lambda: exports.report_page(choice), "report.html", "text/html",
        key="download_report", help="Everything on this page in one file.", **shared,
    )  # fmt: skip
