"""The right side of the page: verdict, figures, race, and what to take away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from notsodeep.designs import INJECTED_IN_WORDS
from notsodeep.figures.row_selection import words
from notsodeep.interfaces.app import computations, exports
from notsodeep.interfaces.app.choice import Choice
from notsodeep.interfaces.app.pictures import drawn, picture_of, race_picture
from notsodeep.interfaces.app.race_job import MODES, MOST_EPOCHS, WIDTHS, RaceJob, RacePlan, epoch_rows
from notsodeep.interfaces.app.recipes import as_commands, as_python
from notsodeep.interfaces.app.words import next_steps, plain, spectrum_words, verdict

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

    from notsodeep.designs import Design
    from notsodeep.nets.race import Race

_POLL = 0.5  # seconds between looks at a race
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
        place.caption(plain(" ".join(samples.notes)))
    if samples.advice:
        place.warning(plain(samples.advice), icon=":material/straighten:")


# --- design -------------------------------------------------------------------------------------------


def show_design(left: DeltaGenerator, right: DeltaGenerator, choice: Choice) -> None:
    """The verdict in words, the activations, and the scalars wanted and reached."""
    made, found = computations.design_of(choice), computations.distances_of(choice)
    good = (made.exact or made.misfit is not None) and found.is_worth_it
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
    if made.multipliers is not None:
        rates = ", ".join(f"{rate:.4g}" for rate in made.multipliers)
        place.markdown(plain(f"Learning-rate multipliers (layers, readout): {rates}"))


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


# --- race ---------------------------------------------------------------------------------------------


def show_race(choice: Choice) -> None:
    """A race of the three networks on the digits; while it runs, this part of the page is drawn twice a second."""
    st.subheader("A race on handwritten digits", anchor=False)
    st.markdown(
        "The DEQ, its twin and a plain network of the same depth and width, trained alike. The DEQ solves for its "
        "equilibrium at every step; the twin does not."
    )
    job: RaceJob | None = st.session_state.get("race")
    running = job is not None and job.state in ("running", "stopping")
    st.fragment(_race, run_every=_POLL if running else None)(choice, polled=running)


def _race(choice: Choice, *, polled: bool) -> None:
    job: RaceJob | None = st.session_state.get("race")
    running = job is not None and job.state in ("running", "stopping")
    if polled and not running:
        st.rerun()  # the whole page once, which ends the looking
    plan = _race_controls(choice, running)
    start, stop = st.columns(2)
    if start.button("Start the race", key="start_race", disabled=running, width="stretch", type="primary"):
        st.session_state["race"] = RaceJob(plan.run).start()
        st.session_state["race_model"] = choice.activation_text
        st.rerun()
    if stop.button("Stop", key="stop_race", disabled=not running, width="stretch") and job is not None:
        job.stop()
    if job is not None:
        _show_job(job)


def _race_controls(choice: Choice, running: bool) -> RacePlan:
    width, epochs = st.columns(2)
    wide = width.select_slider(
        "Width", WIDTHS, 256, key="race_width", disabled=running,
        help="Neurons of each hidden layer. The theory is for wide networks.",
    )  # fmt: skip
    long = epochs.slider(
        "Epochs", 1, MOST_EPOCHS, 10, key="race_epochs", disabled=running,
        help="Passes over the 1437 training images.",
    )  # fmt: skip
    return RacePlan(choice.model, MODES[choice.kernel], int(wide), int(long))


def _show_job(job: RaceJob) -> None:
    state = job.state
    name = plain(str(st.session_state.get("race_model", "")))
    if state in ("running", "stopping"):
        words = "stopping…" if state == "stopping" else job.news
        st.progress(min(1.0, job.share), text=plain(words))
    elif state == "stopped":
        st.info("The race was stopped. Nothing of it is kept.")
    elif state == "failed":
        st.error(plain(job.problem))
    elif job.result is not None:
        st.markdown(f"Race of a DEQ with {name}:")
        _show_result(job.result)


def _show_result(race: Race) -> None:
    left, right = st.columns(2)
    picture = race_picture(epoch_rows(race))
    left.image(picture.on_page(dark=is_dark()), width="stretch", alt=picture.words)
    left.caption(picture.caption)
    right.table(standing_rows(race), width="stretch")
    right.caption(
        "Same class: how often it predicts what the DEQ predicts. Time: for 1000 images, without training."
    )
    for standing in race.standings:
        if standing.stopped is not None:
            right.warning(plain(f"{words(standing.model)} stopped early: {standing.stopped}"))


def standing_rows(race: Race) -> dict[str, list[str]]:
    """The table of the race as columns of text."""
    return {
        "network": [words(one.model) for one in race.standings],
        "accuracy": [f"{one.accuracy:.1%}" for one in race.standings],
        "same class": ["" if one.agreement is None else f"{one.agreement:.1%}" for one in race.standings],
        "time": [f"{1e3 * one.inference_seconds:.3g} ms" for one in race.standings],
    }


# --- to take away -------------------------------------------------------------------------------------


def show_recipes(choice: Choice) -> None:
    """Exactly what is shown, as Python and as commands; each has a button that copies it."""
    st.subheader("Take it with you", anchor=False)
    python, shell = st.tabs(["Copy as Python", "Copy as command"])
    python.code(as_python(choice), language="python", wrap_lines=True)
    shell.code(as_commands(choice), language="bash", wrap_lines=True)
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
