"""notsodeep beside TorchDEQ: the same DEQ, the same equilibrium, and the time of each.

The network is z = φ(σ_a A z + σ_b B x)/√m with ten linear outputs, σ_a² = 0.2, batch 256, p = 784, float32, every
weight the same on both sides. Two things are timed: the outputs (evaluation mode, no gradients), and a training step's
gradient (outputs, then implicit differentiation with respect to A, B and the readout).

What is done
  1. builds .venv here if it is missing (plain pip, requirements.txt: 1 GB, a minute);
  2. matches the accuracy. A tolerance is not the residual it leaves, so both sides are set by the true residual
     max over samples of ||f(z) - z||/||z||, computed in float64 from what they return. Each solver of the peer gets the
     loosest tolerance, forward and backward, whose true residual is within the target; ours the loosest whose true
     residuals are no larger than those of the peer's fastest solver (5 % are allowed for rounding). The residual of
     a backward solve is that of the gradient with respect to the pre-activations;
  3. times: the peer works in its own process and waits while we work, turn by turn, so that both meet the same
     machine; a turn is one call that does not count and some that do; the ratio is taken round by round. Before
     every call all weights are perturbed, the same way on both sides: nothing can be kept from the call before;
  4. compares gradients with a float64 direct solve: one dense system of m equations per sample;
  5. writes torchdeq.json and torchdeq-*.csv into --out (by default benchmarks/results), after every network: an
     interrupted run goes on with --resume.

The peer is used as well as we know how: see peer.py. Its solvers are fixed_point_iter, from zero as in its
documentation and from φ(σ_b B x) ("fixed_point_iter, ahead"), which saves it a product; anderson, anderson with a
smaller regularisation (anderson_tuned) and broyden; "best" is the one with the smallest median.
simple_fixed_point_iter has no tolerance: it needs the number of steps in advance, which is unknown before solving,
and has a column of its own. "frozen" is our evaluation with A and B frozen (train="readout"), where what
depends only on the weights may be kept from call to call; inputs still differ in every call. It is in no ratio.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/: the shared harness
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/peers/: how turns are taken

from environments import environment
from harness import RESULTS, Provenance, Row, markdown_provenance, missed, versions, write_json, write_rows
from ours import Ours
from reference import BATCH, SIGMA_A2, Exact, Gradients, Weights, draw, gradient_error
from tables import AHEAD, LIMIT, SLACK, SOLVERS, TOLD, best_of, ratio_row, summary, tables_of, together
from turns import Contestant

HERE = Path(__file__).resolve().parent
#: Our tolerances are tried from loose to tight, as multiples of the target.
MULTIPLES = tuple(4.0 * 1.25**-k for k in range(12))


@dataclass(frozen=True)
class Scale:
    """The measurements: networks, true residuals, rounds, calls per round."""

    widths: tuple[int, ...] = (256, 1024, 2048)
    targets: tuple[float, ...] = (1e-6, 1e-3)
    rounds: int = 9
    calls: int = 3
    threads: int = 2
    solvers: tuple[str, ...] = SOLVERS
    memory: bool = False


QUICK = Scale(widths=(64,), rounds=2, calls=1)


# --- peer ------------------------------------------------------------------------------------------------
class Peer(Contestant):
    """A program in its own process, peer.py by default: it answers one order at a time and is idle in between."""

    def __init__(
        self,
        folder: Path,
        threads: int,
        program: Sequence[str] = (),
        environment_variables: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        program = program or (str(environment("torchdeq")), str(HERE / "peer.py"))
        variables = {"OMP_NUM_THREADS": str(threads), **(environment_variables or {})}
        super().__init__(program, folder / "peer.log", variables)

    def order(self, what: str, **details: Any) -> Row:
        return self.ask(json.dumps({"do": what, **details}))

    def gradients(self, settings: Row) -> tuple[Row, Gradients]:
        """What it says about a solve, and the gradients it found."""
        answer = self.order("inspect", gradients=str(self._folder / "gradient"), **settings)
        names = ("recurrent", "inputs", "readout")
        found = {name: np.load(self._folder / f"gradient-{name}.npy", allow_pickle=False) for name in names}
        return answer, {name: torch.from_numpy(value) for name, value in found.items()}


@contextmanager
def peer_with(
    data: Weights,
    activation: str,
    threads: int,
    program: Sequence[str] = (),
    environment_variables: Mapping[str, str] | None = None,
    sigma_a2: float = SIGMA_A2,
) -> Iterator[Peer]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for key, value in data.items():
            np.save(folder / f"{key}.npy", value, allow_pickle=False)
        process = Peer(folder, threads, program, environment_variables)
        try:
            process.order("load", folder=name, activation=activation, sigma_a2=sigma_a2, threads=threads)
            yield process
        finally:
            process.close()


def matched_settings(
    peer: Peer, target: float, solvers: Sequence[str]
) -> tuple[dict[str, Row], dict[str, float]]:
    """Every solver of the peer with the loosest tolerances within the target, and its backward residual there."""
    settings: dict[str, Row] = {}
    residuals: dict[str, float] = {}
    for name in solvers:
        ahead = name == AHEAD
        solver = "fixed_point_iter" if ahead else name
        forward = loosest(peer.order("trace", solver=solver, ahead=ahead), target)
        if forward is None:
            continue
        chosen: Row = {
            "solver": solver,
            "ahead": ahead,
            "tolerance": forward.tolerance,
            "gradient": "hook",
        }
        backward = loosest(peer.order("trace_adjoint", solver=solver, forward=chosen), target)
        if backward is None:
            continue
        settings[name] = chosen | {"adjoint_tolerance": backward.tolerance}
        residuals[name] = backward.residual
        if name == "fixed_point_iter":
            settings[TOLD] = settings[name] | {"solver": TOLD, "steps": forward.steps}
            residuals[TOLD] = backward.residual
    return settings, residuals


@dataclass(frozen=True)
class Stop:
    """The stopping point of a solver: number of steps, tolerance, true residual."""

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


# --- accuracy --------------------------------------------------------------------------------------------
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
    if scale.memory:
        add_memories(data, rows, scale)
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
    print(f"  true residual {target:g}: tolerances of the peer …", flush=True)
    settings, backward = matched_settings(peer, target, scale.solvers)
    theirs: dict[str, Row] = {}
    for name, chosen in settings.items():
        answer, found = peer.gradients(chosen)
        error = gradient_error(found, exact)
        theirs[name] = answer | {
            "gradient error": error,
            "backward residual": backward[name],
            "settings": chosen,
        }
    nominal = {name: nominal_solve(peer, name, target, exact) for name in scale.solvers if name != AHEAD}
    residual, pulled = smallest(theirs, rivals(peer, settings, scale))
    print("  … and ours", flush=True)

    def close_enough(tolerance: float) -> bool:
        return truth.residual(ours.features(tolerance)[0]) <= SLACK * residual

    forward = our_tolerance(target, close_enough)

    def gradient_close_enough(adjoint: float) -> bool:
        return truth.adjoint_residual(*ours.pulls(forward, adjoint)) <= SLACK * pulled

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


def add_memories(data: Weights, rows: list[Row], scale: Scale) -> None:
    """Peak extra megabytes of a call, ours and the peer's best, each side in a fresh process."""
    # Every array has pages of its own: what is dropped is not resident any more, and peaks can be compared.
    variables = {"MALLOC_MMAP_THRESHOLD_": "65536"}
    for side, program in {"ours": (sys.executable, str(HERE / "ours.py")), "peer": ()}.items():
        with peer_with(data, rows[0]["activation"], scale.threads, program, variables) as process:
            for row in rows:
                mine = {"tolerance": row["ours"]["tolerance"], "adjoint": row["ours"]["adjoint tolerance"]}
                for mode, seconds in row["seconds"].items():
                    settings = mine if side == "ours" else row["theirs"][best_of(seconds)]["settings"]
                    answer = process.order("memory", mode=mode, settings=settings)
                    row.setdefault("megabytes", {})[f"{mode}, {side}"] = answer["megabytes"]


