"""`design`: the explicit network with the kernel scalars of a deep equilibrium model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.designs.closed_forms import hard_tanh_layer, leaky_relu_layers
from notsodeep.designs.data_fit import fit_to_data
from notsodeep.designs.families import NetworkFamily, Solution, Task
from notsodeep.designs.layer_kinds import Cubic, HardTanh, LeakyReLU, Quadratic, SmoothSum, TwoKnots
from notsodeep.designs.layered import LayeredFamily
from notsodeep.designs.matching_equations import EXACT, LayerKind
from notsodeep.designs.result import KERNELS, Attempt, Design
from notsodeep.equivalents.coefficients import coefficients
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.models import DEQ, Explicit, as_tau
from notsodeep.validation import as_rows, one_of, root_mean_square_norm

_ROUNDING = "the equations hold without units; at this tau0 the moments of the network have too few digits"


def _layered(kind: LayerKind, *depths: int, **options: Any) -> tuple[NetworkFamily, ...]:
    return tuple(LayeredFamily(kind, depth, **options) for depth in depths)


# Every name has its families in order of depth. Among families of one depth "auto" tries those that stand first here
# first: the cheaper activation. Polynomials grow without bound and are no network to train: tried last or, where they
# match nothing, never.
FAMILIES: dict[str, tuple[NetworkFamily, ...]] = {
    "hard_tanh": _layered(HardTanh(), 1, closed_forms=hard_tanh_layer),
    "leaky_relu": _layered(LeakyReLU(), 2, closed_forms=leaky_relu_layers),
    "piecewise_linear": _layered(TwoKnots(), 1, 2, 3),
    "smooth": _layered(SmoothSum(), 1, 2, 3),
    "cubic": _layered(Cubic(), 1, 2, 3, last_resort=True),
    "quadratic": _layered(Quadratic(), 2, in_auto=False),
}


def design(
    model: DEQ | Explicit,
    tau0: float | ArrayLike,
    kernel: str = "ck",
    family: str | NetworkFamily = "auto",
    *,
    layers: int | None = None,
    X: ArrayLike | None = None,
    samples: int = 150,
    infeasible: str = "return",
) -> Design:
    """The explicit network whose kernel has the same scalars as the model's, docs/theory.md (7.1) and (7.2).

    Args:
        model: a `DEQ` (it is centred first), or an `Explicit` to be replaced by another one.
        tau0: the norm of a typical input, τ0 of (4.2); or samples in rows, of which the root mean square norm is taken.
        kernel: "ck", "ntk" (the true one), "ntk_paper", or "both": activations for the conjugate kernel and
            learning-rate multipliers for the tangent kernel.
        family: "auto" for the simplest family that matches, a name ("hard_tanh", "leaky_relu",
            "piecewise_linear", "smooth", "cubic", "quadratic"), or a `Family` of one's own.
        layers: number of hidden layers, for named families that come with several.
        X: rows on whose exact kernels the parameters are polished afterwards.
        samples: how many rows of X to polish on; as many others tell by how much it helped.
        infeasible: "return" the best approximation, flagged, or "raise" where no exact design was found.

    Raises:
        InputError: for input that cannot be used.
        ConvergenceError: where the model has no kernel, or nothing matches and infeasible="raise".
    """
    one_of(kernel, KERNELS, "kernel")
    one_of(infeasible, ("return", "raise"), "infeasible")
    task = Task(model, _norm(tau0), kernel)
    options = _options(family, layers, task)
    found, attempts = _first_exact(task, options, thorough=family != "auto")
    if kernel == "both" and found.tangent is None:
        found = found.match_tangent(task, options)
    made = _made(task, found, attempts)
    if infeasible == "raise" and not made.exact:
        raise ConvergenceError(made.explain(), "Use infeasible='return' for the best approximation.")
    return made if X is None else fit_to_data(made, found.around, X, samples)


def _norm(tau0: Any) -> float:
    """A number as it is; of samples in rows their root mean square norm."""
    return root_mean_square_norm(as_rows(tau0)) if np.ndim(tau0) >= 2 else as_tau(tau0)


def _options(family: str | NetworkFamily, layers: int | None, task: Task) -> Sequence[NetworkFamily]:
    """The families to try, in this order."""
    if isinstance(family, NetworkFamily):
        if layers is not None:
            raise InputError(f"Family {family.name!r} builds its own layers: leave layers={layers!r} out.")
        options: Sequence[NetworkFamily] = [family]
    elif family == "auto":
        if layers is not None:
            raise InputError("family='auto' chooses the number of layers; name a family to fix it.")
        every = [option for options in FAMILIES.values() for option in options if option.in_auto]
        possible = [option for option in every if option.worth_trying(task)]
        able = [option for option in possible if option.matches_both or task.kernel != "both"]
        return sorted(able, key=lambda option: (option.last_resort, option.layers))
    elif isinstance(family, str) and family in FAMILIES:
        options = [option for option in FAMILIES[family] if layers in (None, option.layers)]
        if not options:
            depths = ", ".join(str(option.layers) for option in FAMILIES[family])
            raise InputError(f"Family {family!r} comes with {depths} layers, not {layers}.")
    else:
        names = ", ".join(sorted(FAMILIES))
        raise InputError(f"There is no family {family!r}. Choose 'auto', one of {names}, or give a Family.")
    if task.kernel == "both" and not all(option.matches_both for option in options):
        raise InputError("kernel='both' works with the built-in families; use family='auto' or a name.")
    return options


def _first_exact(
    task: Task, options: Sequence[NetworkFamily], *, thorough: bool
) -> tuple[Solution, list[Attempt]]:
    """The first family that is exact and drifts little, or the best there is, with the attempts before it.

    Where an exact family drifts too much, the others of the same depth are tried as well; where all of them do,
    one layer more.
    """
    attempts: list[Attempt] = []
    exact: Solution | None = None
    inexact: Solution | None = None
    for option in options:
        if exact is not None and _settled(task, exact, option):
            break
        found = option.solve(task, thorough=thorough)
        if not found.exact:
            attempts.append(Attempt(option.label, found.residual, found.reason))
            inexact = found if inexact is None or found.residual < inexact.residual else inexact
        elif exact is None or found.drift < _drift_to_beat(exact, option):
            exact = found
    best = exact or inexact
    if best is None:
        raise InputError("There is no family to try.")
    return best, [entry for entry in attempts if entry.family != best.family.label]


def _drift_to_beat(exact: Solution, challenger: NetworkFamily) -> float:
    """The drift below which another family replaces an exact one: a deeper network must earn its layer."""
    return exact.drift * (1.0 if challenger.layers == exact.family.layers else 0.7)


def _settled(task: Task, exact: Solution, following: NetworkFamily) -> bool:
    """Whether an exact design is good enough not to try the following family; one layer is never given up."""
    if following.layers > exact.family.layers:
        return exact.family.layers == 1 or following.last_resort or exact.drift <= task.response.tolerable
    return following.last_resort or exact.drift <= task.response.enough


def _made(task: Task, found: Solution, attempts: Sequence[Attempt]) -> Design:
    """The design, its scalars computed again from the network that comes with it."""
    network, family = found.network, found.family.label
    reached = coefficients(network, task.tau0, task.target.kernel)
    made = Design(network, task.model, task.tau0, task.kernel, family, task.target, reached)
    made = replace(made, tried=tuple(attempts), drift=found.drift, tangent=found.tangent)
    if max(made.residuals.values()) <= EXACT:
        return made
    return replace(made, reason=_ROUNDING if found.exact else found.reason)
