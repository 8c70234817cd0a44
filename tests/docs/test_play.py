"""The page Play: its numbers are those of the package, and it answers to pointer, keys and touch, without a server.

The page is taken out of docs/play.md as it is, with its scripts; tests/docs/test_site.py looks at it in the built site.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import chromium, needs_chromium

import notsodeep as nsd
from notsodeep.equivalents.expansion import expand

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
DIMENSION = 200

# What tests/docs/test_play.py holds the page to, as docs/play.md says.
VALUES, DENSITIES, ACCURACIES = 1e-12, 1e-8, 1e-4


# --- the table of twins ---------------------------------------------------------------------------------------


@cache
def twins() -> dict[str, Any]:
    text = (ASSETS / "play_twins.js").read_text(encoding="utf-8")
    first, last = (int(re.search(rf"{end}: (\d+)", text)[1]) for end in ("first", "last"))  # type: ignore[index]
    rows = json.loads(text[text.index("table: ") + len("table: ") : text.rindex("}")])
    return {"first": first, "last": last, "table": rows}


def layer(row: dict[str, Any]) -> nsd.Activation:
    """A layer of the table as an activation of the package."""
    if "knots" in row:
        shape = nsd.activation("piecewise_linear", knots=row["knots"], slopes=row["slopes"])
        return shape.shifted(row["at_zero"] - float(shape([0.0])[0]))
    return nsd.activation("polynomial", coefficients=row["powers"])


def networks(activation: str, position: int) -> dict[str, Any]:
    """DEQ, twins and plain layer of a position of the slider, twins from the table."""
    row = twins()["table"][activation][position - twins()["first"]]
    injected = row["injected"]
    layers = [
        nsd.activation(activation).scaled(amplitude).shifted(offset)
        for amplitude, offset in zip(injected["amplitudes"], injected["offsets"], strict=True)
    ]
    return {
        "deq": nsd.DEQ(activation, position / 100.0).centred(1.0),
        "papers": nsd.Explicit([layer(one) for one in row["papers"]]),
        "injected": nsd.Explicit(layers, weights=injected["weights"], inject=injected["inject"]),
        "plain": nsd.Explicit([activation]).centred(1.0),
    }


def test_the_table_has_every_position_of_the_slider_and_is_small() -> None:
    table = twins()
    page = (ROOT / "docs" / "play.md").read_text(encoding="utf-8")
    assert f'min="{table["first"]}" max="{table["last"]}"' in page
    assert {len(rows) for rows in table["table"].values()} == {table["last"] - table["first"] + 1}
    assert (ASSETS / "play_twins.js").stat().st_size < 300_000


@pytest.mark.parametrize("activation", sorted(twins()["table"]))
def test_twins_of_the_table_have_the_numbers_of_the_deq(activation: str) -> None:
    """The papers' twin has its four scalars; the injected twin its kernel around norm 1, closer than a plain layer."""
    for position in (7, 37, 83):
        models = networks(activation, position)
        wanted = nsd.coefficients(models["deq"], 1.0).as_array()
        np.testing.assert_allclose(
            nsd.coefficients(models["papers"], 1.0).as_array(), wanted, rtol=1e-6, atol=1e-9
        )
        squares = np.array([0.9, 1.0, 1.1])
        slopes = {name: expand(model, squares, squares, "ck", 1, 0.0)[1] for name, model in models.items()}
        away = {name: np.abs(slope / slopes["deq"] - 1.0).max() for name, slope in slopes.items()}
        assert away["injected"] < min(0.02, away["plain"])


# --- the page in a browser ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The part of docs/play.md that moves, as a page of its own."""
    folder = tmp_path_factory.mktemp("play")
    shutil.copytree(ASSETS, folder / "assets")
    source = (ROOT / "docs" / "play.md").read_text(encoding="utf-8")
    inside = source[source.index("<link") : source.rindex("</script>") + len("</script>")]
    head = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,">'
    (folder / "play.html").write_text(f'{head}<body class="md-typeset">{inside}', encoding="utf-8")
    return (folder / "play.html").as_uri()


