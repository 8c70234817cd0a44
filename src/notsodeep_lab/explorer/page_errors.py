"""Show errors as messages on the page instead of stack traces."""

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
    """Show errors raised inside the block as messages on the page."""
    try:
        yield
    except (InputError, ConvergenceError, MissingExtraError) as problem:
        place.error(plain(str(problem)), icon=":material/error:")
    # Unexpected errors: the page shows a message, the terminal the details.
    except Exception as problem:
        logging.getLogger(__name__).exception("unexpected error on the page")
        name = type(problem).__name__
        place.error(
            f"Unexpected error ({name}). Change a control to continue; the details are in the terminal that runs "
            "notsodeep explore."
        )
