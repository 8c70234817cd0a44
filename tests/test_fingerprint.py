"""Different models have different fingerprints: by every number, and callables by what they do."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import notsodeep as nsd
from notsodeep.fingerprint import describe, differences, digest, fingerprint
from notsodeep.gaussian.activations import Activation, activation, custom_activation
from notsodeep.models import DEQ, Explicit, model_from_dict
from notsodeep.models.stored_models import KINDS

Model = DEQ | Explicit

# --- models of named activations and formulas ---------------------------------------------------------------------

sizes = st.floats(0.01, 50.0)
signed = sizes | sizes.map(lambda value: -value)
PLAIN = ("relu", "tanh", "erf", "sigmoid", "gelu", "swish", "sin", "cos", "abs", "softsign", "identity")
FORMULAS = ("x * sigmoid(x)", "max(x, 0.1 * x)", "tanh(x) + 0.01 * x", "x * sigmoid(1.702 * x)")


def piecewise(first: float, gap: float, slopes: list[float]) -> Activation:
    return activation("piecewise_linear", knots=[first, first + gap], slopes=slopes)


shapes = st.one_of(
    st.sampled_from(PLAIN).map(activation),
    st.sampled_from(FORMULAS).map(lambda text: activation("formula", expression=text)),
    st.builds(lambda a, b: activation("leaky_relu", a=a, b=b), signed, signed),
    st.builds(lambda a, c: activation("hard_tanh", a=a, c=c), signed, sizes),
    st.builds(lambda alpha: activation("elu", alpha=alpha), sizes),
    st.builds(
        lambda series: activation("polynomial", coefficients=series),
        st.lists(signed, min_size=1, max_size=4),
    ),
    st.builds(piecewise, signed, sizes, st.lists(signed, min_size=3, max_size=3)),
)


@st.composite
def activations(draw: st.DrawFn) -> Activation:
    """Built in, of a formula, with parameters, scaled and shifted."""
    phi = draw(shapes)
    if draw(st.booleans()):
        phi = phi.scaled(draw(signed), draw(signed))
    return phi.shifted(draw(signed)) if draw(st.booleans()) else phi


variances = st.floats(0.0, 0.9)
models = st.one_of(
    st.builds(DEQ, activations(), variances, variances, variances),
    st.lists(activations(), min_size=1, max_size=3).map(Explicit),
)


@pytest.mark.slow
@given(models, models)
def test_two_models_share_a_fingerprint_only_if_they_are_equal(one: Model, other: Model) -> None:
    assert (fingerprint(one) == fingerprint(other)) == (one == other)
    assert (differences(describe(one), describe(other)) == []) == (one == other)


@pytest.mark.slow
@given(models, st.floats(0.0, 1e6))
def test_a_model_comes_back_equal_with_its_fingerprint(model: Model, norm: float) -> None:
    back = model_from_dict(json.loads(json.dumps(model.to_dict())))
    assert back == model
    # Text says it all: it does not matter what data the model is used on.
    assert fingerprint(back, norm) == fingerprint(model)


def numbers(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Where the numbers of a description are."""
    if isinstance(value, float):
        return [path]
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [found for key, part in items for found in numbers(part, (*path, key))]


@given(models, st.data())
def test_the_last_bit_of_every_number_counts(model: Model, data: st.DataObject) -> None:
    described = json.loads(json.dumps(model.to_dict()))
    *way, last = data.draw(st.sampled_from(numbers(described)))
    holder = described
    for key in way:
        holder = holder[key]
    # Away from zero, where many activations have a knot or no parameter at all.
    holder[last] = float(np.nextafter(holder[last], np.inf if holder[last] >= 0 else -np.inf))
    other = model_from_dict(described)
    assume(other != model)
    assert fingerprint(other) != fingerprint(model)
    assert len(differences(describe(model), describe(other))) == 1


