"""The whole page: network and data at the top, more controls on the left, the answer below."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import streamlit as st

from notsodeep.errors import ConvergenceError, InputError, MissingExtraError
from notsodeep_lab.explorer import answers, computations
from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.controls import choose
from notsodeep_lab.explorer.pictures import drawn, picture_of
from notsodeep_lab.explorer.recipes import as_python

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

_ICON = Path(__file__).with_name("icon.svg")
_STYLE = """
.stMainBlockContainer { padding-top: 4rem; padding-bottom: 3rem; }
.stMainBlockContainer h1 { font-size: 2.1rem; padding-top: 0; }
.stMainBlockContainer h3 { font-size: 1.35rem; }
[data-testid=stMetricValue] { font-size: 1.6rem; }
:is(button, input, a, summary, [tabindex], [role=radio], [role=tab]):focus-visible,
label:has(input:focus-visible) { outline: 3px solid #56b4e9 !important; outline-offset: 2px; }
"""
_INTRODUCTION = (
    "An implicit network applies one cell again and again until its state settles. This page predicts, before anything "
    "is trained, whether it settles, how many steps your data need, and whether a plain network does as well."
)
_PROMPT = (
    "Choose a CSV or NPY file above: one sample per row, 20 to 20 000 rows. A column of words is used as labels; "
    "otherwise name the label column. The file stays on this machine."
)
_PERCENT = "\N{NO-BREAK SPACE}%"
_ICONS = {"shallow": "check_circle", "deep": "layers", "unsure": "help", "unsettled": "cancel"}
VIEWS = {"answer": "Answer", "twin": "Twin and kernel", "code": "Python code"}


def show() -> None:
    """Draw the page; streamlit calls this again whenever a control is moved."""
    st.set_page_config("notsodeep explorer", _ICON.read_text(encoding="utf-8"), layout="wide")
    st.html(f"<style>{_STYLE}</style>")
    _warmed_up()
    st.title("Does it settle, and how deep must it be?", anchor=False)
    st.markdown(_INTRODUCTION)
    above, view = st.container(), st.container()
    with errors_on_page(), st.spinner("Computing…", show_time=False):
        choice = choose(above)
        if choice is None:
            st.info(_PROMPT, icon=":material/upload_file:")
            return
        chosen = view.segmented_control(
            "What to show", tuple(VIEWS), format_func=VIEWS.__getitem__, default="answer", required=True,
            key="view", label_visibility="collapsed",
        )  # fmt: skip
        {"answer": _show_answer, "twin": _show_twin, "code": _show_code}[str(chosen)](choice)


@st.cache_resource(show_spinner="Starting: this takes a few seconds…")
def _warmed_up() -> bool:
    computations.warm_up()
    return True


def _show_answer(choice: Choice) -> None:
    """The answer in one sentence, the numbers of the forecast, and two figures."""
    _show_samples(choice)
    place, numbers = st.container(), st.container(horizontal=True, gap="medium")
    left, right = st.columns(2, gap="large")
    forecast = computations.forecast_of(choice)
    answer = answers.unsettled(forecast)
    depths = None if answer else computations.depths_of(choice)
    if depths is not None:
        answer = answers.answer_of(forecast, depths)
    if answer is not None:
        box = {"shallow": place.success, "unsettled": place.warning}.get(answer.tone, place.info)
        box(answer.sentence.replace(" %", _PERCENT), icon=f":material/{_ICONS[answer.tone]}:")
    settled = f"{int(np.sum(forecast.settles))} of {len(forecast.rate)}"
    values = {
        "Samples that settle": settled,
        "Slowest rate": answers.slowest_rate(forecast),
        "Steps to 0.001, median": answers.median_steps(forecast, answers.RESIDUAL),
        "Steps to 10⁻⁶, median": answers.median_steps(forecast, answers.SMALL_RESIDUAL),
    }
    for label, value in values.items():
        numbers.metric(label, value, width="content")
    _show_picture(left, "forecast", choice)
    if depths is not None:
        _show_picture(right, "depths", choice)
    else:
        right.info(
            "Depths are compared with the equilibrium, so the network must settle on all samples first."
        )


def _show_samples(choice: Choice) -> None:
    """Say which samples are used, and warn if they are unusual."""
    data, samples = choice.data, choice.data.samples
    count, upload = len(samples.rows), data.upload
    words = f"{count} samples."
    if data.total is not None:
        words = (
            f"{count} of {data.total} samples, at random." if count < data.total else f"All {count} samples."
        )
    if upload is not None:
        has_labels = computations.labels_of(data) is not None
        labels = (
            f"Labels: column {upload.label_column}." if has_labels else "No labels: kernels are compared."
        )
        words = " ".join([words, *samples.notes, labels])
    st.caption(plain(words))
    if samples.advice:
        st.warning(plain(samples.advice), icon=":material/straighten:")


def _show_twin(choice: Choice) -> None:
    """Kernel entries and eigenvalues of the DEQ, its twin and 1 plain layer, and the layers of the twin."""
    if choice.network.kind != "deq":
        st.info("Twins are shown for a DEQ: choose DEQ above. For a cell use `nsd.design` in Python.")
        return
    twin = computations.twin_of(choice)
    st.markdown(plain(answers.twin_answer(twin)))
    left, right = st.columns(2, gap="large")
    _show_picture(left, "entries", choice)
    _show_picture(right, "eigenvalues", choice)
    for number, layer in enumerate(twin.design.layer_words(), 1):
        st.markdown(f"Layer {number} of the twin: {plain(layer)}")
    centred = " The mean of the activation is subtracted in all three networks." if twin.centred else ""
    st.caption(f"1 plain layer: the same activation, no feedback.{centred}")


def _show_code(choice: Choice) -> None:
    """The script that computes what the page shows, with a button to copy it."""
    st.code(as_python(choice), language="python", wrap_lines=True)
    if choice.data.upload is not None:
        st.caption("Run it in the folder that contains your file.")


def _show_picture(place: DeltaGenerator, kind: str, choice: Choice) -> None:
    """Show a figure with its heading, its caption and a description for screen readers."""
    one, dark = picture_of(kind, choice), getattr(st.context.theme, "type", None) == "dark"
    place.subheader(one.title, anchor=False)
    place.image(drawn(kind, choice, dark), width="stretch", alt=one.words)
    place.caption(one.caption)


def plain(text: str) -> str:
    """Escape Markdown in a text (formulas have stars, names have underscores), and keep per cent signs on the line."""
    return re.sub(r"([\\`*_{}\[\]<>()#+\-.!|$~:&^=])", r"\\\1", text).replace(" %", _PERCENT)


@contextmanager
def errors_on_page(place: Any = st) -> Iterator[None]:
    """Show errors raised inside the block as messages on the page, never as stack traces."""
    try:
        yield
    except ConvergenceError as problem:
        advice = "lower the feedback, or choose another activation"
        place.warning(f"**It does not settle**: {advice}. {plain(str(problem))}", icon=":material/cancel:")
    except (InputError, MissingExtraError) as problem:
        place.error(plain(str(problem)), icon=":material/error:")
    # Unexpected errors: the page shows a message, the terminal the details.
    except Exception as problem:
        logging.getLogger(__name__).exception("unexpected error on the page")
        name = type(problem).__name__
        place.error(
            f"Unexpected error ({name}). Change a control to continue; the details are in the terminal that runs "
            "notsodeep explore."
        )
