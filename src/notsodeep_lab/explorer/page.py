"""The whole page: data and views at the top, controls on the left, results below."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import streamlit as st

from notsodeep_lab.explorer import computations, first_screen, page_panels, race_panels, verdict_panels
from notsodeep_lab.explorer.choice import Choice, PageData
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
    "A deep equilibrium model (DEQ) is a network of infinite depth: its output is the fixed point of one layer that is "
    "applied again and again. This page shows, on your data or on an example, whether a **shallow** network, its twin, "
    "can replace it, before anything is trained."
)
# Only the open view is computed, so that the page responds quickly.
VIEWS = {
    "verdict": "Do I need the DEQ?",
    "learning": "How many samples?",
    "theory": "Twin and kernel",
    "races": "Races",
    "export": "Export",
}


def show() -> None:
    """Draw the page; streamlit calls this again whenever a control is moved."""
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


@st.cache_resource(show_spinner="Starting: this takes a few seconds…")
def _warmed_up() -> bool:
    computations.warm_up()
    small = Choice(data=PageData("digits", n=60))
    with errors_on_page():
        for choice in (small, replace(small, images=True), replace(small, images=True, activation="tanh")):
            first_screen.verdict_of(choice), first_screen.curves_of(choice)
    return True
