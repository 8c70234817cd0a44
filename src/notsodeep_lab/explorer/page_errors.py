"""A sentence on the page for whatever goes wrong, never a stack trace."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import streamlit as st

from notsodeep.errors import ConvergenceError, InputError, MissingExtraError
from notsodeep_lab.explorer.words import plain


@contextmanager
def errors_on_page(place: Any = st) -> Iterator[None]:
    """Show errors raised inside the block as a sentence on the page, never as a stack trace."""
    try:
        yield
    except (InputError, ConvergenceError, MissingExtraError) as problem:
        place.error(plain(str(problem)), icon=":material/error:")
    # The last resort: the reader gets a sentence, the terminal the details.
    except Exception as problem:
        logging.getLogger(__name__).exception("unforeseen error on the page")
        name = type(problem).__name__
        place.error(
            f"Something went wrong that was not foreseen ({name}). Change a control to go on; the terminal that runs "
            "notsodeep explore has the details."
        )
