"""Designs are judged by the scalars of their networks, by exact kernels and by the numbers of the theory."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from tolerances import Oracle, assert_close

from notsodeep.designs import (
    FAMILIES,
    Design,
    DesignTask,
    FamilySolution,
    InjectedFamily,
    NetworkFamily,
    design,
)
from notsodeep.equivalents.centring import centred_kernel_coefficients
from notsodeep.equivalents.coefficients import coefficients
from notsodeep.equivalents.expansion import expand
from notsodeep.errors import InputError
from notsodeep.gaussian import Activation, activation
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, Explicit

ODD = ["tanh", "erf", "arctan", "sigmoid", "softsign", "sin", "identity", "hard_sigmoid"]
EVERY = ["relu", "leaky_relu", "swish", "gelu", "elu", "softplus", "cos", "abs", "mish", *ODD]


def scalars(model: DEQ | Explicit, tau0: float, kernel: str) -> np.ndarray:
    return coefficients(model, tau0, kernel).as_array()


def check_exact(made: Design, model: DEQ | Explicit, kernel: str) -> None:
    """The claim of exactness against scalars computed here, from the network alone."""
    assert made.exact, made.explain()
    wanted = scalars(model.centred(made.tau0), made.tau0, kernel)
    assert_close(
        scalars(made.network, made.tau0, kernel), wanted, Oracle.QUADRATURE, scale=float(wanted.max())
    )
    positive = wanted > 1e-12
    relative = np.abs(scalars(made.network, made.tau0, kernel) / np.where(positive, wanted, 1.0) - 1.0)
    assert np.all(relative[positive] <= 1e-9)


# --- what must be matched -----------------------------------------------------------------------------------------


# Every activation once; kernels, variances and norms pairwise.
SETTINGS = [(0.05, 2.0, "ck"), (0.2, 1.0, "ntk"), (0.8, 0.5, "ck"), (0.4, 0.7, "ntk")]


@pytest.mark.parametrize(("number", "name"), list(enumerate(EVERY)))
def test_every_activation_has_an_exact_polynomial_design(number: int, name: str) -> None:
    sigma_a2, tau0, kernel = SETTINGS[number % len(SETTINGS)]
    made = design(DEQ(name, sigma_a2), tau0, kernel, "polynomial")
    check_exact(made, DEQ(name, sigma_a2), kernel)
    assert (len(made.network.layers) == 1) == (name in ODD)
    # "papers" finds an exact design, too, and of odd activations the paper's one layer.
    check_exact(design(DEQ(name, sigma_a2), tau0, kernel, "papers"), DEQ(name, sigma_a2), kernel)


@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_the_papers_tangent_kernel_of_odd_activations_is_matched(name: str) -> None:
    check_exact(design(DEQ(name, 0.2), 1.0, "ntk_paper"), DEQ(name, 0.2), "ntk_paper")


@pytest.mark.parametrize(("layers", "kernel"), [(2, "ck"), (2, "ntk"), (3, "ck"), (3, "ntk")])
def test_closed_forms_meet_the_equations_before_any_least_squares(layers: int, kernel: str) -> None:
    """Least squares would repair a wrong factor of a closed form: here they do not get the chance."""
    family = FAMILIES["polynomial"][layers - 1]
    task = DesignTask(DEQ("gelu", 0.3), 1.2, kernel)
    found = list(family.closed_forms(task.equations, family.kind, layers))  # type: ignore[attr-defined]
    assert found
    for candidate in found:
        wanted, network = scalars(task.model, 1.2, kernel), candidate.network(1.2)
        assert_close(scalars(network, 1.2, kernel), wanted, Oracle.QUADRATURE, scale=float(wanted.max()))


def test_hard_tanh_for_tanh_has_the_numbers_of_the_theory() -> None:
    made = design(DEQ("tanh", 0.2), 1.0)
    assert made.family == "1 × hard_tanh"
    parameters = dict(made.network.layers[0].parameters)
    assert parameters["a"] == pytest.approx(0.7643, abs=5e-5)
    assert parameters["c"] == pytest.approx(1.1965, abs=5e-5)


@pytest.mark.parametrize("sigma_a2", [0.0, 0.2, 0.8])
def test_relu_is_two_leaky_relu_layers_with_the_gauge_fixed(sigma_a2: float) -> None:
    made = design(DEQ("relu", sigma_a2), 1.3)
    check_exact(made, DEQ("relu", sigma_a2), "ck")
    assert made.family == ("2 × leaky_relu" if sigma_a2 else "1 × leaky_relu")
    if not sigma_a2:
        return
    first = dict(made.network.layers[0].parameters)
    slope, bend = (first["a"] + first["b"]) / 2, (first["a"] - first["b"]) / math.sqrt(2 * math.pi)
    assert_close(slope**2 + (math.pi / 2 - 1) * bend**2, 1.0, Oracle.CLOSED_FORM)


# --- properties ---------------------------------------------------------------------------------------------------


unit = st.floats(0.0, 1.0)


def own_layer(family: str, draws: tuple[float, ...]) -> Activation:
    """A layer of the family, from three numbers between 0 and 1."""
    u, v, w = draws
    if family == "leaky_relu":
        return activation("leaky_relu", a=0.2 + 1.8 * u, b=1.5 * v - 0.5)
    cubes = [0.3 * w - 0.15] if family == "polynomial" else []
    return activation("polynomial", coefficients=[0.0, 0.3 + 0.9 * u, v - 0.5, *cubes])


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["leaky_relu", "polynomial", "quadratic"]),
    st.tuples(unit, unit, unit),
    st.tuples(unit, unit, unit),
    st.floats(0.4, 2.0),
    st.sampled_from(["ck", "ntk"]),
)
def test_a_network_of_the_family_gets_its_own_scalars_back(
    family: str, first: tuple[float, ...], second: tuple[float, ...], tau0: float, kernel: str
) -> None:
    network = Explicit([own_layer(family, first), own_layer(family, second)])
    made = design(network, tau0, kernel, family, layers=2)
    assert made.exact, f"{network} at {tau0}: {made}"


@settings(max_examples=10, deadline=None)
@given(st.floats(0.3, 2.0), st.floats(0.3, 3.0), st.floats(0.4, 2.5), st.sampled_from(["ck", "ntk"]))
def test_a_hard_tanh_layer_is_found_again(a: float, c: float, tau0: float, kernel: str) -> None:
    network = Explicit([activation("hard_tanh", a=a, c=c)])
    made = design(network, tau0, kernel, "hard_tanh")
    found = dict(made.network.layers[0].parameters)
    # For the conjugate kernel the layer is unique; of the tangent kernel's two roots it may be the other one.
    check_exact(made, network, kernel)
    if kernel == "ck" and c < 2.5 * tau0:
        assert found["a"] == pytest.approx(a, rel=1e-6)
        assert found["c"] == pytest.approx(c, rel=1e-6)


# --- verdicts and bad input ---------------------------------------------------------------------------------------


def test_a_family_that_cannot_says_which_equation_and_why() -> None:
    made = design(DEQ("elu", 0.2), 1.0, family="leaky_relu")
    assert not made.exact
    assert 1e-3 < made.residual < 0.2
    assert "α̃3 ≤ 2α̃2" in made.explain()
    assert "off by" in str(made).splitlines()[0]
    assert "not met" in made.explain()
    assert "auto" in made.explain()


def test_one_layer_says_what_ratio_it_forces() -> None:
    assert "α̃2 = ½α̃3" in design(DEQ("relu", 0.2), 1.0, family="polynomial", layers=1).explain()
    assert "½" in design(DEQ("relu", 0.2), 1.0, family="hard_tanh").reason
    assert not design(DEQ("relu", 0.2), 1.0, family="quadratic").exact


@pytest.mark.slow
def test_the_papers_tangent_kernel_of_other_activations_gets_a_verdict() -> None:
    made = design(DEQ("swish", 0.2), 1.0, "ntk_paper")
    assert not made.exact
    assert made.residual < 0.1
    assert "2β̃2/β̃3" in made.explain()
    assert "kernel='ntk'" in made.explain()


def test_auto_prefers_a_network_to_train_to_polynomials_unless_exactness_is_asked_for() -> None:
    made = design(DEQ("gelu", 0.2), 1.0)
    assert made.family == "2 × injected"
    assert made.residual < 1e-2
    assert [entry.family for entry in made.tried] == ["2 × leaky_relu", "2 × polynomial"]
    assert design(DEQ("gelu", 0.2), 1.0, family="papers").family == "2 × polynomial"


@dataclass(frozen=True)
class OwnActivation(NetworkFamily):
    """A family that the package does not know: the model's own activation, its two scales solved for."""

    name: str = "own_activation"
    layers: int = 1

    def solve(self, task: DesignTask, *, thorough: bool) -> FamilySolution:
        def network(scales: np.ndarray) -> Explicit:
            return Explicit([task.model.activation.scaled(*scales)]).centred(task.tau0)

        found = optimize.root(lambda scales: task.residuals(network(scales))[:2], np.ones(2), tol=1e-14)
        made = network(found.x)
        return FamilySolution(self, made, float(np.abs(task.residuals(made)).max()), "two unknowns")


