"""Cost of a DEQ compared with its explicit twin of the same width; its memory does not grow with iterations.

  python benchmarks/networks.py                    everything (about 20 minutes on two quiet cores)
  python benchmarks/networks.py --quick            everything small, to see that it runs; its times mean nothing
  python benchmarks/networks.py --only iterations  some sections; the others keep their earlier results
  python benchmarks/networks.py --resume           what an interrupted run left undone

Sections
  twins       tanh DEQ and its hard-tanh twin (one layer), ReLU DEQ and its Leaky-ReLU twin (two layers), σ_a² = 0.2,
              designed at τ0 = 1: outputs, gradient of all weights, an epoch, for DEQ tolerances 1e-3 and 1e-6
  memory      peak memory of the outputs and of a training step, of both, each in a fresh process
  iterations  peak memory of a DEQ's training step for 10, 50 and 200 forced iterations, implicit and unrolled

The tasks are taken in turn; a turn is one call that does not count and some that do; ratios are of one round, and the
median of them is shown. An epoch is 60 000 samples in 235 batches, extrapolated from the number of batches stated.
"floor" is what the matrix products alone take: how many were made, times the measured time of one of that shape.
Before every call the weights are touched, so that nothing computed from them can be kept.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from harness import (
    LIMITS,
    RESULTS,
    Provenance,
    Row,
    cell,
    clock,
    extra_megabytes,
    markdown_provenance,
    missed,
    versions,
    write_json,
    write_rows,
)
from rich.console import Console
from rich.table import Table

from notsodeep.designs import design
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, ExplicitNet, Net, SolverOptions

CONSOLE = Console(highlight=False)
SIGMA_A2, TAU0 = 0.2, 1.0
BATCH, FEATURES, OUTPUTS = 256, 784, 10
EPOCH = math.ceil(60_000 / BATCH)
TWINS = {"tanh": "hard-tanh", "relu": "Leaky-ReLU"}
FASTER_AT = 2048  # width at which the hard-tanh twin should be 20 times as fast
GROWTH = 1.1  # most of the memory at 10 iterations that 200 may take


@dataclass(frozen=True)
class Scale:
    """Sizes, rounds of turns, counted calls of a turn, batches from which an epoch is extrapolated."""

    widths: tuple[int, ...] = (1024, 2048, 4096)
    tolerances: tuple[float, ...] = (1e-3, 1e-6)
    rounds: int = 15
    calls: int = 3
    epoch_batches: int = 8
    iterations: tuple[int, ...] = (10, 50, 200)
    iteration_width: int = 1024


QUICK = Scale(widths=(128,), rounds=2, calls=1, epoch_batches=2, iterations=(10, 30), iteration_width=256)


# --- networks ---------------------------------------------------------------------------------------------
def model_of(activation: str) -> DEQ:
    """The DEQ that has a twin: its activation centred at the scale of the inputs."""
    return DEQ(activation, SIGMA_A2).centred(TAU0)


def deq_net(activation: str, width: int, solver: SolverOptions, on_failure: str = "raise") -> DEQNet:
    return DEQNet(
        model_of(activation), FEATURES, width, OUTPUTS, seed=1, solver=solver, on_failure=on_failure
    )


def twin_net(activation: str, width: int) -> ExplicitNet:
    return ExplicitNet(design(model_of(activation), TAU0).network, FEATURES, width, OUTPUTS, seed=2)


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Synthetic inputs of norm about one, and labels."""
    generator = torch.Generator().manual_seed(3)
    return [
        (
            torch.randn(BATCH, FEATURES, generator=generator) * TAU0 / math.sqrt(FEATURES),
            torch.randint(OUTPUTS, (BATCH,), generator=generator),
        )
        for _ in range(count)
    ]


# --- tasks --------------------------------------------------------------------------------------------------
@dataclass
class Task:
    """A call to time, and its untimed preparation."""

    run: Callable[[], Any]
    before: Callable[[], Any] = lambda: None

    def seconds(self, calls: int) -> float:
        """Median time of `calls` calls, after one warm-up call."""
        self.before()
        self.run()
        taken = []
        for _ in range(calls):
            self.before()
            taken.append(clock(self.run))
        return statistics.median(taken)


def outputs_task(net: Net, x: torch.Tensor) -> Task:
    def run() -> torch.Tensor:
        net.eval()
        with torch.no_grad():
            return net(x)

    return Task(run, lambda: clear_cache(net))


def gradient_task(net: Net, x: torch.Tensor, labels: torch.Tensor) -> Task:
    def run() -> None:
        net.train()
        torch.nn.functional.cross_entropy(net(x), labels).backward()

    return Task(run, lambda: clear_cache(net))


