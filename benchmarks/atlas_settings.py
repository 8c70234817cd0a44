"""The settings of the atlas: what is trained on what, in three rounds.

Those of the first two rounds have served to choose the rule of `verdicts/rules.py`. Those of the third were listed
together with the rule, before a verdict or a truth of theirs had been seen: other data, activations, feedback, widths,
numbers of samples and lengths of training.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Setting:
    """One case: what is trained on what; `width` is units, for images channels; `n` is the number of samples."""

    kind: str
    data: str
    activation: str
    sigma_a2: float
    sigma_b2: float
    width: int
    readout: str = ""
    round: int = 1
    n: int = 0
    epochs: int = 10

    @property
    def name(self) -> str:
        form = f", {self.readout}" if self.readout else ""
        form += f", n {self.n}" if self.n else ""
        form += f", {self.epochs} epochs" if self.epochs != 10 else ""
        return f"{self.kind}: {self.data}, {self.activation} {self.sigma_a2:g}/{self.sigma_b2:g}, {self.width}{form}"


# Known when the rule for trained networks was chosen, besides every fifth setting.
TUNING = (
    "trained: digits, relu 0.2/0.8, 64",
    "trained: digits, tanh 0.5/0.5, 256",
    "trained: digits, gelu 0.8/0.2, 512",
    "trained: mnist, tanh 0.5/0.5, 64",
    "trained: mnist, gelu 0.8/0.2, 256",
)


def settings() -> list[Setting]:
    """All settings; of the first round every fifth one was for tuning from the beginning."""
    return [*_first_round(), *_second_round(), *_third_round()]


def _first_round() -> Iterator[Setting]:
    activations = ("relu", "tanh", "gelu", "softplus", "erf")
    rows = ("digits", "mnist", "fashion_mnist", "cifar10", "cifar10_vgg19", "breast_cancer", "moons", "blobs")
    for i, data in enumerate(rows):
        for j, width in enumerate((32, 128, 512)):
            sigma = (0.2, 0.5, 0.8)[(i + j) % 3]
            yield Setting("readout", data, activations[(i + 2 * j) % 5], sigma, round(1.0 - sigma, 2), width)
    # Feedback near the limit: the drive is larger, so that networks of finite width have an equilibrium.
    for data, activation, sigma in (
        ("mnist", "tanh", 0.95),
        ("cifar10", "erf", 0.9),
        ("digits", "relu", 1.2),
    ):
        yield Setting("readout", data, activation, sigma, 1.0, 256)
    for i, data in enumerate(
        ("digits", "mnist", "fashion_mnist", "cifar10", "cifar10_vgg19", "breast_cancer")
    ):
        for j, width in enumerate((32, 128, 256)):
            sigma = (0.5, 0.2, 0.8)[(i + j) % 3]
            yield Setting("all", data, activations[(2 * i + j) % 5], sigma, round(1.0 - sigma, 2), width)
    for i, data in enumerate(("diabetes", "friedman", "ripples", "deq")):
        for sigma in (0.2, 0.8):
            yield Setting("regression", data, activations[i % 3], sigma, 1.0 - sigma, 256)
    for i, (readout, sigma) in enumerate(itertools.product(("flatten", "pool"), (0.2, 0.5, 0.8))):
        yield Setting("images", "digits", activations[i % 3], sigma, 1.0, 16, readout)
    for length in (4, 6, 8, 10, 12, 16):
        yield Setting("chain", f"chain {length}", "relu", 0.8, 1.0, 32, "pool")
    for activation, sigma in (("softplus", 0.8), ("gelu", 0.8), ("relu", 0.3)):
        yield Setting("chain", "chain 8", activation, sigma, 1.0, 32, "pool")
    for i, data in enumerate(("digits", "mnist", "fashion_mnist", "cifar10")):
        for j, width in enumerate((64, 256, 512)):
            sigma = (0.2, 0.5, 0.8)[(i + j) % 3]
            yield Setting("trained", data, activations[(i + j) % 3], sigma, round(1.0 - sigma, 2), width)
    for length in (8, 12):
        yield Setting("trained", f"chain {length}", "relu", 0.8, 1.0, 32, "pool")


def _second_round() -> Iterator[Setting]:
    for data, activation, sigma_a2, sigma_b2, width in (
        ("circles", "elu", 0.6, 0.4, 24),
        ("spirals", "swish", 0.9, 0.3, 64),
        ("spirals", "hard_tanh", 0.3, 0.7, 200),
        ("quantiles", "sigmoid", 0.8, 1.0, 40),
        ("quantiles", "abs", 0.4, 0.6, 80),
        ("hastie", "arctan", 0.7, 0.3, 100),
        ("hastie", "mish", 0.4, 0.6, 20),
        ("wine", "swish", 0.6, 0.4, 48),
        ("deq classes", "tanh", 0.95, 1.0, 150),
        ("deq classes", "softsign", 0.9, 0.5, 300),
        ("parity", "erf", 0.5, 0.5, 128),
        ("mnist", "elu", 0.3, 0.7, 24),
        ("mnist", "mish", 0.9, 0.3, 200),
        ("fashion_mnist", "hard_tanh", 0.7, 0.3, 48),
        ("fashion_mnist", "arctan", 0.97, 1.0, 128),
        ("cifar10_vgg19", "swish", 0.6, 0.4, 64),
    ):
        yield Setting("readout", data, activation, sigma_a2, sigma_b2, width, round=2, n=800)
    for data, activation, sigma_a2, sigma_b2, width in (
        ("sinc", "elu", 0.6, 0.4, 64),
        ("sinc", "relu", 0.9, 0.2, 128),
        ("friedman2", "swish", 0.3, 0.7, 100),
        ("friedman3", "arctan", 0.5, 0.5, 64),
        ("swiss roll", "tanh", 0.7, 0.3, 64),
        ("strong deq", "erf", 0.9, 1.0, 128),
    ):
        yield Setting("regression", data, activation, sigma_a2, sigma_b2, width, round=2, n=600)
    yield Setting("chain", "chain 3", "elu", 0.5, 1.0, 24, "flatten", round=2, n=400)


def _third_round() -> Iterator[Setting]:
    for data, activation, sigma_a2, sigma_b2, width in (
        ("checkers", "swish", 0.5, 0.5, 96),
        ("checkers", "tanh", 0.9, 0.5, 160),
        ("rings", "elu", 0.3, 0.7, 20),
        ("rings", "softsign", 0.8, 0.4, 64),
        ("teacher", "hard_tanh", 0.6, 0.4, 40),
        ("teacher", "mish", 0.95, 0.2, 120),
        ("informative", "arctan", 0.5, 0.5, 30),
        ("informative", "swish", 0.85, 0.3, 100),
        ("digits", "elu", 0.7, 0.3, 24),
        ("digits", "sigmoid", 0.9, 1.0, 80),
        ("moons", "mish", 0.9, 0.2, 30),
        ("blobs", "softplus", 0.95, 0.2, 60),
        ("cifar10", "elu", 0.5, 0.5, 48),
        ("mnist", "hard_tanh", 0.9, 0.3, 64),
        ("fashion_mnist", "swish", 0.4, 0.6, 160),
        ("cifar10_vgg19", "arctan", 0.7, 0.3, 32),
    ):
        yield Setting("readout", data, activation, sigma_a2, sigma_b2, width, round=3, n=800)
    for data, activation, sigma_a2, sigma_b2, width in (
        ("parity", "relu", 0.4, 0.6, 48),
        ("spirals", "tanh", 0.6, 0.4, 32),
        ("mnist", "swish", 0.3, 0.7, 24),
        ("fashion_mnist", "elu", 0.6, 0.4, 48),
        ("quantiles", "softplus", 0.4, 0.6, 64),
        ("deq classes", "arctan", 0.7, 0.5, 40),
        ("hastie", "gelu", 0.6, 0.4, 32),
    ):
        yield Setting("all", data, activation, sigma_a2, sigma_b2, width, round=3, n=600)
    for data, activation, sigma_a2, sigma_b2, width in (
        ("stairs", "tanh", 0.5, 0.5, 80),
        ("bowl", "softplus", 0.7, 0.3, 64),
        ("friedman", "elu", 0.8, 0.2, 50),
        ("diabetes", "swish", 0.9, 0.2, 40),
        ("waves", "gelu", 0.6, 0.4, 150),
        ("numbers of a teacher", "erf", 0.4, 0.6, 100),
    ):
        yield Setting("regression", data, activation, sigma_a2, sigma_b2, width, round=3, n=600)
    for data, activation, sigma_a2, width, readout in (
        ("mnist 7x7", "elu", 0.4, 12, "flatten"),
        ("fashion_mnist 7x7", "swish", 0.7, 12, "flatten"),
        ("mnist 4x4", "tanh", 0.3, 24, "pool"),
        ("fashion_mnist 4x4", "relu", 0.6, 24, "pool"),
    ):
        yield Setting("images", data, activation, sigma_a2, 1.0, width, readout, round=3, n=300)
    for data, activation, sigma_a2, width, readout in (
        ("chain 4", "swish", 0.8, 24, "flatten"),
        ("chain 5", "tanh", 0.8, 24, "pool"),
        ("chain 5", "relu", 0.5, 24, "flatten"),
        ("chain 7", "elu", 0.8, 24, "pool"),
        ("chain 9", "relu", 0.6, 24, "flatten"),
        ("chain 9", "gelu", 0.8, 24, "pool"),
        ("chain 11", "softplus", 0.9, 24, "flatten"),
        ("corners 3", "relu", 0.6, 24, "flatten"),
        ("corners 5", "relu", 0.8, 24, "flatten"),
        ("corners 6", "gelu", 0.8, 24, "flatten"),
    ):
        yield Setting("chain", data, activation, sigma_a2, 1.0, width, readout, round=3, n=400)
    for data, activation, sigma_a2, sigma_b2, width, epochs in (
        ("mnist", "elu", 0.4, 0.6, 48, 5),
        ("mnist", "arctan", 0.6, 0.4, 32, 20),
        ("mnist", "swish", 0.8, 0.3, 96, 5),
        ("fashion_mnist", "elu", 0.7, 0.3, 64, 10),
        ("fashion_mnist", "softplus", 0.3, 0.7, 48, 20),
        ("fashion_mnist", "hard_tanh", 0.8, 0.2, 96, 5),
        ("spirals", "swish", 0.8, 0.4, 48, 30),
        ("quantiles", "tanh", 0.9, 0.5, 64, 20),
        ("deq classes", "relu", 0.8, 0.4, 96, 10),
        ("hastie", "gelu", 0.5, 0.5, 40, 30),
    ):
        yield Setting("trained", data, activation, sigma_a2, sigma_b2, width, round=3, n=2000, epochs=epochs)
    for data, activation, sigma_a2 in (
        ("chain 6", "relu", 0.6),
        ("chain 10", "relu", 0.8),
        ("chain 9", "softplus", 0.9),
        ("corners 5", "gelu", 0.8),
    ):
        yield Setting("trained", data, activation, sigma_a2, 1.0, 24, "pool", round=3, n=1000)


__all__ = ["TUNING", "Setting", "settings"]
