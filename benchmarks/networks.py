"""Cost of a DEQ compared with its explicit twin of the same width; its memory does not grow with solver steps.

  python benchmarks/networks.py            everything (about 15 minutes on two quiet cores)
  python benchmarks/networks.py --quick    everything small, to see that it runs; its times mean nothing

networks-twins       tanh DEQ and its hard-tanh twin (one layer), ReLU DEQ and its Leaky-ReLU twin (two layers),
                     σ_a² = 0.2, designed at τ0 = 1: outputs and gradient of all weights, tolerances 1e-3 and 1e-6.
                     Calls are taken in turn; ratios are of medians.
networks-iterations  peak memory of a DEQ's training step for 10, 50 and 200 forced steps, implicit and unrolled,
                     each in a fresh process
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from drawing import column, drawn, legend_below, marked, publish, rows_of, ticks, with_figure_only
from harness import (
    RESULTS,
    Provenance,
    Row,
    extra_megabytes,
    interleave,
    markdown_provenance,
    markdown_table,
    write_rows,
)
from matplotlib.axes import Axes

from notsodeep.designs import design
from notsodeep.figures import COLOURS, MARKERS
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, ExplicitNet, Net, SolverOptions
from notsodeep_lab.plots.row_selection import grouped, title

SIGMA_A2, TAU0 = 0.2, 1.0
BATCH, FEATURES, OUTPUTS = 256, 784, 10


def deq_net(activation: str, width: int, **solver: Any) -> DEQNet:
    """A DEQ that has a twin: its activation centred at the scale of the inputs."""
    model, options = DEQ(activation, SIGMA_A2).centred(TAU0), SolverOptions(**solver)
    return DEQNet(model, FEATURES, width, OUTPUTS, seed=1, solver=options, on_failure="ignore")


def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Synthetic inputs of norm about one, and labels."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(BATCH, FEATURES, generator=generator) * TAU0 / math.sqrt(FEATURES)
    return x, torch.randint(OUTPUTS, (BATCH,), generator=generator)


def step(net: Net, x: torch.Tensor, labels: torch.Tensor) -> None:
    """Outputs and the gradient of all weights; weights are touched, so that nothing computed from them is kept."""
    net.zero_grad()
    torch.nn.functional.cross_entropy(net(x), labels).backward()
    with torch.no_grad():
        for weight in net.parameters():
            weight.mul_(1.0)


def unrolled_step(net: DEQNet, x: torch.Tensor, labels: torch.Tensor, steps: int) -> None:
    """The same with gradients through all steps."""
    z = x.new_zeros(len(x), net.width)
    for _ in range(steps):
        z = net.cell(z, x)
    torch.nn.functional.cross_entropy(net.outputs(z), labels).backward()


def twin_rows(activation: str, width: int, tolerance: float, rounds: int) -> Row:
    deq = deq_net(activation, width, tolerance=tolerance)
    twin = ExplicitNet(design(deq.spec, TAU0).network, FEATURES, width, OUTPUTS, seed=2)
    x, labels = batch()

    def outputs(net: Net) -> Callable[[], None]:
        def run() -> None:
            with torch.no_grad():
                net.clear_cache()
                net(x)

        return run

    times = interleave(
        {
            "deq": outputs(deq),
            "twin": outputs(twin),
            "deq gradient": lambda: step(deq, x, labels),
            "twin gradient": lambda: step(twin, x, labels),
        },
        rounds,
    )
    solve, adjoint = deq.last_solve, deq.last_adjoint
    return {
        "φ": activation,
        "m": width,
        "tolerance": tolerance,
        "iterations": None if solve is None else solve.steps,
        "adjoint iterations": None if adjoint is None else adjoint.steps,
        "DEQ (ms)": 1e3 * times["deq"].median,
        "twin (ms)": 1e3 * times["twin"].median,
        "times faster": times["deq"].median / times["twin"].median,
        "times faster, gradient": times["deq gradient"].median / times["twin gradient"].median,
        "spread": max(one.spread for one in times.values()),
    }


def memory(gradient: str, width: int, steps: int) -> float | None:
    """Peak memory of a training step, measured in this process, which must be fresh."""
    torch.set_num_threads(2)
    net, (x, labels) = deq_net("tanh", width, tolerance=1e-30, max_steps=steps), batch()
    step(net, x[:2], labels[:2])
    if gradient == "implicit":
        return extra_megabytes(lambda: step(net, x, labels))
    return extra_megabytes(lambda: unrolled_step(net, x, labels, steps))


def memory_row(gradient: str, width: int, steps: int) -> Row:
    order = json.dumps([gradient, width, steps])
    done = subprocess.run(
        [sys.executable, __file__, "--memory", order], check=True, capture_output=True, encoding="utf-8"
    )
    return {"m": width, "gradient": gradient, "iterations": steps, "MB": float(done.stdout)}


@drawn("twin-time", 3.3)
def twin_time(axes: Axes) -> None:
    for number, ((activation, tolerance), part) in enumerate(
        grouped(rows_of("networks-twins"), "φ", "tolerance").items()
    ):
        label = f"{title(activation)}, {tolerance:g}"
        lines = {
            "times faster": {"linestyle": "-", "label": label},
            "times faster, gradient": {"linestyle": ":"},
        }
        for name, line in lines.items():
            axes.plot(column(part, "m"), column(part, name), **marked(number, **line))
    axes.set(xscale="log", yscale="log", xlabel="width $m$", ylabel="time of the DEQ / of its twin")
    ticks(axes.xaxis, 1024, 2048, 4096)
    ticks(axes.yaxis, 2, 5, 10, 20, 50)
    axes.set_title("outputs (lines), gradient (dotted)")
    legend_below(axes)


@drawn("training-memory", 3.3)
def training_memory(axes: Axes) -> None:
    for number, ((gradient,), part) in enumerate(grouped(rows_of("networks-iterations"), "gradient").items()):
        style = {"color": COLOURS[number], "marker": MARKERS[number], "label": gradient}
        axes.plot(column(part, "iterations"), column(part, "MB"), **style)
    axes.set(xscale="log", yscale="log", xlabel="solver steps", ylabel="peak memory (MB)")
    ticks(axes.xaxis, 10, 50, 200)
    ticks(axes.yaxis, 10, 30, 100, 200)
    axes.set_title("training step, width 1024")
    axes.legend()


def main() -> None:
    """Measure, print and write both tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small sizes (half a minute)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    parser.add_argument("--memory", type=json.loads, help=argparse.SUPPRESS)
    options = with_figure_only(parser)
    if options.memory:
        print(memory(*options.memory))
        return
    torch.set_num_threads(2)
    provenance = Provenance()
    widths, rounds = ((128,), 3) if options.quick else ((1024, 2048, 4096), 15)
    width, counts = (256, (10, 30)) if options.quick else (1024, (10, 50, 200))
    tables = {
        "networks-twins": [
            twin_rows(name, m, tolerance, rounds)
            for name in ("tanh", "relu")
            for tolerance in (1e-3, 1e-6)
            for m in widths
        ],
        "networks-iterations": [
            memory_row(gradient, width, steps) for gradient in ("implicit", "unrolled") for steps in counts
        ],
    }
    for name, rows in tables.items():
        print(name, markdown_table(rows), sep="\n\n")
        place = options.out / f"{name}{'-quick' if options.quick else ''}.csv"
        write_rows(place, rows, markdown_provenance(provenance.record()))
    if options.out == RESULTS and not options.quick:
        publish()


if __name__ == "__main__":
    main()