def epoch_task(net: Net, data: list[tuple[torch.Tensor, torch.Tensor]]) -> Task:
    optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)

    def run() -> None:
        net.train()
        for x, labels in data:
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.cross_entropy(net(x), labels).backward()
            optimizer.step()

    return Task(run, lambda: clear_cache(net))


def product_task(rows: int, inner: int, columns: int) -> Task:
    """One product of the shape of a step, into preallocated memory."""
    generator = torch.Generator().manual_seed(4)
    left, right = (
        torch.randn(rows, inner, generator=generator),
        torch.randn(columns, inner, generator=generator),
    )
    out = torch.empty(rows, columns)
    return Task(lambda: torch.mm(left, right.T, out=out))


@torch.no_grad()
def clear_cache(net: Net) -> None:
    """Modify every weight and drop the gradients, to invalidate caches."""
    net.zero_grad(set_to_none=True)
    for parameter in net.parameters():
        parameter.mul_(1.0)


def in_turn(tasks: dict[str, Task], rounds: int, calls: int) -> dict[str, list[float]]:
    """Seconds of every task in every round; each round starts with the next task."""
    names = list(tasks)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for round_ in range(rounds):
        shift = round_ % len(names)
        for name in names[shift:] + names[:shift]:
            taken[name].append(tasks[name].seconds(calls))
    return taken


def ratio(seconds: dict[str, list[float]], numerator: str, denominator: str) -> float:
    """Median over rounds of the ratio within a round."""
    return statistics.median(
        one / other for one, other in zip(seconds[numerator], seconds[denominator], strict=True)
    )


# --- twins --------------------------------------------------------------------------------------------------
def twins_section(activation: str, width: int, scale: Scale) -> list[Row]:
    return [twins_row(activation, width, tolerance, scale) for tolerance in scale.tolerances]


