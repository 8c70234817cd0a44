"""Parts of the page: samples, the design, the kernel, and what to take away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from notsodeep.designs import INJECTED_IN_WORDS
from notsodeep_lab.explorer import computations, exports
from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.page_errors import errors_on_page
from notsodeep_lab.explorer.pictures import drawn, picture_of
from notsodeep_lab.explorer.recipes import as_commands, as_python, on_short_lines
from notsodeep_lab.explorer.words import next_steps, plain, spectrum_words, verdict

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
    """A figure with its caption, and its description for those who cannot see it."""
    one = picture_of(kind, choice)
    place.image(drawn(kind, choice, is_dark()), width="stretch", alt=one.words)
    place.caption(one.caption)


def show_samples(place: DeltaGenerator, choice: Choice) -> None:
    """What was done to the rows of a file, and what is unusual about them."""
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
    """The design with its four numbers, the spectrum and its prediction, and how good the theory is."""
    if choice.images:
        _show_image_design(choice)
        return
    computations.start_prediction(choice)
    columns = (st.columns(2, gap="large"), st.columns(2, gap="large"))
    (activations, twin), (spectrum, errors) = columns
    below = st.container()
    show_design(activations, twin, choice)
    with errors_on_page(errors):
        show_errors(errors, choice)
    with errors_on_page(spectrum):
        show_spectrum(spectrum, choice)
        show_next_steps(below, choice)


def _show_image_design(choice: Choice) -> None:
    """The twin of a convolutional network: its layers; spectra are predicted for rows alone."""
    made = computations.design_of(choice)
    left, right = st.columns(2, gap="large")
    left.subheader("The activations", anchor=False)
    show_picture(left, "activations", choice)
    right.subheader("The twin", anchor=False)
    for line in made.explain().splitlines():
        right.markdown(plain(line))
    right.caption("Spectra and their prediction are shown for networks of rows.")


# --- design -------------------------------------------------------------------------------------------


def show_design(left: DeltaGenerator, right: DeltaGenerator, choice: Choice) -> None:
    """The verdict in words, the activations, and the scalars wanted and reached."""
    made, found = computations.design_of(choice), computations.distances_of(choice)
    good = (made.exact or made.misfit is not None) and found.is_clearly_closer
    left.subheader("The activations", anchor=False)
    show_picture(left, "activations", choice)
    right.subheader("Is there a shallow twin?", anchor=False)
    (right.success if good else right.warning)(
        plain(verdict(made, found)), icon=":material/check_circle:" if good else ":material/info:"
    )
    _show_layers(right, made)
    right.table(scalar_rows(made), width="stretch")
    right.caption(
        "Four numbers of the activation decide the kernel in high dimension: wanted by the DEQ, reached by the twin."
        if made.misfit is None
        else plain(INJECTED_IN_WORDS)
    )
    with right.expander("The verdict at length"):
        for line in made.explain().splitlines():
            st.markdown(plain(line))


def _show_layers(place: DeltaGenerator, made: Design) -> None:
    for number, layer in enumerate(made.layer_words(), 1):
        place.markdown(f"Layer {number}: {plain(layer)}")


def scalar_rows(made: Design) -> dict[str, list[str]]:
    """The table of the design as columns of text."""
    names, (wanted, reached) = list(made.residuals), made.scalar_columns()
    return {
        "number": [f"{name}: {_SCALARS[name]}" for name in names],
        "wanted": [f"{value:.6g}" for value in wanted],
        "reached": [f"{value:.6g}" for value in reached],
        "off by": [f"{made.residuals[name]:.1e}" for name in names],
    }


# --- kernel -------------------------------------------------------------------------------------------


def show_spectrum(place: DeltaGenerator, choice: Choice) -> None:
    """Exact eigenvalues, their prediction, and how the two compare."""
    found = computations.spectrum_of(choice)
    place.subheader("The spectrum", anchor=False)
    show_picture(place, "spectrum", choice)
    place.markdown(plain(spectrum_words(found)))


def show_errors(place: DeltaGenerator, choice: Choice) -> None:
    """The error of the formulas against n, and how close the twin is on these samples."""
    place.subheader("How good is the theory?", anchor=False)
    show_picture(place, "errors", choice)
    place.markdown(plain(str(computations.distances_of(choice))))


def show_next_steps(place: DeltaGenerator, choice: Choice) -> None:
    """What is worth trying next."""
    steps = next_steps(choice, computations.design_of(choice), computations.spectrum_of(choice))
    place.markdown("**Try next**\n" + "\n".join(f"- {plain(step)}" for step in steps))


# --- to take away -------------------------------------------------------------------------------------


def show_recipes(choice: Choice) -> None:
    """Exactly what is shown, as Python and as commands; each has a button that copies it."""
    st.subheader("Take it with you", anchor=False)
    python, shell = st.tabs(["Copy as Python", "Copy as command"])
    python.code(as_python(choice), language="python", wrap_lines=True)
    shell.code(on_short_lines(as_commands(choice)), language="bash", wrap_lines=True)
    if choice.data.source == "file":
        st.caption("Both read the file by its name: run them in the folder that holds it.")


def show_downloads(choice: Choice) -> None:
    """The design, the figures and the report, each made when it is asked for."""
    design, figures, report = st.columns(3)
    shared: dict[str, Any] = {"on_click": "ignore", "width": "stretch"}
    design.download_button(
        "Design (JSON)", lambda: computations.design_of(choice).to_json(), "design.json", "application/json",
        key="download_design", help="Load it again with notsodeep.Design.load.", **shared,
    )  # fmt: skip
    figures.download_button(
        "Figures (PNG, SVG)", lambda: exports.figures_zip(choice), "figures.zip", "application/zip",
        key="download_figures", help="All figures of this page, light, as files for slides and papers.", **shared,
    )  # fmt: skip
    report.download_button(
        "Report (HTML)", lambda: exports.report_page(choice), "report.html", "text/html",
        key="download_report", help="One file with everything: to send, to print, to read on a phone.", **shared,
    )  # fmt: skip