def test_a_family_from_outside_of_the_package_is_one_class() -> None:
    deq = DEQ("tanh", 0.2)
    made = design(deq, 1.0, family=OwnActivation())
    check_exact(made, deq, "ck")
    assert made.family == "1 × own_activation"
    assert [layer.name for layer in made.network.layers] == ["tanh"]
    assert Design.from_json(made.to_json()) == made
    stuck = design(DEQ("gelu", 0.2), 1.0, family=OwnActivation())
    assert not stuck.exact
    assert "two unknowns" in stuck.explain()
    with pytest.raises(InputError, match="one kernel at a time"):
        design(deq, 1.0, "both", family=OwnActivation())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"model": "tanh"}, "DEQ or an Explicit"),
        ({"tau0": 0.0}, "positive"),
        ({"kernel": "ntkk"}, "kernel"),
        ({"family": "sigmoidal"}, "no family"),
        ({"family": "leaky_relu", "layers": 5}, "not 5"),
        ({"layers": 2}, "auto"),
        ({"X": np.ones((2, 3))}, "at least 4"),
        ({"model": DEQ(activation("polynomial", coefficients=[1.0]), 0.2)}, "constant"),
        ({"kernel": "both", "family": "polynomial"}, "one kernel at a time"),
        ({"kernel": "both", "model": Explicit(["relu"])}, "one kernel at a time"),
        ({"layers": 2, "family": InjectedFamily(2)}, "own layers"),
    ],
)
def test_bad_input_is_refused_with_words(arguments: dict, words: str) -> None:
    given = {"model": DEQ("tanh", 0.2), "tau0": 1.0, **arguments}
    with pytest.raises(InputError, match=words):
        design(**given)


