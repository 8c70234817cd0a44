"""The explicit twin of a deep equilibrium model: the designed network of the same width, and the evidence for it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import sqrt
from statistics import median

import numpy as np
import torch
from scipy.sparse.linalg import aslinearoperator
from torch import Tensor

from notsodeep.designs import Design, Family, design, tangent_kernel_with_multipliers
from notsodeep.errors import InputError
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.kernels import exact_kernel
from notsodeep.linalg.block_lanczos import operator_norm
from notsodeep.models import Explicit
from notsodeep.nets.measure import synchronised_time
from notsodeep.nets.modules import DEQNet, ExplicitNet, Net
from notsodeep.validation import Array, as_rows

_ROUNDS = 7
# A mean of φ this large, relative to its root mean square, is not rounding or sampling of τ0.
_CENTRED = 0.02


@dataclass(frozen=True)
class Evidence:
    """How good the twin is on these data and on this machine.

    Attributes:
        kernel: which kernel was matched, "ck", "ntk" or "ntk_paper" ("both" is measured on the tangent kernel).
        distance: ||K - K̃||₂/||K||₂ between the exact kernels of the two at infinite width, on a sample of the rows.
        plain_distance: distance of a network of the same depth with the model's own activation.
        samples: number of rows on which the distances were measured.
        forward_ratio: time of the DEQ over that of the twin, features of one batch.
        training_ratio: ratio of times of outputs, loss and gradient; None if only the readout is trained.
        batch: number of rows of the batch that was timed.
    """

    kernel: str
    distance: float
    plain_distance: float
    samples: int
    forward_ratio: float
    training_ratio: float | None
    batch: int

    def __str__(self) -> str:
        times = f"{self.forward_ratio:.1f} times faster forward"
        if self.training_ratio is not None:
            times += f", {self.training_ratio:.1f} times forward and backward"
        return (
            f"{self.kernel} within {self.distance:.2e} of the DEQ's on {self.samples} rows (same depth, undesigned: "
            f"{self.plain_distance:.2e}); {times} (batch of {self.batch})"
        )


@dataclass(frozen=True)
class Twin:
    """A twin and where it comes from; unpacks as `twin, design = explicit_twin(net, X)`."""

    network: ExplicitNet
    design: Design
    evidence: Evidence | None

    def __iter__(self) -> Iterator[ExplicitNet | Design]:
        return iter((self.network, self.design))


def explicit_twin(
    net: DEQNet,
    X: Tensor | Array,
    kernel: str | None = None,
    *,
    family: str | Family = "auto",
    seed: int = 0,
    samples: int = 500,
    batch: int = 256,
    evidence: bool = True,
) -> Twin:
    """The explicit network with the same kernel, the same width and the same training mode as a DEQ.

    τ0 is the root mean square norm of the rows of X.  The match is one of random networks: the twin is freshly drawn,
    whatever the weights of `net` have become by training.

    Args:
        net: the network to replace. Its activation should be centred at τ0 (`DEQ.centred`), except for
            family="injected", which takes it as it is.
        X: training rows, scaled as the network will see them.
        kernel: "ck" (what readout training sees), "ntk" (what full training sees), "ntk_paper" or "both"; by default
            "ck" for train="readout" and "ntk" for train="all".
        family: as in `design`; "injected" is fitted to rows of X.
        seed: of the twin's weights.
        samples: rows on which the exact kernels are compared.
        batch: rows on which the two are timed.
        evidence: measure distance and speed; a second or two.
    """
    if not isinstance(net, DEQNet):
        raise InputError(f"explicit_twin takes a DEQNet, not {type(net).__name__}.")
    rows = as_rows(X)
    if rows.shape[1] != net.in_features:
        raise InputError(f"X has {rows.shape[1]} features and the network takes {net.in_features}.")
    tau0 = sqrt(float(np.mean(np.sum(rows**2, axis=1))))
    wanted = kernel or ("ck" if net.train_mode == "readout" else "ntk")
    injected = family == "injected"
    found = design(net.spec, tau0, wanted, family, X=rows if injected else None)
    if not injected:
        _warn_if_not_centred(net, tau0)
    twin = ExplicitNet(
        found.network,
        net.in_features,
        net.width,
        net.out_features,
        train=net.train_mode,
        seed=seed,
        # Multipliers are for training all weights; the readout alone already follows the conjugate kernel.
        multipliers=found.multipliers if net.train_mode == "all" else None,
        dtype=net.readout.dtype,
        device=net.readout.device,
    )
    if not evidence:
        return Twin(twin, found, None)
    generator = np.random.default_rng(seed)
    sample = rows[generator.permutation(len(rows))[:samples]]
    block = torch.tensor(rows[:batch], dtype=net.readout.dtype, device=net.readout.device)
    return Twin(twin, found, _evidence(net, twin, found, sample, block))


def plain_network(net: DEQNet, tau0: float, depth: int) -> Explicit:
    """The explicit network somebody would take without a design: the DEQ's own activation, `depth` layers, centred."""
    return Explicit([net.spec.activation] * depth).centred(tau0)


