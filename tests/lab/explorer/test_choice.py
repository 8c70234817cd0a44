"""Settings of the page: which are accepted, and how others are refused."""

from __future__ import annotations

import math

import pytest

from notsodeep.cli.scenario import read_activation
from notsodeep.errors import InputError
from notsodeep_lab.explorer.choice import ACTIVATIONS, PARAMETERS, Choice, PageData


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_on_offer_is_one(name: str):
    parameters = tuple(PARAMETERS.get(name, {}).items())
    assert Choice(activation=name, parameters=parameters).phi.name == name


@pytest.mark.parametrize(
    "choice",
    [
        Choice(),
        Choice(activation="leaky_relu", parameters=(("a", 1.25), ("b", -0.1))),
        Choice(activation="elu", parameters=(("alpha", 1 / 3),)),
        Choice(activation="formula", expression="x * sigmoid(x) + 0.1*x**2"),
    ],
    ids=lambda choice: choice.activation_text,
)
def test_the_text_of_an_activation_is_read_back_as_the_same_one(choice: Choice):
    assert read_activation(choice.activation_text) == choice.phi


REFUSED = {
    "an unknown activation": (lambda: Choice(activation="exec"), "Choose one of"),
    "an unknown kernel": (lambda: Choice(kernel="nkt"), "Choose one of"),
    "an unknown family": (lambda: Choice(family="deep"), "Choose one of"),
    "no formula": (lambda: Choice(activation="formula", expression="  "), "Type a formula in x"),
    "a long formula": (lambda: Choice(activation="formula", expression="x+" * 200 + "x"), "Shorten it"),
    "a parameter of another": (lambda: Choice(activation="tanh", parameters=(("a", 1.0),)), "none"),
    "a parameter without end": (
        lambda: Choice(activation="elu", parameters=(("alpha", math.inf),)),
        "finite",
    ),
    "a variance above one": (lambda: Choice(sigma_a2=1.2), "between 0 and 1"),
    "a variance that is none": (lambda: Choice(sigma_a2=math.nan), "finite"),
    "too many samples": (lambda: PageData(n=10**9), "between 20 and 2000"),
    "half a sample": (lambda: PageData(n=100.5), "whole number"),
    "a yes for a number": (lambda: PageData(p=True), "whole number"),
    "a negative seed": (lambda: PageData(seed=-1), "whole number"),
    "a negative separation": (lambda: PageData(mean=-1.0), "between 0"),
    "an unknown source": (lambda: PageData(source="mnist"), "Choose one of"),
    "a file that is not there": (lambda: PageData(source="file"), "Upload a CSV or NPY file"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_used_is_refused_in_words(make, words):
    with pytest.raises(InputError, match=words):
        make()
