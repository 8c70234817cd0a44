"""notsodeep beside TorchDEQ: the same DEQ, the same equilibrium, and the time of each.

The network is z = φ(σ_a A z + σ_b B x)/√m with ten linear outputs, σ_a² = 0.2, batch 256, p = 784, float32, every
weight the same on both sides. Two things are timed: the outputs (evaluation mode, no gradients), and a training step's
gradient (outputs, then implicit differentiation with respect to A, B and the readout).

What is done
  1. builds .venv here if it is missing (plain pip, requirements.txt: 1 GB, a minute);
  2. matches the accuracy. A tolerance is not the residual it leaves, so both sides are set by the true residual
     max over samples of ||f(z) - z||/||z||, computed in float64 from what they return. Each solver of the peer gets the
     loosest tolerance, forward and backward, whose true residual is within the target; ours the loosest whose true
     residuals are no larger than those of the peer's fixed-point iteration (5 % are allowed for rounding). The
     residual of a backward solve is that of the gradient with respect to the pre-activations;
  3. times: the peer works in its own process and waits while we work, turn by turn, so that both meet the same
     machine; a turn is one call that does not count and some that do; the ratio is taken round by round. Before
     every call all weights are perturbed, the same way on both sides: nothing can be kept from the call before;
  4. compares gradients with a float64 direct solve: one dense system of m equations per sample;
  5. writes torchdeq.json and torchdeq.md into --out (by default benchmarks/results), after every network: an
     interrupted run goes on with --resume.

The peer is used as well as we know how: see peer.py. Its solvers are fixed_point_iter, anderson, anderson with a
smaller regularisation (anderson_tuned) and broyden; "best" is the one with the smallest median.
simple_fixed_point_iter has no tolerance: it is told the number of steps in advance, which nobody knows before having
solved, and stands in a column of its own. "frozen" is our evaluation with A and B frozen (train="readout"), where what
depends only on the weights may be kept from call to call; inputs still differ in every call. It is in no ratio.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/: the shared harness

from harness import RESULTS, Provenance, Row, missed, versions, write_atomically, write_json
from reference import BATCH, FEATURES, OUTPUTS, SIGMA_A2, Exact, Gradients, Weights, draw, gradient_error
from tables import LIMIT, SLACK, SOLVERS, TOLD, ratio_row, summary, text_of

from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, SolverOptions

HERE = Path(__file__).resolve().parent
#: Our tolerances are tried from loose to tight, as multiples of the target.
MULTIPLES = tuple(4.0 * 1.25**-k for k in range(12))


@dataclass(frozen=True)
class Scale:
    """What is measured: networks, true residuals, rounds of turns, counted calls of a turn."""

    widths: tuple[int, ...] = (256, 1024, 2048)
    targets: tuple[float, ...] = (1e-6, 1e-3)
    rounds: int = 9
    calls: int = 3
    threads: int = 2


QUICK = Scale(widths=(64,), rounds=2, calls=1)


# --- environment -------------------------------------------------------------------------------------
def environment() -> Path:
    """The peer's Python, with the environment made on first use."""
    folder = HERE / ".venv"
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print("Building the peer's environment (once; 1 GB, a minute or more) …", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", str(HERE / "requirements.txt")], check=True)
        (folder / "ready").touch()  # an interrupted installation is started again, not trusted
    return python


# --- peer ------------------------------------------------------------------------------------------------
class Peer:
    """peer.py in its own process: it answers one order at a time and is idle in between."""

    def __init__(self, folder: Path, threads: int) -> None:
        self._folder = folder
        self._log = (folder / "peer.log").open("w+")
        self._process = subprocess.Popen(
            [str(environment()), str(HERE / "peer.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(threads)},
        )

    def ask(self, order: str, **details: Any) -> Row:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": order, **details}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            self._log.seek(0)
            raise RuntimeError(f"peer.py stopped. Its last words:\n{self._log.read()[-2000:]}")
        answer: Row = json.loads(line)
        return answer

    def gradients(self, settings: Row) -> tuple[Row, Gradients]:
        """What it says about a solve, and the gradients it found."""
        answer = self.ask("inspect", gradients=str(self._folder / "gradient"), **settings)
        names = ("recurrent", "inputs", "readout")
        found = {name: np.load(self._folder / f"gradient-{name}.npy", allow_pickle=False) for name in names}
        return answer, {name: torch.from_numpy(value) for name, value in found.items()}

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._log.close()


@contextmanager
def peer_with(data: Weights, activation: str, threads: int) -> Iterator[Peer]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key, value in data.items():
            np.save(folder / f"{key}.npy", value, allow_pickle=False)
        process = Peer(folder, threads)
        try:
            process.ask("load", folder=name, activation=activation, sigma_a2=SIGMA_A2, threads=threads)
            yield process
        finally:
            process.close()


def matched_settings(peer: Peer, target: float) -> tuple[dict[str, Row], dict[str, float]]:
    """Every solver of the peer with the loosest tolerances within the target, and its backward residual there."""
    settings: dict[str, Row] = {}
    residuals: dict[str, float] = {}
    for solver in SOLVERS:
        forward = loosest(peer.ask("trace", solver=solver), target)
        if forward is None:
            continue
        chosen: Row = {"solver": solver, "tolerance": forward.tolerance, "gradient": "hook"}
        backward = loosest(peer.ask("trace_adjoint", solver=solver, forward=chosen), target)
        if backward is None:
            continue
        settings[solver] = chosen | {"adjoint_tolerance": backward.tolerance}
        residuals[solver] = backward.residual
        if solver == "fixed_point_iter":
            settings[TOLD] = settings[solver] | {"solver": TOLD, "steps": forward.steps}
            residuals[TOLD] = backward.residual
    return settings, residuals


@dataclass(frozen=True)
class Stop:
    """Where a solver is made to stop: after so many steps, by this tolerance, at this true residual."""

    steps: int
    tolerance: float
    residual: float


def loosest(trace: Row, target: float) -> Stop | None:
    """What stops a solver at its first state within the target; None if it has no such state.

    The tolerance is half way, in logarithms, between what the solver compares with it there and before: weights
    perturbed a little then stop it at the same step.
    """
    criteria, residuals = trace["criteria"], trace["residuals"]
    for index, residual in enumerate(residuals):
        if residual <= target:
            before = min(criteria[:index], default=10 * criteria[index])
            if before <= criteria[index]:
                return None  # it would stop earlier, at a state that is not within the target
            return Stop(index + 1, math.sqrt(before * criteria[index]), residual)
    return None


# --- ours --------------------------------------------------------------------------------------------------
class Ours:
    """Our network with the same weights, made again for every pair of tolerances."""

    def __init__(self, data: Weights, activation: str) -> None:
        self._data = {name: torch.from_numpy(value.copy()) for name, value in data.items()}
        self._activation = activation
        self.x, self.cotangent = self._data["X"], self._data["cotangent"]

    def network(
        self, tolerance: float, adjoint: float | None = None, *, frozen: bool = False, extra: int = 0
    ) -> DEQNet:
        """With these weights and tolerances; `extra` inputs have no weight."""
        width = self._data["recurrent"].shape[0]
        net = DEQNet(
            DEQ(self._activation, SIGMA_A2),
            FEATURES + extra,
            width,
            OUTPUTS,
            train="readout" if frozen else "all",
            solver=SolverOptions(tolerance=tolerance),
            adjoint=SolverOptions(tolerance=adjoint or tolerance),
            on_failure="ignore",  # how far it came is measured here, from outside
        )
        self._set(net, None)
        return net

    def settled(self, tolerance: float) -> DEQNet:
        """A frozen network that has seen many rows: whatever it keeps for its weights is there."""
        net = self.network(tolerance, frozen=True).eval()
        with torch.no_grad():
            net(torch.cat([self._rolled(seed) for seed in range(9 * net.width // BATCH + 1)]))
        return net

    def features(self, tolerance: float) -> tuple[torch.Tensor, DEQNet]:
        net = self.network(tolerance).eval()
        with torch.no_grad():
            return net.features(self.x), net

    def gradients(self, tolerance: float, adjoint: float) -> tuple[Gradients, DEQNet]:
        net = self.network(tolerance, adjoint).train()
        net(self.x).backward(self.cotangent)
        found = {name: getattr(net, name).grad for name in ("recurrent", "inputs", "readout")}
        return found, net

    def pulls(self, tolerance: float, adjoint: float) -> tuple[torch.Tensor, torch.Tensor]:
        """The equilibrium, and for every sample the gradient with respect to its pre-activations.

        One more input per sample, which is 1 there, 0 elsewhere and has no weight, changes nothing; but the gradient
        with respect to its weights is that of this sample alone.
        """
        net = self.network(tolerance, adjoint, extra=BATCH)
        marked = torch.cat([self.x, torch.eye(BATCH)], dim=1)
        net(marked).backward(self.cotangent)
        with torch.no_grad():
            return net.features(marked), net.inputs.grad[:, FEATURES:].T / math.sqrt(1 - SIGMA_A2)

    def time(self, net: DEQNet, mode: str, seeds: Sequence[int]) -> list[float]:
        """Seconds of one call per seed, as peer.py takes them; frozen weights stay, and the inputs change instead."""
        net.train(mode == "training")
        seconds = []
        for seed in seeds:
            x = self._rolled(seed) if mode == "frozen" else self.x
            if mode != "frozen":
                self._set(net, seed)
            net.zero_grad(set_to_none=True)
            gc.collect()
            start = time.perf_counter()
            if mode == "training":
                net(x).backward(self.cotangent)
            else:
                with torch.no_grad():
                    net(x)
            seconds.append(time.perf_counter() - start)
        return seconds[1:]

    def _rolled(self, seed: int) -> torch.Tensor:
        return self.x.roll(seed % FEATURES, dims=1)

    def _set(self, net: DEQNet, seed: int | None) -> None:
        """The given weights, perturbed by a thousandth of the same noise as the peer's."""
        generator = None if seed is None else torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name in ("recurrent", "inputs", "readout"):
                weight, given = getattr(net, name), self._data[name]
                weight.zero_()[:, : given.shape[1]] = given
                if generator is not None:
                    weight.add_(torch.randn(weight.shape, generator=generator), alpha=1e-3)


def our_tolerance(target: float, good_enough: Callable[[float], bool]) -> float:
    """The loosest of our tolerances that is good enough; the tightest if none is."""
    tolerances = [target * multiple for multiple in MULTIPLES]
    return next((tolerance for tolerance in tolerances if good_enough(tolerance)), tolerances[-1])


# --- one network -----------------------------------------------------------------------------------------
def section(activation: str, width: int, scale: Scale) -> list[Row]:
    """Every target for one activation and width."""
    data = draw(width)
    truth = Exact(data, activation)
    exact = truth.gradients()
    ours = Ours(data, activation)
    rows = []
    with peer_with(data, activation, scale.threads) as peer:
        for target in scale.targets:
            rows.append(measured(activation, width, target, peer, ours, truth, exact, scale))
            print(summary(rows[-1]), flush=True)
    return rows


def measured(
    activation: str,
    width: int,
    target: float,
    peer: Peer,
    ours: Ours,
    truth: Exact,
    exact: Gradients,
    scale: Scale,
) -> Row:
    """Accuracy of both, matched, then the times."""
    settings, backward = matched_settings(peer, target)
    theirs: dict[str, Row] = {}
    for name, chosen in settings.items():
        answer, found = peer.gradients(chosen)
        error = gradient_error(found, exact)
        theirs[name] = answer | {
            "gradient error": error,
            "backward residual": backward[name],
            "settings": chosen,
        }
    nominal = {solver: nominal_solve(peer, solver, target, exact) for solver in SOLVERS}
    best = theirs["fixed_point_iter"]

    def close_enough(tolerance: float) -> bool:
        return truth.residual(ours.features(tolerance)[0]) <= min(target, SLACK * best["residual"])

    forward = our_tolerance(target, close_enough)

    def gradient_close_enough(adjoint: float) -> bool:
        found = truth.adjoint_residual(*ours.pulls(forward, adjoint))
        return found <= min(target, SLACK * best["backward residual"])

    adjoint = our_tolerance(target, gradient_close_enough)
    mine = our_accuracy(ours, forward, adjoint, truth, exact)
    times = in_turn(peer, settings, ours, forward, adjoint, scale)
    return {
        "activation": activation,
        "m": width,
        "target": target,
        "ours": mine,
        "ours, same tolerance": our_accuracy(ours, target, target, truth, exact),
        "theirs": theirs,
        "theirs, same tolerance": nominal,
        "phantom": {
            str(steps): nominal_solve(peer, "fixed_point_iter", target, exact, gradient=str(steps))[
                "gradient error"
            ]
            for steps in (1, 5)
        },
        "seconds": times,
    }


def our_accuracy(ours: Ours, tolerance: float, adjoint: float, truth: Exact, exact: Gradients) -> Row:
    features, net = ours.features(tolerance)
    found, trained = ours.gradients(tolerance, adjoint)
    solve, back = net.last_solve, trained.last_adjoint
    if solve is None or back is None:
        raise RuntimeError("the network did not record its solve")
    return {
        "tolerance": tolerance,
        "adjoint tolerance": adjoint,
        "residual": truth.residual(features),
        "backward residual": truth.adjoint_residual(*ours.pulls(tolerance, adjoint)),
        "gradient error": gradient_error(found, exact),
        "method": solve.method,
        "steps": solve.steps,
        "products": solve.row_steps / BATCH,
        "adjoint method": back.method,
        "adjoint steps": back.steps,
        "adjoint products": back.row_steps / BATCH,
    }


def nominal_solve(peer: Peer, solver: str, target: float, exact: Gradients, gradient: str = "hook") -> Row:
    """A solver of the peer told the target as its tolerance."""
    answer, found = peer.gradients({"solver": solver, "tolerance": target, "gradient": gradient})
    return answer | {"gradient error": gradient_error(found, exact)}


def in_turn(
    peer: Peer, settings: dict[str, Row], ours: Ours, tolerance: float, adjoint: float, scale: Scale
) -> dict[str, dict[str, list[float]]]:
    """Per mode and competitor, the median seconds of every round."""
    trained, frozen = ours.network(tolerance, adjoint), ours.settled(tolerance)
    taken: dict[str, dict[str, list[float]]] = {"forward": {}, "training": {}}
    for round_ in range(scale.rounds):
        seeds = [1000 * round_ + call for call in range(scale.calls + 1)]
        for mode, found in taken.items():
            for name, chosen in settings.items():
                answer = peer.ask("time", mode=mode, seeds=seeds, settings=chosen)
                found.setdefault(name, []).append(statistics.median(answer["seconds"]))
            found.setdefault("ours", []).append(statistics.median(ours.time(trained, mode, seeds)))
        seconds = statistics.median(ours.time(frozen, "frozen", seeds))
        taken["forward"].setdefault("ours, frozen", []).append(seconds)
    return taken


# --- command line ----------------------------------------------------------------------------------------
def write(path: Path, sections: dict[str, Row], *, judge: bool) -> None:
    write_json(path.with_suffix(".json"), sections)
    write_atomically(path.with_suffix(".md"), text_of(sections, judge=judge))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="m = 64, two rounds: does it run? (half a minute)"
    )
    parser.add_argument("--only", nargs="+", choices=["tanh", "relu"], default=["tanh", "relu"])
    parser.add_argument("--widths", nargs="+", type=int, help="some widths; other results are kept")
    parser.add_argument("--resume", action="store_true", help="leave out what the results already have")
    parser.add_argument("--rounds", type=int, help="rounds of turns (default: 9)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each side (default: %(default)s)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a limit is missed")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    environment()
    base = QUICK if options.quick else Scale()
    scale = Scale(
        tuple(options.widths or base.widths),
        base.targets,
        options.rounds or base.rounds,
        base.calls,
        options.threads,
    )
    path = options.out / ("torchdeq-quick" if options.quick else "torchdeq")
    file = path.with_suffix(".json")
    sections: dict[str, Row] = json.loads(file.read_text()) if file.exists() else {}
    for activation in options.only:
        for width in scale.widths:
            name = f"{activation}, m = {width}"
            if options.resume and name in sections:
                continue
            print(f"{name} …", flush=True)
            torch.set_num_threads(
                scale.threads
            )  # every time: asking numba for its threads sets those of OpenMP
            provenance = Provenance()
            rows = section(activation, width, scale)
            record = provenance.record()
            record["versions"] |= versions(["torch"]) | {"torchdeq": "0.1.0"}
            record["threads"] = {"torch, each side": scale.threads}
            sections[name] = {"provenance": record, "rows": rows}
            write(path, sections, judge=not options.quick)
    misses = [
        f"{row['activation']}, m = {row['m']}, {row['target']:g}: {mode}"
        for found in sections.values()
        for row in found["rows"]
        for mode in ("forward", "training")
        if missed(ratio_row(row, mode))
    ]
    print(f"Written: {path.with_suffix('.md')} and .json")
    if not options.quick:
        print("\n  ".join([f"Above {LIMIT} of the peer's best: {len(misses)}", *misses]))
    return 1 if options.strict and misses and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
