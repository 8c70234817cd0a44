"""`verdict`: can a few explicit layers replace this deep equilibrium model? "replace", "keep" or "unsure", and why."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.extras import needed
from notsodeep.feature_learning import lazy_check
from notsodeep.gaussian.activations import activation
from notsodeep.intervals import mean_interval, paired_difference, share_interval
from notsodeep.kernels import exact_kernel
from notsodeep.learning.sample_pool import Labelled
from notsodeep.models import Model
from notsodeep.models.protocol import Unrollable
from notsodeep.progress import Report, reported
from notsodeep.results import Result, plain
from notsodeep.validation import Array, IntArray, as_count
from notsodeep.verdicts.depth_curve import (
    POINT,
    STEPS,
    DepthCurve,
    curve_of_scores,
    labelled_samples,
    left_out_scores,
    model_curve,
    score_interval,
)

if TYPE_CHECKING:
    from notsodeep.distillation import Distilled

# The largest number of steps that counts as a few explicit layers.
FEW = 4
# A network that is not at least this many times as fast is not worth the change.
FASTER = 1.2
# Number of rows that are compared; smallest number of images.
_ROWS, _FEWEST_IMAGES = 1000, 40
# Images are limited by positions times pairs of images (readout "flatten"), or by pairs of positions ("pool").
_POSITIONS, _POSITION_PAIRS = 2e7, 2e8
# Numbers of steps with the readout "pool", whose kernels take longest.
_POOLED_STEPS = (1, 2, 4, 8)
_NAMES = {"Explicit": "MLP", "ConvExplicit": "CNN", "GraphExplicit": "graph network"}


@dataclass(frozen=True, repr=False)
class OrdinaryNetwork(Result):
    """An ordinary ReLU network of the same cost, or a linear model, its accuracy predicted by its exact kernel.

    Attributes:
        name: "MLP", "CNN", "graph network" or "linear model".
        layers: number of hidden layers: they cost what as many steps of the DEQ cost; 0 of a linear model.
        accuracy: on left-out samples, as in the depth curve.
        interval: interval of 95 % of the accuracy.
        scores: score of each sample.
    """

    _plain = ("name", "layers", "accuracy", "interval")

    name: str
    layers: int
    accuracy: float
    interval: tuple[float, float]
    scores: Array = field(repr=False)

    def __str__(self) -> str:
        return (
            f"ordinary {self.name} of {self.layers} layer{'s' * (self.layers > 1)}"
            if self.layers
            else self.name
        )

    @classmethod
    def of(
        cls, name: str, layers: int, kernel: Array, places: IntArray, labelled: Labelled, *, intercept: bool
    ) -> OrdinaryNetwork:
        """A network with this kernel, tried on the labelled samples."""
        scores, _ = left_out_scores(kernel, places, labelled, None, intercept=intercept)
        return cls(name, layers, float(scores.mean()), score_interval(scores), scores)


@dataclass(frozen=True, repr=False)
class Verdict(Result):
    """Whether a few explicit layers can replace a DEQ, and what was measured to say so.

    Attributes:
        answer: "replace", "keep" or "unsure".
        reason: one or two sentences.
        curve: the depth curve that the answer is read from; None if the DEQ has no equilibrium on these samples.
        ordinary: an ordinary network of the same cost, predicted on the same samples; None without labels and for a
            trained network, whose distillation tries MLPs itself.
        linear: a linear model with a bias on the same samples; None without labels and for a trained network.
        distilled: for a trained network what `distill` built; None for a model.
    """

    _shown = ("answer", "reason")
    _plain = ("answer", "reason", "curve", "ordinary", "linear")

    answer: str
    reason: str
    curve: DepthCurve | None
    ordinary: OrdinaryNetwork | None = None
    linear: OrdinaryNetwork | None = None
    distilled: Any = None

    def plot(self, ax: Any = None) -> Any:
        """Draw the depth curve, with the ordinary network and the linear model beside it; returns the Axes."""
        if self.curve is None:
            raise InputError("There is no curve to draw: the DEQ has no equilibrium on these samples.")
        axes = self.curve.plot(ax)
        for one, style in ((self.ordinary, "--"), (self.linear, ":")):
            if one is not None:
                axes.axhline(
                    100.0 * one.accuracy, color="0.4", linestyle=style, linewidth=1.0, label=f"{one}"
                )
                axes.legend()
        return axes

    def to_dict(self) -> dict[str, Any]:
        """All numbers and words as plain JSON values."""
        names = ("name", "agreement", "certain", "steps", "speedup", "agreement_interval")
        built = (
            None if self.distilled is None else {one: plain(getattr(self.distilled, one)) for one in names}
        )
        return super().to_dict() | {"distilled": built}

    def explain(self) -> str:
        """The answer, its reason, and the measurements."""
        answer = {"replace": "Yes", "keep": "No", "unsure": "Unsure"}[self.answer]
        lines = [f"Can a few explicit layers replace the DEQ? {answer}. {self.reason}"]
        if self.curve is not None:
            lines.append(self.curve.explain())
            for one in (self.ordinary, self.linear):
                if one is not None:
                    low, high = (100.0 * end for end in one.interval)
                    article = "An" if one.layers else "A"
                    lines.append(
                        f"{article} {one}: {self.curve.measure} {_percent(one.accuracy)} ({low:.1f} to {high:.1f})."
                    )
            if self.linear is not None and self.curve.chance:
                lines[-1] += f" The most frequent class has {_percent(self.curve.chance)}."
        return "\n".join(lines)


def verdict(
    model: Any,
    X: Any,
    y: ArrayLike | None = None,
    *,
    kernel: str = "ck",
    max_steps: int = FEW,
    samples: int | None = None,
    intercept: bool = True,
    target_agreement: float = 0.99,
    epochs: int = 8,
    seed: int = 0,
    richness: float | None = None,
    progress: bool | Report = True,
) -> Verdict:
    """Decide whether a few explicit layers can replace a deep equilibrium model.

    A model is judged before anything is trained, by its depth curve: the accuracy that is predicted for 1, 2, 3, …
    steps and for the equilibrium, beside an ordinary network of the same cost. "replace": `max_steps` steps or fewer,
    or the ordinary network, are certain to be within one point of the best. "keep": they are certain to be further
    behind. A trained network is judged by what `distill` builds from it.

    Args:
        model: a DEQ, ConvDEQ or GraphDEQ, or any model with `unrolled(k)`; or a trained DEQNet or ConvDEQNet.
        X: samples: rows, images, or the nodes of the graph; for a network, samples that it was not trained on.
        y: labels of the samples (see `depth_curve`); not used for a trained network. Without them only kernels are
            compared.
        kernel: "ck" if the readout will be trained, "ntk" if all weights will be; for a model.
        max_steps: the largest number of explicit layers that may replace a model.
        samples: number of samples that are compared; if None, up to 1000 rows, or as many images as half a minute
            allows, and all nodes of a graph.
        intercept: fit a bias of the readout, which is not penalised; for a model.
        target_agreement: for a trained network, the share of samples on which the replacement chooses the same class.
        epochs: for a trained network, passes over the samples when `distill` trains candidates; 0 for closed forms.
        seed: seed of the choice of samples, and of the distillation.
        richness: γ of a network that will learn features (see `adaptive_kernel`); for a DEQ with labels. If the kernel
            changes too much for the depth curve, which assumes fixed features, the answer is "unsure".
        progress: a bar on a terminal after two seconds; False for none, or a function.

    Raises:
        InputError: for input that cannot be used.
    """
    with reported(progress, "verdict") as report:
        try:
            if isinstance(model, Unrollable) and isinstance(model, Model):
                few = as_count(max_steps, "max_steps")
                found = _of_model(model, X, y, kernel, few, samples, seed, report, intercept=intercept)
                return found if richness is None else _after_learning(found, model, X, y, richness, seed)
            return _of_network(model, X, target_agreement, epochs, seed, report)
        except ConvergenceError as error:
            reason = str(error)
            if isinstance(model, Model):
                reason = f"The DEQ has no equilibrium on these samples. {error}"
            return Verdict("unsure", reason, None)


def _of_model(
    model: Any,
    X: Any,
    y: Any,
    kernel: str,
    few: int,
    samples: int | None,
    seed: int,
    report: Report,
    *,
    intercept: bool,
) -> Verdict:
    every = model.check_samples(X)
    chosen = _chosen(model, every, samples, seed)
    part, labels = every[chosen], None
    if y is not None:
        labelled_samples(model, y, len(every))  # refuses labels that cannot be used before any work
        labels = np.asarray(y)[chosen]
    pooled = getattr(model, "readout", None) == "pool"
    steps = sorted({*(_POOLED_STEPS if pooled else STEPS), few})
    curve = model_curve(model, part, labels, steps, kernel, None, report, intercept=intercept)
    ordinary = linear = None
    if labels is not None:
        data = labelled_samples(model, labels, len(part))
        rows = part.reshape(len(part), -1)
        rows = rows - rows.mean(axis=0)
        linear = OrdinaryNetwork.of("linear model", 0, rows @ rows.T, *data, intercept=intercept)
        if hasattr(model, "network"):
            layers = int(min(curve.steps_needed, few))
            report(len(steps), len(steps) + 1, partial("{} ordinary layers".format, layers))
            network = model.network([activation("relu")] * layers)
            name = _NAMES.get(type(network).__name__, type(network).__name__)
            ordinary = OrdinaryNetwork.of(
                name, layers, exact_kernel(network, part, kernel=kernel), *data, intercept=intercept
            )
    return Verdict(*decide_untrained(curve, ordinary, few), curve, ordinary, linear)


def _after_learning(found: Verdict, model: Any, X: Any, y: Any, richness: float, seed: int) -> Verdict:
    """The verdict with a check whether features may be taken as fixed."""
    if y is None or found.curve is None:
        raise InputError("richness= needs the labels y: without them nothing is learned.")
    targets = labelled_samples(model, y, len(X))[1].targets
    check = lazy_check(model, X, targets, richness, float(found.curve.ridge[-1]), seed=seed)
    answer = found.answer if check.trusted else "unsure"
    return replace(found, answer=answer, reason=f"{found.reason} {check.note}")


def _chosen(model: Any, every: Array, samples: int | None, seed: int) -> IntArray:
    """Places of the samples that are compared; all nodes of a graph, which belong together."""
    if hasattr(model, "propagation"):
        return np.arange(len(every))
    count = _ROWS
    positions = int(np.prod(every.shape[2:]))
    if positions > 1:
        pairs = _POSITION_PAIRS / positions**2 if model.readout == "pool" else _POSITIONS / positions
        count = int(np.clip(np.sqrt(pairs), _FEWEST_IMAGES, _ROWS))
    if samples is not None:
        count = as_count(samples, "samples", least=20)
    order = np.random.default_rng(seed).permutation(len(every))
    return np.sort(order[:count])


def _of_network(net: Any, X: Any, target: float, epochs: int, seed: int, report: Report) -> Verdict:
    needed("torch", "The verdict on a trained network")
    from notsodeep.distillation import distill
    from notsodeep.verdicts.trained_curve import network_scores

    curve = curve_of_scores(**network_scores(net, X, STEPS, seed, report))
    distilled = distill(net, X, target_agreement=target, epochs=epochs, seed=seed, progress=report)
    found = Verdict(*decide_trained(distilled), curve, distilled=distilled)
    if not curve.unsolved:
        return found
    words = f"{curve.unsolved} samples without an equilibrium are left out of the depth curve."
    return replace(found, reason=f"{found.reason} {words}")


# --- the rules: from a depth curve, or from a distillation, to "replace", "keep" or "unsure" --------------------------

# A statement is called certain if a one-sided bound of 95 % confirms it, the rule by which `distill` chooses.


class Decision(NamedTuple):
    """An answer and its reason in one or two sentences."""

    answer: str
    reason: str


def decide_untrained(curve: DepthCurve, ordinary: OrdinaryNetwork | None, few: int = FEW) -> Decision:
    """Whether a few steps, or an ordinary network of as many layers, can replace a model before it is trained."""
    if curve.scores is None:
        return _decide_without_labels(curve, few)
    needed, best, end = curve.steps_needed, curve.best_place, curve.percent(-1)
    scores, learnt = curve.scores, _is_learnt(curve, curve.scores[best])
    others = [] if ordinary is None else [ordinary.scores]
    if learnt and needed <= few:
        place = int(np.flatnonzero(curve.steps == needed)[0])
        beside = "" if ordinary is None else f", an {ordinary} {_percent(ordinary.accuracy)}"
        words = f"{_suffice(needed)}: {curve.measure} {curve.percent(place)}, equilibrium {end}{beside}."
        return Decision("replace", words)
    ahead = [one for one in others if paired_difference(scores[best], one)[1] <= POINT]
    if ahead and _is_learnt(curve, ahead[0]):
        words = f"{curve.measure} {_percent(float(ahead[0].mean()))}, equilibrium {end}"
        return Decision("replace", f"An {ordinary} suffices: {words}.")
    if not learnt:
        return Decision(
            "unsure",
            f"{curve.source} do not show that the labels can be predicted: {curve.percent(best)} at best, "
            f"{_percent(curve.chance)} by chance. Add labelled samples.",
        )
    shallow = int(np.argmax(np.where(curve.steps <= few, curve.accuracy, -np.inf)))
    behind = min(paired_difference(scores[best], one)[0] for one in (scores[shallow], *others))
    compared = (
        f"{curve.percent(best)} at {curve.name(best)}, {curve.percent(shallow)} at {curve.name(shallow)}"
    )
    if behind <= POINT:
        return Decision(
            "unsure",
            f"{curve.source} cannot tell whether {few} steps suffice: {compared}. Add labelled samples, or train both.",
        )
    if np.isinf(needed) and curve.accuracy[best] - curve.accuracy[-2] > POINT:
        words = f"{curve.measure.capitalize()} still rises at {curve.name(-2)}"
        return Decision("keep", f"{words}: {compared}.")
    if np.isinf(needed):
        return Decision("keep", f"More than {few} steps are needed: {curve.measure} {compared}.")
    return Decision("keep", f"{needed} steps are needed: {curve.measure} {compared}.")


def _decide_without_labels(curve: DepthCurve, few: int) -> Decision:
    if curve.steps_needed <= few:
        place = int(np.flatnonzero(curve.steps == curve.steps_needed)[0])
        return Decision(
            "replace",
            f"{_suffice(curve.steps_needed)}: kernel error {100.0 * curve.kernel_error[place]:.2g} % up to a factor. "
            "Add labels for a firmer answer.",
        )
    place = int(np.flatnonzero(curve.steps <= few)[-1])
    return Decision(
        "unsure",
        f"The kernel of {curve.steps[place]:.0f} steps differs from the equilibrium's by "
        f"{100.0 * curve.kernel_error[place]:.2g} % up to a factor. Add labels for a firmer answer.",
    )


def _is_learnt(curve: DepthCurve, scores: Array) -> bool:
    """Whether the labels are certainly predicted better than without looking at the samples."""
    if curve.measure == "accuracy":
        return bool(share_interval(int(scores.sum()), len(scores))[0] > curve.chance)
    return bool(mean_interval(scores)[0] > curve.chance)


def _percent(share: float) -> str:
    return f"{100.0 * share:.1f} %"


def _suffice(steps: float) -> str:
    return "1 step suffices" if steps == 1 else f"{steps:.0f} steps suffice"


def decide_trained(distilled: Distilled) -> Decision:
    """Whether what `distill` builds of a trained network can replace it."""
    low, high = distilled.agreement_interval
    name = distilled.name[:1].upper() + distilled.name[1:]
    built = (
        f"{name}: agrees with the network on {_percent(distilled.agreement)} of samples it has not "
        f"seen ({100.0 * low:.1f} to {100.0 * high:.1f} %), {distilled.speedup:.1f} times as fast"
    )
    if distilled.speedup < FASTER:
        return Decision("keep", f"{built}. That is too little to gain.")
    if distilled.certain:
        return Decision("replace", f"{built}.")
    target = distilled.target_agreement
    if high < target:
        return Decision("keep", f"{built}. The target is {_percent(target)}.")
    return Decision(
        "unsure",
        f"{built}. It is not certain to reach the target of {_percent(target)}: add samples, or lower it.",
    )