def twins_row(activation: str, width: int, tolerance: float, scale: Scale) -> Row:
    """DEQ and twin in turn: outputs, gradient, epoch; and the products both are made of."""
    deq = deq_net(activation, width, SolverOptions(tolerance=tolerance))
    twin = twin_net(activation, width)
    data = batches(scale.epoch_batches)
    x, labels = data[0]
    tasks = {
        "deq outputs": outputs_task(deq, x),
        "twin outputs": outputs_task(twin, x),
        "deq gradient": gradient_task(deq, x, labels),
        "twin gradient": gradient_task(twin, x, labels),
        "recurrent product": product_task(BATCH, width, width),
        "input product": product_task(BATCH, FEATURES, width),
    }
    seconds = in_turn(tasks, scale.rounds, scale.calls)
    epochs = in_turn(
        {"deq epoch": epoch_task(deq, data), "twin epoch": epoch_task(twin, data)},
        max(3, scale.rounds // 5),
        1,
    )
    solve, adjoint = reports(deq, x, labels)
    depth = len(twin.spec.layers)
    row = {
        "φ": activation,
        "twin": f"{TWINS[activation]}, {depth} layer{'s' if depth > 1 else ''}",
        "m": width,
    }
    row |= {"tolerance": tolerance, "DEQ steps": solve.steps, "backward steps": adjoint.steps}
    row |= outputs_columns(seconds, solve.row_steps / BATCH, depth)
    row |= gradient_columns(seconds | epochs, scale.epoch_batches)
    return row | {LIMITS: limits(activation, width, solve.steps), "seconds": seconds | epochs}


def reports(deq: DEQNet, x: torch.Tensor, labels: torch.Tensor) -> tuple[Any, Any]:
    """How the last gradient of the DEQ was solved, forward and backward."""
    gradient_task(deq, x, labels).run()
    return deq.last_solve, deq.last_adjoint


def milliseconds(values: list[float]) -> float:
    return 1e3 * statistics.median(values)


def outputs_columns(seconds: dict[str, list[float]], products: float, depth: int) -> Row:
    recurrent, first = (milliseconds(seconds[name]) for name in ("recurrent product", "input product"))
    deq, twin = milliseconds(seconds["deq outputs"]), milliseconds(seconds["twin outputs"])
    return {
        "DEQ outputs (ms)": deq,
        "twin outputs (ms)": twin,
        "times faster": ratio(seconds, "deq outputs", "twin outputs"),
        "twin / DEQ": ratio(seconds, "twin outputs", "deq outputs"),
        "DEQ / its floor": deq / (products * recurrent + first),
        "twin / its floor": twin / ((depth - 1) * recurrent + first),
    }


def gradient_columns(seconds: dict[str, list[float]], count: int) -> Row:
    row: Row = {
        "DEQ gradient (ms)": milliseconds(seconds["deq gradient"]),
        "twin gradient (ms)": milliseconds(seconds["twin gradient"]),
        "times faster, gradient": ratio(seconds, "deq gradient", "twin gradient"),
    }
    for name in ("deq", "twin"):
        row[f"{'DEQ' if name == 'deq' else name} epoch (s)"] = (
            statistics.median(seconds[f"{name} epoch"]) * EPOCH / count
        )
    return row


def limits(activation: str, width: int, steps: int) -> Row:
    """Twin over DEQ, outputs: one twentieth for hard-tanh at one width, two over the DEQ's steps for Leaky-ReLU."""
    if activation == "relu":
        return {"twin / DEQ": 2 / steps}
    return {"twin / DEQ": 1 / 20} if width == FASTER_AT else {}


# --- memory -------------------------------------------------------------------------------------------------
def memory_section(activation: str, width: int, scale: Scale) -> list[Row]:
    """Outputs and training step of both networks, in processes of their own."""
    row: Row = {"φ": activation, "m": width, "weights of A (MB)": 4 * width**2 / 1e6}
    for task in ("outputs", "step"):
        found = {
            kind: probe(kind=kind, task=task, activation=activation, width=width) for kind in ("deq", "twin")
        }
        row |= {f"{'DEQ' if kind == 'deq' else kind} {task} (MB)": value for kind, value in found.items()}
        if None not in found.values():
            row[f"twin / DEQ, {task}"] = found["twin"] / found["deq"]
    return [row]


def iterations_section(activation: str, width: int, scale: Scale) -> list[Row]:
    """A training step with so many iterations, forward and backward, by the module and by unrolled autograd."""
    rows: list[Row] = []
    for kind in ("deq", "unrolled"):
        for steps in scale.iterations:
            used = probe(kind=kind, task="step", activation=activation, width=width, steps=steps)
            rows.append(
                {"φ": activation, "m": width, "gradient": GRADIENTS[kind], "iterations": steps, "MB": used}
            )
            first = rows[-1 - scale.iterations.index(steps)]["MB"]
            if used is not None:
                rows[-1]["of that at the fewest"] = used / first
                if kind == "deq":
                    rows[-1][LIMITS] = {"of that at the fewest": GROWTH}
    return rows


GRADIENTS = {"deq": "implicit", "unrolled": "unrolled autograd"}


def probe(**order: Any) -> float | None:
    """Peak extra megabytes of one call in a fresh process; None if the system does not report it."""
    order["threads"] = torch.get_num_threads()
    done = subprocess.run(
        [sys.executable, __file__, "--probe", json.dumps(order)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        # Every array has pages of its own: what is dropped is not resident any more, and peaks can be compared.
        env=os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"},
    )
    answer: float | None = json.loads(done.stdout.splitlines()[-1])
    return answer


def probe_here(order: Row) -> float | None:
    """Highest resident memory of the call minus that before it; gradients are counted, weights are not."""
    torch.set_num_threads(order["threads"])
    [(x, labels)] = batches(1)
    probe_task({**order, "width": 64}, x, labels)()  # starts the threads, allocates what the libraries keep
    task = probe_task(order, x, labels)
    return extra_megabytes(task)


def probe_task(order: Row, x: torch.Tensor, labels: torch.Tensor) -> Callable[[], Any]:
    activation, width = order["activation"], order["width"]
    if order["kind"] == "twin":
        net: Net = twin_net(activation, width)
    elif "steps" in order:
        # A tolerance that cannot be met: every one of the steps is made.
        forced = SolverOptions(method="iteration", tolerance=1e-30, max_steps=order["steps"])
        net = deq_net(activation, width, forced, on_failure="ignore")
    else:
        net = deq_net(activation, width, SolverOptions(tolerance=1e-6))
    if order["kind"] == "unrolled":
        return lambda: torch.nn.functional.cross_entropy(unrolled(net, x, order["steps"]), labels).backward()
    return (outputs_task(net, x) if order["task"] == "outputs" else gradient_task(net, x, labels)).run


def unrolled(net: Net, x: torch.Tensor, steps: int) -> torch.Tensor:
    """The same outputs from unrolled steps, which autograd stores, docs/theory.md (1.1)."""
    phi = {"tanh": torch.tanh, "relu": torch.relu}[net.spec.activation.name]
    drive = math.sqrt(net.spec.sigma_b2) * (x @ net.inputs.T)
    recurrent = net.recurrent * math.sqrt(net.spec.sigma_a2 / net.width)
    state = phi(drive)
    for _ in range(steps):
        state = phi(torch.addmm(drive, state, recurrent.T))
    return state @ net.readout.T / math.sqrt(net.width)


# --- reporting ----------------------------------------------------------------------------------------------
Measure = Callable[[str, int, Scale], list[Row]]
SECTIONS: dict[str, tuple[str, Measure]] = {
    "twins": ("A DEQ beside its explicit twin of the same width", twins_section),
    "memory": ("Peak memory beyond the weights", memory_section),
    "iterations": ("Peak memory of a training step against the number of iterations", iterations_section),
}


def cases(scale: Scale, only: list[str]) -> Iterator[tuple[str, str, int]]:
    """(section, activation, width), the cheap ones first."""
    for section in only:
        widths = (scale.iteration_width,) if section == "iterations" else scale.widths
        for width in widths:
            for activation in ("tanh",) if section == "iterations" else TWINS:
                yield section, activation, width


def together(records: list[Row]) -> Row:
    """One paragraph on measurements of several runs."""
    return records[0] | {
        "commit": ", ".join(dict.fromkeys(record["commit"] for record in records)),
        "seconds": round(sum(record["seconds"] for record in records), 1),
        "load_average_after": records[-1]["load_average_after"],
    }


def write(path: Path, pieces: dict[str, Row]) -> None:
    """Write what was measured, and a table for each section."""
    write_json(path.with_suffix(".json"), pieces)
    for name in SECTIONS:
        found = [piece for piece in pieces.values() if piece["section"] == name]
        if found:
            rows = [row for piece in found for row in piece["rows"]]
            rows.sort(key=lambda row: (row["φ"] != "tanh", row["m"]))
            note = markdown_provenance(together([piece["provenance"] for piece in found]))
            write_rows(path.with_name(f"{path.name}-{name}.csv"), rows, note)


def show(title: str, rows: list[Row]) -> None:
    """Rows side by side: they have many columns."""
    table = Table("", *("" for _ in rows), title=title, show_header=False)
    for column in (key for key, value in rows[-1].items() if not isinstance(value, list | dict)):
        table.add_row(column, *(cell(row, column) for row in rows))
    CONSOLE.print(table)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes, no limits (half a minute)")
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), metavar="SECTION")
    parser.add_argument("--widths", nargs="+", type=int, help="some widths; other results are kept")
    parser.add_argument("--rounds", type=int, help="rounds of turns (default: 15)")
    parser.add_argument("--resume", action="store_true", help="leave out what the results already have")
    parser.add_argument("--threads", type=int, default=2, help="default: %(default)s")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a limit is missed")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument("--probe", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    if options.probe:
        print(json.dumps(probe_here(options.probe)))
        return 0
    base = QUICK if options.quick else Scale()
    scale = replace(base, widths=tuple(options.widths or base.widths), rounds=options.rounds or base.rounds)
    path = options.out / ("networks-quick" if options.quick else "networks")
    file = path.with_suffix(".json")
    pieces: dict[str, Row] = json.loads(file.read_text()) if file.exists() else {}
    for section, activation, width in cases(scale, options.only):
        name = f"{section}, {activation}, m = {width}"
        if options.resume and name in pieces:
            continue
        torch.set_num_threads(
            options.threads
        )  # every time: asking numba for its threads sets those of OpenMP
        pieces[name] = piece(section, activation, width, scale, judge=not options.quick)
        write(path, pieces)
        show(name, pieces[name]["rows"])
    CONSOLE.print(f"Written: {file} and one table for each section")
    misses = [
        f"{name}: {limit}" for name, found in pieces.items() for row in found["rows"] for limit in missed(row)
    ]
    if not options.quick:
        CONSOLE.print("\n  ".join([f"Limits missed: {len(misses)}", *misses]))
    return 1 if options.strict and misses else 0


def piece(section: str, activation: str, width: int, scale: Scale, *, judge: bool) -> Row:
    """Measure one case, with its provenance."""
    CONSOLE.print(f"{section}, {activation}, m = {width} …")
    provenance, threads = Provenance(), torch.get_num_threads()
    rows = SECTIONS[section][1](activation, width, scale)
    if not judge:  # the times of a quick run are not to be held to any limit
        rows = [{key: value for key, value in row.items() if key != LIMITS} for row in rows]
    record = provenance.record() | {"threads": {"torch": threads}}
    record["versions"] |= versions(["torch"])
    return {"section": section, "provenance": record, "rows": rows, "epoch batches": scale.epoch_batches}


if __name__ == "__main__":
    os.environ.setdefault(
        "MALLOC_TRIM_THRESHOLD_", "0"
    )  # inherited by the probes: freed memory is given back
    sys.exit(main())