def test_differences_are_said_with_their_place() -> None:
    one, other = (DEQ(activation("hard_tanh", c=c), 0.2) for c in (7, 9))
    assert differences(describe(one), describe(other)) == ["activation.parameters.c: 7.0 there, 9.0 here"]
    one, other = Explicit(["relu", "abs"]), Explicit(["relu", "tanh"])
    assert differences(describe(one), describe(other), "model") == [
        "model.layers[2].name: abs there, tanh here"
    ]
    assert differences({"a": 1}, {"b": 1}) == ["a: 1 there, None here", "b: None there, 1 here"]
    assert digest({"a": 1, "b": 0.1}) == digest({"b": 0.1, "a": 1})


# --- callables ----------------------------------------------------------------------------------------------------

Function = Callable[[np.ndarray], np.ndarray]


def callable_model(f: Function, **more: Any) -> DEQ:
    return DEQ(custom_activation(f, **more), 0.2)


LAMBDAS: dict[str, tuple[DEQ, DEQ]] = {
    "another constant": (
        callable_model(lambda x: np.tanh(x)),
        callable_model(lambda x: 1.0000000001 * np.tanh(x)),
    ),
    "far out, same kinks": (
        callable_model(lambda x: np.clip(x, -7, 7), kinks=(-9, -7, 7, 9)),
        callable_model(lambda x: np.clip(x, -9, 9), kinks=(-9, -7, 7, 9)),
    ),
    "a wave in step with powers of two": (
        callable_model(lambda x: np.tanh(x)),
        callable_model(lambda x: np.tanh(x) + 1e-6 * np.sin(8.0 * np.pi * x)),
    ),
    "offset": (callable_model(np.tanh), DEQ(custom_activation(np.tanh).shifted(1e-300), 0.2)),
    "kinks": (callable_model(np.tanh), callable_model(np.tanh, kinks=(0.5,))),
    "another derivative": (
        callable_model(np.tanh, derivative=lambda x: 1.0 - np.tanh(x) ** 2),
        callable_model(np.tanh, derivative=lambda x: 1.0 - np.tanh(x) ** 2 + 1e-8 * np.sin(x)),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize(("one", "other"), LAMBDAS.values(), ids=list(LAMBDAS))
def test_callables_are_told_apart_by_what_they_do(one: DEQ, other: DEQ) -> None:
    assert fingerprint(one, 3.0) != fingerprint(other, 3.0)


@pytest.mark.slow
def test_a_callable_is_known_by_its_values_not_by_its_name() -> None:
    def tanh(x: np.ndarray) -> np.ndarray:
        return np.tanh(x)

    def in_place(x: np.ndarray) -> np.ndarray:
        return np.tanh(x, out=np.atleast_1d(x))

    expected = fingerprint(callable_model(np.tanh), 2.0)
    for f in (tanh, lambda x: np.tanh(x)):
        assert fingerprint(callable_model(f), 2.0) == expected
    writes = custom_activation(np.tanh)
    writes = replace(writes, shape=pickle.loads(pickle.dumps(writes.shape)))
    writes.shape.function = in_place
    assert fingerprint(DEQ(writes, 0.2), 2.0) == expected
    # Nor is a callable taken for the built-in one whose name it bears.
    assert fingerprint(DEQ("tanh", 0.2), 2.0) != expected
    back = pickle.loads(pickle.dumps(callable_model(np.tanh)))
    assert fingerprint(back, 2.0) == expected


@pytest.mark.parametrize("f", [np.tanh, lambda x: np.logaddexp(0.0, x), lambda x: np.exp(-(x**2))])
def test_the_last_digits_of_callables_do_not_count(f: Function) -> None:
    """As two versions of a library differ: by one unit in the last place, in a tenth of the values."""

    def elsewhere(x: np.ndarray) -> np.ndarray:
        return f(x) * np.where(np.modf(1e6 * np.abs(x))[0] < 0.1, 1.0 + 2.0**-52, 1.0)

    x = np.linspace(-3.0, 3.0, 1001)
    assert np.any(f(x) != elsewhere(x))
    assert fingerprint(callable_model(f)) == fingerprint(callable_model(elsewhere))


def far(bend: float) -> Function:
    return lambda x: np.tanh(x) + bend * np.maximum(np.abs(x) - 100.0, 0.0)


@pytest.mark.slow
def test_callables_are_compared_as_far_out_as_the_data_need() -> None:
    one, other = (callable_model(far(bend), kinks=(-100.0, 100.0)) for bend in (0.0, 1e-3))
    # Samples of norm one: 100 is 110 standard deviations away.
    assert fingerprint(one, 1.0) == fingerprint(other, 1.0)
    assert fingerprint(one, 30.0) != fingerprint(other, 30.0)
    # As layers: what enters the second is what the first gives out.
    for norm, layers in ((30.0, ["identity"]), (1.0, [activation("identity").scaled(30.0)])):
        apart = [fingerprint(Explicit([*layers, model.activation]), norm) for model in (one, other)]
        assert apart[0] != apart[1]
    wide = [DEQ(model.activation.scaled(1.0, 30.0), 0.2) for model in (one, other)]
    assert fingerprint(wide[0], 1.0) != fingerprint(wide[1], 1.0)


# --- how far out the data reach -----------------------------------------------------------------------------------


# --- every kind of model ------------------------------------------------------------------------------------------


def residual_cell(kind: str) -> Any:
    z, x = nsd.cells.state(), nsd.cells.input()
    branch = nsd.cells.dense(nsd.cells.activation(nsd.cells.dense(z, 0.5), "tanh"), 0.6)
    return nsd.cells.norm(z + branch + nsd.cells.dense(x, 2.0), kind)


# For each registered kind, models that differ in one parameter alone. A new kind of model is entered here.
KINDS_OF_MODELS: dict[str, list[Any]] = {
    "deq": [DEQ("sigmoid", 0.2), DEQ("sigmoid", 0.2).centred(1.0)],
    "unrolled_deq": [DEQ("tanh", 0.2).unrolled(depth) for depth in (1, 2)],
    "explicit": [Explicit(["tanh", "relu"]), Explicit(["relu", "tanh"])],
    "conv_deq": [
        nsd.ConvDEQ("relu", 0.2),
        nsd.ConvDEQ("relu", 0.2, filter_size=1),
        nsd.ConvDEQ("relu", 0.2, padding="circular"),
        nsd.ConvDEQ("relu", 0.2, readout="pool"),
    ],
    "conv_explicit": [nsd.ConvExplicit(["relu"]), nsd.ConvExplicit(["relu"], bias2=0.1)],
    "graph_deq": [nsd.GraphDEQ(np.eye(12), "relu", 0.2), nsd.GraphDEQ(0.5 * np.eye(12), "relu", 0.2)],
    "graph_explicit": [nsd.GraphDEQ(np.eye(12), "relu", 0.2).unrolled(depth) for depth in (1, 2)],
    "neural_ode": [nsd.NeuralODE("tanh", steps=steps) for steps in (None, 2, 3)],
    "equilibrium": [nsd.Equilibrium(residual_cell(kind)) for kind in ("rms", "layer")],
    "loop": [nsd.Loop(residual_cell("rms"), steps) for steps in (2, 3)],
}
EVERY = [model for models in KINDS_OF_MODELS.values() for model in models]


def test_every_registered_kind_is_here() -> None:
    assert set(KINDS_OF_MODELS) == set(KINDS)
    for kind, models in KINDS_OF_MODELS.items():
        assert len(models) > 1
        assert {model.to_dict()["kind"] for model in models} == {kind}


def test_fingerprints_differ_and_survive_a_file() -> None:
    for one, other in combinations(EVERY, 2):
        assert fingerprint(one) != fingerprint(other), f"{one} and {other}"
    for model in EVERY:
        assert fingerprint(model_from_dict(model.to_dict())) == fingerprint(model)
    # The shift of an odd activation is zero: centred, the model is the same.
    assert fingerprint(DEQ("tanh", 0.2).centred(1.0)) == fingerprint(DEQ("tanh", 0.2))