@pytest.fixture(scope="module")
def browser(page: str) -> Iterator[Any]:
    with chromium() as driver:
        driver.execute_cdp_cmd("Network.enable", {})
        driver.get(page)
        ready(driver)
        yield driver


def ready(browser: Any) -> None:
    """Wait until the last curve is drawn."""
    from selenium.webdriver.support.ui import WebDriverWait

    wanted = "const c = play.choice(); return document.getElementById('playground').dataset.ready === "
    WebDriverWait(browser, 60).until(
        lambda page: page.execute_script(wanted + "[c.activation, c.sigma, c.distance, c.spread].join()")
    )


def models_script(activation: str, position: int) -> str:
    row = f"playTwins.table['{activation}'][{position} - playTwins.first]"
    return f"const all = playTheory.models('{activation}', {position} / 100, {row});"


def mixture_of(distance: float, spread: float) -> nsd.GaussianMixture:
    means = np.zeros((2, DIMENSION))
    means[:, 0] = -distance / 2.0, distance / 2.0
    difference = spread / np.sqrt(DIMENSION)
    return nsd.GaussianMixture(means, [1.0 - difference, 1.0 + difference])


slow = pytest.mark.slow
# Activation, position of the slider, distance and difference of spreads of the classes, samples.
SETTINGS = [
    ("relu", 83, 0.0, 2.5, 126),
    ("swish", 12, 1.0, 4.0, 250),
    ("tanh", 47, 4.0, 0.7, 60),
    ("elu", 29, 6.0, 3.3, 5000),
    ("hard_tanh", 90, 5.1, 1.1, 400),
]


@slow
@needs_chromium
def test_activations_are_those_of_the_package(browser: Any) -> None:
    places = np.linspace(-6.0, 6.0, 97)
    for name in twins()["table"]:
        script = f"return arguments[0].map(playTheory.activations['{name}'].value)"
        shown = browser.execute_script(script, places.tolist())
        np.testing.assert_allclose(shown, nsd.activation(name)(places), rtol=VALUES, atol=VALUES)
        script = (
            models_script(name, 23)
            + "return arguments[0].map((x) => all[arguments[1]].layers.map((l) => l.value(x)))"
        )
        for which, model in networks(name, 23).items():
            layers = [model.activation] if which == "deq" else model.layers
            wanted = np.stack([one(places) for one in layers], axis=1)
            shown = browser.execute_script(script, places.tolist(), which)
            np.testing.assert_allclose(shown, wanted, rtol=VALUES, atol=VALUES)


