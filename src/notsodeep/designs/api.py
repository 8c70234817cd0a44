"""`design`: the explicit network with the kernel scalars of a deep equilibrium model."""

from __future__ import annotations

from dataclasses import replace

from numpy.typing import ArrayLike

from notsodeep.designs.both import closest, matched_together, tangent_coefficients
from notsodeep.designs.families import Chain, Family, auto_order, named
from notsodeep.designs.fit import QUICK, THOROUGH
from notsodeep.designs.follow import Response, network_of
from notsodeep.designs.goal import Goal
from notsodeep.designs.parts import EXACT, Attempt, Tangent
from notsodeep.designs.polish import polish_design
from notsodeep.designs.result import Design
from notsodeep.designs.search import Found, exact_candidates, first_exact, fit_family
from notsodeep.designs.verdict import obstruction
from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.models import DEQ, Explicit, as_tau
from notsodeep.validation import one_of

KERNELS = ("ck", "ntk", "ntk_paper", "both")
_ROUNDING = "the equations hold without units; at this tau0 the moments of the network have too few digits"


def design(
    model: DEQ | Explicit,
    tau0: float,
    kernel: str = "ck",
    family: str | Family = "auto",
    *,
    layers: int | None = None,
    X: ArrayLike | None = None,
    samples: int = 150,
    infeasible: str = "return",
) -> Design:
    """The explicit network whose kernel has the same scalars as the model's, docs/theory.md (7.1) and (7.2).

    Args:
        model: a `DEQ` (it is centred first), or an `Explicit` to be replaced by another one.
        tau0: the norm of a typical input, τ0 of (4.2).
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
    scale = as_tau(tau0)
    centred = _centred(model, scale)
    target = coefficients(centred, scale, "ck" if kernel == "both" else kernel)
    if target.diagonal <= 0.0:
        raise InputError(
            f"The centred activation of {centred} is constant: its kernel is zero and there is nothing to match."
        )
    if isinstance(family, Family):
        if layers is not None:
            raise InputError(f"Family {family.name!r} builds its own layers: leave layers={layers!r} out.")
        made = _from_family(family, centred, scale, kernel, target)
    else:
        made = _from_chains(_chains(family, layers, target), family, centred, scale, kernel, target)
    if infeasible == "raise" and not made.exact:
        raise ConvergenceError(made.explain(), "Use infeasible='return' for the best approximation.")
    return made if X is None else polish_design(made, X, samples)


def _centred(model: DEQ | Explicit, tau0: float) -> DEQ | Explicit:
    if not isinstance(model, DEQ | Explicit):
        raise InputError(f"design takes a DEQ or an Explicit, not {type(model).__name__}.")
    return model.centred(tau0)


def _chains(family: str, layers: int | None, target: Coefficients) -> list[Chain]:
    if family == "auto":
        if layers is not None:
            raise InputError("family='auto' chooses the number of layers; name a family to fix it.")
        return auto_order(Goal.of(target))
    return named(family, layers)


def _from_chains(
    chains: list[Chain], family: str, model: DEQ | Explicit, tau0: float, kernel: str, target: Coefficients
) -> Design:
    goal = Goal.of(target)
    response = Response(model, tau0, target.kernel)
    found, attempts = first_exact(goal, chains, QUICK if family == "auto" else THOROUGH, response)
    if kernel == "both":
        return _for_both(found, chains, model, response, target, attempts)
    return _finished(found, model, tau0, kernel, target, attempts)


def _finished(
    found: Found,
    model: DEQ | Explicit,
    tau0: float,
    kernel: str,
    target: Coefficients,
    attempts: list[Attempt],
) -> Design:
    network = network_of(found.candidate, tau0)
    made = Design(
        network=network,
        model=model,
        tau0=tau0,
        kernel=kernel,
        family=found.chain.label,
        target=target,
        reached=coefficients(network, tau0, target.kernel),
        tried=tuple(attempts),
        drift=found.drift,
    )
    if made.exact:
        return made
    return replace(made, reason=_ROUNDING if found.exact else obstruction(Goal.of(target), found.chain))


def _for_both(
    found: Found,
    chains: list[Chain],
    model: DEQ | Explicit,
    response: Response,
    target: Coefficients,
    attempts: list[Attempt],
) -> Design:
    """Of all designs that are exact for the conjugate kernel, the one whose tangent kernel comes closest."""
    tau0 = response.tau0
    tangent_target = coefficients(model, tau0, "ntk")
    goal, tangent_goal = Goal.of(target), Goal.of(tangent_target)
    matched = closest([found.candidate], tangent_goal)
    for chain in chains:
        other = closest(exact_candidates(goal, chain), tangent_goal)
        # A deeper network must earn its layers.
        if other is not None and (matched is None or other.residual < 0.5 * matched.residual - EXACT):
            matched, found = (
                other,
                Found(chain, other.candidate, found.residual, response.drift(other.candidate)),
            )
    if matched is None:
        raise InputError("There is no candidate to match the tangent kernel with.")
    if found.exact and matched.residual > EXACT:
        matched = matched_together(matched, goal, tangent_goal)
        found = replace(found, candidate=matched.candidate, drift=response.drift(matched.candidate))
    made = _finished(found, model, tau0, "both", target, attempts)
    reached = tangent_coefficients(made.network, tau0, matched.multipliers)
    return replace(made, tangent=Tangent(matched.multipliers, tangent_target, reached))


def _from_family(
    family: Family, model: DEQ | Explicit, tau0: float, kernel: str, target: Coefficients
) -> Design:
    if kernel == "both":
        raise InputError("kernel='both' works with the built-in families; use family='auto' or a name.")
    network = fit_family(family, target)
    reached = coefficients(network, tau0, target.kernel)
    made = Design(network, model, tau0, kernel, family.name, target, reached)
    reason = "no solution was found from any starting point inside the bounds"
    return made if made.exact else replace(made, reason=reason)
