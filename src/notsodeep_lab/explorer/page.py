"""The page as a whole: data and views above, controls on the left, answers below."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import streamlit as st

from notsodeep_lab.explorer import computations, first_screen, page_panels, race_panels, verdict_panels
from notsodeep_lab.explorer.choice import Choice, Data
from notsodeep_lab.explorer.controls import choose
from notsodeep_lab.explorer.page_errors import errors_on_page

_ICON = Path(__file__).with_name("icon.svg")
_STYLE = """
.stMainBlockContainer { padding-top: 4rem; padding-bottom: 3rem; }
.stMainBlockContainer h1 { font-size: 2.1rem; padding-top: 0; }
.stMainBlockContainer h3 { font-size: 1.35rem; }
:is(button, input, a, summary, [tabindex], [role=radio], [role=tab]):focus-visible,
label:has(input:focus-visible) { outline: 3px solid #56b4e9 !important; outline-offset: 2px; }
"""
_INTRODUCTION = (
    "A deep equilibrium model (DEQ) is a network of infinite depth: its output is the point where one layer, applied "
    "again and again, stops changing. Here you see whether a **shallow** network designed in its place will do, on "
    "your data or on an example, before anything is trained."
)
# Only the view that is open is computed: each answers while a slider moves.
VIEWS = {
    "verdict": "Do I need it?",
    "learning": "How many samples?",
    "theory": "Twin and kernel",
    "races": "Races",
    "away": "Take it with you",
}


def show() -> None:
    """Draw the page; streamlit calls it again whenever a control was moved."""
    st.set_page_config("notsodeep explorer", _ICON.read_text(encoding="utf-8"), layout="wide")
    st.html(f"<style>{_STYLE}</style>")
    _warmed_up()
    st.title("Do I need this deep equilibrium model?", anchor=False)
    st.markdown(_INTRODUCTION)
    data, view = st.container(), st.container()
    chosen = view.segmented_control(
        "What to show", tuple(VIEWS), format_func=VIEWS.__getitem__, default="verdict", required=True,
        key="view", label_visibility="collapsed",
    )  # fmt: skip
    with errors_on_page(), st.spinner("Computing…", show_time=False):
        choice = choose(data)
        page_panels.show_samples(st.container(), choice)
        _show_view(str(chosen), choice)


def _show_view(view: str, choice: Choice) -> None:
    if view == "verdict":
        verdict_panels.show_first_screen(choice)
    elif view == "learning":
        verdict_panels.show_learning(choice)
    elif view == "theory":
        page_panels.show_theory(choice)
    elif view == "races":
        race_panels.show_race(choice)
    else:
        page_panels.show_recipes(choice)
        page_panels.show_downloads(choice)


@st.cache_resource(show_spinner="Warming up: this takes some seconds, once…")
def _warmed_up() -> bool:
    computations.warm_up()
    small = Choice(data=Data("digits", n=60))
    with errors_on_page():
        for choice in (small, replace(small, images=True), replace(small, images=True, activation="tanh")):
            first_screen.verdict_of(choice), first_screen.curves_of(choice)
    return True
