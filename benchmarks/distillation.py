"""Is what `distill` chooses as fast as the fastest baseline that agrees as often, and do its intervals hold?

  python benchmarks/distillation.py            about 15 minutes on one core; goes on where it was stopped
  python benchmarks/distillation.py --table    the table of what was measured

Every teacher is trained on 1500 labelled samples, distilled on 3000 others without labels, and compared on 3000 fresh
ones. Baselines are the teacher cut after some steps, cut with a refitted readout, with relaxation factors as well, and
MLPs trained on its outputs: of those that agree with the teacher at least as often as the chosen network on the fresh
samples the fastest is timed in turn with it. Writes benchmarks/results/distillation.csv.
"""

from __future__ import annotations

import argparse
import json
import warnings
from typing import Any

import torch
from harness import Provenance, markdown_provenance, write_json, write_rows
from torch import Tensor, nn
from verdicts import RESULTS, samples_of

import notsodeep as nsd
from notsodeep.distillation import distill
from notsodeep.distillation.certainty import agreement, seconds_per_call
from notsodeep.intervals import share_interval
from notsodeep.nets import ConvDEQNet, DEQNet, SolverOptions

LABELLED, UNLABELLED, FRESH, WIDTH, TARGET = 1500, 3000, 3000, 128, 0.98
BASELINES = ("cut", "refitted", "relaxed", "mlp")
# Data, shape and pooling of images, cell, σ_a².
TEACHERS: dict[str, tuple[str, tuple[int, ...], int, str, float]] = {
    "MNIST, ReLU": ("mnist", (), 1, "relu", 0.5),
    "MNIST, GELU, strong feedback": ("mnist", (), 1, "gelu", 1.2),
    "Fashion-MNIST, tanh": ("fashion_mnist", (), 1, "tanh", 0.5),
    "Fashion-MNIST, ReLU, strong feedback": ("fashion_mnist", (), 1, "relu", 1.4),
    "VGG features, ReLU": ("cifar10_vgg19", (), 1, "relu", 0.5),
    "VGG features, GELU": ("cifar10_vgg19", (), 1, "gelu", 0.5),
    "USPS, tanh, strong feedback": ("usps", (), 1, "tanh", 1.2),
    "letter, ReLU": ("letter", (), 1, "relu", 0.5),
    "letter, tanh": ("letter", (), 1, "tanh", 0.8),
    "MNIST images, ReLU": ("mnist", (1, 28, 28), 4, "relu", 0.5),
    "CIFAR-10 images, GELU": ("cifar10", (3, 32, 32), 4, "gelu", 0.5),
    "USPS, LayerNorm cell": ("usps", (), 1, "LayerNorm", 0.5),
    "letter, gated cell": ("letter", (), 1, "gated", 0.5),
}


class Cell(nn.Module):
    """A DEQ of another form: z = LayerNorm(tanh(W z) + U x), or z = (1 - g) z + g tanh(W z + U x)."""

    def __init__(self, kind: str, features: int, classes: int, sigma_a2: float) -> None:
        super().__init__()
        self.kind, self.readout = kind, nn.Linear(WIDTH, classes)
        self.W, self.U = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(features, WIDTH)
        self.gate, self.norm = nn.Linear(features, WIDTH), nn.LayerNorm(WIDTH)
        nn.init.normal_(self.W.weight, std=(sigma_a2 / WIDTH) ** 0.5)
        nn.init.normal_(self.U.weight)

    def cell(self, z: Tensor, x: Tensor) -> Tensor:
        """The next state."""
        if self.kind == "LayerNorm":
            return self.norm(torch.tanh(self.W(z)) + self.U(x))
        return torch.lerp(z, torch.tanh(self.W(z) + self.U(x)), torch.sigmoid(self.gate(x)))

    def forward(self, x: Tensor) -> Tensor:
        z = x.new_zeros(len(x), WIDTH)
        with torch.no_grad():
            for _ in range(40):
                z = self.cell(z, x)
        for _ in range(3):
            z = self.cell(z, x)
        return self.readout(z)


