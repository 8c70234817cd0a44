"""Choices of the page: what is accepted, what is refused and in which words."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notsodeep.cli.scenario import read_activation
from notsodeep.errors import InputError
from notsodeep_lab.explorer.choice import ACTIVATIONS, DATA, FAMILY_NAMES, PARAMETERS, Choice, Data


def test_the_defaults_are_those_of_the_page():
    choice = Choice()
    assert (choice.activation, choice.sigma_a2, choice.kernel, choice.family) == ("relu", 0.2, "ck", "auto")
    assert (choice.data.source, choice.data.n, choice.data.p) == ("mixture", 1000, 800)
    with pytest.raises(dataclasses.FrozenInstanceError):
        choice.sigma_a2 = 0.5  # type: ignore[misc]


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


@given(
    sigma_a2=st.floats(0, 1),
    mean=st.floats(0, 20),
    gap=st.floats(0, 20),
    n=st.integers(20, 2000),
    p=st.integers(20, 2000),
    source=st.sampled_from([one for one in DATA if one != "file"]),
    family=st.sampled_from(FAMILY_NAMES),
    kernel=st.sampled_from(["ck", "ntk", "ntk_paper", "both"]),
)
def test_equal_choices_are_equal_and_hash_alike(sigma_a2, mean, gap, n, p, source, family, kernel):
    def made() -> Choice:
        data = Data(source=source, n=n, p=p, mean=mean, gap=gap)
        return Choice(sigma_a2=sigma_a2, family=family, kernel=kernel, data=data)

    assert made() == made()
    assert hash(made()) == hash(made())
    assert made().shown_kernel in ("ck", "ntk", "ntk_paper")


REFUSED = {
    "an unknown activation": (lambda: Choice(activation="exec"), "Choose one of"),
    "an unknown kernel": (lambda: Choice(kernel="nkt"), "Choose one of"),
    "an unknown family": (lambda: Choice(family="deep"), "Choose one of"),
    "no formula": (lambda: Choice(activation="formula", expression="  "), "Type one in x"),
    "a long formula": (lambda: Choice(activation="formula", expression="x+" * 200 + "x"), "Shorten it"),
    "a parameter of another": (lambda: Choice(activation="tanh", parameters=(("a", 1.0),)), "none"),
    "a parameter without end": (
        lambda: Choice(activation="elu", parameters=(("alpha", math.inf),)),
        "finite",
    ),
    "a variance above one": (lambda: Choice(sigma_a2=1.2), "between 0 and 1"),
    "a variance that is none": (lambda: Choice(sigma_a2=math.nan), "finite"),
    "too many samples": (lambda: Data(n=10**9), "between 20 and 2000"),
    "half a sample": (lambda: Data(n=100.5), "whole number"),
    "a yes for a number": (lambda: Data(p=True), "whole number"),
    "a negative seed": (lambda: Data(seed=-1), "whole number"),
    "a negative separation": (lambda: Data(mean=-1.0), "between 0"),
    "an unknown source": (lambda: Data(source="mnist"), "Choose one of"),
    "a file that is not there": (lambda: Data(source="file"), "Upload a CSV or NPY file"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_used_is_refused_in_words(make, words):
    with pytest.raises(InputError, match=words):
        make()
