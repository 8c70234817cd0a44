"""No data: predicted from a Gaussian mixture alone, measured with exact kernels on drawn samples.

n = 125, 500 and 2000 training samples, p/n = 0.3, 0.8 and 2, five ridges, DEQs with σ_a² = 0.2 and tanh, ReLU and
swish, conjugate and tangent kernel. Mixtures:

  two        two classes, ‖μ_a‖ = 1.2, C_2 = (1 + 6/√p) C_1, equal weights
  unequal    two classes with weights 0.7 and 0.3, ‖μ_a‖ = 1.5, diagonal covariances that rise and fall by the same
             numbers from 0.5 to 1.5
  four       four classes with weights 0.4, 0.3, 0.2, 0.1, ‖μ_a‖ = 2.5, each with diagonal variances in its own order
  rotated    three classes with weights 0.5, 0.3, 0.2, ‖μ_a‖ = 2, covariances with eigenvalues from 0.5 to 1.5 in a
             random basis each: nothing commutes. p up to 1600

All activations and ratios on the first mixture, one pair of them on each of the others (`OTHERS`). 60 or 120 training
sets at n = 125, 32 or 48 at n = 500, four to 40 at n = 2000, each with 5000 test samples of its own. To take noise off
the measurement, the linear part of each trained regression, a function zᵀW whose accuracy on a mixture is known without
any sample, is counted on the same test samples, and what they have by chance in it is taken off (a control variate: the
expectation does not change). The band is that of training sets; what the test samples add is added to it before
counting. "error of the theory" is √(mean (predicted - measured)² - mean (standard error of the measurement)²), the part
of the differences that the measurement's own noise does not explain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from harness import Row, markdown_table
from scipy.linalg import cho_factor, cho_solve

from learning.journal import Array, Part, chosen, gaps
from notsodeep.data import GaussianMixture
from notsodeep.equivalents.expansion import expand
from notsodeep.kernels import both_kernels
from notsodeep.learning import learning_curve
from notsodeep.learning.gaussian_scores import chance_of_largest
from notsodeep.learning.scores import right
from notsodeep.models import DEQ

RIDGES = (0.001, 0.01, 0.1, 1.0, 10.0)
SIZES = (125, 500, 2000)
# Training sets; at n = 2000 by p/n, as many as one can afford.
DRAWS = {
    125: {0.3: 120, 0.8: 120, 2.0: 120},
    500: {0.3: 48, 0.8: 48, 2.0: 48},
    2000: {0.3: 40, 0.8: 12, 2.0: 6},
}
# Activation and p/n on the mixtures after the first.
OTHERS = {"four": ("relu", 0.8), "rotated": ("swish", 0.3), "unequal": ("tanh", 2.0)}
TEST = 5000
MANY = 12
KERNELS = ("ck", "ntk")
SIGMA_A2 = 0.2


def tasks() -> list[Row]:
    """Cases in an order in which those that are measured first are a balanced part of all."""
    activations, ratios = ("tanh", "relu", "swish"), (0.8, 0.3, 2.0)
    shifted = [(activations[i], ratios[(i + shift) % 3]) for shift in range(3) for i in range(3)]
    two = [("two", *pair) for pair in shifted]
    cases = two[:2] + [(mixture, *pair) for mixture, pair in OTHERS.items()] + two[2:]
    return [
        {"n": n, "ratio": ratio, "mixture": mixture, "activation": activation, "centred": False}
        for mixture, activation, ratio in cases
        for n in SIZES
    ]


def mixture_of(name: str, p: int) -> GaussianMixture:
    spread = np.linspace(0.5, 1.5, p)
    rng = np.random.default_rng(p)
    if name == "two":
        return GaussianMixture(1.2 * np.eye(2, p), [1.0, 1.0 + 6.0 / math.sqrt(p)])
    if name == "unequal":
        return GaussianMixture(1.5 * _directions(2, p), [spread, spread[::-1]], [0.7, 0.3])
    if name == "four":
        orders = [rng.permutation(p) for _ in range(4)]
        return GaussianMixture(
            2.5 * _directions(4, p), [spread[order] for order in orders], [0.4, 0.3, 0.2, 0.1]
        )
    bases = [np.linalg.qr(rng.standard_normal((p, p)))[0] for _ in range(3)]
    return GaussianMixture(
        2.0 * _directions(3, p), [(basis * spread) @ basis.T for basis in bases], [0.5, 0.3, 0.2]
    )


def _directions(classes: int, p: int) -> Array:
    """Orthonormal directions that lie along no axis."""
    return np.linalg.qr(np.random.default_rng(classes).standard_normal((p, classes)))[0].T


def model_of(task: Row, mixture: GaussianMixture) -> DEQ:
    model = DEQ(task["activation"], SIGMA_A2)
    if not task["centred"]:
        return model
    square = sum(w * mixture.trace(a) for a, w in enumerate(mixture.weights)) / mixture.p
    return model.centred(math.sqrt(square))


def class_targets(classes: int) -> Array:
    return np.array([[-1.0], [1.0]]) if classes == 2 else np.eye(classes)


def rows(task: Row) -> Iterator[Row]:
    """Measured and predicted figures for both kernels at each ridge."""
    n = task["n"]
    mixture = mixture_of(task["mixture"], round(task["ratio"] * n))
    model = model_of(task, mixture)
    draws = [draw(model, mixture, n, seed) for seed in range(DRAWS[n][task["ratio"]])]
    for number, kernel in enumerate(KERNELS):
        learning_curve(model, mixture, n, 1.0, kernel=kernel)  # loads compiled code
        for place, ridge in enumerate(RIDGES):
            start = time.process_time()
            curve = learning_curve(model, mixture, n, ridge, kernel=kernel)
            seconds = time.process_time() - start
            cells = [one[number][place] for one in draws]
            accuracy, mse = (np.array([cell[name] for cell in cells]) for name in ("accuracy", "mse"))
            means = np.mean([cell["means"] for cell in cells], axis=0)
            squares = np.mean([cell["squares"] for cell in cells], axis=0)
            deviation = np.sqrt(squares - means**2)
            predicted = np.sqrt(curve.score_variances[0])
            centre = float(curve.accuracy[0])
            noise = 1.645 * math.sqrt(np.mean([cell["test_variance"] for cell in cells]))
            low = centre - math.hypot(centre - curve.interval[0, 0], noise)
            high = centre + math.hypot(curve.interval[0, 1] - centre, noise)
            yield {
                "kernel": kernel,
                "ridge": ridge,
                "measured": float(accuracy.mean()),
                "error": float(accuracy.std(ddof=1) / math.sqrt(len(cells))),
                "predicted": centre,
                "measured_mse": float(mse.mean()),
                "error_mse": float(mse.std(ddof=1) / math.sqrt(len(cells))),
                "predicted_mse": float(curve.mse[0]),
                # Scores: difference of the means in standard deviations, and the ratio of these, at worst.
                "score_means": float(np.max(np.abs(curve.score_means[0] - means) / deviation)),
                "score_deviations": float(np.max(np.abs(predicted / deviation - 1.0))),
                "inside": float(np.mean((accuracy >= low) & (accuracy <= high))),
                "training_sets": len(cells),
                "seconds": seconds,
            }


def draw(model: DEQ, mixture: GaussianMixture, n: int, seed: int) -> list[list[Row]]:
    """One training set and its test samples: for each kernel and ridge accuracy, squared error, moments of scores."""
    X, y = mixture.sample(n, seed=seed)
    Z, t = mixture.sample(TEST, seed=10_000 + seed)
    squares = np.sum(X**2, axis=1)
    nodes, typical = np.linspace(squares.min(), squares.max(), 9), squares.mean(keepdims=True)
    found = []
    for kernel, own, cross in zip(KERNELS, both_kernels(model, X), both_kernels(model, Z, X), strict=True):
        # The linear part of a row of the kernel, g_1(s̄, s_j) x_j.
        factors = expand(model, nodes, typical, kernel, 1, 0.0)[1][:, 0]
        drawn = Drawn(mixture, np.polyval(np.polyfit(nodes, factors, 4), squares)[:, None] * X, y, Z, t)
        found.append([drawn.at(own, cross, ridge) for ridge in RIDGES])
    return found


@dataclass(frozen=True, eq=False)
class Drawn:
    """Linear features X of training samples with classes y, and test samples Z with classes t, of a mixture."""

    mixture: GaussianMixture
    X: Array
    y: Array
    Z: Array
    t: Array

    def at(self, own: Array, cross: Array, ridge: float) -> Row:
        classes = self.mixture.classes
        targets = class_targets(classes)
        mean = targets[self.y].mean(axis=0)
        factor = cho_factor(own + ridge * np.eye(len(own)), lower=True, overwrite_a=True, check_finite=False)
        weights = cho_solve(factor, targets[self.y] - mean, check_finite=False)
        scores = cross @ weights + mean
        parts = [scores[self.t == a] for a in range(classes)]
        hits = right(scores, self.t)
        counted, expected = self._linear(scores, self.X.T @ weights)
        away = hits.astype(np.float64) - counted
        return {
            "accuracy": float(np.mean(away)) + expected,
            "test_variance": float(np.var(away)) / TEST,
            "mse": float(np.mean((scores - targets[self.t]) ** 2)),
            "means": np.array([part.mean(axis=0) for part in parts]),
            "squares": np.array([np.mean(part**2, axis=0) for part in parts]),
        }

    def _linear(self, scores: Array, slopes: Array) -> tuple[Array, float]:
        """Which test samples a linear function of them, like the scores, classifies rightly, and how many it should."""
        raw = self.Z @ slopes
        centred = raw - raw.mean(axis=0)
        factor = float(np.sum(centred * scores) / max(np.sum(centred**2), np.finfo(float).tiny))
        slopes = factor * slopes
        shift = scores.mean(axis=0) - self.Z.mean(axis=0) @ slopes
        shares = np.bincount(self.t, minlength=self.mixture.classes) / len(self.t)
        means = self.mixture.means / math.sqrt(self.mixture.p) @ slopes + shift
        # One score for two classes: as two scores that add up to 0.
        outputs = np.array([[-1.0], [1.0]]) if len(shift) == 1 else np.eye(len(shift))
        chances = [
            chance_of_largest(
                outputs @ mean, outputs @ (slopes.T @ (covariance @ slopes)) @ outputs.T / self.mixture.p, a
            )
            for a, (mean, covariance) in enumerate(zip(means, self.mixture.covariances, strict=True))
        ]
        return right(self.Z @ slopes + shift, self.t), float(shares @ chances)


def page(found: list[Row]) -> str:
    """The statement of the table, by n and by what varies."""
    parts = [
        f"### Without data: Gaussian mixtures\n\n{_about()}\n",
        markdown_table([_line(chosen(found, n=n), {"n": n}) for n in SIZES if chosen(found, n=n)]),
        f"The same cases at every n, those with at least {MANY} training sets at n = 2000:\n",
        markdown_table(_falling(found)),
        "By what varies, at n = 2000 (in brackets n = 500):\n",
    ]
    lines = []
    for field in ("mixture", "activation", "kernel", "ratio", "ridge"):
        for value in dict.fromkeys(row[field] for row in found):
            large, small = (chosen(found, n=n, **{field: value}) for n in (2000, 500))
            if large and small:
                lines.append(
                    {
                        "what": f"{field} {value}",
                        "median, points": f"{np.median(gaps(large)):.2f} ({np.median(gaps(small)):.2f})",
                        "worst, points": f"{gaps(large).max():.2f} ({gaps(small).max():.2f})",
                        "mse, median": f"{_relative(large):.2f} % ({_relative(small):.2f} %)",
                    }
                )
    parts += [markdown_table(lines), "The largest differences:\n"]
    worst = sorted(found, key=lambda row: -abs(row["predicted"] - row["measured"]))[:8]
    parts.append(
        markdown_table(
            [
                {
                    **{
                        name: row[name] for name in ("n", "ratio", "mixture", "activation", "kernel", "ridge")
                    },
                    "centred": "yes" if row["centred"] else "–",
                    "measured, %": f"{100 * row['measured']:.2f} ± {100 * row['error']:.2f}",
                    "predicted, %": f"{100 * row['predicted']:.2f}",
                }
                for row in worst
            ]
        )
    )
    return "\n".join(parts)


def _falling(found: list[Row]) -> list[Row]:
    """Differences by n, of the cases that were measured at every n and often at the largest."""
    fields = ("mixture", "activation", "ratio", "kernel", "ridge")
    by_n = {n: {tuple(row[name] for name in fields): row for row in chosen(found, n=n)} for n in SIZES}
    often = {case for case, row in by_n[max(SIZES)].items() if row["training_sets"] >= MANY}
    cases = often.intersection(*by_n.values())
    lines = []
    for n in SIZES:
        some = [by_n[n][case] for case in sorted(cases)]
        noise = _mean_square(100.0 * np.array([row["error"] for row in some]))
        square = _mean_square(gaps(some))
        lines.append(
            {
                "n": n,
                "cases": len(some),
                "median, points": f"{np.median(gaps(some)):.2f}",
                "worst, points": f"{gaps(some).max():.2f}",
                "root mean square": f"{math.sqrt(square):.2f}",
                "of that, noise of the measurement": f"{math.sqrt(noise):.2f}",
            }
        )
    return lines


def _about() -> str:
    return (
        "\n".join((__doc__ or "").split("\n")[2:])
        .strip()
        .replace("  two  ", "```text\n  two  ", 1)
        .replace("p up to 1600\n", "p up to 1600\n```\n")
    )


def _relative(some: list[Row]) -> float:
    return 100.0 * float(np.median([abs(row["predicted_mse"] / row["measured_mse"] - 1.0) for row in some]))


def _mean_square(values: Array) -> float:
    return float(np.mean(values**2))


def _line(some: list[Row], first: Row) -> Row:
    limits = {"median, points": 0.5, "worst, points": 1.5}
    noise = _mean_square(100.0 * np.array([row["error"] for row in some]))
    commuting = [row["seconds"] for row in some if row["mixture"] != "rotated"]
    # What was measured before the control variate has no moments of scores.
    full = [row for row in some if "inside" in row]
    return {
        **first,
        "cases": len(some),
        "training sets": sum(row["training_sets"] for row in some),
        "median, points": float(np.median(gaps(some))),
        "worst, points": float(gaps(some).max()),
        # What the noise of the measurement does not explain of the differences.
        "error of the theory": f"{math.sqrt(max(_mean_square(gaps(some)) - noise, 0.0)):.2f}",
        "standard error of the measurement, median": f"{100 * np.median([row['error'] for row in some]):.2f}",
        "mse, median": f"{_relative(some):.2f} %",
        "means of scores, deviations, median": f"{np.median([row['score_means'] for row in full]):.3f}",
        "deviations of scores, median": f"{100 * np.median([row['score_deviations'] for row in full]):.1f} %",
        "in the 90 % band": f"{100 * np.mean([row['inside'] for row in full]):.0f} %",
        "seconds, median and worst": f"{np.median(commuting):.3f}, {max(commuting):.2f}",
        "limits": limits,
    }


PART = Part("mixtures", tasks, rows, page)
