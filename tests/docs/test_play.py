"""The page Play: its numbers are those of the package, and it answers to pointer, keys and touch, without a server.

The page is taken out of docs/play.md as it is, with its scripts; tests/docs/test_site.py looks at it in the built site.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from chromium import chromium, needs_chromium

import notsodeep as nsd
from notsodeep.equivalents.equivalent import kernel_distance
from notsodeep.equivalents.expansion import expand

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
HOOKS = ROOT / "docs" / "hooks"
sys.path.insert(0, str(HOOKS))
try:
    import play_tables
finally:
    sys.path.remove(str(HOOKS))

DIMENSION = 200
slow = pytest.mark.slow

# How closely the page follows the package: functions, kernel entries, densities, accuracies.
VALUES, ENTRIES, DENSITIES, ACCURACIES = 1e-12, 1e-7, 1e-8, 1e-4


# --- the tables -----------------------------------------------------------------------------------------------


@cache
def table(name: str) -> dict[str, Any]:
    """A table that the page loads as a script."""
    text = (ASSETS / f"{name}.js").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text[text.index("{") : text.rindex("}") + 1])
    return found


def layer(row: dict[str, Any]) -> nsd.Activation:
    """A layer of the table as an activation of the package."""
    if "knots" in row:
        shape = nsd.activation("piecewise_linear", knots=row["knots"], slopes=row["slopes"])
        return shape.shifted(row["at_zero"] - float(shape([0.0])[0]))
    return nsd.activation("polynomial", coefficients=row["powers"])


def networks(activation: str, position: int) -> dict[str, Any]:
    """DEQ, twins and plain layer of a position of the slider, twins from the table."""
    row = table("play_twins")[activation][str(position)]
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


def test_the_tables_are_complete_and_small() -> None:
    twins, phases = table("play_twins"), table("play_phases")
    assert {tuple(rows) for rows in twins.values()} == {tuple(map(str, play_tables.POSITIONS))}
    positions = play_tables.POSITIONS
    script = (ASSETS / "play.js").read_text(encoding="utf-8")
    assert f"range: [{positions.start}, {positions[-1]}, {positions.step}]" in script
    for name in play_tables.CELLS:
        for part in ("rate", "steps"):
            assert np.shape(phases[name][part]) == (len(phases["inputs"]), len(phases["strengths"]))
    assert (ASSETS / "play_twins.js").stat().st_size < 60_000
    assert (ASSETS / "play_phases.js").stat().st_size < 30_000


@pytest.mark.parametrize("activation", play_tables.ACTIVATIONS)
def test_twins_of_the_table_have_the_numbers_of_the_deq(activation: str) -> None:
    """The papers' twin has its four scalars; the injected twin its kernel around norm 1, closer than a plain layer."""
    for position in (5, 35, 85):
        models = networks(activation, position)
        expected = nsd.coefficients(models["deq"], 1.0).as_array()
        np.testing.assert_allclose(
            nsd.coefficients(models["papers"], 1.0).as_array(), expected, rtol=1e-6, atol=1e-9
        )
        squares = np.array([0.9, 1.0, 1.1])
        slopes = {name: expand(model, squares, squares, "ck", 1, 0.0)[1] for name, model in models.items()}
        away = {name: np.abs(slope / slopes["deq"] - 1.0).max() for name, slope in slopes.items()}
        assert away["injected"] < min(0.02, away["plain"])


@slow
@pytest.mark.parametrize("name", play_tables.CELLS)
def test_rates_and_steps_of_the_table_are_those_of_the_package(name: str) -> None:
    phases = table("play_phases")
    rate, steps = np.array(phases[name]["rate"]) / 1e4, np.array(phases[name]["steps"])
    assert (rate[steps > 0] <= 1.0).all()
    assert (rate[steps == 0] >= 1.0).all()
    assert 0 < np.count_nonzero(steps) < steps.size
    rows, columns = [3, 11, 19, 25], [2, 9, 20]
    for column in columns:
        strength = phases["strengths"][column]
        model, x = play_tables.CELLS[name](strength), np.array(phases["inputs"])[rows]
        diagrams = [
            nsd.phase_diagram(lambda *_, m=model: m, [strength], [1.0], size).rate[0, 0] for size in x
        ]
        np.testing.assert_allclose(rate[rows, column], diagrams, rtol=0.0, atol=6e-5)
        settled = np.array(diagrams) < 1.0
        np.testing.assert_array_equal(steps[rows, column] > 0, settled)
        forecast = nsd.forecast(model, x[settled, None])
        # The page warns of narrow networks above a rate of 0.9, as the package does.
        assert ("narrow ones settle more slowly" in forecast.advice) is bool((forecast.rate > 0.9).any())
        np.testing.assert_allclose(rate[rows, column][settled], forecast.rate, rtol=0.0, atol=6e-5)
        np.testing.assert_array_equal(steps[rows, column][settled], forecast.steps(1e-3))


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


