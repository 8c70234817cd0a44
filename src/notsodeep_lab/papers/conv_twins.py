"""Convolutional DEQs and their explicit twins: kernel errors on held-out images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

import numpy as np

from notsodeep.data import as_images, load
from notsodeep.models import ConvDEQ, Model
from notsodeep.validation import Array
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Task, claims_by, grid
from notsodeep_lab.papers.experiment_settings import DEQSpec
from notsodeep_lab.papers.row_statistics import values_of
from notsodeep_lab.plots.row_selection import chosen

# Target kernel errors of two and three layers, relative to the norm of the DEQ's kernel.
TARGETS = MappingProxyType({2: 5e-3, 3: 1e-3})


@dataclass(frozen=True)
class ConvTwinsSpec(DEQSpec):
    """Twins for two readouts by number of layers."""

    data: str  # data set
    side: int  # largest number of positions along an axis; larger images are downscaled
    n: int  # number of images for the fit, and of held-out images
    readouts: tuple[str, ...]  # "flatten", "pool"
    layers: tuple[int, ...]  # numbers of layers


class ConvTwins(Experiment[ConvTwinsSpec]):
    """Kernel errors of twins of convolutional DEQs."""

    name = "conv-twins"
    paper = "ours"
    summary = (
        "Explicit twins of convolutional DEQs on held-out images, compared with the cut DEQ and a plain layer"
    )
    minutes = MappingProxyType({"quick": 1.0, "full": 2.0})
    cut = "Images are downscaled: with pooling the cost is quadratic in the number of positions."
    quick = ConvTwinsSpec(
        0.3, ("relu", "tanh"), 1, "digits", side=8, n=10, readouts=("flatten", "pool"), layers=(1, 2, 3)
    )
    full = replace(quick, data="cifar10", n=12)

    def models(self, spec: ConvTwinsSpec) -> list[Model]:
        return [
            ConvDEQ(name, spec.sigma_a2, readout=readout)
            for name in spec.activations
            for readout in spec.readouts
        ]

    def tasks(self, spec: ConvTwinsSpec) -> list[Task]:
        return grid(
            "{activation} {readout} layers={layers} seed={seed}",
            lambda layers, **_: float(layers),
            activation=spec.activations,
            readout=spec.readouts,
            layers=spec.layers,
            seed=range(spec.seeds),
        )

    def run(self, spec: ConvTwinsSpec, task: Task, data_dir: Path | None) -> list[Row]:
        from notsodeep.designs import design, twin_distances

        images = small_images(spec.data, 2 * spec.n, spec.side, task["seed"], data_dir)
        model = ConvDEQ(task["activation"], spec.sigma_a2, readout=task["readout"])
        seen, others = images[: spec.n], images[spec.n :]
        fitted, unfitted = (
            design(model, tau0=1.0, X=given, kernel="both", family="injected", layers=task["layers"])
            for given in (seen, None)
        )
        distances = {
            (network, kernel): distance
            for kernel in ("ck", "ntk")
            for ours in (twin_distances(fitted, others, kernel, depths=[1]),)
            for network, distance in {
                "twin": ours.twin,
                "without-images": twin_distances(unfitted, others, kernel, depths=[]).twin,
                "cut": ours.cut,
                "plain-layer": ours.plain[1],
            }.items()
        }
        return [
            {
                "kind": "image-twin",
                "data": spec.data,
                "positions": list(images.shape[2:]),
                "images": len(others),
                **task.parameters,
                "kernel": "features" if kernel == "ck" else kernel,
                "network": network,
                "relative": distance.relative,
                "up_to_factor": distance.up_to_factor,
            }
            for (network, kernel), distance in distances.items()
        ]

    def expectations(self, spec: ConvTwinsSpec, rows: Sequence[Row]) -> list[Expectation]:
        axes = {"activation": spec.activations, "readout": spec.readouts, "kernel": ("features", "ntk")}
        return claims_by(_close, rows, **axes)


def small_images(name: str, count: int, most: int, seed: int = 0, data_dir: Path | None = None) -> Array:
    """Load images with at most `most` positions along an axis, centred, with |x(s)|² = 1 on average."""
    pixels = load(name, n=count, seed=seed, data_dir=data_dir).X
    images = as_images(name, np.asarray(pixels, dtype=np.float64))
    side = images.shape[-1]
    step = next(step for step in range(1, side + 1) if side % step == 0 and side // step <= most)
    blocks = images.reshape(len(images), images.shape[1], side // step, step, side // step, step)
    small = blocks.mean(axis=(3, 5))
    small = small - small.mean(axis=0)
    return np.asarray(small / np.sqrt(np.mean(np.sum(small**2, axis=1))), dtype=np.float64)


def _close(rows: list[Row], activation: str, readout: str, kernel: str) -> Iterator[Expectation]:
    for layers in values_of(rows, "layers"):
        part = {row["network"]: row for row in reversed(chosen(rows, layers=layers))}
        twin, cut, plain = part["twin"], part["cut"], part["plain-layer"]
        target = TARGETS.get(layers)
        yield Expectation(
            f"kernel error of {layers} layer{'s' * (layers > 1)}, {activation}, {readout}, {kernel}",
            None,
            twin["relative"],
            None
            if target is None
            else bool(twin["relative"] <= target and twin["relative"] < cut["relative"]),
            (f"yes if at most {target:g} and less than that of the cut DEQ; " if target else "")
            + f"with the best factor {twin['up_to_factor']:.2g}; cut DEQ {cut['relative']:.2g}, with the best factor "
            f"{cut['up_to_factor']:.2g}; one plain layer {plain['relative']:.2g}, with the best factor "
            f"{plain['up_to_factor']:.2g}",
        )
