"""Are `distill`'s certainties true on new teachers, and is its choice as fast as an MLP that agrees as often?

  python benchmarks/distillation.py     about 25 minutes on one core; goes on where it was stopped

48 small teachers of eight kinds on seven drawn tasks, none of which served to tune a rule. Each is trained on 1000
labelled samples, distilled on 1200 others, and compared with the result on 20 000 fresh ones. A certainty is false if
the agreement there is below the target. MLPs of two widths, trained on the same outputs by a loop of this script, and
those among the candidates are its rivals: the fastest that agrees at least as often as the chosen network on the fresh
samples is timed in turn with it. Writes benchmarks/results/distillation.csv.
"""

from __future__ import annotations

import argparse
import os
import warnings
from typing import Any

# Numba gives its number of threads to torch as well.
os.environ["NUMBA_NUM_THREADS"] = "1"

import numpy as np
import torch
from drawing import (
    CROSS,
    GREY,
    POINT,
    WIN,
    column,
    drawn,
    legend_below,
    publish,
    rows_of,
    ticks,
    with_figure_only,
)
from harness import RESULTS, Provenance, Row, markdown_provenance, read_rows, write_rows
from matplotlib.axes import Axes
from torch import Tensor, nn

import notsodeep as nsd
from notsodeep.distillation import distill
from notsodeep.distillation.certainty import agreement, seconds_per_call
from notsodeep.distillation.fitting import in_batches
from notsodeep.figures import COLOURS
from notsodeep.nets import ConvDEQNet, DEQNet, SolverOptions

LABELLED, UNLABELLED, FRESH = 1000, 1200, 20_000
TASKS = ("mixture", "signs", "spirals", "shells", "random net", "regression")
KINDS = ("DEQ tanh", "DEQ relu", "from_weights", "gated", "LayerNorm", "loop of 8", "loop of 30", "conv")
# Widths and targets of the teachers, in turn; widths of the rivals, and passes of their training.
WIDTHS, TARGETS, RIVALS, PASSES = (40, 56, 88), (0.95, 0.98), (32, 128), 100
FILE = RESULTS / "distillation.csv"


