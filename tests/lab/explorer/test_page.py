"""The page without a browser: every control, files, hostile input; errors are messages, never stack traces."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from explorer_choices import upload

pytest.importorskip("streamlit")
from streamlit.testing.v1 import AppTest

import notsodeep_lab.explorer
from notsodeep_lab.explorer import computations
from notsodeep_lab.explorer.page import plain

pytestmark = pytest.mark.slow

MAIN = str(Path(notsodeep_lab.explorer.__file__).with_name("main.py"))
CONTROLS = (
    "kind",
    "activation",
    "feedback",
    "injection",
    "kernel",
    "source",
    "n",
    "mean",
    "gap",
    "p",
    "seed",
)


@pytest.fixture(scope="module")
def session() -> AppTest:
    """The page as it opens."""
    with pytest.MonkeyPatch.context() as patch:
        # What is compiled beforehand takes seconds, and serves real readers only.
        patch.setattr(computations, "warm_up", lambda: None)
        page = AppTest.from_file(MAIN, default_timeout=600).run()
        assert_first_screen(page)
        yield page


@pytest.fixture
def page(session: AppTest) -> Iterator[AppTest]:
    """The same page for every test, with a network that is quick and few samples."""
    session.radio(key="source").set_value("mixture").run()
    session.slider(key="n").set_value(100)
    session.slider(key="p").set_value(20)
    session.slider(key="feedback").set_value(0.8)
    session.selectbox(key="activation").set_value("relu")
    session.radio(key="kind").set_value("deq")
    return see(session, "answer")


def see(page: AppTest, view: str) -> AppTest:
    """Open a view."""
    page.segmented_control(key="view").set_value(view)
    return page.run()


def is_whole(page: AppTest) -> bool:
    """All parts of the open view are there and nothing was refused."""
    images, codes, metrics = {"answer": (2, 0, 4), "twin": (2, 0, 0), "code": (0, 1, 0)}[
        page.session_state["view"]
    ]
    found = len(page.get("image")), len(page.code), len(page.metric)
    return not page.exception and not page.error and found == (images, codes, metrics)


def sentence(page: AppTest) -> str:
    """The one error on the page, as plain text; nothing of a stack trace beside it."""
    assert not page.exception
    assert len(page.error) == 1
    text = page.error[0].value.replace("\\", "")
    assert "Traceback" not in text
    assert text[-1] in ".)"
    assert page.selectbox(key="activation").label == "Activation"
    return text


def boxes(page: AppTest) -> list[str]:
    return [one.value for one in (*page.success, *page.warning, *page.info)]


def assert_first_screen(page: AppTest) -> None:
    """One sentence, four numbers, two figures with words, and help for every control."""
    assert is_whole(page)
    assert page.title[0].value.endswith("?")
    assert len(boxes(page)) == 1
    assert boxes(page)[0].startswith("**It settles**")
    rate = page.metric[1].value
    assert f"rate {rate}," in boxes(page)[0]
    assert f"{page.metric[2].value} steps to a residual of 0.001" in boxes(page)[0]
    controls = [*page.selectbox, *page.slider, *page.number_input, *page.radio]
    assert sorted(one.key for one in controls) == sorted(CONTROLS)
    assert [control.label for control in controls if not control.help] == []
    assert all(image.proto.imgs[0].alt for image in page.get("image"))


# Several controls at once, each with what the script on the page must then contain.
MOVES = {
    "network": [
        ("radio", "kind", "gated", "def gated_cell("),
        ("selectbox", "activation", "tanh", "'tanh'"),
        ("slider", "feedback", 0.55, "feedback=0.55"),
        ("slider", "injection", 1.5, "injection=1.5"),
        ("radio", "kernel", "ntk", "kernel='ntk'"),
    ],
    "mixture": [
        ("slider", "mean", 3.5, "mean=3.5"),
        ("slider", "gap", 1.5, "gap=1.5"),
        ("slider", "n", 150, "sample(150"),
        ("slider", "p", 30, "paper(30,"),
        ("number_input", "seed", 7, "seed=7"),
    ],
    "digits": [("radio", "source", "digits", 'load("digits"')],
}


@pytest.mark.parametrize("moves", MOVES.values(), ids=list(MOVES))
def test_every_control_moves_the_page(page: AppTest, moves):
    before = see(page, "code").code[0].value
    for kind, key, value, _ in moves:
        getattr(page, kind)(key=key).set_value(value)
    page.run()
    assert is_whole(page)
    for *_, words in moves:
        assert words not in before
        assert words in page.code[0].value
    assert is_whole(see(page, "answer"))


def test_a_slow_network_says_how_many_samples_it_uses(page: AppTest):
    page.slider(key="n").set_value(150)
    page.slider(key="feedback").set_value(0.2)
    page.radio(key="kind").set_value("swiglu").run()
    assert is_whole(page)
    captions = [one.value for one in page.caption]
    assert any(one.startswith("100 are used") for one in captions)
    assert plain("100 samples.") in captions


def test_the_twin_of_a_deq_is_shown(page: AppTest):
    see(page, "twin")
    assert is_whole(page)
    text = " ".join(one.value for one in page.markdown).replace("\\", "")
    assert "times closer than 1 plain layer" in text
    assert "Layer 2 of the twin: " in text
    page.radio(key="kind").set_value("residual").run()
    assert not page.error
    assert boxes(page)[0].startswith("Twins are shown for a DEQ")


def test_what_does_not_settle_is_said_and_no_depth_is_shown(page: AppTest):
    page.selectbox(key="activation").set_value("tanh")
    page.slider(key="feedback").set_value(3.0)
    page.slider(key="injection").set_value(0.1).run()
    assert not page.exception
    assert not page.error
    assert any(one.value.startswith("**It does not settle**") for one in page.warning)
    assert len(page.get("image")) == 1
    assert not page.success
    page.selectbox(key="activation").set_value("relu").run()
    assert page.warning[0].value.startswith("**It does not settle**: lower the feedback")
    assert "Lower sigma" in page.warning[0].value
    page.slider(key="injection").set_value(2.0).run()


def test_my_own_file_opens_with_a_prompt_and_is_shown_or_refused(page: AppTest):
    page.radio(key="source").set_value("file").run()
    assert not page.error
    assert boxes(page)[0].startswith("Choose a CSV or NPY file above")
    rows = 100.0 + 1000.0 * upload().rows
    content = "\n".join(",".join(map(str, row)) for row in rows.tolist()).encode()
    for name, bad, words in (
        ("a.csv", b"name,age\n" + content, "the first row 2"),
        ("a.npy", b"\x80\x04K\x01.", "not a NPY file"),
        ("a.csv", b"", "empty"),
        ("a.csv", content.replace(b",", b",<script>alert(1)</script>,", 1), "12 cells, the first row 13"),
    ):
        page.file_uploader(key="upload").set_value((name, bad, "text/csv")).run()
        assert words in sentence(page)
    page.file_uploader(key="upload").set_value(("mine.csv", content, "text/csv")).run()
    assert is_whole(page)
    assert "add labels" in boxes(page)[0]
    header = ",".join([*(f"c{number}" for number in range(rows.shape[1])), "kind"])
    lines = [",".join([*map(str, row), "ab"[row[0] > 200.0]]) for row in rows.tolist()]
    labelled = "\n".join([header, *lines]).encode()
    page.file_uploader(key="upload").set_value(("mine.csv", labelled, "text/csv")).run()
    assert is_whole(page)
    said = page.caption[0].value.replace("\\", "")
    assert "centred and scaled by one number" in said
    assert "Labels: column kind" in said
    page.selectbox(key="scale").set_value("none").run()
    assert any("scale 'auto' centres them" in one.value.replace("\\", "") for one in page.warning)
    assert "label_column='kind'" in see(page, "code").code[0].value
    page.selectbox(key="scale").set_value("auto").run()


def test_an_unexpected_error_is_a_message_too(page: AppTest, monkeypatch, caplog):
    def fail(choice):
        raise RuntimeError("/secret/path")

    monkeypatch.setattr(computations, "forecast_of", fail)
    page.run()
    assert "Unexpected error (RuntimeError)" in sentence(page)
    assert "secret" not in str(page)
    assert "/secret/path" in caplog.text


@pytest.mark.parametrize(
    "text", ["a*b*c", "__init__", "[x](http://y)", "$x$", "<b>", ":red[x]", "~~a~~", "# a"]
)
def test_user_text_is_escaped(text: str):
    assert all(f"\\{sign}" in plain(text) for sign in text if not sign.isalnum() and sign not in " /")
