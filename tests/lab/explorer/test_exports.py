"""Downloads of the page: valid files with everything that the page shows."""

from __future__ import annotations

import io
import re
import zipfile
from xml.etree import ElementTree

import pytest
from explorer_choices import CHOICES

from notsodeep_lab.explorer import computations
from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.exports import figures_zip, report_page
from notsodeep_lab.explorer.pictures import KINDS, drawn, kinds_of, picture_of

pytestmark = pytest.mark.slow

SOME = {name: CHOICES[name] for name in ("mixture", "csv")}
some = pytest.mark.parametrize("choice", SOME.values(), ids=list(SOME))


@some
def test_the_figures_are_all_there_twice(choice: Choice):
    with zipfile.ZipFile(io.BytesIO(figures_zip(choice))) as archive:
        assert sorted(archive.namelist()) == sorted(
            f"{kind}.{end}" for kind in kinds_of(choice) for end in ("png", "svg")
        )
        for name in archive.namelist():
            content = archive.read(name)
            if name.endswith(".png"):
                assert content.startswith(b"\x89PNG")
            else:
                assert ElementTree.fromstring(content).tag.endswith("svg")


@some
@pytest.mark.parametrize("kind", KINDS)
def test_figures_are_light_or_dark_and_have_words(choice: Choice, kind: str):
    if kind not in kinds_of(choice):
        assert kind == "curves"
        assert computations.samples_of(choice.data).labels is None
        return
    light, dark = (drawn(kind, choice, dark) for dark in (False, True))
    assert "#0e1117" in dark
    assert "#0e1117" not in light
    assert "fill: #000000" not in dark.replace("opacity", "")
    assert drawn(kind, choice, True) is dark
    picture = picture_of(kind, choice)
    assert picture.words.endswith(".")
    assert picture.caption.endswith(".")


def test_the_report_is_one_page_with_everything():
    choice = CHOICES["formula"]
    text = report_page(choice)
    assert text.startswith("<!DOCTYPE html>")
    assert text.count("<img ") == 4
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", text)
    for words in (
        "the four numbers agree" if computations.design_of(choice).exact else "sees the input again",
        "import notsodeep",
        "notsodeep design",
    ):
        assert words in text