def samples_of(task: str, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Samples and labels; numbers for the regression."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.randn(count, 14, generator=generator)
    fixed = torch.Generator().manual_seed(1234)
    if task == "mixture":
        centres = 1.3 * torch.randn(18, 14, generator=fixed)
        places = torch.randint(18, (count,), generator=generator)
        X, y = X + centres[places], places % 6
    elif task == "signs":
        y = 2 * (X[:, 0] * X[:, 1] > 0).long() + (X[:, 2] + X[:, 3] * X[:, 4] > 0).long()
    elif task == "spirals":
        radius, y = torch.rand(count, generator=generator), torch.randint(3, (count,), generator=generator)
        angle = 5.0 * radius + 2.1 * y
        X = torch.cat([0.2 * X[:, :6], (3.0 * radius * torch.stack([angle.cos(), angle.sin()])).mT], dim=1)
    elif task == "shells":
        X = X[:, :6]
        y = torch.bucketize(X.norm(dim=1), torch.tensor([1.8, 2.4, 3.0]))
    elif task == "bars":
        y = torch.randint(4, (count,), generator=generator)
        bars = torch.zeros(4, 1, 8, 8)
        for place in range(8):
            bars[0, 0, 3, place] = bars[1, 0, place, 3] = bars[2, 0, place, place] = bars[
                3, 0, place, 7 - place
            ] = 1.0
        shifts = torch.randint(-2, 3, (count,), generator=generator)
        X = torch.stack([bars[one].roll(int(shift), -1) for one, shift in zip(y, shifts, strict=True)])
        X = X + 0.7 * torch.randn(X.shape, generator=generator)
    else:
        hidden = torch.tanh(X @ torch.randn(14, 20, generator=fixed) / 2.0)
        outputs = hidden @ torch.randn(20, 5, generator=fixed)
        y = outputs[:, :1] / 4.0 if task == "regression" else outputs.argmax(1)
    return X / X.flatten(1).norm(dim=1).square().mean().sqrt(), y


class Loop(nn.Module):
    """A cell of another form in plain torch, run for a number of steps."""

    def __init__(self, kind: str, features: int, width: int, outputs: int) -> None:
        super().__init__()
        self.kind, self.steps = kind, int(kind.split()[-1]) if "loop" in kind else 25
        self.W, self.U = nn.Linear(width, width, bias=False), nn.Linear(features, width)
        self.gate, self.norm, self.readout = (
            nn.Linear(features, width),
            nn.LayerNorm(width),
            nn.Linear(width, outputs),
        )
        nn.init.normal_(self.W.weight, std=(0.6 / width) ** 0.5)
        nn.init.normal_(self.U.weight, std=2.0)

    def cell(self, z: Tensor, x: Tensor) -> Tensor:
        """The next state."""
        inner = self.W(z) + self.U(x)
        if self.kind == "LayerNorm":
            return self.norm(torch.tanh(inner))
        if self.kind == "gated":
            return torch.lerp(z, torch.tanh(inner), torch.sigmoid(self.gate(x)))
        return z + 0.2 * (nn.functional.gelu(inner) - z) if "loop" in self.kind else torch.relu(inner)

    def forward(self, x: Tensor) -> Tensor:
        z = x.new_zeros(len(x), self.W.in_features)
        for _ in range(self.steps):
            z = self.cell(z, x)
        return self.readout(z)


def trained(net: nn.Module, X: Tensor, y: Tensor, passes: int, rate: float, batch: int = 50) -> nn.Module:
    """Adam on the cross-entropy of labels, or on squared errors of numbers; the rate falls to zero."""
    optimizer = torch.optim.Adam(net.parameters(), rate, fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, passes)
    for _ in range(passes):
        for part in torch.split(torch.randperm(len(X)), batch):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss if y.is_floating_point() else nn.functional.cross_entropy
            loss(net(X[part]), y[part]).backward()
            optimizer.step()
            if isinstance(net, ConvDEQNet):
                net.project()
            elif isinstance(net, Loop) and net.kind == "from_weights":
                with torch.no_grad():
                    net.W.weight.mul_(min(1.0, 0.9 / float(torch.linalg.matrix_norm(net.W.weight, 2))))
        schedule.step()
    return net.eval()


def measured(kind: str, task: str, number: int) -> Row:
    """One teacher, what `distill` makes of it, and both beside MLPs on fresh samples."""
    seed, width, target = 700 + number, WIDTHS[number % 3], TARGETS[(number + number // 8) % 2]
    name, task = f"{kind}, {task}", "bars" if kind == "conv" else task
    torch.manual_seed(seed)
    X, y = samples_of(task, LABELLED + UNLABELLED + FRESH, seed)
    labelled, unlabelled, fresh = torch.split(X, [LABELLED, UNLABELLED, FRESH])
    outputs = 1 if y.is_floating_point() else int(y.max()) + 1
    solver = SolverOptions("iteration", 1e-4, 60)
    options: dict[str, Any] = {"seed": seed, "on_failure": "ignore", "solver": solver}
    if kind == "conv":
        model = nsd.ConvDEQ(("relu", "tanh", "gelu")[number % 3], 0.1, 0.5, readout="pool")
        net: Any = ConvDEQNet(model, 1, 12, outputs, 8, contractive=True, **options)
    elif kind.startswith("DEQ"):
        net = DEQNet(
            nsd.DEQ(kind[4:], (0.3, 0.6)[number // 3 % 2], 0.5), X.shape[1], width, outputs, **options
        )
    else:
        net = Loop(kind, X.shape[1], width, outputs)
    teacher = net = trained(net, labelled, y[:LABELLED], 5, 5e-3)
    parts: dict[str, Any] = {}
    if kind == "from_weights":
        teacher = DEQNet.from_weights(net.W.weight, net.U.weight, net.U.bias, "relu", net.readout)
    elif isinstance(net, Loop):
        parts = {"cell": net.cell, "readout": net.readout}
    small = distill(teacher, unlabelled, target_agreement=target, epochs=1, seed=seed, **parts)
    answers, goals = in_batches(teacher, fresh), in_batches(teacher, unlabelled)
    own = agreement(in_batches(small.network, fresh), answers)
    mlps = {one.name: one.network for one in small.candidates if one.kind == "mlp"}
    for units in RIVALS:
        mlp = nn.Sequential(
            nn.Flatten(), nn.Linear(X[0].numel(), units), nn.ReLU(), nn.Linear(units, outputs)
        )
        mlps[f"MLP of {units}"] = trained(mlp, unlabelled, goals, PASSES, 5e-3, 200)
    equal = {name: mlp for name, mlp in mlps.items() if agreement(in_batches(mlp, fresh), answers) >= own}
    times = seconds_per_call({"": small.network} | equal, fresh[:256])
    rival = min(equal, key=lambda one: times[one], default=None)
    return {
        "teacher": name, "width": width, "target %": 100.0 * target, "chosen": small.name,
        "certain": "yes" if small.certain else "no",
        "stated at least %": round(100.0 * small.agreement_interval[0], 2), "fresh %": round(100.0 * own, 2),
        "speed-up": round(small.speedup, 2), "way of the teacher": small.teacher_way,
        **{f"speed-up, batch {size}": round(factor, 2) for size, factor in small.speedups.items()},
        "MLP that agrees as often": rival,
        "time / MLP": None if rival is None else round(times[""] / times[rival], 2),
    }  # fmt: skip


@drawn("distill-agreement", 3.0)
def distill_agreement(axes: Axes) -> None:
    rows = sorted(rows_of("distillation"), key=lambda row: row["fresh %"] - row["target %"])
    for place, row in enumerate(rows):
        ends = [row[name] - row["target %"] for name in ("stated at least %", "fresh %")]
        colour = COLOURS[0] if row["certain"] == "yes" else COLOURS[4]
        axes.plot(ends, [place, place], linewidth=1.5, alpha=0.5, color=colour)
        axes.plot(ends[1], place, marker="o", color=colour, **POINT)
    for number, label in ((0, "certain"), (4, "not certain")):
        axes.plot(
            [], [], marker="o", color=COLOURS[number], label=f"{label}: from bound to fresh samples", **POINT
        )
    axes.axvline(0.0, color=GREY, linewidth=0.8, linestyle=":", label="target")
    axes.set_yticks([])
    axes.set_xlabel("agreement above the target (points)", loc="right")
    legend_below(axes, columns=1)


@drawn("distill-time", 3.0)
def distill_time(axes: Axes) -> None:
    rows = sorted(rows_of("distillation"), key=lambda row: row["speed-up"])
    axes.plot(column(rows, "speed-up"), np.arange(len(rows)), marker="o", color=WIN, label="teacher", **POINT)
    pairs = [(1.0 / row["time / MLP"], place) for place, row in enumerate(rows) if row["time / MLP"]]
    if pairs:
        axes.plot(*np.array(pairs).T, label="MLP that agrees as often", **POINT | CROSS)
    axes.axvline(1.0, color=GREY, linewidth=0.8)
    axes.set_yticks([])
    axes.set_xscale("log")
    axes.set_xlabel("its time / the chosen network's", loc="right")
    ticks(axes.xaxis, 1, 3, 10, 30, 100, 1000)
    legend_below(axes, columns=1)


def main() -> None:
    """Measure what is not yet recorded, and write the table."""
    with_figure_only(argparse.ArgumentParser(description=str(__doc__).split("\n", 1)[0]))
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    provenance = Provenance()
    rows = read_rows(FILE)[1] if FILE.exists() else []
    for number in range(len(rows), len(KINDS) * len(TASKS)):
        # Every eight teachers are of all kinds, on several tasks.
        kind, task = KINDS[number % len(KINDS)], TASKS[(number + number // len(KINDS)) % len(TASKS)]
        rows.append(measured(kind, task, number))
        print(rows[-1], flush=True)
        write_rows(FILE, rows, markdown_provenance(provenance.record()))
    certain = [row for row in rows if row["certain"] == "yes"]
    false = [row["teacher"] for row in certain if row["fresh %"] < row["target %"]]
    slower = [row["time / MLP"] for row in certain if row["time / MLP"]]
    print(
        f"{len(certain)} certain, false: {false}; slower than an MLP that agrees as often: {sorted(slower)}"
    )
    publish()


if __name__ == "__main__":
    main()