# --- models with a bias -------------------------------------------------------------------------------------------


def distance(wanted: np.ndarray, found: np.ndarray) -> float:
    return float(np.linalg.norm(wanted - found, 2) / np.linalg.norm(wanted, 2))


def centred_distance(wanted: np.ndarray, found: np.ndarray) -> float:
    """Relative distance of two kernels after centring their rows and columns."""
    inner = [matrix - matrix.mean(axis=0) for matrix in (wanted, found)]
    return distance(*(matrix - matrix.mean(axis=1, keepdims=True) for matrix in inner))


@pytest.mark.parametrize(("name", "kernel"), [("tanh", "ck"), ("relu", "ntk"), ("gelu", "ck")])
def test_polynomials_have_the_scalars_of_a_model_with_a_bias(name: str, kernel: str) -> None:
    """Exact in high dimension, after centring: the distance falls with the dimension, and faster than a plain one's."""
    model = DEQ(name, 0.3, bias2=0.3)
    made = design(model, 1.0, kernel, "polynomial")
    assert made.exact
    assert "after centring" in made.explain()
    assert Design.from_json(made.to_json()) == made
    rng, found = np.random.default_rng(0), []
    for p in (100, 1600):
        X = rng.standard_normal((100, p)) / math.sqrt(p)
        kernels = [exact_kernel(one, X, kernel=kernel) for one in (made.model, made.network)]
        found.append(centred_distance(*kernels))
        # The offset of the last layer is the constant of the bias: off the diagonal the means agree as well.
        means = [(one.sum() - one.trace()) / (one.size - len(one)) for one in kernels]
    assert found[1] < 0.35 * found[0]
    assert means[1] == pytest.approx(means[0], rel=1e-2)


@pytest.mark.parametrize("kernel", ["ck", "ntk", "ntk_paper"])
@pytest.mark.parametrize("model", [DEQ("gelu", 0.3, bias2=0.2), Explicit(["gelu", "tanh"], bias2=0.2)])
def test_the_mixed_derivative_in_two_norms_is_the_difference_quotient(
    model: DEQ | Explicit, kernel: str
) -> None:
    h = 1e-3
    values = expand(model, 1.44 + np.array([-h, h]), 1.44 + np.array([-h, h]), kernel, 1, 0.0)[0]
    quotient = (values[1, 1] - values[0, 1] - values[1, 0] + values[0, 0]) / (4.0 * h * h)
    assert centred_kernel_coefficients(model, 1.2, kernel)[0].norm == pytest.approx(quotient, rel=1e-5)
