"""The site as it is built: strictly, with every equation and every public name, and nothing from elsewhere."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chromium import chromium, needs_chromium, show

import notsodeep

pytestmark = pytest.mark.slow

pytest.importorskip("material", reason="the extra docs is not installed")

ROOT = Path(__file__).parents[2]

# Rooms whose `__all__` is public, and names that the reference has under another address.
ROOMS = (
    *(f"notsodeep.{room}" for room in (*notsodeep._ROOMS, "figures")),
    "notsodeep_lab.papers",
)
ELSEWHERE = {"notsodeep.kernels.Kernel": "notsodeep.kernel_names"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    result = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return folder


def pages(site: Path) -> dict[str, str]:
    return {
        path.relative_to(site).as_posix(): path.read_text(encoding="utf-8") for path in site.rglob("*.html")
    }


def test_formulas_equations_and_citations(site: Path) -> None:
    for name in ("theory",):
        source = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
        page = pages(site)[f"{name}.html"]
        tags = re.findall(r"\\tag\{([^}]+)\}", source)
        assert re.findall(r'<div class="equation" id="([^"]+)"', page) == tags
        assert page.count("<math") > 50
    assert not any("arithmatex" in page for page in pages(site).values()), "a formula was not converted"
    # MathML Core has letters of other alphabets as characters, and columns by style.
    theory, wrong = pages(site)["theory.html"], '<m[^>]*(columnalign|mathvariant="(?!normal))'
    assert "ℝ" in theory
    assert "text-align: right" in theory
    assert not any(re.search(wrong, page) for page in pages(site).values())
    assert '<a href="../theory.html#1.1">1.1</a>' in pages(site)["concepts/twins.html"]
    assert '<a href="../theory.html#4.6">4.6</a>' in pages(site)["api/equivalents.html"]


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)=[\"']?(?:https?:)?//[^>]*>")
    assert {name: found for name, page in pages(site).items() if (found := loaded.findall(page))} == {}
    sheets = [path.read_text(encoding="utf-8") for path in site.rglob("*.css")]
    assert sheets
    assert not any(re.search(r"url\(\s*[\"']?https?:|@import\s+[\"']?http", sheet) for sheet in sheets)


def test_every_public_name_has_an_entry(site: Path) -> None:
    anchors = {
        anchor
        for page in pages(site).values()
        for anchor in re.findall(r'id="(notsodeep(?:_lab)?\.[\w.]+)"', page)
    }
    missing = []
    for room in ROOMS:
        module = importlib.import_module(room)
        for name in module.__all__:
            value = getattr(module, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue  # constants, type aliases and modules
            home = ELSEWHERE.get(f"{room}.{name}", value.__module__)
            if not {f"{room}.{name}", f"{home}.{name}"} & anchors:
                missing.append(f"{room}.{name}")
    assert missing == []


def test_search_knows_every_page_and_no_formula(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    places = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert places >= {name for name in pages(site) if name != "404.html"} - {"index.html"}
    assert not any("<math" in entry["text"] or "\\frac" in entry["text"] for entry in index["docs"])
    assert "var __index" in (site / "search" / "search_index.js").read_text(encoding="utf-8")[:20]


def test_what_stands_outside_of_docs_is_there(site: Path) -> None:
    found = pages(site)
    assert "repository/CHANGELOG.html" in found
    assert "hooks/mathematics.html" not in found
    assert not list(site.rglob("*.py"))


# --- in a browser, from the disk ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as driver:
        yield driver


@needs_chromium
def test_pages_fit_a_phone_and_the_console_is_silent(browser: Any, site: Path) -> None:
    for name in ("index", "theory", "start", "how-to/settle", "concepts/twins", "api/nets", "play"):
        show(browser, (site / f"{name}.html").as_uri(), width=390)
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 390, name
        assert (
            browser.execute_script("return [...document.images].filter(i => !i.naturalWidth).map(i => i.src)")
            == []
        )
    assert [entry["message"] for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@needs_chromium
def test_play_in_the_site_light_and_dark(browser: Any, site: Path) -> None:
    """Charts of the page Play have the colours of the theme, also after it is changed on the page."""
    from selenium.webdriver.support.ui import WebDriverWait

    script = (
        "const {ctx, data, valToPos, axes} = play.charts.curve.chart;"
        "const x = valToPos(data[0][8], 'x', true), y = valToPos(data[1][8], 'y', true);"
        "return [String(ctx.getImageData(x, y, 1, 1).data), axes[0].stroke(),"
        "getComputedStyle(document.querySelector('#play-curve .deq .u-marker')).borderTopColor,"
        "getComputedStyle(document.body).backgroundColor]"
    )
    colours = []
    for scheme in ("light", "dark"):
        show(browser, (site / "play.html").as_uri(), scheme=scheme)
        WebDriverWait(browser, 60).until(lambda page: page.execute_script("return playground.dataset.ready"))
        colours.append(browser.execute_script(script))
    assert all(light != dark for light, dark in zip(*colours, strict=True))
    browser.execute_script("document.body.dataset.mdColorScheme = 'default'")
    WebDriverWait(browser, 10).until(lambda page: page.execute_script(script) == colours[0])


@needs_chromium
def test_search_works_without_a_server(browser: Any, site: Path) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    show(browser, (site / "index.html").as_uri())
    field = WebDriverWait(browser, 30).until(
        lambda page: page.find_element(By.CSS_SELECTOR, ".md-search__input")
    )
    browser.execute_script("arguments[0].focus()", field)
    field.send_keys("preconditioner")
    found = WebDriverWait(browser, 60).until(
        lambda page: [
            link.get_attribute("href")
            for link in page.find_elements(By.CSS_SELECTOR, ".md-search-result__link")
        ]
    )
    assert any("large-data.html" in address for address in found)
