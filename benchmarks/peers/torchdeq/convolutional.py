"""The explicit twin, our convolutional DEQ and TorchDEQ's: milliseconds of a batch at equal residuals.

    python benchmarks/peers/torchdeq/convolutional.py                 # what is not measured yet, half an hour
    python benchmarks/peers/torchdeq/convolutional.py --channels 32   # some of it
    python benchmarks/peers/torchdeq/convolutional.py --publish       # only write the table into docs/comparison.md
    NOTSODEEP_DATA names the folder with the data sets; environments.py says where the peer's environment is

A batch of 64 images (Fashion-MNIST 14 × 14, CIFAR-10 16 × 16), ReLU, σ_a² = 0.3, 3 × 3, zeros beyond the border, a
readout with weights for every position, float32, one thread. The DEQ has the same weights on both sides, N(0, 1) and
not trained. As in compare.py the true residual in float64, max ||f(z) - z||/||z|| over images, is matched: each of the
peer's solvers gets the loosest tolerance that keeps it below the target, forward and backward; ours the loosest with
which it is no larger than that of the peer's fastest solver. The twin has two layers, fitted to 20 other images, and no
residual. Processor seconds of one thread, in turn, with weights perturbed before every call; medians.
Results: torchdeq_convolutional.jsonl in --out, one line for each data set, number of channels and residual.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import conv2d

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/: the shared harness
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/peers/: how turns are taken

from compare import Peer, matched_settings, our_tolerance, peer_with
from environments import environment
from harness import RESULTS, ROOT, Row, filled, markdown_table, write_atomically
from reference import Weights
from tables import AHEAD, SLACK, TOLD

from notsodeep.designs import design
from notsodeep.files import atomic_append
from notsodeep.models import ConvDEQ
from notsodeep.nets import ConvDEQNet, ConvExplicitNet, Net, SolverOptions
from notsodeep_lab.papers.conv_twins import small_images

HERE = Path(__file__).resolve().parent
PAGE = ROOT / "docs" / "comparison.md"
MARKS = "<!-- measured: convolutional networks -->", "<!-- end: convolutional networks -->"
TITLES = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10"}
MODEL = ConvDEQ("relu", 0.3)
BATCH, OUTPUTS, SIDE, LAYERS = 64, 10, 16, 2
TARGETS = (1e-3, 1e-6)
MODES = ("forward", "training")
# Its Broyden and its Anderson with the given regularisation were never its fastest in compare.py.
SOLVERS = ("fixed_point_iter", AHEAD, "anderson_tuned")


def draw(images: np.ndarray, channels: int) -> Weights:
    """Weights N(0, 1), the batch, and the gradient of a loss in the outputs."""
    rng = np.random.default_rng(0)
    filters, positions = (MODEL.filter_size,) * 2, images[0, 0].size

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape, dtype=np.float32)

    return {
        "recurrent": normal(channels, channels, *filters),
        "inputs": normal(channels, images.shape[1], *filters),
        "readout": normal(OUTPUTS, channels * positions),
        "X": images.astype(np.float32),
        "cotangent": normal(len(images), OUTPUTS) / np.float32(len(images)),
    }


class Ours:
    """Our network with the same weights, and the truth about it in float64."""

    def __init__(self, data: Weights) -> None:
        self._data = {name: torch.from_numpy(value.copy()) for name, value in data.items()}
        self.x, self.cotangent = self._data["X"], self._data["cotangent"]
        self.channels, self._taps = len(self._data["recurrent"]), self._data["recurrent"][0, 0].numel()
        scale = math.sqrt(MODEL.sigma_a2 / (self._taps * self.channels))
        self._filters = scale * self._data["recurrent"].double()
        inputs = math.sqrt(MODEL.sigma_b2 / self._taps) * self._data["inputs"].double()
        self._injected = conv2d(self.x.double(), inputs, padding=1)

    def network(self, tolerance: float, adjoint: float | None = None) -> ConvDEQNet:
        net = ConvDEQNet(
            MODEL,
            self.x.shape[1],
            self.channels,
            OUTPUTS,
            tuple(self.x.shape[2:]),
            scaling="ntk",
            solver=SolverOptions(tolerance=tolerance),
            adjoint=SolverOptions(tolerance=adjoint or tolerance),
            on_failure="ignore",
        )
        self.set_weights(net, None)
        return net

    def set_weights(self, net: Net, seed: int | None) -> None:
        """The given weights, perturbed by a thousandth of the same noise as the peer's."""
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name in ("recurrent", "inputs", "readout"):
                weight = getattr(net, name).copy_(self._data[name])
                if generator is not None:
                    weight.add_(torch.randn(weight.shape, generator=generator), alpha=1e-3)

    @torch.no_grad()
    def residual(self, tolerance: float) -> float:
        """Largest ||f(z) - z||/||z|| of an image."""
        z = self._state(self.network(tolerance).preactivations(self.x))
        image = torch.relu(conv2d(z, self._filters, padding=1) + self._injected)
        return largest(image - z, z)

    @torch.no_grad()
    def adjoint_residual(self, tolerance: float, adjoint: float) -> float:
        """The same of the gradient in the pre-activations, t = D (pull + Wᵀ t)."""
        net = self.network(tolerance, adjoint)
        h = net.preactivations(self.x)
        slope = (h > 0).double().unflatten(1, (self.channels, *self.x.shape[2:]))
        pull = (self.cotangent @ self._data["readout"]).double().unflatten(1, slope.shape[1:])
        pull = pull / math.sqrt(self._data["readout"].shape[1])
        t = net.adjoint(h, (slope * pull).flatten(1).float()).double().unflatten(1, slope.shape[1:])
        turned = self._filters.flip(2, 3).transpose(0, 1)
        return largest(slope * (pull + conv2d(t, turned, padding=1)) - t, t)

    def _state(self, h: torch.Tensor) -> torch.Tensor:
        return torch.relu(h.double()).unflatten(1, (self.channels, *self.x.shape[2:]))

    def time(self, net: Net, mode: str, seeds: list[int]) -> list[float]:
        """Processor seconds of one call per seed; the first one is not counted."""
        net.train(mode == "training")
        taken = []
        for seed in seeds:
            if isinstance(net, ConvDEQNet):
                self.set_weights(net, seed)
            net.zero_grad(set_to_none=True)
            gc.collect()
            start = time.process_time()
            if mode == "training":
                net(self.x).backward(self.cotangent)
            else:
                with torch.no_grad():
                    net(self.x)
            taken.append(time.process_time() - start)
        return taken[1:]