def data(browser: Any, name: str) -> list[list[float | None]]:
    """The columns of a chart: x, and one for each series."""
    columns: list[list[float | None]] = browser.execute_script(
        "return play.charts[arguments[0]].chart.data", name
    )
    return columns


def legend(browser: Any, name: str) -> list[list[str]]:
    """What the legend of a chart says: name and value of each series."""
    rows: list[list[str]] = browser.execute_script(
        "const rows = [...document.querySelectorAll(`#play-${arguments[0]} .u-series`)];"
        "const text = (row) => ['th', 'td'].map((part) => row.querySelector(part).innerText);"
        "return rows.filter((row) => row.checkVisibility()).map(text)",
        name,
    )
    return rows


def computed(
    browser: Any,
    activation: str,
    position: int,
    body: str,
    *given: Any,
    classes: tuple[float, float] = (0, 0),
) -> Any:
    """What JavaScript returns that has `all`, the networks of a position, and `mixture`; `given` are its arguments."""
    return browser.execute_script(
        f"const all = playTheory.models('{activation}', {position} / 100, playTwins['{activation}'][{position}]);"
        f"const mixture = playTheory.mixture({DIMENSION}, {classes[0]}, {classes[1]}); {body}",
        *given,
    )


def mixture_of(distance: float, spread: float) -> nsd.GaussianMixture:
    means = np.zeros((2, DIMENSION))
    means[:, 0] = -distance / 2.0, distance / 2.0
    difference = spread / np.sqrt(DIMENSION)
    return nsd.GaussianMixture(means, [1.0 - difference, 1.0 + difference])


# Activation, position of the slider, distance and difference of spreads of the classes, samples.
SETTINGS = [
    ("relu", 85, 0.0, 2.5, 126),
    ("swish", 10, 1.0, 4.0, 250),
    ("tanh", 45, 4.0, 0.7, 60),
    ("elu", 30, 6.0, 3.3, 5000),
    ("hard_tanh", 90, 5.1, 1.1, 400),
]


@slow
@needs_chromium
def test_activations_are_those_of_the_package(browser: Any) -> None:
    places = np.linspace(-6.0, 6.0, 97)
    for name in play_tables.ACTIVATIONS:
        script = f"return arguments[0].map(playTheory.activations['{name}'].value)"
        shown = browser.execute_script(script, places.tolist())
        np.testing.assert_allclose(shown, nsd.activation(name)(places), rtol=VALUES, atol=VALUES)
        script = "return arguments[0].map((x) => all[arguments[1]].layers.map((l) => l.value(x)))"
        for which, model in networks(name, 25).items():
            layers = [model.activation] if which == "deq" else model.layers
            wanted = np.stack([one(places) for one in layers], axis=1)
            shown = computed(browser, name, 25, script, places.tolist(), which)
            np.testing.assert_allclose(shown, wanted, rtol=VALUES, atol=VALUES)


@slow
@needs_chromium
@pytest.mark.parametrize(("activation", "position", "distance", "spread", "n"), SETTINGS)
def test_kernel_entries_are_those_of_the_package(
    browser: Any, activation: str, position: int, distance: float, spread: float, n: int
) -> None:
    rows, shown = computed(
        browser,
        activation,
        position,
        "const rows = playKernel.samples(mixture, 32);"
        "const found = Object.fromEntries(Object.keys(all).map((id) => [id, playKernel.kernel(all[id], rows)]));"
        "return [rows, Object.entries(found).map(([id, one]) => [id, [...one], playKernel.distance(found.deq, one)])]",
        classes=(distance, spread),
    )
    X = np.array(rows)
    means = mixture_of(distance, spread).means
    for label in (0, 1):  # both classes in turn, of the mixture that is shown
        assert np.abs(np.sqrt(DIMENSION) * X[label::2].mean(axis=0) - means[label]).max() < 1.2
    models = networks(activation, position)
    kernels = {name: nsd.conjugate_kernel(model, X) for name, model in models.items()}
    for name, found, apart in shown:
        np.testing.assert_allclose(
            np.reshape(found, (32, 32)), kernels[name], rtol=0.0, atol=ENTRIES * kernels[name].max()
        )
        exact = kernel_distance(kernels["deq"], kernels[name])
        np.testing.assert_allclose(apart["error"], exact.up_to_factor, rtol=0.01, atol=1e-6)


