"""Which student is given: the cheapest of which one can be sure, although many were tried.

docs/theory.md (12.5).  Choosing the cheapest of many candidates by their share of agreement on the same rows chooses a
lucky one.  Here candidates are tested one after the other in an order that does not depend on the rows that test them,
the most faithful first, until one cannot be shown to be as faithful as wanted.  So the chance that the chosen one is
not is at most that of a single test, however many candidates there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, log
from typing import NamedTuple

from notsodeep.nets.fidelity import RISK


class Entry(NamedTuple):
    """A candidate as the choice sees it.

    Attributes:
        operations: its cost.
        error: expected, from rows that the bound does not depend on.
        lower: the bound of its score, `fidelity.score_bound`.
    """

    operations: int
    error: float
    lower: float


def chosen(candidates: Sequence[Entry], until: float) -> tuple[int, bool]:
    """The place of the cheapest candidate that surely reaches `until`, and True; or of the most faithful, and False.

    Only candidates are tested that no cheaper one excels, the most faithful first; the first one that fails ends it.
    """
    order = sorted(
        range(len(candidates)), key=lambda one: (candidates[one].error, candidates[one].operations)
    )
    best, sure = order[0], False
    for place in order:
        one = candidates[place]
        if sure and one.operations >= candidates[best].operations:
            continue  # dearer than one that is more faithful
        if not one.lower >= until:
            break
        best, sure = place, True
    return best, sure


def rows_for_certainty(until: float) -> int | None:
    """The number of rows that all have to agree so that `until` is sure; None if no number is enough."""
    return ceil(log(RISK) / log(until)) if until < 1.0 else None


__all__ = ["Entry", "chosen", "rows_for_certainty"]
