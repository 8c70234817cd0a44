"""Kernel errors of a designed network and of plain ones on given samples: as they are, and up to a factor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from notsodeep.designs.families import plain_layers
from notsodeep.designs.result import Design
from notsodeep.equivalents.equivalent import KernelDistance, kernel_distance
from notsodeep.errors import InputError
from notsodeep.kernels import exact_kernel
from notsodeep.models import DEQ, ConvDEQ
from notsodeep.progress import Report, reported

# A design is clearly closer if the nearest plain network is at least this many times as far away.
_CLEARLY = 1.5


@dataclass(frozen=True)
class TwinDistances:
    """Kernel errors, at infinite width, of a designed network and of plain ones against the model.

    Attributes:
        kernel: which kernel, "ck", "ntk" or "ntk_paper".
        samples: number of samples.
        twin: kernel error of the designed network.
        cut: kernel error of the model cut after as many steps as the design has layers.
        plain: kernel errors of the model's own activation in plain layers, by their number: one layer, and the number
            of layers of the design.
        agree: whether the numbers that decide the kernel in high dimension agree (`Design.exact`); None for a design
            without such numbers, as that of images.
    """

    kernel: str
    samples: int
    twin: KernelDistance
    cut: KernelDistance
    plain: Mapping[int, KernelDistance]
    agree: bool | None

    @property
    def gain(self) -> float:
        """How many times further away the nearest plain network is, both with their best factors."""
        nearest = min(one.up_to_factor for one in self.plain.values())
        return nearest / max(self.twin.up_to_factor, 1e-300)

    @property
    def is_clearly_closer(self) -> bool:
        """Whether the design is clearly closer than plain layers, each with its best factor."""
        return self.gain >= _CLEARLY

    def __str__(self) -> str:
        where = f"On these {self.samples} samples"
        if self.agree is not None:
            numbers = "agree" if self.agree else "do not all agree"
            where = f"The four numbers {numbers}; on these {self.samples} rows"
        layers = (f"{depth} layer{'s' * (depth > 1)} {error}" for depth, error in self.plain.items())
        closeness, value = (
            ("closer", "nothing") if self.gain < 1.0 / _CLEARLY else ("about as close", "little")
        )
        gain = float(f"{self.gain:.2g}")
        comparison = (
            f"The design is {gain:,g} times closer than the nearest of these, each with its best factor."
            if self.is_clearly_closer
            else f"Up to a factor a plain network is {closeness}: here the design is worth {value}."
        )
        return (
            f"{where} the {self.kernel.upper()} kernels differ by {self.twin}.\n"
            f"The DEQ's own activation in plain layers: {', '.join(layers)}.\n{comparison}"
        )

    def to_dict(self) -> dict[str, Any]:
        """All numbers, for JSON."""
        networks = {"twin": self.twin, "cut": self.cut}
        networks |= {f"plain_{depth}": error for depth, error in self.plain.items()}
        distances = {
            name: {"relative": one.relative, "relative_up_to_factor": one.up_to_factor, "factor": one.factor}
            for name, one in networks.items()
        }
        return {"kernel": self.kernel, "samples": self.samples, "agree": self.agree, "distances": distances}


def twin_distances(
    made: Design,
    X: ArrayLike,
    kernel: str | None = None,
    *,
    depths: Sequence[int] | None = None,
    progress: bool | Report = True,
) -> TwinDistances:
    """Compare the exact kernels of a model, of the network designed for it and of plain ones on samples.

    Args:
        made: the design.
        X: samples, rows or images, scaled as the network will see them, that the design was not fitted to.
        kernel: which kernel; the one that the design matches if not given, for "both" the tangent kernel.
        depths: numbers of plain layers to compare with; if None, one and the number of layers of the design.
        progress: a bar on a terminal after two seconds; False for none.
    """
    model, layers = made.model, len(made.network.layers)
    if not isinstance(model, DEQ | ConvDEQ):
        raise InputError(f"Distances are measured between a design and its DEQ; this one has {model!r}.")
    rows = model.check_samples(X)
    which = kernel or ("ntk" if made.kernel == "both" else made.kernel)
    compared = sorted({1, layers} if depths is None else set(depths))
    networks = [made.network, model.unrolled(layers)]
    networks += [plain_layers(model, depth, made.tau0) for depth in compared]
    with reported(progress, "kernels"):
        target = exact_kernel(model, rows, kernel=which)
        twin, cut, *plain = (
            kernel_distance(target, exact_kernel(one, rows, kernel=which)) for one in networks
        )
    by_kernels = made.target is None or made.misfit is not None
    agree = None if by_kernels else made.exact
    return TwinDistances(which, len(rows), twin, cut, dict(zip(compared, plain, strict=True)), agree)
