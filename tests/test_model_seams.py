"""Different models have different fingerprints, so nothing that was kept of one is handed out for another."""

from __future__ import annotations

from itertools import combinations

import numpy as np

import notsodeep as nsd
from notsodeep.fingerprint import fingerprint
from notsodeep.models import Model, model_from_dict
from notsodeep.models.stored_models import KINDS

# For each registered kind, models that differ in one parameter alone. A new kind of model is entered here.
MODELS: dict[str, list[Model]] = {
    "deq": [
        nsd.DEQ("tanh", 0.2),
        nsd.DEQ("tanh", np.nextafter(0.2, 1.0), 0.8),
        nsd.DEQ("tanh", 0.2, 0.7),
        nsd.DEQ("tanh", 0.2, bias2=0.1),
        nsd.DEQ("erf", 0.2),
        nsd.DEQ(nsd.activation("hard_tanh", c=1.5), 0.2),
        nsd.DEQ("sigmoid", 0.2),
        nsd.DEQ("sigmoid", 0.2).centred(1.0),
    ],
    "unrolled_deq": [nsd.DEQ("tanh", 0.2).unrolled(depth) for depth in (1, 2)],
    "explicit": [
        nsd.Explicit(["tanh"]),
        nsd.Explicit(["tanh", "tanh"]),
        nsd.Explicit(["tanh", "relu"]),
        nsd.Explicit(["relu", "tanh"]),
    ],
    "conv_deq": [
        nsd.ConvDEQ("relu", 0.2),
        nsd.ConvDEQ("relu", 0.2, filter_size=1),
        nsd.ConvDEQ("relu", 0.2, padding="circular"),
        nsd.ConvDEQ("relu", 0.2, readout="pool"),
    ],
    "conv_explicit": [nsd.ConvExplicit(["relu"]), nsd.ConvExplicit(["relu"], bias2=0.1)],
    "graph_deq": [nsd.GraphDEQ(np.eye(12), "relu", 0.2), nsd.GraphDEQ(0.5 * np.eye(12), "relu", 0.2)],
    "graph_explicit": [nsd.GraphDEQ(np.eye(12), "relu", 0.2).unrolled(depth) for depth in (1, 2)],
}
EVERY = [model for models in MODELS.values() for model in models]


def test_every_registered_kind_is_here() -> None:
    assert set(MODELS) == set(KINDS)
    for kind, models in MODELS.items():
        assert len(models) > 1
        assert {model.to_dict()["kind"] for model in models} == {kind}


def test_fingerprints_differ_and_survive_a_file() -> None:
    for one, other in combinations(EVERY, 2):
        assert fingerprint(one) != fingerprint(other), f"{one} and {other}"
    for model in EVERY:
        assert fingerprint(model_from_dict(model.to_dict())) == fingerprint(model)
    # The shift of an odd activation is zero: centred, the model is the same.
    assert fingerprint(nsd.DEQ("tanh", 0.2).centred(1.0)) == fingerprint(nsd.DEQ("tanh", 0.2))
