"""`verdict`: do I need this deep equilibrium model? Yes, no or uncertain: will a shallow twin do, and why."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from notsodeep.designs import Design
from notsodeep.designs.baselines import plain_layers
from notsodeep.display import Shown
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.moments import second_moment_slope
from notsodeep.models import DEQ, ConvDEQ, Model
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.modules import network_of
from notsodeep.nets.twins import Twin, evidence_of, explicit_twin
from notsodeep.progress import Report, reported
from notsodeep.validation import Array, as_count, one_of, root_mean_square
from notsodeep.verdicts.findings import Closeness, Gap, Speed, TrainedState
from notsodeep.verdicts.labelled_gaps import PATIENT, kernel_gap, network_gap
from notsodeep.verdicts.rules import decide_trained, decide_untrained, gap_of, limit_of
from notsodeep.verdicts.trained_state import trained_state

# Units of a network of rows, channels of one of images, where no width is given.
_WIDTH, _CHANNELS = 1024, 32
# Labelled rows that are compared; of images as many as a minute allows: positions (pairs of them for "pool") of all
# pairs of images, within limits.
_ROWS, _FEWEST, _MOST = 1000, 60, 1000
_POSITIONS, _POSITION_PAIRS = 4e7, 6e8


@dataclass(frozen=True, repr=False)
class Verdict(Shown):
    """Whether a shallow network will do in the place of a DEQ, and what was measured to say so.

    Attributes:
        answer: "yes", "no" or "uncertain".
        reason: two sentences.
        command: a line of Python that goes on from here.
        closeness: distances of kernels; None for a trained network.
        gaps: predicted accuracies of DEQ, twin and plain layer, with exact kernels and with networks of the given
            width; empty without labels.
        speed: of a fresh twin; None for a trained network, whose `trained.speed` is that of a few of its own steps.
        trained: what training has done to the network; None for a model.
        twin: the twin that was judged, with its design; None for a trained network.
    """

    answer: str
    reason: str
    command: str
    closeness: Closeness | None
    gaps: tuple[Gap, ...]
    speed: Speed | None
    trained: TrainedState | None
    twin: Twin | None

    def __str__(self) -> str:
        return self.words(self.command)

    def words(self, command: str) -> str:
        """Answer, reason, what was measured, and a command that goes on from here."""
        question = "Will a few explicit steps do?" if self.trained else "Will the twin do?"
        found = [
            *(part for part in (self.closeness, *self.gaps, self.speed, self.trained) if part is not None)
        ]
        lines = [f"{question} {self.answer.capitalize()}. {self.reason}", *(f"- {part}" for part in found)]
        return "\n".join([*lines, f"Go on with: {command}"])

    def as_dict(self) -> dict[str, Any]:
        """All numbers and words, for JSON."""
        return {
            "answer": self.answer,
            "reason": self.reason,
            "command": self.command,
            "closeness": None if self.closeness is None else asdict(self.closeness),
            "gaps": [asdict(gap) for gap in self.gaps],
            "speed": None if self.speed is None else asdict(self.speed),
            "trained": None if self.trained is None else asdict(self.trained),
        }

    def _facts(self) -> dict[str, Any]:
        return {"answer": self.answer, "reason": self.reason, "command": self.command}


def verdict(
    model: DEQ | ConvDEQ | EquilibriumNet,
    X: Any,
    y: ArrayLike | None = None,
    *,
    width: int | None = None,
    train: str | None = None,
    samples: int | None = None,
    until: float = 0.99,
    seed: int = 0,
    designed: Design | None = None,
    progress: bool | Report = False,
) -> Verdict:
    """Do I need this DEQ? For a model: will its twin do, trained alike. For a trained network: will a few of its steps.

    A model is judged before anything is trained: by the distance of the exact kernels of DEQ and twin, by the speed of
    both on this machine and, with labels, by the accuracies that are predicted for DEQ, twin and one plain layer, with
    the exact kernels and with networks of the given width.  A network is judged as it stands: by how far training has
    taken it from the kernel of its model, and by how often a few of its own steps, with a readout that is fitted in
    closed form, choose the class it chooses.

    Args:
        model: a `DEQ` or a `ConvDEQ`; or a trained `DEQNet` or `ConvDEQNet` (weights from elsewhere:
            `DEQNet.from_weights`).
        X: samples as the network sees them: rows, or images.
        y: their labels, or numbers for a regression; without them the kernels decide.
        width: units (for images channels) of the networks, for a model; 1024 (32) if not given.
        train: what will be trained, "all" weights or the "readout"; "all" if not given.
        samples: labelled samples that are compared; at most 1000 rows, and as many images as a minute allows.
        until: for a network, the share of samples on which the replacement should choose the same class.
        seed: of the choice of samples and of random weights.
        designed: for a model, the twin to judge, as `design` has made it; the best one is looked for if not given.
        progress: True for a bar on stderr when it takes longer than two seconds.

    Raises:
        InputError: for input that cannot be used.
    """
    if isinstance(model, EquilibriumNet):
        if width is not None or train is not None or designed is not None:
            raise InputError(
                "A network has a width and a way of training, and is judged by its own steps: leave width, train and "
                "designed out."
            )
        return _of_network(model, X, until, seed, progress)
    if not isinstance(model, DEQ | ConvDEQ):
        raise InputError(
            f"verdict takes a DEQ or ConvDEQ, or a trained DEQNet or ConvDEQNet, not {type(model).__name__}. "
            "Weights of your own code: nets.DEQNet.from_weights(W, U, b, activation, readout)."
        )
    one_of(train or "all", ("all", "readout"), "train")
    with reported(progress, "verdict") as report:
        try:
            return _of_model(model, X, y, width, train or "all", samples, seed, designed, report)
        except ConvergenceError as error:
            return _not_solvable(error, isinstance(model, ConvDEQ))


def _of_network(net: EquilibriumNet, X: Any, until: float, seed: int, progress: bool | Report) -> Verdict:
    if not 0.0 < until < 1.0:
        raise InputError(f"until is a share between 0 and 1, such as 0.99; got {until!r}.")
    values = net.spec.check_samples(
        np.asarray(X.detach().cpu().double()) if isinstance(X, torch.Tensor) else X
    )
    net.check_shape(values.shape)
    with reported(progress, "verdict") as report:
        rows = torch.as_tensor(values, dtype=net.readout.dtype, device=net.readout.device)
        try:
            state = trained_state(net, rows, until, seed, report)
        except ConvergenceError as error:
            return _not_solvable(error, values.ndim > 2)
    found = decide_trained(state)
    command = {
        "yes": f"small = nsd.nets.distill(net, X, target_agreement={until:g})",
        "uncertain": f"small = nsd.nets.distill(net, X, target_agreement={until:g}, epochs=16); print(small.explain())",
        "no": "safe = nsd.nets.guarded(nsd.nets.distill(net, X), net)",
    }[found.answer]
    return Verdict(found.answer, found.reason, command, None, (), None, state, None)


def _of_model(
    model: DEQ | ConvDEQ,
    X: Any,
    y: ArrayLike | None,
    width: int | None,
    train: str,
    samples: int | None,
    seed: int,
    designed: Design | None,
    report: Report,
) -> Verdict:
    every = model.check_samples(X)
    images = isinstance(model, ConvDEQ)
    chosen = _chosen(model, every, samples, seed)
    labels = None if y is None else _labels(y, len(every))[chosen]
    classes = 1 if labels is None or labels.dtype.kind == "f" else max(len(np.unique(labels)), 1)
    units = as_count(width, "width") if width is not None else (_CHANNELS if images else _WIDTH)
    net = network_of(model, every.shape[1:], units, classes, train=train, seed=seed, solver=PATIENT)
    if not isinstance(net, EquilibriumNet):
        raise InputError(f"{model!r} has no network that solves an equilibrium.")
    report(0, 4, lambda: "the twin")
    made = explicit_twin(net, every[chosen], seed=seed + 1, designed=designed, evidence=False)
    # One plain layer is what the answer speaks of; deeper ones need tables of their own.
    evidence = evidence_of(net, made.network, made.design, every[chosen], depths=(1,))
    twin, kernel = replace(made, evidence=evidence), evidence.kernel
    tau0 = root_mean_square(model.squared_norms(every))
    models: dict[str, Model] = {
        "DEQ": model,
        "twin": twin.design.network,
        "plain": plain_layers(model, 1, tau0),
    }
    distances = evidence.distances
    closeness = Closeness(
        kernel,
        distances.twin.up_to_factor,
        distances.plain[1].up_to_factor,
        _beyond_reach(model, tau0, len(twin.design.network.layers)),
        distances.samples,
    )
    gaps: tuple[Gap, ...] = ()
    if labels is not None:
        by_kernels = kernel_gap(models, every[chosen], labels, kernel, report)

        def is_enough(gap: Gap) -> bool:
            return gap_of(by_kernels, gap, closeness).is_settled(limit_of(gap))

        gaps = by_kernels, network_gap(models, net, every[chosen], labels, seed, is_enough, report)
    speed = Speed(evidence.forward_ratio, evidence.training_ratio, evidence.batch, units)
    found = decide_untrained(gaps, closeness, speed)
    command = _next_line(found.answer, images, every.shape[1:], units, train, labels, classes)
    return Verdict(found.answer, found.reason, command, closeness, gaps, speed, None, twin)


def _next_line(
    answer: str,
    images: bool,
    shape: tuple[int, ...],
    units: int,
    train: str,
    labels: Array | None,
    outputs: int,
) -> str:
    """A line of Python that goes on from the verdict on a model, with the names of the call: model, X and y."""
    sizes = f"{shape[0]}, {units}, {outputs}" + (f", image_size={shape[1:]}" if images else "")
    net = f"net = nsd.nets.{'ConvDEQNet' if images else 'DEQNet'}(model, {sizes}, train={train!r})"
    if answer == "yes":
        return f"{net}; twin, design = nsd.nets.explicit_twin(net, X)"
    if labels is None:
        return "nsd.verdict(model, X, y)  # with labels y"
    if labels.dtype.kind == "f":
        return f"{net}; nsd.nets.fit(net, (X, y), loss='squared')"
    chosen = "models=['deq'], " if answer == "no" else ""
    settings = f"nsd.nets.RaceSettings({chosen}width={units}, mode={train!r})"
    return (
        "from sklearn.model_selection import train_test_split; "
        "X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0); "
        f"print(nsd.nets.race(model, (X_train, y_train), (X_test, y_test), {settings}))"
    )


def _not_solvable(error: ConvergenceError, images: bool) -> Verdict:
    """What can be said about a DEQ whose equilibrium or kernel does not exist on these samples."""
    reason = f"There is nothing to compare with, because the DEQ has no solution on these samples. {error}"
    rows = "X.reshape(len(X), -1)" if images else "X"
    command = f"print(nsd.data.inspect_rows({rows}))  # scaled as in training? If so: a smaller sigma_a2"
    return Verdict("uncertain", reason, command, None, (), None, None, None)


def _chosen(model: DEQ | ConvDEQ, every: Array, samples: int | None, seed: int) -> Array:
    """Places of the samples that are compared."""
    count = _ROWS
    if isinstance(model, ConvDEQ):
        positions = int(np.prod(every.shape[2:]))
        pairs = _POSITION_PAIRS / positions**2 if model.readout == "pool" else _POSITIONS / positions
        count = int(np.clip(np.sqrt(pairs), _FEWEST, _MOST))
    if samples is not None:
        count = as_count(samples, "samples", least=20)
    order = np.random.default_rng(seed).permutation(len(every))
    return np.sort(order[:count])


def _labels(y: ArrayLike, n: int) -> Array:
    labels = np.asarray(y)
    if len(labels) != n:
        raise InputError(f"X has {n} samples and y {len(labels)} labels; one for each is needed.")
    missing = [one is None or one != one for one in labels.reshape(n, -1)[:, 0]]
    if any(missing):
        raise InputError(
            f"y has no label for {sum(missing)} of {n} samples (None or NaN). Leave these samples out."
        )
    return labels


def _beyond_reach(model: DEQ | ConvDEQ, tau0: float, layers: int) -> float:
    """Share of the response of a ConvDEQ that needs more steps than the twin has layers; 0 for rows.

    A step passes on σ_a² S'(q) of the variance that comes from the neighbours, docs/theory.md (10.1): what is left
    after `layers` steps comes from beyond their reach.
    """
    if not isinstance(model, ConvDEQ):
        return 0.0
    q = model.preactivation_variance(tau0)
    passed = float(model.sigma_a2 * second_moment_slope(model.activation, np.array([q]))[0])
    return float(min(passed, 1.0) ** layers)


__all__ = ["Verdict", "verdict"]