def largest(part: torch.Tensor, whole: torch.Tensor) -> float:
    return float((part.flatten(1).norm(dim=1) / whole.flatten(1).norm(dim=1)).max())


def fastest(peer: Peer, settings: dict[str, Row], mode: str) -> str:
    """The peer's fastest solver, by one turn each, among those that know when to stop."""
    taken = {
        name: statistics.median(
            peer.order("time", mode=mode, seeds=list(range(4)), settings=chosen)["processor"]
        )
        for name, chosen in settings.items()
        if name != TOLD
    }
    return min(taken, key=lambda name: taken[name])


def measured(data: str, channels: int, target: float, rounds: int) -> Row:
    """Everything about one data set, number of channels and residual."""
    images = small_images(data, BATCH + 40, SIDE)
    batch, others = images[:BATCH], images[BATCH:]
    ours = Ours(draw(batch, channels))
    made = design(MODEL, X=others, kernel="ntk", family="injected", layers=LAYERS)
    twin = ConvExplicitNet(made.network, batch.shape[1], channels, OUTPUTS, batch.shape[2:], seed=0)
    program = (str(environment("torchdeq")), str(HERE / "peer_convolutional.py"))
    with peer_with(draw(batch, channels), "relu", 1, program, sigma_a2=MODEL.sigma_a2) as peer:
        settings, backward = matched_settings(peer, target, SOLVERS)
        best = {mode: fastest(peer, settings, mode) for mode in MODES}
        residuals = {name: peer.order("inspect", **settings[name])["residual"] for name in set(best.values())}
        goal, pulled = min(residuals.values()), min(backward[name] for name in residuals)
        tolerance = our_tolerance(target, lambda value: ours.residual(value) <= SLACK * goal)
        adjoint = our_tolerance(
            target, lambda value: ours.adjoint_residual(tolerance, value) <= SLACK * pulled
        )
        net = ours.network(tolerance, adjoint)
        _, theirs = peer.gradients(settings[best["training"]])
        net(ours.x).backward(ours.cotangent)
        apart = largest((net.recurrent.grad - theirs["recurrent"])[None], theirs["recurrent"][None])
        seconds: dict[str, list[float]] = {}
        for round_ in range(rounds):
            seeds = [1000 * round_ + call for call in range(4)]
            for mode in MODES:
                answer = peer.order("time", mode=mode, seeds=seeds, settings=settings[best[mode]])
                seconds.setdefault(f"{mode}, peer", []).extend(answer["processor"])
                for name, one in (("ours", net), ("twin", twin)):
                    seconds.setdefault(f"{mode}, {name}", []).extend(ours.time(one, mode, seeds))
    solve, back = net.last_solve, net.last_adjoint
    if solve is None or back is None:
        raise RuntimeError("the network did not record its solve")
    return {
        "data": data,
        "channels": channels,
        "target": target,
        "milliseconds": {name: 1e3 * statistics.median(values) for name, values in seconds.items()},
        "steps": solve.steps,
        "adjoint steps": back.steps,
        "residual": ours.residual(tolerance),
        "backward residual": ours.adjoint_residual(tolerance, adjoint),
        "gradients apart": apart,
        "peer": {mode: {"solver": best[mode], "residual": residuals[best[mode]]} for mode in MODES},
        "calls": len(seconds["forward, twin"]),
    }


