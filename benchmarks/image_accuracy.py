"""Ridge regression on convolutional kernels of images, beside dense ones, deep ones and the Gaussian.

    python benchmarks/image_accuracy.py --n 500 1000                                    # CIFAR-10, 32×32, flatten
    python benchmarks/image_accuracy.py --readout pool --side 16 --n 500 --test 500 --tolerance 1e-4
    python benchmarks/image_accuracy.py --data fashion_mnist --n 1000
    python benchmarks/image_accuracy.py --publish                                       # the table, into the page

Kernels are computed in blocks of 500 × 500 images, CK and NTK together.  Each block goes into a file of --folder, so
that a run that was stopped goes on where it was, and a larger n uses the blocks of a smaller one.  A finished row is
written at once to benchmarks/results/image_accuracy.json.

The training images of a smaller n are the first of a larger one, as many of every class.  From all images the mean
image of the whole training part at hand is taken off, and they are divided by one number, so that |x(s)|² is 1 on
average there.  Targets are ±1; the ridge, relative to the mean of the diagonal, is chosen by leave-one-out.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import RESULTS, ROOT, filled, markdown_table, write_atomically

import notsodeep as nsd

BLOCK = 500
RIDGES = 10.0 ** np.arange(-5.0, 2.0, 0.5)
FILE = RESULTS / "image_accuracy.json"
PAGE = ROOT / "docs" / "convolutional.md"
MARKS = "<!-- measured: accuracy -->", "<!-- end: accuracy -->"
NAMES = {"cifar10": "CIFAR-10", "fashion_mnist": "Fashion-MNIST"}
SIDES = {"cifar10": 32, "fashion_mnist": 28}

Blocks = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Setting:
    """Which images, and how they are read out."""

    data: str
    side: int
    readout: str
    test: int

    def images(self, split: str, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Images of equally many of every class, in turns, and their labels."""
        everything = self._read("train")[0]
        mean = everything.mean(axis=0)
        size = math.sqrt(np.mean(np.sum((everything - mean) ** 2, axis=1)))
        images, labels = (everything, self._read("train")[1]) if split == "train" else self._read(split)
        rank = np.zeros(len(labels), dtype=int)
        for label in np.unique(labels):
            rank[labels == label] = np.arange(np.sum(labels == label))
        order = np.lexsort((labels, rank))[:n]
        return (images[order] - mean) / size, labels[order]

    def _read(self, split: str) -> tuple[np.ndarray, np.ndarray]:
        data = nsd.data.load(self.data, split=split)  # type: ignore[arg-type]
        images = nsd.data.as_images(self.data, data.X)
        step = SIDES[self.data] // self.side
        images = images.reshape(*images.shape[:2], self.side, step, self.side, step).mean(axis=(3, 5))
        return images, data.y

    @property
    def name(self) -> str:
        return f"{NAMES[self.data]}, {self.side}×{self.side}, {self.readout}"


def models(readout: str, tolerance: float = 1e-12) -> dict[str, nsd.Model]:
    """The kernels that are compared; ReLU everywhere.  The tolerance is that of the convolutional ones."""
    layer = nsd.activation("relu").scaled(math.sqrt(2.0))
    return {
        "ConvDEQ, σ_a² = 0.3": nsd.ConvDEQ("relu", 0.3, readout=readout, tolerance=tolerance),
        "ConvDEQ, σ_a² = 0.8": nsd.ConvDEQ("relu", 0.8, readout=readout, tolerance=tolerance),
        "ConvExplicit, 5 layers": nsd.ConvExplicit([layer] * 5, readout=readout, tolerance=tolerance),
        "ConvExplicit, 20 layers": nsd.ConvExplicit([layer] * 20, readout=readout, tolerance=tolerance),
        "DEQ of plain rows, σ_a² = 0.3": nsd.DEQ("relu", 0.3),
        "Gaussian, width² = 2": None,
    }


