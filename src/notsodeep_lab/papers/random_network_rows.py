"""Kernels of random networks of finite width, as the papers estimate them, and their distance from the limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from notsodeep.data import UnitSphere
from notsodeep.equivalents import equivalent
from notsodeep.gaussian.activations import activation
from notsodeep.kernels import conjugate_kernel
from notsodeep.models import DEQ, Explicit
from notsodeep.nets import DEQNet, ExplicitNet, Net, empirical_kernels
from notsodeep.nets.samples import compute_features
from notsodeep.validation import Array
from notsodeep_lab.papers.experiment import Row
from notsodeep_lab.papers.measures import (
    Sample,
    distance,
    distance_row,
    eigenvalues,
    exact,
    kernel_name,
    leaky_layer_for,
    norm_of,
    spectrum_row,
)

# Samples per batch.
_BATCH = 1024


def average_kernels(model: DEQ | Explicit, X: Array, *, width: int, draws: int, seed: int) -> list[Array]:
    """Average the kernels of `draws` random networks of the given width, in single precision.

    Returns:
        The mean of ZZᵀ; for a DEQ also that of HHᵀ/m, where H are the pre-activations of the same networks.
    """
    samples = torch.as_tensor(X, dtype=torch.float32)
    sums = [np.zeros((len(X), len(X))) for _ in range(2 if isinstance(model, DEQ) else 1)]
    for one in draw_seeds(seed, draws):
        for total, factor in zip(sums, _factors(model, samples, width, one), strict=True):
            total += (factor @ factor.mT).numpy()
    return [total / draws for total in sums]


def draw_seeds(seed: int, draws: int) -> list[int]:
    """Return different seeds for the draws of one average."""
    return [int(word) for word in np.random.SeedSequence(seed).generate_state(draws)]


@torch.no_grad()
def _factors(model: DEQ | Explicit, X: torch.Tensor, width: int, seed: int) -> list[torch.Tensor]:
    """Features of one random network, and for a DEQ its pre-activations over √m."""
    blocks = X.split(_BATCH)  # type: ignore[no-untyped-call]
    if isinstance(model, Explicit):
        explicit = ExplicitNet(model, X.shape[1], width, 1, train="readout", seed=seed)
        return [torch.cat([explicit.features(block) for block in blocks])]
    implicit = DEQNet(model, X.shape[1], width, 1, train="readout", seed=seed)
    inner = torch.cat([implicit.preactivations(block) for block in blocks])
    return [implicit.features_from(inner), inner / width**0.5]


# --- figures of the papers ----------------------------------------------------------------------------


def random_equivalent_rows(model: DEQ, sample: Sample, width: int, draws: int) -> Iterator[Row]:
    """ICLR's Figure 1 as published: Λ averaged over random networks, and its distance from the equivalent."""
    kernels = average_kernels(model, sample.X, width=width, draws=draws, seed=sample.seed)
    operator = equivalent(model, sample.X, sample.statistics, kernel_name("preactivations"))
    whole = exact(model, sample, "preactivations")
    about: Row = {"width": width, "draws": draws}
    for estimate, matrix in _readings_of(model, sample, *kernels).items():
        label = f"{draws} networks of width {width}, {estimate}"
        noise, spectrum = _noise_and_spectrum(sample.record, whole, matrix, estimate, label, about)
        yield noise
        names = ("monte-carlo", "equivalent")
        yield distance_row(
            sample.record, (matrix, operator), "preactivations", names, f"Λ {estimate}", **about
        )
        yield spectrum


def _noise_and_spectrum(
    record: Row, whole: Array, matrix: Array, estimate: str, label: str, about: Row
) -> tuple[Row, Row]:
    """The distance of an average over random networks from the exact Λ, and its eigenvalues."""
    names = ("deq", "monte-carlo")
    noise = distance_row(record, (whole, matrix), "preactivations", names, f"noise of Λ {estimate}", **about)
    row = spectrum_row(record, "preactivations", "monte-carlo", label, eigenvalues(matrix))
    return noise, {**row, **about, "noise": noise["absolute"]}