def _evidence(net: DEQNet, twin: ExplicitNet, found: Design, sample: Array, batch: Tensor) -> Evidence:
    kernel = "ntk" if found.kernel == "both" else found.kernel
    exact = exact_kernel(net.spec, sample, kernel=kernel)
    if found.multipliers is None:
        designed = exact_kernel(found.network, sample, kernel=kernel)
    else:
        designed = tangent_kernel_with_multipliers(found.network, sample, found.multipliers)
    plain = plain_network(net, found.tau0, len(found.network.layers))
    forward, training = _speed(net, twin, batch)
    return Evidence(
        kernel,
        _distance(exact, designed),
        _distance(exact, exact_kernel(plain, sample, kernel=kernel)),
        len(sample),
        forward,
        training if net.train_mode == "all" else None,
        len(batch),
    )


def _distance(wanted: Array, found: Array) -> float:
    apart, whole = (operator_norm(aslinearoperator(matrix)) for matrix in (wanted - found, wanted))
    return apart / whole


def _speed(net: Net, twin: Net, batch: Tensor) -> tuple[float, float]:
    """Times of the DEQ over those of the twin, forward and training; in turn, so that a busy machine slows both."""

    def forward(module: Net) -> None:
        with torch.no_grad():
            module.features(batch)

    def training(module: Net) -> None:
        torch.autograd.grad(
            module(batch).square().mean(), [p for p in module.parameters() if p.requires_grad]
        )

    return _ratio(forward, net, twin, batch.device), _ratio(training, net, twin, batch.device)


def _ratio(task: Callable[[Net], None], net: Net, twin: Net, device: torch.device) -> float:
    ratios = []
    for round_ in range(_ROUNDS + 1):
        marks = [synchronised_time(device)]
        for module in (net, twin):
            task(module)
            marks.append(synchronised_time(device))
        if round_:  # the first one warms up
            ratios.append((marks[1] - marks[0]) / (marks[2] - marks[1]))
    return median(ratios)


def _warn_if_not_centred(net: DEQNet, tau0: float) -> None:
    phi, q = net.spec.activation, net.spec.preactivation_variance(tau0)
    mean, square = float(mean_derivative(phi, q, 0)), float(second_moment(phi, q))
    if abs(mean) > _CENTRED * sqrt(square):
        warnings.warn(
            f"The activation {phi} has mean {mean:.3g} on these data, and the theory is about mean zero: the twin is "
            f"that of the centred model, and far from this one. Build the network from spec.centred({tau0:.4g}).",
            RuntimeWarning,
            stacklevel=3,
        )


__all__ = ["Evidence", "Twin", "explicit_twin", "plain_network"]