def kernels(model: nsd.Model, left: np.ndarray, right: np.ndarray) -> Blocks:
    """CK and NTK of images, or the Gaussian kernel."""
    if isinstance(model, (nsd.ConvDEQ, nsd.ConvExplicit)):
        same = np.array_equal(left, right)
        return nsd.both_kernels(model, left, None if same else right)  # type: ignore[no-any-return]
    # Positions become features: |x|² is 1 on average.
    rows, columns = (part.reshape(len(part), -1) / math.sqrt(part[0, 0].size) for part in (left, right))
    if model is not None:
        return nsd.both_kernels(model, rows, columns)  # type: ignore[no-any-return]
    squares = np.sum(rows**2, axis=1)[:, None] + np.sum(columns**2, axis=1) - 2.0 * rows @ columns.T
    # Squared distances are 2 on average.
    return (np.exp(-squares / 2.0),)


def stored(folder: Path, name: str, model: nsd.Model, parts: tuple[np.ndarray, np.ndarray]) -> Blocks:
    """A block of the kernels, from its file or computed and written there."""
    path = folder / f"{name} {len(parts[0])} {len(parts[1])}.npz"
    if not path.exists():
        found = kernels(model, *parts)
        unfinished = path.with_suffix(".part.npz")
        np.savez(unfinished, *found)
        unfinished.replace(path)
    with np.load(path) as file:
        return tuple(file[key] for key in file.files)


def assembled(
    folder: Path, name: str, model: nsd.Model, train: np.ndarray, test: np.ndarray
) -> tuple[Blocks, Blocks]:
    """The square kernels of the training images, and the rectangular ones of the test images with them."""
    starts, others = range(0, len(train), BLOCK), range(0, len(test), BLOCK)
    lower: dict[tuple[int, int], Blocks] = {}
    for i in starts:
        for j in starts:
            if j <= i:
                parts = train[i : i + BLOCK], train[j : j + BLOCK]
                lower[i, j] = stored(folder, f"{name} {i} {j}", model, parts)
    cross = [
        [
            stored(folder, f"{name} test {i} {j}", model, (test[i : i + BLOCK], train[j : j + BLOCK]))
            for j in starts
        ]
        for i in others
    ]
    count = len(lower[0, 0])
    square = [
        [[lower[i, j][k] if j <= i else lower[j, i][k].T for j in starts] for i in starts]
        for k in range(count)
    ]
    return (
        tuple(np.block(rows) for rows in square),
        tuple(np.block([[block[k] for block in row] for row in cross]) for k in range(count)),
    )


def accuracy(
    square: np.ndarray, cross: np.ndarray, labels: np.ndarray, truth: np.ndarray
) -> tuple[float, float]:
    """Accuracy on the test images, and the ridge over the mean of the diagonal that leave-one-out chose."""
    classes = np.unique(labels)
    targets = np.where(labels[:, None] == classes, 1.0, -1.0)
    mean = targets.mean(axis=0)
    values, vectors = np.linalg.eigh(0.5 * (square + square.T))
    scale, best = float(np.trace(square)) / len(square), (-1.0, 0.0)
    turned = vectors.T @ (targets - mean)
    for factor in RIDGES:
        inverse = 1.0 / (values + factor * scale)
        dual = vectors @ (inverse[:, None] * turned)
        diagonal = (vectors**2) @ inverse
        held = targets - dual / diagonal[:, None]
        best = max(best, (float(np.mean(classes[held.argmax(axis=1)] == labels)), float(factor)))
    dual = vectors @ (turned / (values + best[1] * scale)[:, None])
    found = classes[(cross @ dual + mean).argmax(axis=1)]
    return float(np.mean(found == truth)), best[1]


def wilson(share: float, count: int) -> tuple[float, float]:
    """The 95 % interval of a share of `count` trials, in percent."""
    z = 1.96
    middle = (share + z * z / (2 * count)) / (1 + z * z / count)
    half = z * math.sqrt(share * (1 - share) / count + z * z / (4 * count**2)) / (1 + z * z / count)
    return 100 * (middle - half), 100 * (middle + half)