@slow
@needs_chromium
def test_contrasts_are_those_of_eigenvectors(browser: Any) -> None:
    """How well an isolated eigenvector tells the classes apart: predicted, and measured on samples."""
    activation, position, distance, spread, n = "relu", 80, 4.0, 3.0, 1000
    script = "return playSpectrum.spectrum(all.deq.scalars(), mixture, arguments[0]).isolated"
    isolated = computed(browser, activation, position, script, n, classes=(distance, spread))
    X, y = mixture_of(distance, spread).sample(n, seed=0)
    vectors = np.linalg.eigh(nsd.conjugate_kernel(networks(activation, position)["deq"], X))[1]
    measured = (vectors[:, -1] @ np.where(y == y[0], 1.0, -1.0)) ** 2 / n
    assert abs(isolated[-1]["contrast"] - measured) < 0.03


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
        script = (
            f"const scalars = all.{name}.scalars(), s = playSpectrum.spectrum(scalars, mixture, {n});"
            "return {...s, scalars, density: arguments[0].map(s.density)}"
        )
        shown = computed(browser, activation, position, script, places.tolist(), classes=(distance, spread))
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
    sizes, names = sorted([24, n, 3000]), ("deq", "papers", "injected", "plain")
    script = (
        "const curve = (name) => playLearning.learningCurve(all[name], mixture, arguments[0]);"
        "return arguments[1].map((name) => curve(name).map((one) => one.accuracy))"
    )
    shown = computed(browser, activation, position, script, sizes, names, classes=(distance, spread))
    models = networks(activation, position)
    for name, curve in zip(names, shown, strict=True):
        wanted = nsd.learning_curve(models[name], mixture_of(distance, spread), sizes, "best")
        np.testing.assert_allclose(curve, wanted.accuracy, rtol=0.0, atol=ACCURACIES, err_msg=name)


@slow
@needs_chromium
def test_charts_say_their_values_to_pointer_and_keys(browser: Any) -> None:
    from selenium.webdriver.common.actions.action_builder import ActionBuilder
    from selenium.webdriver.common.actions.pointer_input import PointerInput
    from selenium.webdriver.common.by import By
    from selenium.webdriver.common.keys import Keys
    from selenium.webdriver.support.ui import WebDriverWait

    browser.execute_script("document.querySelector('#play-try button').click()")
    ready(browser)
    slider = browser.find_element(By.NAME, "sigma")
    before = int(slider.get_attribute("value"))
    slider.send_keys(Keys.ARROW_RIGHT)
    ready(browser)
    shown = browser.execute_script(
        "return document.querySelector('[name=sigma]').previousSibling.textContent"
    )
    assert shown == f"{(before + 5) / 100:.2f}"
    WebDriverWait(browser, 10).until(lambda page: f"sigma={before + 5}" in page.current_url)

    plot = browser.find_element(By.CSS_SELECTOR, "#play-curve .u-over")
    plot.send_keys(Keys.HOME)
    x, *curves = data(browser, "curve")
    values = [f"{curve[0]:.2f} %" for curve in curves]
    names = ("DEQ", "papers’ twin", "injected twin", "one plain layer")
    assert legend(browser, "curve") == [["n", "20"], *map(list, zip(names, values, strict=True))]
    plot.send_keys(Keys.ARROW_RIGHT)
    assert legend(browser, "curve")[:2] == [["n", str(x[1])], ["DEQ", f"{curves[0][1]:.2f} %"]]
    plot.send_keys(Keys.ESCAPE)
    assert [value for _, value in legend(browser, "curve")] == [""] * 5
    assert browser.execute_script("return document.querySelector('#play-curve .u-legend').ariaLive")

    for name in ("kernel", "spectrum", "curve"):
        plot = browser.find_element(By.CSS_SELECTOR, f"#play-{name} .u-over")
        browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", plot)
        finger = ActionBuilder(browser, mouse=PointerInput("touch", "finger"))
        finger.pointer_action.move_to(plot).pointer_down().pointer_up()
        finger.perform()
        assert all(re.search(r"\d|–", value) for _, value in legend(browser, name))


