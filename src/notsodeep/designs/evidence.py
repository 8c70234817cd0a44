"""What fitting a design to samples did: distances of exact kernels, on the samples of the fit and on others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np

from notsodeep.designs import stored_values
from notsodeep.equivalents.error import kernel_distance, matrix_norm
from notsodeep.errors import InputError
from notsodeep.kernels import both_kernels, exact_kernel
from notsodeep.models import Model
from notsodeep.validation import Array


@dataclass(frozen=True)
class Distance:
    """Distance of a kernel matrix from the one that was wanted, in the operator norm and relative to the latter.

    Attributes:
        plain: of the matrices as they are.
        scaled: with the best constant factor; a constant is only another ridge and learning rate.
        centred: after centring rows and columns of both, which takes a large constant part out.
    """

    plain: float
    scaled: float
    centred: float

    @classmethod
    def between(cls, wanted: Array, found: Array) -> Distance:
        """The distance of two symmetric matrices."""
        apart = kernel_distance(wanted, found)
        inner = [matrix - matrix.mean(axis=0) for matrix in (wanted, found - wanted)]
        size, left = (matrix_norm(matrix - matrix.mean(axis=1, keepdims=True)) for matrix in inner)
        return cls(apart.relative, apart.up_to_factor, left / size)


@dataclass(frozen=True)
class HeldOut:
    """Distances on samples that a network was not fitted to; one for each kernel of the design.

    Attributes:
        samples: number of these samples, and of those that were fitted to.
        kernels: names of the kernels.
        fitted: distances of the fitted network.
        unfitted: distances of the design without data.
        cut: distances of the DEQ cut after as many steps.
        plain: distances of one plain layer of the DEQ's own activation.
    """

    samples: int
    kernels: tuple[str, ...]
    fitted: tuple[Distance, ...]
    unfitted: tuple[Distance, ...]
    cut: tuple[Distance, ...]
    plain: tuple[Distance, ...]

    @classmethod
    def on(
        cls, samples: Array, model: Model, kernels: tuple[str, ...], networks: Mapping[str, Model]
    ) -> HeldOut:
        """Measure networks, named as the attributes are, against the model on samples."""
        wanted = _matrices(model, samples, kernels)
        distances = {
            name: tuple(
                Distance.between(*both)
                for both in zip(wanted, _matrices(network, samples, kernels), strict=True)
            )
            for name, network in networks.items()
        }
        return cls(len(samples), kernels, **distances)

    def __str__(self) -> str:
        rows = [
            f"{kernel} {ours.plain:.2g} ({ours.scaled:.2g} with a factor, {ours.centred:.2g} centred; without data "
            f"{before.plain:.2g}; the DEQ cut {cut.plain:.2g}; one plain layer {plain.plain:.2g}, {plain.scaled:.2g} "
            "with a factor)"
            for kernel, ours, before, cut, plain in zip(
                self.kernels, self.fitted, self.unfitted, self.cut, self.plain, strict=True
            )
        ]
        return f"distance of the exact kernels on {self.samples} other samples: {'; '.join(rows)}"


def _matrices(model: Model, samples: Array, kernels: tuple[str, ...]) -> list[Array]:
    """The exact kernels of a model; both in one pass."""
    if kernels == ("ck", "ntk"):
        return list(both_kernels(model, samples))
    return [exact_kernel(model, samples, kernel=name) for name in kernels]


def split_samples(samples: Array, count: int) -> tuple[Array, Array]:
    """Samples to fit to, and as many others to judge by.

    They are taken evenly over all of them, so that sorted classes are all met; no randomness, equal input gives equal
    designs.
    """
    if not isinstance(count, Integral) or count < 1:
        raise InputError(f"samples is the number of samples to fit to, 1 or more; got {count!r}.")
    if len(samples) < 4:
        raise InputError(f"Fitting to data needs at least 4 samples, got {len(samples)}.")
    if not samples.any():
        raise InputError("Fitting to data needs samples that are not all zero.")
    taken = min(int(count), len(samples) // 2)
    order = np.argsort(np.modf(np.arange(len(samples)) * 0.6180339887498949)[0], kind="stable")
    return samples[order[:taken]], samples[order[taken : 2 * taken]]


# --- as JSON would have it ----------------------------------------------------------------------------------------


def evidence_to_dict(evidence: HeldOut | None) -> dict[str, Any] | None:
    """All fields by name."""
    return None if evidence is None else asdict(evidence)


def stored_held_out(data: Any) -> HeldOut | None:
    """What `evidence_to_dict` wrote of a HeldOut."""
    if data is None:
        return None
    names = tuple(entry.name for entry in fields(HeldOut))
    stored = stored_values.mapping(data, "the held-out distances", names)
    samples, kernels = int(stored_values.number(stored["samples"], "samples")), stored["kernels"]
    distances = [_listed(stored[name], name, _stored_distance) for name in names[2:]]
    words = _listed(kernels, "kernels", str)
    if any(len(part) != len(words) for part in distances):
        raise InputError("The held-out distances must be one for each kernel.")
    return HeldOut(samples, words, *distances)


def _listed(data: Any, name: str, read: Callable[[Any], Any]) -> tuple[Any, ...]:
    if not isinstance(data, list | tuple):
        raise InputError(f"{name!r} must be a list, not {data!r}.")
    return tuple(read(entry) for entry in data)


def _stored_distance(data: Any) -> Distance:
    names = tuple(entry.name for entry in fields(Distance))
    stored = stored_values.mapping(data, "a distance", names)
    return Distance(*(stored_values.number(stored[name], name) for name in names))