def rivals(peer: Peer, settings: dict[str, Row], scale: Scale) -> set[str]:
    """The peer's fastest solvers, for outputs and for the gradient, by one turn each."""
    seeds = list(range(scale.calls + 1))
    found = set()
    for mode in ("forward", "training"):
        taken = {
            name: [statistics.median(peer.order("time", mode=mode, seeds=seeds, settings=chosen)["seconds"])]
            for name, chosen in settings.items()
        }
        found.add(best_of(taken))
    return found


def smallest(theirs: dict[str, Row], names: set[str]) -> tuple[float, float]:
    """The smallest true residuals of these solvers, forward and backward."""
    forward, backward = (
        min(theirs[name][which] for name in names) for which in ("residual", "backward residual")
    )
    return forward, backward


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
    """A solver of the peer with the target as its tolerance."""
    answer, found = peer.gradients({"solver": solver, "tolerance": target, "gradient": gradient})
    return answer | {"gradient error": gradient_error(found, exact)}


def in_turn(
    peer: Peer, settings: dict[str, Row], ours: Ours, tolerance: float, adjoint: float, scale: Scale
) -> dict[str, dict[str, list[float]]]:
    """Per mode and competitor, the median seconds of every round."""
    trained, frozen = ours.network(tolerance, adjoint), ours.settled(tolerance)
    taken: dict[str, dict[str, list[float]]] = {"forward": {}, "training": {}}
    for round_ in range(scale.rounds):
        print(f"  round {round_ + 1} of {scale.rounds}", flush=True)
        seeds = [1000 * round_ + call for call in range(scale.calls + 1)]
        for mode, found in taken.items():
            for name, chosen in settings.items():
                answer = peer.order("time", mode=mode, seeds=seeds, settings=chosen)
                found.setdefault(name, []).append(statistics.median(answer["seconds"]))
            found.setdefault("ours", []).append(statistics.median(ours.time(trained, mode, seeds)))
        seconds = statistics.median(ours.time(frozen, "frozen", seeds))
        taken["forward"].setdefault("ours, frozen", []).append(seconds)
    return taken


