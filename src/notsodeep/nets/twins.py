"""The explicit twin of a deep equilibrium model: the designed network of the same width, and the evidence for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import inf, sqrt
from typing import cast

import numpy as np
import torch
from torch import Tensor

from notsodeep.designs import Design, InjectedFamily, NetworkFamily, TwinDistances, design, twin_distances
from notsodeep.display import Shown
from notsodeep.errors import InputError
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.feedforward_net import FeedforwardNet
from notsodeep.nets.measure import one_thread, work_time
from notsodeep.nets.modules import Net, network_of
from notsodeep.progress import progress_bar
from notsodeep.validation import Array, root_mean_square

_ROUNDS = 7
# Samples whose exact kernels are compared, and those on which networks are timed: an image costs as much as many rows.
_ROWS, _IMAGES = 500, 20
_ROW_BATCH, _IMAGE_BATCH = 256, 32
# A mean of φ this large, relative to its root mean square, is not rounding or sampling of τ0.
_CENTRED = 0.02


@dataclass(frozen=True, repr=False)
class TwinEvidence(Shown):
    """Kernel error of the twin on these samples, and its speed on this machine.

    Attributes:
        kernel: which kernel was matched, "ck", "ntk" or "ntk_paper" ("both" is measured on the tangent kernel).
        distances: of the exact kernels at infinite width on a sample of the rows, as they are and up to a factor: of
            the twin, and of plain networks with the model's own activation.
        forward_ratio: time of the DEQ over that of the twin, features of one batch; of a CPU its seconds, one thread.
        training_ratio: ratio of times of outputs, loss and gradient; None if only the readout is trained.
        batch: number of rows of the batch that was timed.
    """

    kernel: str
    distances: TwinDistances
    forward_ratio: float
    training_ratio: float | None
    batch: int

    def __str__(self) -> str:
        times = f"{self.forward_ratio:.1f} times as fast forward"
        if self.training_ratio is not None:
            times += f", {self.training_ratio:.1f} times forward and backward"
        return f"{self.distances}\nTime (batch of {self.batch}): {times}."

    @property
    def distance(self) -> float:
        """||K - K̃||₂/||K||₂ of the twin, as it is."""
        return self.distances.twin.relative

    @property
    def plain_distance(self) -> float:
        """The same of the deepest plain network that was compared: as deep as the twin by default."""
        return self.distances.plain[max(self.distances.plain)].relative


@dataclass(frozen=True, repr=False)
class Twin(Shown):
    """A twin and where it comes from; `twin, design = explicit_twin(net, X)`."""

    network: FeedforwardNet
    design: Design
    evidence: TwinEvidence | None

    def __iter__(self) -> Iterator[FeedforwardNet | Design]:
        return iter((self.network, self.design))


@progress_bar("explicit twin")
def explicit_twin(
    net: EquilibriumNet,
    X: Tensor | Array,
    kernel: str | None = None,
    *,
    family: str | NetworkFamily = "auto",
    layers: int | None = None,
    seed: int | None = None,
    samples: int | None = None,
    batch: int | None = None,
    evidence: bool = True,
) -> Twin:
    """Build the explicit network with the same kernel, width and training mode as a DEQ.

    τ0 is the root mean square norm of the rows of X; for images, of their positions. The kernels of random networks
    match: the twin has new random weights, which do not depend on those of `net`.

    Args:
        net: the network to replace, a `DEQNet` or a `ConvDEQNet`.
        X: training rows or images, scaled as the network will see them.
        kernel: "ck" (what readout training sees), "ntk" (what full training sees), "ntk_paper" or "both"; by default
            "ck" for train="readout" and "ntk" for train="all".
        family: as in `design`, judged on rows of X. "auto" takes an injected network, with the DEQ's own activation,
            where the papers' design is more than 0.1 % away, and where the activation is not centred at τ0 or the
            model has a bias: their designs are about others (`DEQ.centred`). A `ConvDEQNet` has injected networks
            alone.
        layers: number of hidden layers, for a family that comes with several.
        seed: random seed of the twin's weights; torch's global generator (`torch.manual_seed`) if None.
        samples: rows or images on which the exact kernels are compared; if not given, 500 rows or 20 images.
        batch: rows or images on which the two are timed; if not given, 256 rows or 32 images.
        evidence: measure kernel errors and speed, which takes a second or two, and longer for images.
    """
    if not isinstance(net, EquilibriumNet):
        raise InputError(f"explicit_twin takes a DEQNet or a ConvDEQNet, not {type(net).__name__}.")
    spec, rows = net.spec, net.spec.check_samples(X)
    net.check_shape(rows.shape)
    tau0 = root_mean_square(spec.squared_norms(rows))
    result = _designed(net, rows, tau0, kernel, family, layers)
    sizes = net.sample_shape, net.units, net.out_features
    twin = cast(FeedforwardNet, network_of(result.network, *sizes, seed=seed, **net.shared_options))
    measured = _evidence(net, twin, result, rows, samples, batch) if evidence else None
    return Twin(twin, result, measured)


def _designed(
    net: EquilibriumNet,
    rows: Array,
    tau0: float,
    kernel: str | None,
    family: str | NetworkFamily,
    layers: int | None,
) -> Design:
    """The design of the twin, judged on the rows where its family asks for them."""
    spec, kernel = net.spec, kernel or ("ck" if net.train_mode == "readout" else "ntk")
    phi, q = spec.activation, spec.preactivation_variance(tau0)
    mean, size = float(mean_derivative(phi, q, 0)), sqrt(float(second_moment(phi, q)))
    centred = net.takes_images or abs(mean) <= _CENTRED * size
    chosen = "injected" if family == "auto" and (not centred or spec.bias2) else family
    injected = chosen == "injected" or isinstance(chosen, InjectedFamily)
    judged = net.takes_images or injected or (chosen == "auto" and kernel != "ntk_paper")
    result = design(spec, tau0, kernel, chosen, layers=layers, X=rows if judged else None)
    if result.misfit is None and not centred:
        warnings.warn(
            f"The activation {phi} has mean {mean:.3g} on these data, and this family assumes mean zero: the twin is "
            f"that of the centred model, and far from this one. Use family='injected', or build the network from "
            f"spec.centred({tau0:.4g}).",
            RuntimeWarning,
            stacklevel=3,
        )
    return result


def _evidence(
    net: EquilibriumNet,
    twin: FeedforwardNet,
    designed: Design,
    rows: Array,
    samples: int | None,
    batch: int | None,
) -> TwinEvidence:
    """Measure kernel error and speed of a twin."""
    most, timed = (_IMAGES, _IMAGE_BATCH) if net.takes_images else (_ROWS, _ROW_BATCH)
    # The samples that are compared are the same for every twin.
    sample = rows[np.random.default_rng(0).permutation(len(rows))[: samples or most]]
    block = torch.tensor(rows[: batch or timed], dtype=net.readout.dtype, device=net.readout.device)
    kernel = "ntk" if designed.kernel == "both" else designed.kernel
    # Of the network itself: the design is that of the centred model.
    distances = twin_distances(replace(designed, model=net.spec), sample, kernel)
    return TwinEvidence(kernel, distances, *speed_ratios(net, twin, block), len(block))


def speed_ratios(net: Net, twin: Net, batch: Tensor) -> tuple[float, float | None]:
    """Times of the DEQ over those of the twin, forward and training: the fastest of a few rounds of each, in turn.

    On a processor these are its seconds on one thread. Training is None where only the readout is trained.
    """

    def forward(module: Net) -> None:
        with torch.no_grad():
            module.features(batch)

    def training(module: Net) -> None:
        torch.autograd.grad(
            module(batch).square().mean(), [p for p in module.parameters() if p.requires_grad]
        )

    with one_thread():
        passed = _ratio(forward, net, twin, batch.device)
        return passed, _ratio(training, net, twin, batch.device) if net.train_mode == "all" else None


def _ratio(task: Callable[[Net], None], net: Net, twin: Net, device: torch.device) -> float:
    fastest = {net: inf, twin: inf}
    for round_ in range(_ROUNDS + 1):
        for module in (net, twin):
            began = work_time(device)
            task(module)
            if round_:  # the first one warms up
                fastest[module] = min(fastest[module], work_time(device) - began)
    return fastest[net] / fastest[twin]


__all__ = ["Twin", "TwinEvidence", "explicit_twin"]