def rows_of(
    setting: Setting, sizes: list[int], only: str, folder: Path, tolerance: float
) -> Iterator[dict[str, object]]:
    """One row for each size and kernel, smallest first."""
    test, truth = setting.images("test", setting.test)
    for n in sizes:
        train, labels = setting.images("train", n)
        for name, model in models(setting.readout, tolerance).items():
            if only not in name:
                continue
            start = time.process_time()
            square, cross = assembled(folder, f"{setting.name} {name}", model, train, test)
            row = {"images": setting.name, "n": n, "test": len(truth), "kernel": name}
            for kernel, here, there in zip(("CK", "NTK"), square, cross, strict=False):
                share, factor = accuracy(here, there, labels, truth)
                row[kernel] = {
                    "accuracy": 100 * share,
                    "interval": wilson(share, len(truth)),
                    "ridge": factor,
                }
            row |= {"core seconds": time.process_time() - start, "tolerance": tolerance}
            yield row


def read() -> list[dict[str, object]]:
    return json.loads(FILE.read_text(encoding="utf-8")) if FILE.exists() else []


def keep(row: dict[str, object]) -> None:
    """Put a row into the file, in place of an older one of the same kernel and images."""

    def key(one: dict[str, object]) -> tuple[object, ...]:
        return one["images"], one["n"], one["test"], one["kernel"]

    rows = [one for one in read() if key(one) != key(row)]
    write_atomically(FILE, json.dumps([*rows, row], indent=1, ensure_ascii=False) + "\n")


def shown(found: dict[str, object] | None) -> str:
    if found is None:
        return ""
    low, high = found["interval"]  # type: ignore[misc]
    return f"{found['accuracy']:.1f} ({low:.1f}–{high:.1f})"


def published() -> str:
    """A table for each set of images: kernels in rows, CK and NTK at every n in columns."""
    parts = []
    rows = read()
    for images, test in sorted({(str(row["images"]), int(row["test"])) for row in rows}):  # type: ignore[call-overload]
        mine = [row for row in rows if row["images"] == images and row["test"] == test]
        sizes = sorted({row["n"] for row in mine})  # type: ignore[type-var]
        table = []
        for name in models("flatten"):
            line: dict[str, object] = {"kernel": name}
            for n in sizes:
                row = next((one for one in mine if one["kernel"] == name and one["n"] == n), {})
                line[f"CK, n = {n}"] = shown(row.get("CK"))  # type: ignore[arg-type]
                line[f"NTK, n = {n}"] = shown(row.get("NTK"))  # type: ignore[arg-type]
            if any(value for key, value in line.items() if key != "kernel"):
                table.append(line)
        parts.append(f"{images}, {test} test images:\n\n{markdown_table(table)}")
    return "\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", choices=list(NAMES), default="cifar10")
    parser.add_argument("--readout", choices=["flatten", "pool"], default="flatten")
    parser.add_argument(
        "--side", type=int, help="positions along an axis; the images as they are if not given"
    )
    parser.add_argument("--n", type=int, nargs="+", default=[500, 1000], help="training images")
    parser.add_argument("--test", type=int, default=1000, help="test images")
    parser.add_argument("--tolerance", type=float, default=1e-12, help="of the convolutional kernels")
    parser.add_argument("--only", default="", help="kernels with this word in their name")
    parser.add_argument("--folder", type=Path, default=Path("image-kernels"), help="where blocks are kept")
    parser.add_argument(
        "--publish", action="store_true", help="write what is there into docs/convolutional.md"
    )
    arguments = parser.parse_args()
    if arguments.publish:
        page = PAGE.read_text(encoding="utf-8")
        write_atomically(PAGE, filled(page, *MARKS, published()))
        return
    arguments.folder.mkdir(parents=True, exist_ok=True)
    side = arguments.side or SIDES[arguments.data]
    setting = Setting(arguments.data, side, arguments.readout, arguments.test)
    for row in rows_of(setting, sorted(arguments.n), arguments.only, arguments.folder, arguments.tolerance):
        keep(row)
        print(json.dumps(row, ensure_ascii=False), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
