"""The report in a browser: everything loads, nothing breaks out, nothing scrolls sideways on a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import ask, chromium, needs_chromium, show
from report_pages import EXPERIMENTS, HOSTILE, run_hostile, run_plain, write_design, write_training

from notsodeep_lab.report import report, write_page

pytestmark = [needs_chromium, pytest.mark.slow]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("results")
    run_plain(root, "full")
    run_plain(root, "quick")
    run_hostile(root)
    own = [
        write_design(root / "design.json"),
        write_training(root / "train.json"),
        write_training(root / "hostile.json", model=HOSTILE[0], network=HOSTILE[1], data="x" * 500),
    ]
    return write_page(report(root, own, EXPERIMENTS), root / "report.html")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


def colours(browser: Any) -> tuple[list[int], list[int]]:
    """Red, green and blue of paper and ink."""
    style = "getComputedStyle(document.body)"
    found = [
        ask(browser, f"{style}.{name}.match(/\\d+/g).map(Number)") for name in ("backgroundColor", "color")
    ]
    return found[0][:3], found[1][:3]


def test_all_images_load_and_hostile_text_is_text(browser: Any, page: Path) -> None:
    show(browser, page.as_uri())
    images = ask(browser, "[...document.images].map(i => [i.complete, i.naturalWidth, i.alt])")
    assert len(images) == 3
    assert all(complete and width > 100 and alt for complete, width, alt in images)
    assert browser.get_log("browser") == []
    assert ask(browser, "performance.getEntriesByType('resource').every(e => e.name.startsWith('data:'))")
    assert ask(browser, "window.broken === undefined")
    assert ask(browser, "document.scripts.length") == 0
    assert ask(browser, "document.querySelectorAll('h1').length") == 1
    attributes = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames())"
    assert ask(browser, f"{attributes}.filter(name => name.startsWith('on')).length") == 0
    text = ask(browser, "document.body.textContent")
    assert all(words in text for words in HOSTILE[:4])


def test_the_page_fits_a_phone(browser: Any, page: Path) -> None:
    width = 320
    show(browser, page.as_uri(), width=width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert ask(browser, "innerWidth") == width
    assert ask(browser, "document.documentElement.scrollWidth") <= width
    # Nor is anything cut off: what is wider than the screen lies in a box that scrolls.
    outside = (
        "[...document.querySelectorAll('main *')].filter(e => !e.closest('.scroll') && "
        "e.getBoundingClientRect().right > innerWidth + 1).length"
    )
    assert ask(browser, outside) == 0


def test_dark_mode_is_dark_and_figures_stay_on_white(browser: Any, page: Path) -> None:
    show(browser, page.as_uri(), scheme="light")
    paper, ink = colours(browser)
    assert sum(paper) > 600 > 200 > sum(ink)
    show(browser, page.as_uri(), scheme="dark")
    paper, ink = colours(browser)
    assert sum(paper) < 200 < 600 < sum(ink)
    behind = ask(browser, "getComputedStyle(document.querySelector('figure .scroll')).backgroundColor")
    assert behind == "rgb(255, 255, 255)"
