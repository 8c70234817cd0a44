"""Does one convolutional layer with a wide filter have the kernel of a convolutional DEQ?

    python benchmarks/wide_filters.py               # about a minute
    python benchmarks/wide_filters.py --publish     # and write the table into docs/convolutional.md

One layer whose filter has 3 × 3, 5 × 5 or 7 × 7 taps, with a variance for each ring of taps that falls from the centre
in whatever way serves best: Λ = Σ_h v_h Σ_{|δ| ≤ h} x(s+δ)·x'(s'+δ) with v_h ≥ 0, and a scale of the output; all fitted
to the exact kernels of 20 images and judged on 20 others, each with its best constant factor. Beside it two layers that
see the image again (`design`). σ_a² = 0.3, flatten, images of 7 × 7 or 8 × 8. NOTSODEEP_DATA names the folder with the
data sets.
"""

from __future__ import annotations

import argparse

import numpy as np
from harness import ROOT, Row, filled, markdown_table, write_atomically
from scipy import optimize

from notsodeep.designs import design
from notsodeep.designs.evidence import Distance
from notsodeep.gaussian import Activation, activation
from notsodeep.gaussian.bivariate import dual
from notsodeep.gaussian.moments import derivative_second_moment, second_moment
from notsodeep.kernels import both_kernels
from notsodeep.models import ConvDEQ
from notsodeep.models.mixing import Convolution
from notsodeep_lab.papers.conv_twins import small_images
from notsodeep.validation import Array

PAGE = ROOT / "docs" / "convolutional.md"
MARKS = "<!-- wide -->", "<!-- end: wide -->"
DATA = ("cifar10", "fashion_mnist", "mnist")
NAMES = ("relu", "erf", "abs")  # F in closed form
COUNT, SIDE, SIGMA_A2 = 20, 8, 0.3


def box_sums(images: Array, widest: int) -> Array:
    """Σ_{|δ| ≤ h} x_i(s+δ)·x_j(s+δ) for h = 0, 1, …: (h, positions, images, images)."""
    count, sizes = len(images), images.shape[2:]
    values = images.reshape(*images.shape[:2], -1)
    products = np.einsum("ics,jcs->sij", values, values)
    flat = products.reshape(len(products), -1)
    return np.stack(
        [
            (geometry.taps * geometry.diagonal(flat)).reshape(-1, count, count)
            for geometry in (Convolution(sizes, 2 * reach + 1, "zeros") for reach in range(widest + 1))
        ]
    )


def layer_kernels(phi: Activation, covariance: Array) -> tuple[Array, Array]:
    """CK and NTK of one layer whose pre-activations have this covariance, (positions, images, images)."""
    places = np.arange(covariance.shape[1])
    variances = np.maximum(covariance[:, places, places], 1e-12)
    first, second = (
        np.broadcast_to(part, covariance.shape).ravel()
        for part in (variances[:, :, None], variances[:, None])
    )
    values, slopes = (part.reshape(covariance.shape) for part in dual(phi, first, second, covariance.ravel()))
    # A sample with itself has moments of one variable.
    values[:, places, places] = second_moment(phi, variances.ravel()).reshape(variances.shape)
    slopes[:, places, places] = derivative_second_moment(phi, variances.ravel()).reshape(variances.shape)
    return values.mean(axis=0), (values + slopes * covariance).mean(axis=0)


def wide_layer(phi: Activation, some: Array, others: Array, wanted: Array, which: int, reach: int) -> Array:
    """The kernel of the best layer with 2 reach + 1 taps along an axis, on other images."""
    sums, sums_there = box_sums(some, reach), box_sums(others, reach)

    def misfit(logs: Array) -> Array:
        found = np.exp(logs[0]) * layer_kernels(phi, np.tensordot(np.exp(logs[1:]), sums, 1))[which]
        # What the kernel leaves open stays near the start.
        return np.append(((found - wanted) / np.linalg.norm(wanted)).ravel(), 1e-5 * (logs - start))

    start = np.log([1.0, *np.full(reach + 1, 0.7 / 9.0 / (reach + 1))])
    logs = optimize.least_squares(misfit, start, bounds=(-25.0, 10.0)).x
    return np.exp(logs[0]) * layer_kernels(phi, np.tensordot(np.exp(logs[1:]), sums_there, 1))[which]


def rows() -> list[Row]:
    """One line for each activation, data set and kernel."""
    lines = []
    for name in NAMES:
        model = ConvDEQ(activation(name), SIGMA_A2)
        for data in DATA:
            images = small_images(data, 2 * COUNT, SIDE)
            some, others = images[:COUNT], images[COUNT:]
            here, there = both_kernels(model, some), both_kernels(model, others)
            for which, kernel in enumerate(("ck", "ntk")):
                line: Row = {"φ": name, "data": data, "kernel": kernel.upper()}
                for reach in (1, 2, 3):
                    found = wide_layer(model.activation, some, others, here[which], which, reach)
                    apart = Distance.between(there[which], found)
                    line[f"one layer, {2 * reach + 1}×{2 * reach + 1}"] = f"{100 * apart.scaled:.2g} %"
                made = design(model, X=images, kernel=kernel, family="injected", layers=2, samples=COUNT)
                twin = both_kernels(made.network, others)[which]
                line["two layers that see the image again"] = (
                    f"{100 * Distance.between(there[which], twin).scaled:.2g} %"
                )
                lines.append(line)
                print(line, flush=True)
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--publish", action="store_true", help="write the table into docs/convolutional.md")
    options = parser.parse_args()
    found = markdown_table(rows())
    print(found)
    if options.publish:
        write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8"), *MARKS, found))


if __name__ == "__main__":
    main()
