"""Do injected twins predict as their deep equilibrium models do?

    python benchmarks/injected_accuracy.py [--only readout all time] [--data mnist ...] [--widths 256] [--seeds 3]

readout   hidden weights as drawn; the readout by ridge regression on one-hot targets, its ridge the best of seven on
          2 000 held-out rows; 18 000 training rows (VGG-19 features have 20 000 rows in all)
all       every weight trained by Adam, cross-entropy, batches of 128, three epochs of 12 000 rows; each network with
          the best of two learning rates (0.001, 0.003 at width 256, in proportion to 1/√width else), chosen on 2 000
          held-out rows of the first seed
time      milliseconds of a batch of 256, forward and forward and backward, networks in turn, medians of 15

Networks: the centred DEQ (σ_a² = 0.2); its injected twins with two and three layers, fitted to unlabelled rows; the
papers' twin; plain networks with the DEQ's activation, of one layer and of the depth of the papers' twin; the DEQ cut
after two steps.  MNIST, Fashion-MNIST, VGG-19 features of CIFAR-10; accuracy on the whole test part in percent, mean ±
standard error over seeds.  Finished trainings are kept in results/injected_accuracy.jsonl beside the repository's
results; a second call goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import json
import statistics
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from harness import ROOT, Provenance, Row, interleave, markdown_provenance, markdown_table, write_atomically
from rich.console import Console
from rich.progress import track

from notsodeep.designs import design
from notsodeep.files import atomic_append
from notsodeep.models import DEQ, Explicit
from notsodeep.nets import SolverOptions
from notsodeep.nets.dense_modules import DEQNet, ExplicitNet
from notsodeep.nets.modules import Net
from notsodeep.nets.samples import compute_features
from notsodeep.nets.training import fit
from notsodeep.papers.training_rows import Parts, parts_of

CONSOLE = Console()
RESULTS = Path(__file__).parent / "results"
SCRATCH = ROOT / "results" / "injected_accuracy.jsonl"
DATA = ("mnist", "fashion_mnist", "cifar10_vgg19")
ACTIVATIONS = ("relu", "tanh")
SIGMA_A2, HELD_OUT = 0.2, 2000
ROWS = {"readout": 18_000, "all": 12_000}
RIDGES = 10.0 ** np.arange(-6.0, 1.0)
RATES = (1e-3, 3e-3)
NAMES = {
    "deq": "DEQ",
    "injected 2": "injected twin, 2 layers",
    "injected 3": "injected twin, 3 layers",
    "papers": "the papers' twin",
    "plain": "plain, depth of the papers' twin",
    "plain 1": "plain, 1 layer",
    "cut": "DEQ cut after 2 steps",
}


@lru_cache(maxsize=8)
def networks(data: str, activation: str, section: str) -> dict[str, DEQ | Explicit]:
    """The models to compare; twins have the kernel that the training sees."""
    parts = parts_of(data, ROWS[section] + HELD_OUT, None)
    deq = DEQ(activation, SIGMA_A2).centred(parts.tau0)
    rows = parts.X[:400].double().numpy()
    kernel = "ck" if section == "readout" else "ntk"
    papers = design(
        deq, parts.tau0, kernel, family="hard_tanh" if activation == "tanh" else "leaky_relu"
    ).network
    injected = {
        f"injected {layers}": design(
            deq,
            parts.tau0,
            "both" if layers == 3 else kernel,
            family="injected",
            layers=layers,
            X=rows,
        ).network
        for layers in (2, 3)
    }
    cut = Explicit([deq.activation] * 2, weights=(1.0 - SIGMA_A2, SIGMA_A2), inject=(1.0 - SIGMA_A2,))
    return {
        "deq": deq,
        **injected,
        "papers": papers,
        "plain": Explicit([deq.activation] * len(papers.layers)).centred(parts.tau0),
        "plain 1": Explicit([deq.activation]).centred(parts.tau0),
        "cut": cut,
    }


def built(
    spec: DEQ | Explicit, parts: Parts, width: int, train: str, seed: int, tolerance: float = 1e-5
) -> Net:
    """A network of finite width."""
    sizes = parts.X.shape[1], width, parts.classes
    if isinstance(spec, DEQ):
        return DEQNet(spec, *sizes, train=train, seed=seed, solver=SolverOptions(tolerance=tolerance))
    return ExplicitNet(spec, *sizes, train=train, seed=seed)


def ridge_accuracy(net: Net, parts: Parts) -> float:
    """Test accuracy of the best ridge readout, chosen on held-out rows."""
    rows = len(parts.X) - HELD_OUT
    features = compute_features(net, parts.X).double()
    targets = torch.nn.functional.one_hot(parts.y, parts.classes).double() - 1.0 / parts.classes
    inner, cross = features[:rows].T @ features[:rows], features[:rows].T @ targets[:rows]
    values, vectors = torch.linalg.eigh(inner)
    best, kept = -1.0, None
    for ridge in RIDGES:
        weights = vectors @ ((vectors.T @ cross) / (values.clamp(min=0.0) + ridge * rows)[:, None])
        hit = float(((features[rows:] @ weights).argmax(1) == parts.y[rows:]).double().mean())
        if hit > best:
            best, kept = hit, weights
    scores = compute_features(net, parts.X_test).double() @ kept
    return float((scores.argmax(1) == parts.y_test).double().mean())


def trained_accuracy(
    spec: DEQ | Explicit, parts: Parts, width: int, seed: int, rate: float
) -> tuple[float, float]:
    """Accuracy on held-out rows and on the test part after training all weights."""
    rows = len(parts.X) - HELD_OUT
    net = built(spec, parts, width, "all", seed, 1e-4)
    fit(net, (parts.X[:rows], parts.y[:rows]), optimizer="adam", lr=rate, epochs=3, seed=seed)
    hits = []
    with torch.no_grad():
        for X, y in ((parts.X[rows:], parts.y[rows:]), (parts.X_test, parts.y_test)):
            found = torch.cat([net(part).argmax(1) for part in X.split(2000)])
            hits.append(float((found == y).double().mean()))
    return hits[0], hits[1]


def measured(
    section: str, data: str, activation: str, width: int, seed: int, name: str, done: list[Row]
) -> Row:
    """One training, or one regression."""
    parts = parts_of(data, ROWS[section] + HELD_OUT, None)
    spec = networks(data, activation, section)[name]
    row: Row = {
        "section": section, "data": data, "activation": activation, "width": width, "seed": seed, "model": name,
    }  # fmt: skip
    if section == "readout":
        return {**row, "accuracy": ridge_accuracy(built(spec, parts, width, "readout", seed), parts)}
    rates = [rate * (256 / width) ** 0.5 for rate in RATES]
    known = [
        r["rate"] for r in done if all(r[k] == row[k] for k in row if k != "seed") and r["section"] == "all"
    ]
    found = [(*trained_accuracy(spec, parts, width, seed, rate), rate) for rate in known[:1] or rates]
    held_out, accuracy, rate = max(found)
    return {**row, "accuracy": accuracy, "held_out": held_out, "rate": rate}


def accuracies(section: str, data: list[str], widths: list[int], seeds: int) -> list[Row]:
    """All rows of a section, those of earlier calls included."""
    done = [json.loads(line) for line in SCRATCH.read_text("utf-8").splitlines()] if SCRATCH.exists() else []
    tasks = [
        (section, d, phi, width, seed, name)
        for d in data for phi in ACTIVATIONS for width in widths for seed in range(seeds) for name in NAMES
    ]  # fmt: skip
    keys = {
        tuple(row[k] for k in ("section", "data", "activation", "width", "seed", "model")) for row in done
    }
    for task in track([t for t in tasks if t not in keys], section, console=CONSOLE):
        row = measured(*task, done)
        done.append(row)
        SCRATCH.parent.mkdir(exist_ok=True)
        atomic_append(SCRATCH, (json.dumps(row) + "\n").encode())
    return [row for row in done if row["section"] == section]


def table(rows: list[Row]) -> list[Row]:
    """Mean ± standard error of the accuracy, one line for each data set, activation and width."""
    lines: list[Row] = []
    for key in dict.fromkeys((r["data"], r["activation"], r["width"]) for r in rows):
        line: Row = dict(zip(("data", "φ", "width"), key, strict=True))
        for name, words in NAMES.items():
            found = [
                100 * r["accuracy"]
                for r in rows
                if (r["data"], r["activation"], r["width"], r["model"]) == (*key, name)
            ]
            if found:
                error = statistics.stdev(found) / len(found) ** 0.5 if len(found) > 1 else float("nan")
                line[words] = f"{statistics.mean(found):.2f} ± {error:.2f}"
        line["seeds"] = len({r["seed"] for r in rows if (r["data"], r["activation"], r["width"]) == key})
        lines.append(line)
    return lines


def times(widths: list[int]) -> list[Row]:
    """Milliseconds of a batch of 256."""
    parts = parts_of("mnist", ROWS["readout"] + HELD_OUT, None)
    batch, rows = parts.X[:256], []
    for activation in ACTIVATIONS:
        specs = networks("mnist", activation, "readout")
        for width in widths:
            nets = {
                f"{NAMES['deq']} at {tol:g}": built(specs["deq"], parts, width, "all", 0, tol)
                for tol in (1e-3, 1e-6)
            }
            nets |= {NAMES[k]: built(specs[k], parts, width, "all", 0) for k in NAMES if k != "deq"}

            def forward(net: Net) -> None:
                with torch.no_grad():
                    net(batch)

            def training(net: Net) -> None:
                net.zero_grad()
                net(batch).square().mean().backward()

            line: Row = {"φ": activation, "width": width}
            found = [
                interleave({k: (lambda net=net, work=work: work(net)) for k, net in nets.items()}, 15)
                for work in (forward, training)
            ]
            for k in nets:
                line[k] = " / ".join(f"{1e3 * part[k].median:.1f}" for part in found)
            rows.append(line)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", nargs="+", default=["readout", "all", "time"], choices=["readout", "all", "time"]
    )
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--widths", nargs="+", type=int, default=[256, 1024])
    parser.add_argument("--seeds", type=int, default=3)
    wanted = parser.parse_args()
    provenance = Provenance()
    parts = []
    for section in wanted.only:
        if section == "time":
            rows, words = (
                times(wanted.widths),
                "Milliseconds of a batch of 256, forward / forward and backward",
            )
        else:
            rows = table(accuracies(section, wanted.data, wanted.widths, wanted.seeds))
            words = (
                "Readout by ridge" if section == "readout" else "All weights trained by Adam, three epochs"
            )
        parts.append(f"### {words}\n\n{markdown_table(rows)}\n")
        CONSOLE.print(parts[-1])
    text = "\n".join(
        ["# Accuracy of injected twins\n", markdown_provenance(provenance.record()) + "\n", *parts]
    )
    write_atomically(RESULTS / "injected_accuracy.md", text)


if __name__ == "__main__":
    main()
