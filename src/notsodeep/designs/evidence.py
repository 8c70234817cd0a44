"""Kernel errors of a network that was fitted to samples, measured on samples held out from the fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from numbers import Integral
from typing import Any

import numpy as np

from notsodeep.equivalents.error import KernelDistance, kernel_distance
from notsodeep.errors import InputError
from notsodeep.gaussian.serial import mapping, number
from notsodeep.kernels import both_kernels, exact_kernel
from notsodeep.models import Model
from notsodeep.validation import Array

_NETWORKS = ("fitted", "unfitted", "cut", "plain")


@dataclass(frozen=True)
class HeldOut:
    """Kernel errors on held-out samples, one for each kernel of the design.

    Attributes:
        samples: number of held-out samples, and of those used in the fit.
        kernels: names of the kernels.
        fitted: errors of the fitted network.
        unfitted: errors of the design without data.
        cut: errors of the DEQ cut after as many steps.
        plain: errors of one plain layer of the DEQ's own activation.
    """

    samples: int
    kernels: tuple[str, ...]
    fitted: tuple[KernelDistance, ...]
    unfitted: tuple[KernelDistance, ...]
    cut: tuple[KernelDistance, ...]
    plain: tuple[KernelDistance, ...]

    @classmethod
    def on(
        cls, samples: Array, model: Model, kernels: tuple[str, ...], networks: Mapping[str, Model]
    ) -> HeldOut:
        """Measure networks, named like the attributes, against the model on samples."""
        target = _matrices(model, samples, kernels)
        errors = {
            name: tuple(map(kernel_distance, target, _matrices(network, samples, kernels)))
            for name, network in networks.items()
        }
        return cls(len(samples), kernels, **errors)

    def __str__(self) -> str:
        rows = [
            f"{kernel} {fitted} (design without data {unfitted}, the DEQ cut {cut}, one plain layer {plain})"
            for kernel, fitted, unfitted, cut, plain in zip(
                self.kernels, self.fitted, self.unfitted, self.cut, self.plain, strict=True
            )
        ]
        return f"kernel error on {self.samples} held-out samples: {'; '.join(rows)}"

    def to_dict(self) -> dict[str, Any]:
        """All fields by name, as JSON would have them."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> HeldOut:
        """The object that `to_dict` wrote down."""
        stored = mapping(data, "the held-out errors", ("samples", "kernels", *_NETWORKS))
        lists = {name: stored[name] for name in ("kernels", *_NETWORKS)}
        if not all(
            isinstance(one, list | tuple) and len(one) == len(lists["kernels"]) for one in lists.values()
        ):
            raise InputError("The held-out errors must be lists with one entry for each kernel.")
        errors = {name: tuple(_stored_distance(one) for one in lists[name]) for name in _NETWORKS}
        return cls(int(number(stored["samples"], "samples")), tuple(map(str, lists["kernels"])), **errors)


def _stored_distance(data: Any) -> KernelDistance:
    names = tuple(entry.name for entry in fields(KernelDistance))
    stored = mapping(data, "a held-out error", names)
    return KernelDistance(*(number(stored[name], name) for name in names))


def _matrices(model: Model, samples: Array, kernels: tuple[str, ...]) -> list[Array]:
    """The exact kernels of a model; both in one pass."""
    if kernels == ("ck", "ntk"):
        return list(both_kernels(model, samples))
    return [exact_kernel(model, samples, kernel=name) for name in kernels]


def split_samples(samples: Array, count: int) -> tuple[Array, Array]:
    """Choose samples to fit to, and equally many to hold out.

    They are spread evenly over all samples, so that sorted classes are all represented; without randomness, so that
    equal input gives equal designs.
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