@slow
@needs_chromium
@pytest.mark.parametrize(("activation", "position", "distance", "spread", "n"), SETTINGS)
def test_spectra_are_those_of_the_package(
    browser: Any, activation: str, position: int, distance: float, spread: float, n: int
) -> None:
    mixture = mixture_of(distance, spread)
    for name in ("deq", "plain"):
        wanted = nsd.limiting_density(networks(activation, position)[name], mixture, n, points=65)
        low, high = wanted.edges[0][0], wanted.edges[-1][1]
        places = low + (high - low) * np.array([0.001, 0.03, 0.2, 0.5, 0.8, 0.97, 0.999, 1.02])
        shown = browser.execute_script(
            models_script(activation, position)
            + f"const mixture = playTheory.mixture({DIMENSION}, {distance}, {spread});"
            f"const scalars = all.{name}.scalars(), s = playSpectrum.spectrum(scalars, mixture, {n});"
            "return {...s, scalars, density: arguments[0].map(s.density)}",
            places.tolist(),
        )
        scalars = [shown["scalars"][key] for key in ("diagonal", "linear", "norm", "trace")]
        np.testing.assert_allclose(scalars, wanted.scalars.as_array(), rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(shown["bulks"], wanted.edges, rtol=DENSITIES)
        np.testing.assert_allclose(
            shown["density"], wanted.density_at(places), rtol=DENSITIES, atol=DENSITIES
        )
        values = [one["value"] for one in shown["isolated"]]
        np.testing.assert_allclose(values, wanted.isolated, rtol=DENSITIES)
        shares = np.array([one["alignment"] for one in shown["isolated"]]).reshape(-1, 2)
        # Two eigenvalues in one place may come in either order.
        for place in np.unique(wanted.isolated.round(6)):
            same = np.isclose(wanted.isolated, place, rtol=0.0, atol=1e-6)
            np.testing.assert_allclose(
                shares[same].sum(axis=0), wanted.alignment[same].sum(axis=0), rtol=1e-5, atol=1e-7
            )
        atoms = [] if shown["atom"] is None else [shown["atom"]["count"]]
        assert tuple(atoms) == wanted.atom_counts


@slow
@needs_chromium
@pytest.mark.parametrize(("activation", "position", "distance", "spread", "n"), SETTINGS[:3])
def test_learning_curves_are_those_of_the_package(
    browser: Any, activation: str, position: int, distance: float, spread: float, n: int
) -> None:
    sizes = [24, n, 3000]
    names = ("deq", "papers", "injected", "plain")
    shown = browser.execute_script(
        models_script(activation, position)
        + f"const mixture = playTheory.mixture({DIMENSION}, {distance}, {spread});"
        "const curve = (name) => playLearning.learningCurve(all[name], mixture, arguments[0]);"
        "return arguments[1].map((name) => curve(name).map((one) => one.accuracy))",
        sorted(sizes),
        names,
    )
    models = networks(activation, position)
    for name, curve in zip(names, shown, strict=True):
        wanted = nsd.learning_curve(models[name], mixture_of(distance, spread), sorted(sizes), "best")
        np.testing.assert_allclose(curve, wanted.accuracy, rtol=0.0, atol=ACCURACIES, err_msg=name)


@slow
@needs_chromium
def test_charts_say_their_values_to_pointer_and_keys(browser: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys

    slider = browser.find_element(By.NAME, "sigma")
    before = int(slider.get_attribute("value"))
    slider.send_keys(Keys.ARROW_RIGHT)
    ready(browser)
    assert browser.find_element(By.CSS_SELECTOR, "output[for=play-sigma]").text == f"{(before + 1) / 100:.2f}"
    assert f"sigma={before + 1}" in browser.current_url

    plot = browser.find_element(By.CSS_SELECTOR, "#play-curve .play-plot")
    plot.send_keys(Keys.HOME)
    curve = browser.execute_script("return play.charts.curve.values()")
    tip = browser.find_element(By.CSS_SELECTOR, "#play-curve .play-tip").text
    assert tip.splitlines()[0] == f"n = {curve['x'][0]}"
    assert [line.split(": ")[1] for line in tip.splitlines()[1:]] == [
        f"{100 * one['y'][0]:.2f} %" for one in curve["series"]
    ]
    plot.send_keys(Keys.ARROW_RIGHT)
    said = browser.find_element(By.CSS_SELECTOR, "#play-curve .play-said").get_attribute("textContent")
    assert said.startswith(f"n = {curve['x'][1]}; DEQ: ")
    plot.send_keys(Keys.ESCAPE)
    assert not browser.find_element(By.CSS_SELECTOR, "#play-curve .play-tip").is_displayed()

    touch = {"clientX": 0, "pointerType": "touch", "bubbles": True}
    for part in ("activations", "spectrum", "curve"):
        shown = browser.execute_script(
            "const plot = document.querySelector(arguments[0] + ' .play-plot'), box = plot.getBoundingClientRect();"
            "const event = new PointerEvent('pointerdown', {...arguments[1], clientX: box.left + box.width / 2});"
            "plot.dispatchEvent(event); return plot.querySelector('.play-tip').innerText",
            f"#play-{part}",
            touch,
        )
        assert len(shown.splitlines()) >= 2
        assert re.search(r"\d", shown)
