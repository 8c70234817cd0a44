"""Training races on handwritten digits, which the page starts, shows and stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from notsodeep_lab.explorer.choice import MODES, Choice
from notsodeep_lab.explorer.page_panels import is_dark
from notsodeep_lab.explorer.pictures import front_picture, race_picture
from notsodeep_lab.explorer.race_job import MOST_EPOCHS, DistillationPlan, RaceJob, RacePlan, epoch_rows
from notsodeep_lab.explorer.words import plain
from notsodeep_lab.plots.row_selection import words

if TYPE_CHECKING:
    from notsodeep.distillation import Distilled
    from notsodeep.nets.race import Race

_POLL = 0.5  # seconds between updates of a race
_RACES = {"train": "three networks, same training", "distil": "a trained DEQ and its students"}
_ABOUT = {
    "train": "The DEQ, its twin and a plain network of the same depth and width. The DEQ solves for its equilibrium in "
    "every training step; the twin does not.",
    "distil": "All weights of a DEQ are trained. Then students, a few unrolled steps of the DEQ with weights of their "
    "own, are fitted to its outputs without labels, and compared with the DEQ cut after as many steps.",
}


def show_race(choice: Choice) -> None:
    """Show a race of dense networks on the digits; while it runs, this panel is redrawn twice a second."""
    st.subheader("A race on handwritten digits", anchor=False)
    job: RaceJob | None = st.session_state.get("race")
    running = job is not None and job.state in ("running", "stopping")
    st.fragment(_race, run_every=_POLL if running else None)(choice, polled=running)


def _race(choice: Choice, *, polled: bool) -> None:
    job: RaceJob | None = st.session_state.get("race")
    running = job is not None and job.state in ("running", "stopping")
    if polled and not running:
        st.rerun()  # redraw the whole page, which ends the updates
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


def _race_controls(choice: Choice, running: bool) -> RacePlan | DistillationPlan:
    kind = st.radio(
        "Which race", tuple(_RACES), format_func=_RACES.__getitem__, key="race_kind", horizontal=True,
        disabled=running,
        help="Train three networks, or train a DEQ and distil it into a few of its own steps.",
    )  # fmt: skip
    st.markdown(_ABOUT[kind])
    long = st.slider(
        "Epochs", 1, MOST_EPOCHS, 10, key="race_epochs", disabled=running,
        help="Passes over the 1437 training images.",
    )  # fmt: skip
    if kind == "distil":
        return DistillationPlan(choice.model, choice.width, int(long))
    return RacePlan(choice.model, MODES[choice.kernel], choice.width, int(long))


def _show_job(job: RaceJob) -> None:
    state = job.state
    name = plain(str(st.session_state.get("race_model", "")))
    if state in ("running", "stopping"):
        words = "stopping…" if state == "stopping" else job.message
        st.progress(min(1.0, job.share), text=plain(words))
    elif state == "stopped":
        st.info("The race was stopped; its results are discarded.")
    elif state == "failed":
        st.error(plain(job.problem))
    elif job.result is not None:
        st.markdown(f"Race of a DEQ with {name}:")
        distilled = hasattr(job.result, "candidates")
        (_show_distilled if distilled else _show_standings)(job.result)


def _show_distilled(distilled: Distilled) -> None:
    left, right = st.columns(2)
    picture = front_picture(distilled)
    left.image(picture.on_page(dark=is_dark()), width="stretch", alt=picture.words)
    left.caption(picture.caption)
    right.markdown(plain(f"Chosen: {distilled.name}. {distilled.certainty}"))
    right.table(candidate_rows(distilled), width="stretch")
    right.caption("Same class: agreement with the DEQ on held-out images. Time: for 1000 images.")


def candidate_rows(distilled: Distilled) -> dict[str, list[str]]:
    """Return the distillation as columns of text: the DEQ first, then the candidates, the fastest first."""
    rows = distilled.rows()
    return {
        "network": ["trained DEQ", *(row["name"] for row in rows)],
        "same class": ["", *(f"{row['agreement']:.1%}" for row in rows)],
        "time": [
            f"{rows[0]['teacher_milliseconds']:.3g} ms",
            *(f"{row['milliseconds']:.3g} ms" for row in rows),
        ],
    }


def _show_standings(race: Race) -> None:
    left, right = st.columns(2)
    picture = race_picture(epoch_rows(race))
    left.image(picture.on_page(dark=is_dark()), width="stretch", alt=picture.words)
    left.caption(picture.caption)
    right.table(standing_rows(race), width="stretch")
    right.caption("Same class: agreement with the DEQ on the test images. Time: inference for 1000 images.")
    for standing in race.standings:
        if standing.stopped is not None:
            right.warning(plain(f"{words(standing.model)} stopped early: {standing.stopped}"))


def standing_rows(race: Race) -> dict[str, list[str]]:
    """Return the table of the race as columns of text."""
    return {
        "network": [words(one.model) for one in race.standings],
        "accuracy": [f"{one.accuracy:.1%}" for one in race.standings],
        "same class": ["" if one.agreement is None else f"{one.agreement:.1%}" for one in race.standings],
        "time": [f"{1e3 * one.inference_seconds:.3g} ms" for one in race.standings],
    }
