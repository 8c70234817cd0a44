"""Designs as text: what goes out comes back, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from notsodeep.designs import Design, design
from notsodeep.errors import InputError
from notsodeep.gaussian import activation, custom_activation
from notsodeep.gaussian.serial import activation_to_dict
from notsodeep.models import DEQ, Explicit

CASES = [
    ("tanh", "ck", "auto"),
    ("softplus", "ck", "auto"),
    ("swish", "ntk", "auto"),
    ("elu", "ck", "leaky_relu"),
    ("gelu", "ck", "polynomial"),
    ("tanh", "both", "auto"),
    ("sigmoid", "ntk_paper", "auto"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kernel", "family"), CASES)
def test_a_design_comes_back_equal(name: str, kernel: str, family: str, tmp_path: Path) -> None:
    made = design(DEQ(name, 0.2), 0.8, kernel, family)
    assert Design.from_json(made.to_json()) == made
    made.save(tmp_path / "design.json")
    assert str(Design.load(tmp_path / "design.json")) == str(made)


def test_a_network_comes_back() -> None:
    network = Explicit([activation("hard_tanh", a=1.0, c=0.7)])
    assert Design.from_json(design(network, 1.0).to_json()).model == network.centred(1.0)


def test_a_custom_model_is_stored_by_its_scalars() -> None:
    made = design(DEQ(custom_activation(np.tanh), 0.2), 1.0)
    back = Design.from_json(made.to_json())
    assert back.model is None
    assert back.target == made.target
    assert back.network == made.network
    with pytest.raises(InputError, match="cannot be stored"):
        activation_to_dict(custom_activation(np.tanh))


def broken(change: Any, kernel: str = "ck") -> str:
    data = json.loads(design(DEQ("tanh", 0.2), 1.0, kernel).to_json())
    change(data)
    return json.dumps(data)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(format="other"),
        lambda d: d.update(version=1),
        lambda d: d.pop("target"),
        lambda d: d.update(tau0="1"),
        lambda d: d.update(tau0=2.0),
        lambda d: d.update(kernel="both of them"),
        lambda d: d["network"].update(layers=[]),
        lambda d: d["network"]["layers"][0].update(name="__import__('os')"),
        lambda d: d["network"]["layers"][0]["parameters"].update(evil=1.0),
        lambda d: d["network"]["layers"][0].pop("gain"),
        lambda d: d["model"].update(kind="rnn"),
        lambda d: d.update(tried=[["a"]]),
        lambda d: d.update(fitted_to=None),
        lambda d: d.update(kernel="ntk"),
        lambda d: d.update(target=None),
        lambda d: d.update(bias2=None),
    ],
)
def test_changed_text_is_refused(change: Any) -> None:
    with pytest.raises(InputError):
        Design.from_json(broken(change))


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"format": NaN}', "[" * 100_000])
def test_text_that_is_no_design_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        Design.from_json(text)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        Design.load(tmp_path / "nothing.json")