def random_twin_rows(
    model: DEQ, sample: Sample, width: int, draws: int, explicit_draws: int
) -> Iterator[Row]:
    """ICLR's Figure 2 as published: both kernels averaged over random networks."""
    network = leaky_layer_for(model, sample.tau0, "preactivations")
    (explicit,) = average_kernels(network, sample.X, width=width, draws=explicit_draws, seed=sample.seed + 1)
    names, reading = ("twin", "monte-carlo twin"), "noise of one Leaky-ReLU layer"
    both = exact(network, sample, "features"), explicit
    about: Row = {"width": width, "draws": explicit_draws}
    yield distance_row(sample.record, both, "preactivations", names, reading, **about)
    implicit = average_kernels(model, sample.X, width=width, draws=draws, seed=sample.seed)
    names, about = ("monte-carlo", "monte-carlo twin"), {"width": width, "draws": draws}
    for estimate, matrix in _readings_of(model, sample, *implicit).items():
        both, reading = (matrix, explicit), f"Λ {estimate}, and one Leaky-ReLU layer, both random"
        yield distance_row(sample.record, both, "preactivations", names, reading, **about)


def _readings_of(model: DEQ, sample: Sample, features: Array, preactivations: Array) -> dict[str, Array]:
    """Two estimates of Λ from the same networks: random features only, or also a random input term."""
    of_features = model.sigma_a2 * features + model.sigma_b2 * (sample.X @ sample.X.T)
    return {"from random features": of_features, "from random pre-activations": preactivations}


def random_sphere_rows(n: int, d: int, sigma_a2: float, width: int, draws: int) -> Iterator[Row]:
    """Average HLD's implicit CK over random networks."""
    X = UnitSphere(d).sample(n, 0)
    model = DEQ(activation("relu", amplitude=2.0**0.5), sigma_a2)
    features, _ = average_kernels(model, X, width=width, draws=draws, seed=0)
    matrix = model.sigma_a2 * features + model.sigma_b2 * (X @ X.T)
    record: Row = {"data": "sphere", "n": n, "p": d, "seed": 0}
    whole = conjugate_kernel(model, X, of="preactivations")
    about: Row = {"width": width, "draws": draws}
    label = f"{draws} networks of width {width}"
    yield from _noise_and_spectrum(record, whole, matrix, "from random features", label, about)


# --- single networks ---------------------------------------------------------------------------------


def width_rows(model: str, spec: DEQ | Explicit, sample: Sample, width: int, seed: int) -> Iterator[Row]:
    """Compare the kernels of one random network with their limits."""
    sizes = (sample.X.shape[1], width, 1)
    kind = DEQNet if isinstance(spec, DEQ) else ExplicitNet
    net: Net = kind(spec, *sizes, train="readout", seed=seed, dtype=torch.float64)
    kernels = empirical_kernels(net, torch.as_tensor(sample.X))
    for kernel, matrix in (("features", kernels.ck), ("ntk", kernels.ntk)):
        apart = distance(exact(spec, sample, kernel), matrix.numpy())
        about = {"model": model, "kernel": kernel, "width": width, "seed": seed}
        yield {"kind": "width", **sample.record, **apart, **about}


def draws_rows(spec: DEQ, sample: Sample, width: int, counts: tuple[int, ...], seed: int) -> Iterator[Row]:
    """Compare averages over more and more networks with the limit: the noise of a Monte-Carlo kernel."""
    whole = exact(spec, sample, "features")
    norm, total, done = norm_of(whole), np.zeros_like(whole), 0
    seeds = draw_seeds(seed, max(counts))
    for count in sorted(counts):
        for one in seeds[done:count]:
            net = DEQNet(spec, sample.X.shape[1], width, 1, train="readout", seed=one)
            features = compute_features(net, sample.X).numpy().astype(np.float64)
            total += features @ features.T
        done = count
        about = {"kernel": "features", "width": width, "draws": count, "seed": seed}
        yield {"kind": "draws", **sample.record, **about, **distance(whole, total / count, norm)}