# --- command line ----------------------------------------------------------------------------------------
def write(path: Path, sections: dict[str, Row]) -> None:
    write_json(path.with_suffix(".json"), sections)
    note = markdown_provenance(together([found["provenance"] for found in sections.values()]))
    for name, rows in tables_of([row for found in sections.values() for row in found["rows"]]).items():
        write_rows(path.with_name(f"{path.name}-{name}.csv"), rows, note)


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
    parser.add_argument("--targets", nargs="+", type=float, help="true residuals (default: 1e-6 1e-3)")
    parser.add_argument("--solvers", nargs="+", choices=SOLVERS, default=SOLVERS, metavar="SOLVER")
    parser.add_argument(
        "--memory", action="store_true", help="peak memory of a call as well, in fresh processes"
    )
    parser.add_argument("--threads", type=int, default=2, help="threads of each side (default: %(default)s)")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a limit is missed")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    environment("torchdeq")
    base = QUICK if options.quick else Scale()
    scale = Scale(
        tuple(options.widths or base.widths),
        tuple(options.targets or base.targets),
        options.rounds or base.rounds,
        base.calls,
        options.threads,
        tuple(options.solvers),
        options.memory,
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
            # Every time: the provenance asks numba for its threads, and that sets those of OpenMP.
            torch.set_num_threads(scale.threads)
            provenance = Provenance()
            rows = section(activation, width, scale)
            record = provenance.record()
            record["versions"] |= versions(["torch"]) | {"torchdeq": "0.1.0"}
            record["threads"] = {"torch, each side": scale.threads}
            sections[name] = {"provenance": record, "rows": rows}
            write(path, sections)
    misses = [
        f"{row['activation']}, m = {row['m']}, {row['target']:g}: {mode}"
        for found in sections.values()
        for row in found["rows"]
        for mode in ("forward", "training")
        if missed(ratio_row(row, mode))
    ]
    print(f"Written: {path.with_suffix('.json')} and four tables")
    if not options.quick:
        print("\n  ".join([f"Above {LIMIT} of the peer's best: {len(misses)}", *misses]))
    return 1 if options.strict and misses and not options.quick else 0


if __name__ == "__main__":
    sys.exit(main())
