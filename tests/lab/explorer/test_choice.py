"""Settings of the page: which are accepted, how others are refused, and the networks on offer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from explorer_choices import upload

import notsodeep as nsd
from notsodeep import cells
from notsodeep.errors import InputError
from notsodeep_lab.explorer.choice import MOST_SAMPLES, Choice, PageData
from notsodeep_lab.explorer.offered_networks import ACTIVATIONS, KINDS, Network


@pytest.mark.parametrize("kind", KINDS)
def test_the_code_of_a_network_builds_it(kind: str):
    network = Network(kind, "tanh", 0.35, 1.25)
    session = {"DEQ": nsd.DEQ, "Equilibrium": nsd.Equilibrium, "cells": cells}
    exec(compile(network.code, "copied.py", "exec"), session)
    assert str(session["model"]) == str(network.model)
    assert "0.35" in str(network.model)
    assert "1.25" in str(network.model)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_every_activation_on_offer_is_one(name: str):
    assert Network("deq", name).model.activation.name == name


def test_samples_are_those_that_the_choice_names():
    rows, labels = nsd.GaussianMixture.paper(30, mean=2.0, gap=5.0).sample(70, seed=4)
    drawn = PageData(n=70, p=30, gap=5.0, seed=4).samples
    assert np.array_equal(drawn.rows, rows)
    assert np.array_equal(drawn.labels, labels)
    digits = PageData("digits", n=500).samples
    assert digits.rows.shape == (500, 64)
    assert np.mean(np.sum(digits.rows**2, axis=1)) == pytest.approx(1.0)


def test_rows_of_a_sorted_file_are_chosen_at_random():
    some = PageData("file", n=50, upload=upload(), scale="none")
    whole = upload().table
    assert some.total == 90
    assert set(some.samples.labels) == {"a", "b"}
    assert all((whole.rows == row).all(axis=1).any() for row in some.samples.rows)
    assert not np.array_equal(some.samples.rows, whole.rows[:50])


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_network_has_fewer_samples(kind: str):
    most = MOST_SAMPLES[kind]
    assert Choice(Network(kind), data=PageData(n=most)).data.n == most
    if most < 600:
        with pytest.raises(InputError, match=f"between 50 and {most}"):
            Choice(Network(kind), data=PageData(n=most + 1))


REFUSED = {
    "an unknown network": (lambda: Network("rnn"), "Choose one of"),
    "an unknown activation": (lambda: Network(activation="exec"), "Choose one of"),
    "no feedback": (lambda: Network(feedback=0.0), "above 0"),
    "a feedback that is none": (lambda: Network(feedback=math.nan), "above 0"),
    "a huge input": (lambda: Network(injection=1e9), "at most 10"),
    "an unknown kernel": (lambda: Choice(kernel="nkt"), "Choose one of"),
    "too many samples": (lambda: PageData(n=10**9), "between 50 and 600"),
    "half a sample": (lambda: PageData(n=100.5), "whole number"),
    "a yes for a number": (lambda: PageData(p=True), "whole number"),
    "a negative seed": (lambda: PageData(seed=-1), "whole number"),
    "a negative distance": (lambda: PageData(mean=-1.0), "between 0"),
    "a gap without end": (lambda: PageData(gap=math.inf), "between 0"),
    "an unknown source": (lambda: PageData(source="mnist"), "Choose one of"),
    "a file that is not there": (lambda: PageData(source="file"), "Upload a CSV or NPY file"),
}


@pytest.mark.parametrize(("make", "words"), REFUSED.values(), ids=list(REFUSED))
def test_what_cannot_be_used_is_refused_in_words(make, words):
    with pytest.raises(InputError, match=words):
        make()