def teacher_of(cell: str, sigma_a2: float, X: Tensor, y: Tensor) -> Any:
    """A trained network, all of its weights by Adam."""
    classes, solver = int(y.max()) + 1, SolverOptions(tolerance=1e-4, max_steps=300)
    torch.manual_seed(0)
    if cell in ("LayerNorm", "gated"):
        net: Any = Cell(cell, X.shape[1], classes, sigma_a2)
    elif X.ndim == 2:
        net = DEQNet(
            nsd.DEQ(cell, sigma_a2, 0.5),
            X.shape[1],
            WIDTH,
            classes,
            seed=0,
            solver=solver,
            on_failure="ignore",
        )
    else:
        model = nsd.ConvDEQ(cell, sigma_a2, 0.5)
        net = ConvDEQNet(
            model, X.shape[1], 16, classes, X.shape[2:], seed=0, solver=solver, on_failure="ignore"
        )
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(4):
        for part in torch.split(torch.randperm(len(X)), 50):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(X[part]), y[part]).backward()
            optimizer.step()
    return net.eval()


def measured(name: str) -> dict[str, Any]:
    """One teacher: what `distill` chooses, the fastest baseline that agrees as often, and the fresh samples."""
    data, shape, pooling, cell, sigma_a2 = TEACHERS[name]
    X, y = samples_of(data, LABELLED + UNLABELLED + FRESH, 0, shape, pooling, LABELLED)
    x = torch.as_tensor(X, dtype=torch.float32)
    net = teacher_of(cell, sigma_a2, x[:LABELLED], torch.as_tensor(y[:LABELLED]))
    parts = {"cell": net.cell, "readout": net.readout} if isinstance(net, Cell) else {}
    small = distill(net, x[LABELLED : LABELLED + UNLABELLED], target_agreement=TARGET, epochs=4, **parts)
    fresh = x[LABELLED + UNLABELLED :]
    with torch.no_grad():
        outputs = torch.cat([net(one) for one in fresh.split(256)])
        shares = {one.name: agreement(torch.cat([one.network(part) for part in fresh.split(256)]), outputs)
                  for one in small.candidates}  # fmt: skip
    own = shares[small.name]
    rivals = [one for one in small.candidates if one.kind in BASELINES and shares[one.name] >= own]
    rival = min(rivals, key=lambda one: one.seconds, default=None)
    timed = {"teacher": net, "chosen": small.network} | ({} if rival is None else {"rival": rival.network})
    times = seconds_per_call(timed, fresh[:256])
    correct = float((outputs.argmax(1).numpy() == y[LABELLED + UNLABELLED :]).mean())
    return {
        "accuracy": 100.0 * correct, "chosen": small.name, "certain": small.certain,
        "stated": [100.0 * end for end in small.agreement_interval], "fresh": 100.0 * own,
        "fresh interval": [100.0 * end for end in share_interval(round(own * len(fresh)), len(fresh))],
        "times as fast": times["teacher"] / times["chosen"],
        "baseline": None if rival is None else rival.name,
        "baseline agreement": None if rival is None else 100.0 * shares[rival.name],
        "time / baseline": None if rival is None else times["chosen"] / times["rival"],
        "candidates": [[one.name, one.seconds / small.chosen.seconds, one.risk, 100.0 * shares[one.name]]
                       for one in small.candidates],
    }  # fmt: skip


def table(rows: dict[str, Any]) -> list[dict[str, Any]]:
    """One row for each teacher, without the candidates."""
    return [
        {
            "teacher": name, "accuracy %": round(row["accuracy"], 1), "chosen": row["chosen"],
            "certain": "yes" if row["certain"] else "no",
            "stated agreement %": "{:.1f} to {:.1f}".format(*row["stated"]), "fresh %": round(row["fresh"], 2),
            "times as fast as the teacher": round(row["times as fast"], 1),
            "fastest baseline that agrees as often": "itself" if row["baseline"] == row["chosen"] else row["baseline"],
            "time / baseline": 1.0 if row["baseline"] == row["chosen"] else row["time / baseline"],
        }
        for name, row in rows.items()
    ]  # fmt: skip


def main() -> None:
    """Measure what is not yet recorded, and write the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", action="store_true", help="measure nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    provenance = Provenance()
    file = RESULTS / "distillation.json"
    rows = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name in TEACHERS:
        if name not in rows and not options.table:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows[name] = measured(name)
            write_json(file, rows)
            print(name, rows[name], flush=True)
    if rows:
        write_rows(RESULTS / "distillation.csv", table(rows), markdown_provenance(provenance.record()))


if __name__ == "__main__":
    main()