# --- the table --------------------------------------------------------------------------------------------------------


def table(rows: list[Row]) -> list[Row]:
    """One line for each row and mode."""
    lines = []
    for row in sorted(rows, key=lambda row: (row["data"], row["channels"], -row["target"])):
        for mode in MODES:
            ours, peer, twin = (row["milliseconds"][f"{mode}, {name}"] for name in ("ours", "peer", "twin"))
            steps = f"{row['steps']}" + (f" + {row['adjoint steps']}" if mode == "training" else "")
            lines.append(
                {
                    "data": TITLES[row["data"]],
                    "channels": row["channels"],
                    "residual ≤": f"{row['target']:g}",
                    "": "forward" if mode == "forward" else "forward and backward",
                    "twin, ms": f"{twin:.1f}",
                    "ConvDEQNet, ms": f"{ours:.1f}",
                    "TorchDEQ, ms": f"{peer:.1f}",
                    "ConvDEQNet / twin": f"{ours / twin:.1f}",
                    "TorchDEQ / twin": f"{peer / twin:.1f}",
                    "TorchDEQ / ConvDEQNet": f"{peer / ours:.2f}",
                    "our steps": steps,
                    "its solver": row["peer"][mode]["solver"],
                }
            )
    return lines


def reading(rows: list[Row]) -> str:
    """The ratios of the table in words, by residual."""
    lines = []
    for target in TARGETS:
        part = [row for row in rows if row["target"] == target]
        if not part:
            continue
        words = [f"**Residual ≤ {target:g}.**"]
        for mode, name in zip(MODES, ("forward", "forward and backward"), strict=True):
            against = {
                names: span(
                    row["milliseconds"][f"{mode}, {names[0]}"] / row["milliseconds"][f"{mode}, {names[1]}"]
                    for row in part
                )
                for names in (("ours", "twin"), ("peer", "twin"), ("peer", "ours"))
            }
            words.append(
                f"{name.capitalize()} the twin is {against['ours', 'twin']} times as fast as `ConvDEQNet`, "
                f"{against['peer', 'twin']} times as TorchDEQ; "
                f"`ConvDEQNet` {against['peer', 'ours']} times as TorchDEQ."
            )
        steps = span(row["steps"] for row in part)
        halves = span(row["steps"] / 2 for row in part)
        words.append(
            f"`ConvDEQNet` takes {steps} steps, so that a twin that costs two of them would be {halves} times as fast."
        )
        apart = span((row["gradients apart"] for row in part), ".1e")
        words.append(f"The gradients of the two DEQs differ by {apart} of their norm.")
        lines.append(" ".join(words))
    return "\n\n".join(lines)


def span(values: Iterable[float], digits: str = ".2g") -> str:
    """The smallest and the largest."""
    found = sorted(values)
    return f"{found[0]:{digits}} to {found[-1]:{digits}}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", default=list(TITLES), choices=list(TITLES))
    parser.add_argument("--channels", nargs="+", type=int, default=[32, 64, 128])
    parser.add_argument("--rounds", type=int, default=5, help="rounds of turns, three counted calls in each")
    parser.add_argument("--publish", action="store_true", help="only write the table into docs/comparison.md")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    options = parser.parse_args()
    torch.set_num_threads(1)
    file = options.out / "torchdeq_convolutional.jsonl"
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []
    done = {(row["data"], row["channels"], row["target"]) for row in rows}
    wanted = [
        (data, channels, target)
        for channels in options.channels
        for data in options.data
        for target in TARGETS
    ]
    for key in [] if options.publish else [key for key in wanted if key not in done]:
        rows.append(measured(*key, options.rounds))
        atomic_append(file, (json.dumps(rows[-1]) + "\n").encode())
        print(*key, rows[-1]["milliseconds"], flush=True)
    found = f"{markdown_table(table(rows))}\n{reading(rows)}\n"
    print(found)
    if options.publish:
        write_atomically(PAGE, filled(PAGE.read_text(encoding="utf-8"), *MARKS, found))


if __name__ == "__main__":
    main()