# --- what the page shows ----------------------------------------------------------------------------------------

# Of a chart: labels of its axes, what its scales hold, whether anything is drawn left of and below the frame and at the
# rim of the canvas, and the colours in the middle of marks, with those of their series.
DRAWN = """
const {chart} = play.charts[arguments[0]], {ctx, bbox, data, scales} = chart, {width, height} = ctx.canvas;
const ink = (...box) => ctx.getImageData(...box).data.some((value, k) => k % 4 === 3 && value > 0);
const hex = (pixel) => "#" + [...pixel].slice(0, 3).map((one) => one.toString(16).padStart(2, "0")).join("");
const place = (value, scale) => Math.round(chart.valToPos(value, scale, true));
const at = (x, y) => ctx.getImageData(place(x, "x"), place(y, "y"), 1, 1).data;
const ticks = chart.series.map((one, i) => [one, i]).filter(([one]) => one.width === 2.5);
const marks = ticks.flatMap(([one, i]) => data[i].map((y, k) => y !== null && [hex(at(data[0][k], y)), one.stroke()]))
  .filter(Boolean);
return {marks, labels: chart.axes.map(({label}) => label.call ? label() : label),
  ends: [scales.x.min, scales.x.max, scales.y.min, scales.y.max],
  ticks: [ink(0, 0, bbox.left - 30, height), ink(0, bbox.top + bbox.height + 12, width, 12)],
  cut: ink(0, 0, 1, height) || ink(width - 1, 0, 1, height) || ink(0, 0, width, 1) || ink(0, height - 1, width, 1)};
"""


def press(browser: Any, group: str, number: int) -> None:
    script = "document.querySelectorAll(`#play-${arguments[0]} button`)[arguments[1]].click()"
    browser.execute_script(script, group, number)
    ready(browser)


def text_of(browser: Any, selector: str) -> str:
    return str(browser.execute_script("return document.querySelector(arguments[0]).textContent", selector))


@slow
@needs_chromium
@pytest.mark.parametrize("number", range(6))
def test_nothing_is_cut_off_and_marks_have_their_colours(browser: Any, number: int) -> None:
    press(browser, "try", number)
    for name in ("kernel", "spectrum", "curve"):
        drawn = browser.execute_script(DRAWN, name)
        assert all(drawn["labels"])
        assert drawn["ticks"] == [True, True]
        assert not drawn["cut"]
        columns = [np.array(column, dtype=float) for column in data(browser, name)]
        left, right, low, high = drawn["ends"]
        assert left <= columns[0].min() <= columns[0].max() <= right
        assert low <= np.nanmin(columns[1:]) <= np.nanmax(columns[1:]) <= high
        assert all(shown == wanted for shown, wanted in drawn["marks"])
        view = browser.execute_script("return play.choice().view")
        assert ("percentage points" in drawn["labels"][1]) is (name == "curve" and view)


@slow
@needs_chromium
def test_every_button_shows_what_it_says(browser: Any) -> None:
    """The claims of "What to try", read from the values that the charts show."""

    def curves() -> dict[str, Any]:
        names = ("deq", "papers", "injected", "plain")
        return dict(zip(names, map(np.array, data(browser, "curve")[1:]), strict=True))

    def kernel_errors() -> dict[str, float]:
        """In percent, from the sentence below the chart; "< 0.01 %" is 0.01."""
        said = re.findall(
            r"(papers|injected|plain)[^\d]*([\d.]+) %", text_of(browser, "#play-kernel .play-summary")
        )
        return {name: float(value) for name, value in said}

    def opened(number: int) -> dict[str, Any]:
        press(browser, "try", number)
        pressed = (
            "return [...document.querySelectorAll('#play-try button')].map((b) => b.ariaPressed === 'true')"
        )
        assert browser.execute_script(pressed) == [k == number for k in range(6)]
        return curves()

    browser.get(browser.current_url.split("#")[0] + "?fresh")
    ready(browser)
    shown = curves()  # what the page opens with: a layer falls short
    assert curves().keys() == opened(0).keys()
    np.testing.assert_array_equal(shown["deq"], curves()["deq"])
    assert 4.0 < (shown["deq"] - shown["plain"]).max() < 5.0
    assert np.abs([shown["deq"] - shown[twin] for twin in ("papers", "injected")]).max() < 0.5
    assert max(kernel_errors()["papers"], kernel_errors()["injected"]) < 0.3
    assert kernel_errors()["plain"] > 2.0

    shown = opened(1)  # a layer is enough
    assert all(np.abs(shown["deq"] - other).max() < 0.1 for other in shown.values())

    shown = opened(2)  # a layer wins; differences are shown
    assert 8.5 < shown["plain"].max() < 9.5
    assert (shown["plain"] - np.maximum(shown["papers"], shown["injected"])).max() > 8.0

    shown = opened(3)  # blind to spreads
    assert all((other > 50.0).all() and other.max() < 51.5 for other in shown.values())

    opened(4)  # lost in the bulk
    assert "No single eigenvector tells" in text_of(browser, "#play-spectrum .play-summary")
    browser.execute_script(
        "const slider = document.querySelector('[name=distance]'); slider.value = 3;"
        "slider.dispatchEvent(new Event('input'))"
    )
    ready(browser)
    assert "An eigenvector tells the classes apart" in text_of(browser, "#play-spectrum .play-summary")
    assert text_of(browser, "#play-try .play-look") == "Your own setting."

    opened(5)  # equal numbers, other entries
    rows = "return [...document.querySelectorAll('#play-numbers tbody tr')]"
    cells = rows + ".map((row) => [...row.querySelectorAll('td')].map((cell) => cell.textContent))"
    deq, papers, *_ = browser.execute_script(cells)
    assert deq == papers
    assert kernel_errors()["papers"] > 10 * kernel_errors()["injected"]


