"""Rows of the experiments on kernels: spectra and distances of DEQs, equivalents, twins and predictions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from notsodeep.data import GaussianMixture, MixtureStatistics, UnitSphere
from notsodeep.designs import design
from notsodeep.equivalents import equivalent, kernel_distance, limiting_density
from notsodeep.fingerprint import fingerprint
from notsodeep.kernels import conjugate_kernel, tangent_kernel
from notsodeep.models import DEQ, Explicit
from notsodeep.validation import Array
from notsodeep_lab.papers.data_files import load
from notsodeep_lab.papers.experiment import Row
from notsodeep_lab.papers.measures import (
    CLASSES,
    Matrix,
    Sample,
    distance,
    distance_row,
    eigenvalues,
    entries_row,
    exact,
    kernel_name,
    leaky_layer_for,
    mixture_sample,
    norm_of,
    printed_leaky_layer_for,
    spectra_apart,
    spectrum_row,
)
from notsodeep_lab.papers.row_statistics import kolmogorov, six_digits
from notsodeep_lab.papers.sphere_twin import sphere_design, sphere_equivalent

# Eigenvectors that stand for entrywise powers of the Gram matrix.
_SOME = 2000

# Points of a predicted density.
_GRID = 257


def error_rows(name: str, sigma_a2: float, sample: Sample, kernels: tuple[str, ...]) -> Iterator[Row]:
    """Compute ‖K − K̄‖ for several kernels."""
    model = DEQ(name, sigma_a2).centred(sample.tau0)
    for kernel in kernels:
        whole = exact(model, sample, kernel)
        operator = equivalent(model, sample.X, sample.statistics, kernel_name(kernel))
        apart = distance(whole, operator, norm_of(whole))
        about = {"kernel": kernel, "form": "asymptotic", **apart, "activation": name}
        yield {"kind": "error", **sample.record, **about}


def _name(model: DEQ) -> str:
    return f"DEQ, {model.activation.name}"


# --- ICLR, Figure 1 -----------------------------------------------------------------------------------


def equivalent_rows(model: DEQ, sample: Sample) -> Iterator[Row]:
    """Compare Λ and G with their equivalents; the first draw has spectra of Λ."""
    forms: dict[str, dict[str, Any]] = {
        "equivalent": {"form": "asymptotic"},
        "refined": {"form": "refined", "square": "sketch", "rank": _SOME},
    }
    for kernel, symbol in (("preactivations", "Λ"), ("features", "G")):
        whole = exact(model, sample, kernel)
        drawn = kernel == "preactivations" and sample.seed == 0
        if drawn:
            yield spectrum_row(sample.record, kernel, "deq", _name(model), eigenvalues(whole))
        for source, form in forms.items():
            operator = equivalent(model, sample.X, sample.statistics, kernel_name(kernel), **form)
            main = kernel == "preactivations" and source == "equivalent"
            reading = f"{symbol}, {form['form']}"
            yield distance_row(sample.record, (whole, operator), kernel, ("deq", source), reading, main=main)
            if drawn:
                yield spectrum_row(
                    sample.record, kernel, source, f"{form['form']} equivalent", eigenvalues(operator)
                )


def scaled_otherwise_rows(model: DEQ, sample: Sample, data_dir: Path | None) -> Iterator[Row]:
    """Compute the distance for other scalings: the paper states neither the scaling of MNIST nor τ0."""
    read = load(sample.data, classes=CLASSES, n=len(sample.X), seed=sample.seed, data_dir=data_dir)
    unit = sample.X / np.linalg.norm(sample.X, axis=1, keepdims=True)
    pixels = np.asarray(read.X / sqrt(read.X.shape[1]), dtype=np.float64)
    typical = replace(sample.statistics, tau0=sample.root_mean_square)
    others = {
        "Λ, τ0 the norm of a typical row": (sample.X, typical),
        "Λ, every row scaled to norm 1": (unit, MixtureStatistics.estimate(unit, read.y)),
        "Λ, raw pixels over √p": (pixels, MixtureStatistics.estimate(pixels, read.y)),
    }
    for reading, (X, statistics) in others.items():
        other = replace(sample, X=X, statistics=statistics)
        recentred = model.centred(other.tau0)
        whole = exact(recentred, other, "preactivations")
        operator = equivalent(recentred, other.X, other.statistics, "ck_preactivations")
        names = ("deq", "equivalent")
        yield distance_row(other.record, (whole, operator), "preactivations", names, reading)


# --- twins: ICLR, Figure 2, and ICML ------------------------------------------------------------------


def leaky_rows(model: DEQ, sample: Sample) -> Iterator[Row]:
    """ICLR's Corollary 2: one Leaky-ReLU layer for Λ, from the correct and from the printed equations."""
    tau0 = sample.tau0
    layers = {
        "twin": leaky_layer_for(model, tau0, "preactivations"),
        "printed": printed_leaky_layer_for(model, tau0),
    }
    words = {"twin": "one Leaky-ReLU layer", "printed": "one layer, equations as printed"}
    whole = exact(model, sample, "preactivations")
    if sample.seed == 0:
        yield spectrum_row(sample.record, "preactivations", "deq", _name(model), eigenvalues(whole))
    for source, network in layers.items():
        yield from _match_rows(
            sample, whole, network, "preactivations", source, words[source], f"Λ, {words[source]}"
        )
    both = (
        exact(model, sample, "features"),
        exact(leaky_layer_for(model, tau0, "features"), sample, "features"),
    )
    yield distance_row(sample.record, both, "features", ("deq", "twin"), "G, one Leaky-ReLU layer")


