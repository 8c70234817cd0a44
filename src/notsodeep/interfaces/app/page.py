"""The page as a whole: title, controls on the left, answers on the right, and a sentence for whatever goes wrong."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import streamlit as st

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.interfaces.app import computations, page_panels
from notsodeep.interfaces.app.controls import choose
from notsodeep.interfaces.app.words import plain

_ICON = Path(__file__).with_name("icon.svg")
_STYLE = """
.stMainBlockContainer { padding-top: 3rem; padding-bottom: 3rem; }
.stMainBlockContainer h1 { font-size: 2.1rem; padding-top: 0; }
.stMainBlockContainer h3 { font-size: 1.35rem; }
"""
_INTRODUCTION = (
    "A deep equilibrium model (DEQ) is a network of infinite depth: its output is the point where one layer, applied "
    "again and again, stops changing. Here you see a **shallow** network designed to see data as the DEQ does, and how "
    "well theory predicts both. Move anything on the left and watch."
)


def show() -> None:
    """Draw the page; streamlit calls it again whenever a control was moved."""
    st.set_page_config("notsodeep explorer", _ICON.read_text(encoding="utf-8"), layout="wide")
    st.html(f"<style>{_STYLE}</style>")
    _warmed_up()
    st.title("How deep is a deep equilibrium model?", anchor=False)
    st.markdown(_INTRODUCTION)
    with errors_on_page(), st.spinner("Computing…", show_time=False):
        _answer()


def _answer() -> None:
    choice = choose()
    page_panels.show_samples(st.container(), choice)
    computations.start_prediction(choice)
    columns = (st.columns(2, gap="large"), st.columns(2, gap="large"))
    (activations, twin), (spectrum, errors) = columns
    below, race, away = st.container(), st.container(), st.container()
    page_panels.show_design(activations, twin, choice)
    with errors_on_page(errors):
        page_panels.show_errors(errors, choice)
    with errors_on_page(spectrum):
        page_panels.show_spectrum(spectrum, choice)
        page_panels.show_next_steps(below, choice)
    with away, errors_on_page(away):
        page_panels.show_recipes(choice)
        page_panels.show_downloads(choice)
    with race, errors_on_page(race):
        page_panels.show_race(choice)


@contextmanager
def errors_on_page(place: Any = st) -> Iterator[None]:
    """Show errors raised inside the block as a sentence on the page, never as a stack trace."""
    try:
        yield
    except (InputError, ConvergenceError) as problem:
        place.error(plain(str(problem)), icon=":material/error:")
    # The last resort: the reader gets a sentence, the terminal the details.
    except Exception as problem:
        logging.getLogger(__name__).exception("unforeseen error on the page")
        name = type(problem).__name__
        place.error(
            f"Something went wrong that was not foreseen ({name}). Change a control to go on; the terminal that runs "
            "notsodeep explore has the details."
        )


@st.cache_resource(show_spinner="Warming up: this takes some seconds, once…")
def _warmed_up() -> bool:
    computations.warm_up()
    return True
