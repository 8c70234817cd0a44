"""The page without a browser: every control, hostile input, races; errors are messages, never stack traces."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from explorer_choices import upload

pytest.importorskip("streamlit")
from streamlit.testing.v1 import AppTest

import notsodeep_lab.explorer
from notsodeep.errors import ConvergenceError
from notsodeep_lab.explorer import computations
from notsodeep_lab.explorer.race_job import RacePlan

pytestmark = pytest.mark.slow

MAIN = str(Path(notsodeep_lab.explorer.__file__).with_name("main.py"))


@pytest.fixture(scope="module")
def session() -> AppTest:
    """A page with few samples, so that it answers at once."""
    page = AppTest.from_file(MAIN, default_timeout=600)
    # The digits, which the page begins with; then two classes of few samples.
    page.run()
    assert_first_screen(page)
    page.radio(key="source").set_value("mixture").run()
    page.slider(key="n").set_value(100)
    page.slider(key="p").set_value(50)
    return see(page, "export")


@pytest.fixture
def page(session: AppTest) -> Iterator[AppTest]:
    """The same page for every test, with its controls put back afterwards."""
    kept = {
        key: session.session_state[key] for key in ("activation", "sigma_a2", "kernel", "family", "source")
    }
    yield session
    widgets = {"sigma_a2": session.slider, "source": session.radio}
    for key, value in kept.items():
        widgets.get(key, session.selectbox)(key=key).set_value(value)
    see(session, "export")


def see(page: AppTest, view: str) -> AppTest:
    """Open a view."""
    page.segmented_control(key="view").set_value(view)
    return page.run()


def python(page: AppTest) -> str:
    return page.code[0].value


def command(page: AppTest, place: int = 1) -> str:
    """A command as one line."""
    return page.code[place].value.replace(" \\\n ", "")


def is_whole(page: AppTest) -> bool:
    """All parts of the open view are there and nothing was refused."""
    images, codes, downloads = {
        "verdict": (3, 1, 0),
        "learning": (1, 0, 0),
        "theory": (2, 0, 0),
        "races": (0, 0, 0),
        "export": (0, 2, 3),
    }[page.session_state["view"]]
    found = len(page.get("image")), len(page.code), len(page.download_button)
    return not page.exception and not page.error and found == (images, codes, downloads)


def sentence(page: AppTest) -> str:
    """The one error on the page, as plain text; nothing of a stack trace beside it."""
    assert not page.exception
    assert len(page.error) == 1
    text = page.error[0].value.replace("\\", "")
    assert "Traceback" not in text
    assert text[-1] in ".)"
    assert page.selectbox(key="activation").label == "Activation"
    return text


def assert_first_screen(page: AppTest) -> None:
    """The verdict with its reason and a command, three pictures with words, and help for every control."""
    assert is_whole(page)
    assert page.title[0].value.endswith("?")
    assert "deep equilibrium model" in page.markdown[0].value
    boxes = [*page.success, *page.warning, *page.info]
    assert len(boxes) == 1
    assert boxes[0].value.startswith(("**Yes.**", "**No.**", "**Unsure.**"))
    assert page.code[0].value.startswith("notsodeep ")
    assert any("150 of the 1000 samples" in one.value for one in page.caption)
    controls = [*page.selectbox, *page.slider, *page.number_input, *page.select_slider, *page.radio]
    assert len(controls) == 9
    assert [control.label for control in controls if not control.help] == []
    assert all(image.proto.imgs[0].alt for image in page.get("image"))


def test_the_table_of_the_design_has_its_numbers(page: AppTest):
    see(page, "theory")
    assert is_whole(page)
    assert page.success[0].value.startswith("Yes")
    table = page.table[0].value
    assert list(table.columns) == ["scalar", "target", "reached", "relative error"]
    made = computations.design_of(computations.Choice(data=computations.PageData(n=100, p=50)))
    assert [float(value) for value in table["target"]] == pytest.approx(made.target.as_array(), rel=1e-5)


def test_the_learning_curves_say_how_many_samples_are_needed(page: AppTest):
    page.slider(key="mean").set_value(3.0)
    page.slider(key="gap").set_value(0.0)
    see(page, "learning")
    assert is_whole(page)
    needed, compared = (one.value for one in page.table)
    assert list(needed["model"]) == ["DEQ", "explicit twin", "plain network"]
    page.slider(key="target_accuracy").set_value(50.0).run()
    assert all(one.startswith("at most") for one in page.table[0].value["samples needed"])
    assert set(compared["model"]) == set(needed["model"])
    page.radio(key="source").set_value("sphere").run()
    assert any("Add labels" in one.value for one in page.info)


def test_a_convolutional_network_is_judged_on_small_images(page: AppTest):
    page.radio(key="source").set_value("digits")
    page.radio(key="images").set_value(True)
    see(page, "verdict")
    assert is_whole(page)
    assert any("to 4 × 4" in one.value.replace("\\", "") for one in page.caption)
    assert "--model conv" in command(page, 0)
    page.radio(key="source").set_value("sphere").run()
    assert "needs images" in sentence(page)
    page.radio(key="images").set_value(False).run()


# Several controls at once, each with what the script on the page must then contain.
MOVES = {
    "model": [
        ("selectbox", "activation", "tanh", "nsd.activation('tanh')"),
        ("slider", "sigma_a2", 0.55, "sigma_a2=0.55"),
        ("selectbox", "kernel", "ntk", "nsd.tangent_kernel"),
        ("selectbox", "family", "polynomial", "family='polynomial'"),
    ],
    "mixture": [
        ("selectbox", "kernel", "both", "kernel='both'"),
        ("slider", "mean", 3.5, "mean=3.5"),
        ("slider", "gap", 1.5, "gap=1.5"),
        ("slider", "n", 150, "mixture.sample(150"),
        ("slider", "p", 100, "paper(100,"),
        ("number_input", "seed", 7, "seed=7"),
    ],
    "sphere": [("radio", "source", "sphere", "nsd.UnitSphere(")],
    "digits": [("radio", "source", "digits", 'load("digits"')],
}


@pytest.mark.parametrize("moves", MOVES.values(), ids=list(MOVES))
def test_every_control_moves_the_page(page: AppTest, moves):
    before = python(page)
    for kind, key, value, _ in moves:
        getattr(page, kind)(key=key).set_value(value)
    page.run()
    assert is_whole(page)
    for *_, words in moves:
        assert words not in before
        assert words in python(page)


def test_a_family_that_cannot_match_is_reported(page: AppTest):
    page.selectbox(key="activation").set_value("relu")
    page.selectbox(key="family").set_value("hard_tanh")
    see(page, "theory")
    assert is_whole(page)
    assert page.warning[0].value.startswith("Not quite")
    assert any("Why" in line.value for line in page.markdown)


def test_a_formula_is_drawn_and_hostile_ones_are_refused(page: AppTest):
    page.selectbox(key="activation").set_value("leaky_relu").run()
    page.number_input(key="parameter_leaky_relu_b").set_value(0.3).run()
    assert is_whole(page)
    assert "nsd.activation('leaky_relu', a=1.0, b=0.3)" in python(page)
    assert "--activation leaky_relu:a=1.0,b=0.3" in command(page)
    page.selectbox(key="activation").set_value("formula").run()
    assert is_whole(page)
    assert "expression='x * sigmoid(x)'" in python(page)
    see(page, "verdict")
    for text in (
        "   ", "__import__('os').system('touch broken')", "x.__class__", "(lambda: x)()", "x**9**9**9", "x/0", "sin(",
        "exp(exp(x))", "y + 1", "[x]", "x;x", "<script>alert(1)</script>", "**x** _x_ [x](http://x)", "x" * 10_000,
        "(" * 500 + "x" + ")" * 500, "\u202ex", "3", "x**3 * 1e6",
    ):  # fmt: skip
        page.text_input(key="expression").set_value(text).run()
        said = sentence(page)
        assert len(said) > 20, text
    assert not Path("broken").exists()
    page.text_input(key="expression").set_value("max(x, 0.2*x)").run()
    assert is_whole(page)


def test_files_are_shown_or_refused(page: AppTest):
    page.radio(key="source").set_value("file").run()
    assert "Upload a CSV or NPY file" in sentence(page)
    content = "\n".join(",".join(map(str, row)) for row in upload().rows).encode()
    for name, bad, words in (
        ("a.csv", b"name,age\n" + content, "the first row 2"),
        ("a.csv", content.replace(b"-", b"nan", 1), "number"),
        ("a.npy", b"\x80\x04K\x01.", "not a NPY file"),
        ("a.csv", b"", "empty"),
    ):
        page.file_uploader(key="upload").set_value((name, bad, "text/csv")).run()
        assert words in sentence(page)
    page.file_uploader(key="upload").set_value(("mine.csv", content, "text/csv")).run()
    assert is_whole(page)
    assert "open_table('mine.csv'" in python(page)
    assert "--data mine.csv --n 90 --scale auto" in command(page)


def test_files_are_scaled_and_the_page_says_so(page: AppTest):
    rows = 100.0 + 1000.0 * upload().rows
    header = ",".join([*(f"c{number}" for number in range(rows.shape[1])), "kind"])
    lines = [",".join([*map(str, row), "ab"[number % 2]]) for number, row in enumerate(rows)]
    page.radio(key="source").set_value("file").run()
    page.file_uploader(key="upload").set_value(
        ("mine.csv", "\n".join([header, *lines]).encode(), "text/csv")
    ).run()
    assert is_whole(page)
    assert any("Labels: column kind" in one.value.replace("\\", "") for one in page.caption)
    assert any("centred and scaled by one number" in one.value.replace("\\", "") for one in page.caption)
    assert "label_column='kind'" in python(page)
    see(page, "verdict")
    assert is_whole(page)
    page.selectbox(key="scale").set_value("none")
    see(page, "export")
    assert any("scale 'auto' centres them" in one.value.replace("\\", "") for one in page.warning)
    assert "--scale none --label-column kind" in command(page)


def test_an_unexpected_error_is_a_message_too(page: AppTest, monkeypatch, caplog):
    def fail(choice):
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(computations, "spectrum_of", fail)
    page.slider(key="sigma_a2").set_value(0.31)
    see(page, "theory")
    assert "Unexpected error (RuntimeError)" in sentence(page)
    assert "secret" not in str(page)
    assert "/secret/path" in caplog.text
    # The other parts of the page are still there.
    assert page.success
    assert len(page.get("image")) == 1


# --- race -----------------------------------------------------------------------------------------------


def racing() -> bool:
    return any(thread.name == "notsodeep-race" for thread in threading.enumerate())


def test_a_race_ends_with_its_table(page: AppTest):
    pytest.importorskip("torch")
    run_race(page, "train", 2)
    table = page.table[0].value
    assert list(table["network"]) == ["DEQ", "explicit twin", "plain network"]
    assert all(float(value.rstrip("%")) > 50 for value in table["accuracy"])
    assert page.button(key="stop_race").disabled


def run_race(page: AppTest, kind: str, epochs: int) -> None:
    """Start a race of narrow networks, and wait for its end."""
    page.select_slider(key="width").set_value(64)
    see(page, "races")
    page.radio(key="race_kind").set_value(kind)
    page.slider(key="race_epochs").set_value(epochs).run()
    page.button(key="start_race").click().run()
    job = page.session_state["race"]
    assert job.wait(600)
    assert job.state == "finished", job.problem
    page.run()
    assert not page.exception
    assert not page.error
    assert len(page.get("image")) == 1


def test_a_distillation_ends_with_its_candidates(page: AppTest):
    pytest.importorskip("torch")
    run_race(page, "distil", 1)
    distilled, table = page.session_state["race"].result, page.table[0].value
    assert list(table["network"]) == ["trained DEQ", *(one.name for one in distilled.candidates)]
    assert any(one.kind == "cut" for one in distilled.candidates)
    shown = [float(value.rstrip("%")) for value in table["same class"][1:]]
    assert shown == pytest.approx([100 * one.agreement for one in distilled.candidates], abs=0.051)


def test_the_stop_button_stops(page: AppTest, monkeypatch):
    def endless(plan, report):
        step = 0
        while True:
            step += 1
            report(step, 10**6, lambda: "one more step")
            time.sleep(0.01)

    monkeypatch.setattr(RacePlan, "run", endless)
    see(page, "races")
    page.button(key="start_race").click().run()
    job = page.session_state["race"]
    time.sleep(0.2)
    page.run()
    assert "step" in page.get("progress")[0].proto.text
    assert page.button(key="start_race").disabled
    page.button(key="stop_race").click().run()
    assert job.wait(5)
    assert not racing()
    page.run()
    assert page.info[0].value.startswith("The race was stopped")
    assert not page.button(key="start_race").disabled


def test_a_race_that_fails_says_why(page: AppTest, monkeypatch):
    def fail(plan, report):
        raise ConvergenceError("It diverged.", "Take another *activation*.")

    monkeypatch.setattr(RacePlan, "run", fail)
    see(page, "races")
    page.button(key="start_race").click().run()
    assert page.session_state["race"].wait(5)
    page.run()
    assert sentence(page) == "It diverged. Take another *activation*."
    assert np.isfinite(page.session_state["race"].share)
