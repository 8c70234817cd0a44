"""`design`: the explicit network with the kernel scalars of a deep equilibrium model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.designs.closed_forms import hard_tanh_layer, leaky_relu_layers
from notsodeep.designs.families import DesignTask, FamilySolution, NetworkFamily, is_centred
from notsodeep.designs.injected import InjectedFamily, flow_design, kernels_of, reference_target, values_at
from notsodeep.designs.layered import (
    CubicLayers,
    HardTanhLayers,
    LayeredFamily,
    LeakyReLULayers,
    QuadraticLayers,
)
from notsodeep.designs.matching_equations import EXACT, LayerKind
from notsodeep.designs.pair_kernels import spread
from notsodeep.designs.result import KERNELS, Attempt, Design
from notsodeep.equivalents.equivalent import kernel_distance
from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, ConvDEQ, Explicit, Model, NeuralODE, as_tau
from notsodeep.models.cell_models import CellModel
from notsodeep.progress import Report, reported
from notsodeep.validation import Array, one_of, root_mean_square

_ROUNDING = "the equations hold without units; at this tau0 the moments of the network have too few digits"


def _layered(kind: LayerKind, *depths: int, **options: Any) -> tuple[NetworkFamily, ...]:
    return tuple(LayeredFamily(kind, depth, **options) for depth in depths)


# The families of each name in order of depth. Among families of one depth "auto" tries the first listed here first, the
# cheaper activation. Polynomials grow without bound and are no network to train: tried last or, where they match
# nothing, never.
FAMILIES: dict[str, tuple[NetworkFamily, ...]] = {
    "hard_tanh": _layered(HardTanhLayers(), 1, closed_forms=hard_tanh_layer),
    "leaky_relu": _layered(LeakyReLULayers(), 1, 2, closed_forms=leaky_relu_layers),
    "polynomial": _layered(CubicLayers(), 1, 2, 3, last_resort=True),
    "quadratic": _layered(QuadraticLayers(), 2, in_auto=False),
    "injected": tuple(InjectedFamily(depth) for depth in (1, 2, 3)),
}


# Names of searches over several families.
_SEARCHES = ("auto", "papers")
# Relative distance of kernels below which a design is not replaced by a closer one that costs more. The kernel of a
# random network of width m differs by about m^(-1/2) from its limit: this much at a width of a million.
_CLOSE_ENOUGH = 1e-3
# Default number of samples to fit to: an image costs as much as a thousand rows.
_ROWS, _IMAGES = 150, 20


def design(
    model: DEQ | Explicit | ConvDEQ | NeuralODE | CellModel,
    tau0: float | ArrayLike | None = None,
    kernel: str = "ck",
    family: str | NetworkFamily = "auto",
    *,
    layers: int | None = None,
    X: ArrayLike | None = None,
    samples: int | None = None,
    progress: bool | Report = True,
) -> Design:
    """Design the explicit network with the kernel of a model: its scalars, docs/theory.md (7.1), (7.2), or (7.11).

    Args:
        model: a `DEQ` (it is centred first, except for family="injected"), an `Explicit` to be replaced by another, or
            a `ConvDEQ`, whose design is a `ConvExplicit`; or a `NeuralODE` or a cell of rows
            (`Equilibrium`, `Loop`), which have two to four injected layers.
        tau0: the norm of a typical input, τ0 of (4.2), of images |x(s)| at a typical position; or samples, whose
            root mean square norm is taken; that of X if not given.
        kernel: "ck", "ntk" (the true one), "ntk_paper", or "both": an injected network has both.
        family: "auto" or "papers" for the simplest family that matches; a name: "hard_tanh", "leaky_relu",
            "polynomial", "quadratic", or "injected", the DEQ's own activation in one to three layers that see the
            input again; or your own `NetworkFamily`. A ConvDEQ has "injected", which "auto" takes.
        layers: number of hidden layers, for named families that come with several.
        X: rows or images on whose exact kernels an injected network is fitted; the other families take τ0 from them.
        samples: number of samples of X to fit to, evenly spread over them; by default 150 rows or 20 images. How close
            the network is on others: `twin_distances`.
        progress: a bar on a terminal after two seconds; False for none.

    "papers" takes the first family, without injection, that meets all equations, few layers first, or the best of them.
    Polynomials come last: they meet the equations of every model, but grow without bound and are no network to train.
    "auto" does the same; but where no family or only polynomials meet the equations, it weighs an injected network of
    the same depth against the best of them and returns the one whose kernels are closer around τ0.
    With X it compares exact kernels on rows: a papers' design within 0.1 % of the
    model's, up to a factor, is returned as it is; otherwise the closer of it and an injected network of the same depth,
    which is fitted. `explain` has both distances and both costs.

    A model with a bias is matched after centring its kernel, which removes the constant of the bias; that constant is
    an offset of the last layer. An injected network has the bias in every layer.

    Raises:
        InputError: for input that cannot be used.
        ConvergenceError: where the model has no kernel.
    """
    one_of(kernel, KERNELS, "kernel")
    if isinstance(model, CellModel) and model.shorthand is not None:
        model = cast(Any, model.shorthand)
    if isinstance(model, NeuralODE | CellModel):
        some = None if X is None else _spread_samples(model.check_samples(X), samples or _ROWS)
        norm = _norm(model, X if tau0 is None else tau0)
        return flow_design(model, norm, kernel, family, layers, some)
    if not isinstance(model, DEQ | Explicit | ConvDEQ):
        raise InputError(
            f"design takes a DEQ or an Explicit, and of images a ConvDEQ, not {type(model).__name__}."
        )
    options = _options(family, layers, kernel, model)
    search = family in _SEARCHES
    centre = all(option.centres for option in options) or (search and not isinstance(model, ConvDEQ))
    task = DesignTask(model, _norm(model, X if tau0 is None else tau0), kernel, centre=centre)
    if search:
        options = [option for option in options if option.worth_trying(task)]
    with reported(progress, "design"):
        solution, attempts = _first_exact(task, options, thorough=not search)
        made = _as_design(task, solution, attempts)
        if family == "auto" and (not made.exact or solution.family.last_resort):
            solution, made = _injected_if_closer(task, solution, made)
        if X is None:
            return made
        usual = _IMAGES if isinstance(model, ConvDEQ) else _ROWS
        some = _spread_samples(model.check_samples(X), usual if samples is None else samples)
        if family == "auto":
            solution, made = _injected_if_closer(task, solution, made, some)
        better = solution.fitted_to(task, some)
        if better is None:
            return made
        return replace(_matched_to_kernels(task, better, made.tried), fitted_to=len(some))


def _spread_samples(samples: Array, count: int) -> Array:
    """Choose samples to fit to, evenly over all of them, so that sorted classes are all represented."""
    if not isinstance(count, Integral) or count < 1:
        raise InputError(f"samples is the number of samples to fit to, 1 or more; got {count!r}.")
    if len(samples) < 4:
        raise InputError(f"Fitting to data needs at least 4 samples, got {len(samples)}.")
    if not samples.any():
        raise InputError("Fitting to data needs samples that are not all zero.")
    return samples[spread(len(samples), int(count))]


def _norm(model: Model, tau0: Any) -> float:
    """tau0 itself, or the root mean square norm of samples, of images over all positions."""
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
        # A model that the papers' families do not support has the others.
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
            f"does not have. Supported: family={names}."
        )
    if kernel == "both" and not (options and all(option.matches_both for option in options)):
        raise InputError(
            "kernel='both' takes an injected network, of a DEQ or a ConvDEQ: family='auto' or 'injected'. "
            "The other families match one kernel at a time."
        )
    return options


def _first_exact(
    task: DesignTask, options: Sequence[NetworkFamily], *, thorough: bool
) -> tuple[FamilySolution, list[Attempt]]:
    """The first family that is exact, or the best there is, with the attempts before it."""
    attempts: list[Attempt] = []
    best: FamilySolution | None = None
    for option in options:
        solution = option.solve(task, thorough=thorough)
        if solution.exact:
            return solution, attempts
        attempts.append(Attempt(option.label, solution.residual, solution.reason))
        best = solution if best is None or solution.residual < best.residual else best
    if best is None:
        raise InputError("There is no family to try.")
    return best, [entry for entry in attempts if entry.family != best.family.label]


def _as_design(task: DesignTask, solution: FamilySolution, attempts: Sequence[Attempt]) -> Design:
    """The design, its scalars computed again from the network that comes with it."""
    if solution.misfit is not None:
        return _matched_to_kernels(task, solution, attempts)
    network, family = solution.network, solution.family.label
    scalars = task.target, task.scalars(network)
    made = Design(network, task.model, task.tau0, task.kernel, family, *scalars, tuple(attempts))
    made = replace(made, bias2=task.model.bias2)
    if max(made.residuals.values()) <= EXACT:
        return made
    return replace(made, reason=_ROUNDING if solution.exact else solution.reason)


# --- networks that are matched to kernels ---------------------------------------------------------------------------


def _matched_to_kernels(task: DesignTask, solution: FamilySolution, attempts: Sequence[Attempt]) -> Design:
    """The design of a network that was matched to kernels; it has scalars if its model is centred."""
    target = reached = None
    if isinstance(task.model, DEQ) and is_centred(task.model, task.tau0):
        target, reached = task.target, task.scalars(solution.network)
    return Design(
        solution.network,
        task.model,
        task.tau0,
        task.kernel,
        solution.family.label,
        target,
        reached,
        tuple(attempts),
        reason=solution.reason,
        misfit=solution.misfit,
        bias2=task.model.bias2,
    )


def _injected_if_closer(
    task: DesignTask, solution: FamilySolution, made: Design, rows: Array | None = None
) -> tuple[FamilySolution, Design]:
    """A design of the papers, or the injected network of the same depth if its kernels are closer.

    Kernels are compared on rows, each with its best factor, or without rows at norms and angles around τ0.
    """
    if not isinstance(task.model, DEQ) or task.kernel == "ntk_paper" or solution.misfit is not None:
        return solution, made
    distance = _distance_from(task, rows)
    ours = distance(made.network)
    if rows is not None and ours <= _CLOSE_ENOUGH:
        return solution, made
    depth = min(max(len(made.network.layers), 2), 3)
    other = InjectedFamily(depth).solve(task, thorough=False)
    theirs = distance(other.network)
    place = "around tau0" if rows is None else f"on {len(rows)} rows with the best factor"
    words = (
        f"its kernels are {ours:.1e} from the model's {place}, those of {depth} injected layers {theirs:.1e}, "
        f"{_price(depth - len(made.network.layers))}"
    )
    reason = f"{made.reason}; {words}" if made.reason else words
    if theirs < ours:
        attempts = (*made.tried, Attempt(made.family, made.residual, reason))
        return other, _matched_to_kernels(task, other, attempts)
    if rows is None:
        return solution, replace(made, reason=reason)
    return solution, replace(made, tried=(*made.tried, Attempt(other.family.label, other.residual, words)))


def _distance_from(task: DesignTask, rows: Array | None) -> Callable[[Model], float]:
    """The distance of a network's kernels from those of the model, on rows or around τ0."""
    if rows is None:
        known = reference_target(task.model, task.tau0, task.kernel)
        return lambda network: known.distance([values_at(network, known.pairs, one) for one in known.kernels])
    target = {name: exact_kernel(task.model, rows, kernel=name) for name in kernels_of(task.kernel)}
    return lambda network: max(
        kernel_distance(matrix, exact_kernel(network, rows, kernel=name)).up_to_factor
        for name, matrix in target.items()
    )


def _price(layers: int) -> str:
    """The cost of an injected network with so many layers more: its layers share one product with x."""
    if layers < 1:
        return f"for {'as many' if layers == 0 else 'fewer'} products a row"
    return f"for {layers} more product{'s' if layers > 1 else ''} of width × width a row"
