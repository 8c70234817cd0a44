"""The errata of docs/errata.md: each printed formula fails, the correct one holds, and the page has these numbers."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from tolerances import Oracle, assert_close

from notsodeep_lab.papers import errata

ROOT = Path(__file__).resolve().parents[3]
QUICK = errata.ErrataSpec(200, 200)
# A printed number is wrong when it misses the deciding one by this much of it, far above every tolerance.
WRONG = 0.05
# Numbers of random networks or of one draw of samples: how far ours may be from the limit that decides.
DRAWN = {"iclr-identity": 0.35, "input-scale": 0.2, "tangent-reading": 0.1, "iclr-leaky": 0.02}


@cache
def numbers(name: str) -> list[errata.Number]:
    return list(errata.ERRATA[name](QUICK))


@pytest.mark.parametrize("name", errata.ERRATA)
def test_the_printed_formula_fails_and_ours_holds(name: str) -> None:
    for number in numbers(name):
        if number.decides is None or number.printed is None:
            continue
        if name in DRAWN:
            noise = DRAWN[name] * max(abs(number.decides), "‖" in number.what or "distance" in number.what)
            assert abs(number.right - number.decides) <= noise + 1e-12
        else:
            assert_close(number.right, number.decides, Oracle.FINITE_DIFFERENCE, scale=1.0)
        assert abs(number.printed - number.decides) > WRONG * abs(number.decides) + WRONG / 100


def test_the_page_has_the_computed_numbers() -> None:
    text = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
    cells = {row.split(" | ")[1]: row for row in text.splitlines() if row.count(" | ") == 4}
    compared = 0
    for name in errata.ERRATA:
        for number in numbers(name):
            if "n = " in number.what or "width" in number.what or name in ("iclr-identity", "aistats-lemma2"):
                continue  # depends on the size, or is rounding
            shown = [float(cell) for cell in cells[number.what].rstrip(" |").split(" | ")[2:4] if cell != "–"]
            values = [value for value in (number.printed, number.right) if value is not None]
            assert_close(
                shown,
                [float(f"{value:.4g}") if abs(value) > 1e-12 else 0.0 for value in values],
                Oracle.IDENTITY,
            )
            compared += len(values)
    assert compared > 25
