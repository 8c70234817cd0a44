"""How close the spectra predicted without data are to those of the exact kernels.

  python benchmarks/spectrum.py            everything (five minutes on one core)
  python benchmarks/spectrum.py --quick    everything small, to see that it runs
  python benchmarks/spectrum.py --strict   exit with 1 when the refined prediction misses a limit

The papers' mixture (μ_a = 8 e_{8a}, C_a = (1 + 8a/√p) I), σ_a² = 0.2, tanh, ReLU and Swish, CK and NTK.

Sections
  bulk      Kolmogorov distance between the n predicted and the n exact eigenvalues, n = 2000, two classes,
            p = 0.8 n (where XXᵀ has an atom of mass 0.2) and p = 1.25 n (where it has none). "above the atom" is
            the distance between the p largest ones alone. Limit 0.03.
  isolated  predicted and exact isolated eigenvalues, n = 4000, p = 0.8 n, two and three classes: the largest
            relative difference over the seeds and eigenvalues, and the share of the eigenvectors in the space
            of the classes. Limit 0.03.

Seeds are 0, 1, …; the exact kernels are those of notsodeep.kernels. "asymptotic" is the limit, "refined" adds what
is known of finite n and p without data. Results: spectrum.json and spectrum.md in --out.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from harness import (
    RESULTS,
    Provenance,
    Row,
    markdown_provenance,
    markdown_table,
    write_atomically,
    write_json,
)
from rich.console import Console
from scipy.sparse.linalg import eigsh

from notsodeep.data import ClassStatistics, GaussianMixture
from notsodeep.equivalents.spectrum import FORMS, LimitingSpectrum, limiting_density
from notsodeep.kernels import both_kernels
from notsodeep.models import DEQ

CONSOLE = Console(highlight=False, width=150)
SIGMA_A2 = 0.2
ACTIVATIONS = ("tanh", "relu", "swish")
KERNELS = ("ck", "ntk")
LIMIT = 0.03

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Size:
    """How much is computed: in full, or enough to see that it runs."""

    bulk: int
    isolated: int
    seeds: int


FULL = Size(bulk=2000, isolated=4000, seeds=3)
QUICK = Size(bulk=200, isolated=400, seeds=1)


def kolmogorov(left: Array, right: Array) -> float:
    """The largest distance between two empirical distribution functions."""
    points = np.concatenate([left, right])
    shares = [np.searchsorted(np.sort(one), points, side="right") / len(one) for one in (left, right)]
    return float(np.abs(shares[0] - shares[1]).max())


def predictions(
    model: DEQ, gmm: GaussianMixture, n: int, kernel: str
) -> dict[str, tuple[LimitingSpectrum, float]]:
    """Both forms, with the seconds they took."""
    found = {}
    for form in FORMS:
        start = time.perf_counter()
        spectrum = limiting_density(model, gmm, n, kernel, form=form)
        found[form] = (spectrum, time.perf_counter() - start)
    return found


def exact_kernels(
    gmm: GaussianMixture, n: int, seeds: int
) -> Iterator[tuple[str, DEQ, dict[str, list[tuple[Array, Array]]]]]:
    """For each activation the model, and by kernel the matrices and labels of all seeds."""
    tau0 = ClassStatistics.of_mixture(gmm, gmm.class_sizes(n)).tau0
    for name in ACTIVATIONS:
        model = DEQ(name, SIGMA_A2).centred(tau0)
        found: dict[str, list[tuple[Array, Array]]] = {kernel: [] for kernel in KERNELS}
        for seed in range(seeds):
            X, y = gmm.sample(n, seed=seed)
            for kernel, matrix in zip(KERNELS, both_kernels(model, X), strict=True):
                found[kernel].append((matrix, y))
        yield name, model, found


def bulk(size: Size) -> list[Row]:
    n, rows = size.bulk, []
    for ratio in (0.8, 1.25):
        p = int(ratio * n)
        gmm = GaussianMixture.paper(p)
        for name, model, kernels in exact_kernels(gmm, n, size.seeds):
            for kernel, drawn in kernels.items():
                exact = [np.linalg.eigvalsh(matrix) for matrix, _ in drawn]
                row: Row = {"activation": name, "kernel": kernel, "n": n, "p": p}
                for form, (spectrum, seconds) in predictions(model, gmm, n, kernel).items():
                    predicted = spectrum.quantiles()
                    row[form] = max(kolmogorov(predicted, one) for one in exact)
                    if p < n:
                        row[f"{form}, above the atom"] = max(
                            kolmogorov(predicted[-p:], one[-p:]) for one in exact
                        )
                    row[f"{form}, seconds"] = round(seconds, 2)
                rows.append(row | {"limit met": row["refined"] <= LIMIT})
                CONSOLE.print(f"bulk {row}")
    return rows


def isolated(size: Size) -> list[Row]:
    n, rows = size.isolated, []
    for classes in (2, 3):
        gmm = GaussianMixture.paper(int(0.8 * n), classes)
        for name, model, kernels in exact_kernels(gmm, n, size.seeds):
            for kernel, drawn in kernels.items():
                found = predictions(model, gmm, n, kernel)
                number = _above(found["refined"][0])
                tops = [top_eigenpairs(matrix, y, number) for matrix, y in drawn]
                row: Row = {"activation": name, "kernel": kernel, "classes": classes, "n": n}
                for form, (spectrum, _) in found.items():
                    row |= _compared(form, spectrum, number, tops)
                row["exact"] = [values.tolist() for values, _ in tops]
                rows.append(row | {"limit met": row["refined"] <= LIMIT})
                CONSOLE.print(f"isolated {row}")
    return rows


def _above(spectrum: LimitingSpectrum) -> int:
    """How many isolated eigenvalues stand above the bulk."""
    return int(np.count_nonzero(spectrum.isolated > spectrum.edges[-1, 1]))


def _compared(form: str, spectrum: LimitingSpectrum, number: int, tops: list[tuple[Array, float]]) -> Row:
    predicted = spectrum.isolated[-number:]
    row: Row = {"isolated": number, f"{form}, predicted": predicted.tolist()}
    if _above(spectrum) != number:
        return row | {form: None}
    mean = np.mean([values for values, _ in tops], axis=0)
    shares = [share for _, share in tops]
    return row | {
        form: max(float(np.abs(predicted / values - 1.0).max()) for values, _ in tops),
        f"{form}, mean over seeds": float(np.abs(predicted / mean - 1.0).max()),
        f"{form}, share in classes": float(spectrum.alignment[-number:].sum() / number),
        "exact share in classes": float(np.mean(shares)),
    }


def top_eigenpairs(matrix: Array, y: Array, number: int) -> tuple[Array, float]:
    """The largest eigenvalues, ascending, and the mean share of their eigenvectors in the space of the classes."""
    values, vectors = eigsh(matrix, k=number, v0=np.ones(len(matrix)))
    order = np.argsort(values)
    indicators = np.eye(int(y.max()) + 1)[y] / np.sqrt(np.bincount(y))
    return values[order], float(((indicators.T @ vectors) ** 2).sum() / number)


def report(results: dict[str, Any]) -> str:
    parts = ["# Spectra predicted without data\n", markdown_provenance(results["provenance"])]
    for name in ("bulk", "isolated"):
        parts += [f"## {name}\n", markdown_table(results[name])]
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a limit is not met")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    size, provenance = (QUICK if arguments.quick else FULL), Provenance()
    results: dict[str, Any] = {"bulk": bulk(size), "isolated": isolated(size)}
    results["provenance"] = provenance.record()
    CONSOLE.print(report(results), markup=False)
    if not arguments.quick or arguments.out != RESULTS:
        write_json(arguments.out / "spectrum.json", results)
        write_atomically(arguments.out / "spectrum.md", report(results))
    met = all(row["limit met"] for name in ("bulk", "isolated") for row in results[name])
    sys.exit(1 if arguments.strict and not met else 0)


if __name__ == "__main__":
    main()