def matching_rows(model: DEQ, sample: Sample, tau0: float, name: str) -> Iterator[Row]:
    """ICML's examples: a DEQ, its twin, and a plain network of the same depth."""
    twin_design = design(model, tau0, "ck")
    network = twin_design.network
    plain = Explicit([model.activation] * len(network.layers)).centred(tau0)
    words = {"twin": f"designed, {twin_design.family}", "plain": f"plain, {len(plain.layers)} × {name}"}
    whole = exact(model, sample, "features")
    rows: list[Row] = []
    if sample.seed == 0:
        rows.append(spectrum_row(sample.record, "features", "deq", f"DEQ, {name}", eigenvalues(whole)))
    for source, other in (("twin", network), ("plain", plain)):
        rows += _match_rows(sample, whole, other, "features", source, words[source], f"G, {words[source]}")
    for row in rows:
        yield {**row, "activation": name}


def _match_rows(
    sample: Sample, whole: Array, network: Explicit, kernel: str, source: str, label: str, reading: str
) -> Iterator[Row]:
    """Compare a network with the kernel it approximates: distances of kernels and spectra, and its spectrum."""
    approximation = exact(network, sample, "features")
    row = distance_row(
        sample.record,
        (whole, approximation),
        kernel,
        ("deq", source),
        reading,
        main=source == "twin",
        network=str(network),
        fingerprint=fingerprint(network, float(np.linalg.norm(sample.X, axis=1).max())),
    )
    # A readout absorbs any constant factor: also the distance with the best factor.
    row["relative_up_to_factor"] = kernel_distance(whole, approximation).up_to_factor
    if sample.seed != 0:
        yield row
        return
    spectrum = eigenvalues(approximation)
    yield {**row, "spectra_apart": spectra_apart(eigenvalues(whole), spectrum)}
    yield spectrum_row(sample.record, kernel, source, label, spectrum)
    yield entries_row(sample.record, (whole, approximation), kernel, source, label)


# --- sphere: HLD --------------------------------------------------------------------------------------

_SPHERE = {"ck": ("preactivations", conjugate_kernel), "ntk": ("ntk_preactivations", tangent_kernel)}


def sphere_rows(n: int, d: int, sigma_a2: float, which: str, seed: int, drawn: bool) -> Iterator[Row]:
    """HLD's Corollary 1: a √2·ReLU DEQ and its quadratic layer on the unit sphere."""
    kernel, exact_kernel_of = _SPHERE[which]
    X = UnitSphere(d).sample(n, seed)
    model, network = sphere_design(sigma_a2, d, which)
    record: Row = {"data": "sphere", "n": n, "p": d, "seed": seed}
    whole = exact_kernel_of(model, X, of="preactivations")
    quadratic = exact_kernel_of(network, X)
    approximations: dict[str, tuple[str, Matrix]] = {
        "twin": ("one quadratic layer", quadratic),
        "equivalent": ("equivalent α11ᵀ + βXXᵀ + μI", sphere_equivalent(model, X, kernel_name(kernel))),
    }
    for source, (label, matrix) in approximations.items():
        yield distance_row(record, (whole, matrix), kernel, ("deq", source), label, main=source == "twin")
        if drawn:
            yield spectrum_row(record, kernel, source, label, eigenvalues(matrix))
    if drawn:
        yield spectrum_row(record, kernel, "deq", "DEQ, √2·ReLU", eigenvalues(whole))
        coefficients = dict(network.layers[0].parameters)["coefficients"]
        about = {"coefficients": list(coefficients)}
        yield entries_row(record, (whole, quadratic), kernel, "twin", "one quadratic layer", **about)


# --- prediction without data --------------------------------------------------------------------------


def prediction_rows(
    name: str, sigma_a2: float, n: int, p: int, kernel: str, seed: int, forms: tuple[str, ...]
) -> Iterator[Row]:
    """Compare the exact eigenvalues of one draw with those predicted from the mixture alone."""
    mixture, sample = GaussianMixture.paper(p), mixture_sample(n, p, seed)
    model = DEQ(name, sigma_a2).centred(sample.tau0)
    exact_values = eigenvalues(exact(model, sample, kernel))
    about = {"activation": name}
    if seed == 0:
        yield {**spectrum_row(sample.record, kernel, "deq", f"DEQ, {name}", exact_values), **about}
    for form in forms:
        predicted = limiting_density(model, mixture, n, kernel_name(kernel), form=form, points=_GRID)
        expected = predicted.quantiles()
        row: Row = {
            "kind": "prediction",
            **sample.record,
            **about,
            "kernel": kernel,
            "form": form,
            "kolmogorov": kolmogorov(exact_values, expected),
            "isolated": six_digits(predicted.isolated),
            "isolated_exact": six_digits(exact_values[np.searchsorted(expected, predicted.isolated)]),
            "edges": predicted.edges.tolist(),
        }
        if seed == 0:
            row["grid"], row["density"] = six_digits(predicted.grid), six_digits(predicted.density)
            row["atoms"] = [[location, mass] for location, mass in predicted.atoms]
        yield row
