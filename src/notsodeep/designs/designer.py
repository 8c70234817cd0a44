"""`design`: the explicit network with the kernel scalars of a deep equilibrium model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.designs.baselines import is_centred, plain_layers
from notsodeep.designs.closed_forms import hard_tanh_layer, leaky_relu_layers
from notsodeep.designs.evidence import HeldOut, split_samples
from notsodeep.designs.families import NetworkFamily, Solution, Task
from notsodeep.designs.injected import InjectedFamily, kernels_of, reference_target, values_at
from notsodeep.designs.layered import HardTanh, LayeredFamily, LeakyReLU, Polynomial, Quadratic
from notsodeep.designs.matching_equations import EXACT, LayerKind
from notsodeep.designs.result import KERNELS, Attempt, Design
from notsodeep.equivalents.error import kernel_distance
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, ConvDEQ, Explicit, Model, as_tau
from notsodeep.progress import Report, reported
from notsodeep.validation import Array, one_of, root_mean_square

_ROUNDING = "the equations hold without units; at this tau0 the moments of the network have too few digits"


def _layered(kind: LayerKind, *depths: int, **options: Any) -> tuple[NetworkFamily, ...]:
    return tuple(LayeredFamily(kind, depth, **options) for depth in depths)


# Every name has its families in order of depth. Among families of one depth "auto" tries those that stand first here
# first: the cheaper activation. Polynomials grow without bound and are no network to train: tried last or, where they
# match nothing, never.
FAMILIES: dict[str, tuple[NetworkFamily, ...]] = {
    "hard_tanh": _layered(HardTanh(), 1, closed_forms=hard_tanh_layer),
    "leaky_relu": _layered(LeakyReLU(), 1, 2, closed_forms=leaky_relu_layers),
    "polynomial": _layered(Polynomial(), 1, 2, 3, last_resort=True),
    "quadratic": _layered(Quadratic(), 2, in_auto=False),
    "injected": tuple(InjectedFamily(depth) for depth in (1, 2, 3)),
}


# Words that stand for a search over families.
_SEARCHES = ("auto", "papers")
# Relative distance of kernels below which a design is not replaced by a closer one that costs more. The kernel of a
# random network of width m differs by about m^(-1/2) from its limit: this much at a width of a million.
_CLOSE_ENOUGH = 1e-3
# How many samples to fit to, unless told: an image costs as much as a thousand rows.
_ROWS, _IMAGES = 150, 20


def design(
    model: DEQ | Explicit | ConvDEQ,
    tau0: float | ArrayLike | None = None,
    kernel: str = "ck",
    family: str | NetworkFamily = "auto",
    *,
    layers: int | None = None,
    X: ArrayLike | None = None,
    samples: int | None = None,
    evidence: bool = True,
    infeasible: str = "return",
    progress: bool | Report = False,
) -> Design:
    """The explicit network with the kernel of the model: its scalars, docs/theory.md (7.1) and (7.2), or (7.11).

    Args:
        model: a `DEQ` (it is centred first, except for family="injected"), an `Explicit` to be replaced by another, or
            a `ConvDEQ`, whose design is a `ConvExplicit`.
        tau0: the norm of a typical input, τ0 of (4.2), of images |x(s)| at a typical position; or samples, of which the
            root mean square norm is taken; that of X if not given.
        kernel: "ck", "ntk" (the true one), "ntk_paper", or "both": an injected network has both.
        family: "auto" or "papers" for the simplest family that matches; a name: "hard_tanh", "leaky_relu",
            "polynomial", "quadratic", or "injected", the DEQ's own activation in one to three layers that see the
            input again; or a `NetworkFamily` of one's own. A ConvDEQ has "injected", which "auto" takes.
        layers: number of hidden layers, for named families that come with several.
        X: rows or images on whose exact kernels an injected network is fitted; the other families take τ0 from them.
        samples: how many of X to fit to; as many others tell how well it went. By default 150 rows or 20 images.
        evidence: measure how close an injected network is on the samples that it was not fitted to, beside others; this
            takes as long as the fit.
        infeasible: "return" the best approximation, flagged, or "raise" where no exact design was found.
        progress: True for a bar on stderr when it takes longer than two seconds.

    "papers" takes the first family, without injection, that meets all equations, few layers first, or the best of them.
    Polynomials come last: they meet the equations of every model, but grow without bound and are no network to train.
    So does "auto"; but where no family or only polynomials meet the equations, it weighs an injected network of the
    same depth against the best of them and returns the one whose kernels are closer around τ0; with infeasible="raise"
    the polynomials. With X it judges by the exact kernels on rows: a papers' design that is within 0.1 % of the
    model's, up to a factor, is returned as it is; otherwise the closer of it and an injected network of the same depth,
    which is fitted. `explain` has both distances and both costs.

    A model with a bias is matched after centring its kernel, which removes the constant of the bias; that constant is
    an offset of the last layer. An injected network has the bias in every layer.

    Raises:
        InputError: for input that cannot be used.
        ConvergenceError: where the model has no kernel, or nothing matches and infeasible="raise".
    """
    one_of(kernel, KERNELS, "kernel")
    one_of(infeasible, ("return", "raise"), "infeasible")
    if not isinstance(model, DEQ | Explicit | ConvDEQ):
        raise InputError(
            f"design takes a DEQ or an Explicit, and of images a ConvDEQ, not {type(model).__name__}."
        )
    options = _options(family, layers, kernel, model)
    search = family in _SEARCHES
    centre = all(option.centres for option in options) or (search and not isinstance(model, ConvDEQ))
    task = Task(model, _norm(model, X if tau0 is None else tau0), kernel, centre=centre)
    if search:
        options = [option for option in options if option.worth_trying(task)]
    with reported(progress, "design"):
        found, attempts = _first_exact(task, options, thorough=not search)
        made = _made(task, found, attempts)
        if infeasible == "raise" and not made.exact:
            raise ConvergenceError(made.explain(), "Use infeasible='return' for the best approximation.")
        if family == "auto" and (not made.exact or (found.family.last_resort and infeasible == "return")):
            found, made = _closer(task, found, made)
        if X is None:
            return made
        parts = _split(model, X, samples)
        if family == "auto" and _can_be_injected(task):
            found, made = _closer_on_rows(task, found, made, parts[1])
            if found.misfit is None:
                return made
        return _with_samples(task, found, made, *parts, evidence=evidence)


def _norm(model: Model, tau0: Any) -> float:
    """A number as it is; of samples their root mean square norm, of images over all positions."""
    if tau0 is None:
        raise InputError("Give tau0, the norm of a typical input, or samples as X.")
    if np.ndim(tau0) < 2:
        return as_tau(tau0)
    return root_mean_square(model.squared_norms(model.check_samples(tau0)))


def _options(
    family: str | NetworkFamily, layers: int | None, kernel: str, model: Model
) -> Sequence[NetworkFamily]:
    """The families to try, in this order."""
    every = [option for options in FAMILIES.values() for option in options]
    if isinstance(family, NetworkFamily):
        if layers is not None:
            raise InputError(f"Family {family.name!r} builds its own layers: leave layers={layers!r} out.")
        options: Sequence[NetworkFamily] = [family]
    elif family in _SEARCHES:
        if layers is not None:
            raise InputError(f"family={family!r} chooses the number of layers; name a family to fix it.")
        taking = [option for option in every if isinstance(model, option.takes)]
        able = [option for option in taking if option.matches_both or kernel != "both"]
        # A model that none of the papers' families takes has the others.
        able = [option for option in able if option.in_auto] or (able if family == "auto" else every)
        options = sorted(able, key=lambda option: (option.last_resort, option.layers))
    elif isinstance(family, str) and family in FAMILIES:
        options = [option for option in FAMILIES[family] if layers in (None, option.layers)]
        if not options:
            depths = ", ".join(str(option.layers) for option in FAMILIES[family])
            raise InputError(f"Family {family!r} comes with {depths} layers, not {layers}.")
    else:
        names = ", ".join(sorted(FAMILIES))
        raise InputError(
            f"There is no family {family!r}. Choose 'auto', 'papers', one of {names}, or give a NetworkFamily."
        )
    if isinstance(model, ConvDEQ) and not all(isinstance(model, option.takes) for option in options):
        names = ", ".join(sorted({repr(option.name) for option in every if isinstance(model, option.takes)}))
        raise InputError(
            f"family={getattr(family, 'name', family)!r} matches scalars of rows in high dimension, which a ConvDEQ "
            f"does not have. What has networks for it: family={names}."
        )
    if kernel == "both" and not (options and all(option.matches_both for option in options)):
        raise InputError(
            "kernel='both' takes an injected network, of a DEQ or a ConvDEQ: family='auto' or 'injected'. "
            "The other families match one kernel at a time."
        )
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
    if found.misfit is not None:
        return _matched_to_kernels(task, found, attempts)
    reached = task.scalars(network)
    made = Design(network, task.model, task.tau0, task.kernel, family, task.target, reached)
    made = replace(made, tried=tuple(attempts), drift=found.drift, bias2=task.model.bias2)
    if max(made.residuals.values()) <= EXACT:
        return made
    return replace(made, reason=_ROUNDING if found.exact else found.reason)


# --- networks that are matched to kernels ---------------------------------------------------------------------------


def _matched_to_kernels(task: Task, found: Solution, attempts: Sequence[Attempt]) -> Design:
    """The design of a network that was matched to kernels; it has scalars if its model is centred."""
    target = reached = None
    if isinstance(task.model, DEQ) and is_centred(task.model, task.tau0):
        target, reached = task.target, task.scalars(found.network)
    made = Design(found.network, task.model, task.tau0, task.kernel, found.family.label, target, reached)
    made = replace(made, tried=tuple(attempts), reason=found.reason)
    return replace(made, misfit=found.misfit, bias2=task.model.bias2)


def _can_be_injected(task: Task) -> bool:
    """Whether the model and the kernel are such that there is an injected network for them."""
    return isinstance(task.model, DEQ) and task.kernel != "ntk_paper"


def _closer(task: Task, found: Solution, made: Design) -> tuple[Solution, Design]:
    """A design that does not meet its equations, or the injected network of the same depth if that is closer."""
    if not _can_be_injected(task):
        return found, made
    reference = reference_target(task.model, task.tau0, task.kernel)
    values = [values_at(made.network, reference.pairs, name) for name in reference.kernels]
    distance = reference.distance(values)
    depth = min(max(len(made.network.layers), 2), 3)
    other = InjectedFamily(depth).solve(task, thorough=False)
    weighed = (
        f"its kernels are {distance:.1e} from the model's around tau0, those of {depth} injected layers "
        f"{other.residual:.1e}, {_price(depth - len(made.network.layers))}"
    )
    words = f"{made.reason}; {weighed}" if made.reason else weighed
    if other.residual >= distance:
        return found, replace(made, reason=words)
    attempts = (*made.tried, Attempt(made.family, made.residual, words))
    return other, _matched_to_kernels(task, other, attempts)


def _price(layers: int) -> str:
    """What an injected network costs beside one with so many layers fewer: its layers share one product with x."""
    if layers < 1:
        return f"for {'as many' if layers == 0 else 'fewer'} products a row"
    return f"for {layers} more product{'s' if layers > 1 else ''} of width × width a row"


def _closer_on_rows(task: Task, found: Solution, made: Design, rows: Array) -> tuple[Solution, Design]:
    """A design without injection, or the injected network of the same depth where that is closer on rows."""
    if found.misfit is not None:
        return found, made
    names = kernels_of(task.kernel)
    wanted = {name: exact_kernel(task.model, rows, kernel=name) for name in names}

    def distance(network: Model) -> float:
        kernels = {name: exact_kernel(network, rows, kernel=name) for name in names}
        return max(kernel_distance(wanted[name], kernels[name]).up_to_factor for name in names)

    ours = distance(made.network)
    if ours <= _CLOSE_ENOUGH:
        return found, made
    depth = min(max(len(made.network.layers), 2), 3)
    other = InjectedFamily(depth).solve(task, thorough=False)
    theirs = distance(other.network)
    words = (
        f"on {len(rows)} rows its kernels are {ours:.1e} from the model's with the best factor, those of {depth} "
        f"injected layers {theirs:.1e}, {_price(depth - len(made.network.layers))}"
    )
    if theirs >= ours:
        return found, replace(made, tried=(*made.tried, Attempt(other.family.label, other.residual, words)))
    attempts = (*made.tried, Attempt(made.family, made.residual, words))
    return other, _matched_to_kernels(task, other, attempts)


def _split(model: Model, X: ArrayLike, count: int | None) -> tuple[Array, Array]:
    """Samples to fit to, and others to judge by."""
    usual = _IMAGES if isinstance(model, ConvDEQ) else _ROWS
    return split_samples(model.check_samples(X), usual if count is None else count)


def _with_samples(
    task: Task, found: Solution, made: Design, some: Array, others: Array, *, evidence: bool
) -> Design:
    """The design fitted to some samples, and what that did on others."""
    model = task.model
    better = found.fitted_to(task, some)
    if better is None:
        return made
    if not isinstance(model, DEQ | ConvDEQ):
        raise InputError("Only a DEQ or a ConvDEQ has an injected network.")
    fitted = _matched_to_kernels(task, better, made.tried)
    if not evidence:
        return replace(fitted, fitted_to=len(some))
    networks = {
        "fitted": better.network,
        "unfitted": found.network,
        "cut": model.unrolled(len(found.network.layers)),
        "plain": plain_layers(model, 1, task.tau0),
    }
    return replace(fitted, held_out=HeldOut.on(others, model, kernels_of(task.kernel), networks))