@slow
@needs_chromium
def test_the_phase_diagram_answers_from_the_table(browser: Any) -> None:
    phases = table("play_phases")
    settles = []
    for number in range(4):
        press(browser, "cell-try", number)
        now = browser.execute_script("return play.choice()")
        steps = phases[now["cell"]]["steps"][now["input"]][now["strength"]]
        rate = phases[now["cell"]]["rate"][now["input"]][now["strength"]] / 1e4
        answer = text_of(browser, "#play-answer")
        assert answer.startswith(f"Settles in about {steps} steps." if steps else "Does not settle.")
        assert f"Rate {rate:.3f} per step." in answer
        assert ("Narrow networks" in answer) is (bool(steps) and rate > 0.9)
        settles.append((bool(steps), rate))
    # What the buttons say: weak, strong, just above 1, and settled beyond sigma_a2 = 1.
    assert [one[0] for one in settles] == [False, True, False, True]
    assert 1.0 < settles[2][1] < 1.02

    place = (
        "const plot = play.phase.chart.over, box = plot.getBoundingClientRect();"
        "plot.dispatchEvent(new MouseEvent('click', {clientX: box.left + arguments[0] * box.width,"
        "clientY: box.top + arguments[1] * box.height})); return play.choice()"
    )
    high, low = browser.execute_script(place, 0.1, 0.0), browser.execute_script(place, 1.0, 1.0)
    assert high["strength"] < low["strength"] == len(phases["strengths"]) - 1
    assert (high["input"], low["input"]) == (len(phases["inputs"]) - 1, 0)
    assert text_of(browser, "#play-answer").startswith("Does not settle.")

    # Colours: blue where the rate is below 1, orange above.
    pixel = (
        "const {ctx, bbox} = play.phase.chart;"
        "const [x, y] = [bbox.left + arguments[0] * bbox.width, bbox.top + arguments[1] * bbox.height];"
        "return [...ctx.getImageData(x, y, 1, 1).data]"
    )
    red, _, blue, _ = browser.execute_script(pixel, 0.1, 0.1)
    assert blue > red
    red, _, blue, _ = browser.execute_script(pixel, 0.95, 0.7)
    assert red > blue


@slow
@needs_chromium
def test_recipes_give_the_numbers_of_the_page(browser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    press(browser, "try", 0)
    exec(text_of(browser, "#play-recipe"), {})
    accuracy = float(re.findall(r"[\d.]+", capsys.readouterr().out)[-1])
    shown = re.search(r"DEQ ([\d.]+) %", text_of(browser, "#play-curve .play-summary"))
    assert shown is not None
    assert abs(100.0 * accuracy - float(shown[1])) < 0.1
    for number in range(4):
        press(browser, "cell-try", number)
        exec(text_of(browser, "#play-cell-recipe"), {})
        printed, answer = capsys.readouterr().out, text_of(browser, "#play-answer")
        steps = re.search(r"about (\d+) steps", answer)
        assert (f"{steps[1]} to 0.001" in printed) if steps else ("do not settle" in printed)
