"""Do injected twins predict as their deep equilibrium models do, and how long do they take?

    python benchmarks/injected_accuracy.py [--only all readout time] [--data mnist ...] [--widths 256] [--seeds 3]
    python benchmarks/injected_accuracy.py --publish     only the tables from what is done: results/injected_accuracy.md
                                                         and the marked parts of docs/results.md

all       every weight trained by Adam, cross-entropy, batches of 128, three epochs of 12 000 rows; each network with
          the best of two learning rates (0.001, 0.003 at width 256, in proportion to 1/√width else), chosen on 2 000
          held-out rows of the first seed
readout   hidden weights as drawn; the readout by ridge regression on one-hot targets, its ridge the best of seven on
          2 000 held-out rows; 18 000 training rows (VGG-19 features have 20 000 rows in all)
time      a batch of 256, forward and forward and backward: processor time of one thread, networks in turn, medians

Networks: the centred DEQ (σ_a² = 0.2); its injected twins with two and three layers, fitted to 400 unlabelled rows, as
`explicit_twin` makes them (one matrix for the input); the papers' twin; plain networks with the DEQ's activation, of
one layer and of the depth of the papers' twin; the DEQ cut after two steps.  MNIST, Fashion-MNIST, VGG-19 features of
CIFAR-10; accuracy on the whole test part in percent, mean ± standard error over seeds.  The journal
results/injected_accuracy.jsonl has a line for each training; the next call goes on where the last one ended.
Lines with a "mean" are rows of an earlier table, whose twins had an input matrix for every layer; trainings take their
place.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from harness import RESULTS, ROOT, Row, filled, markdown_table, write_atomically
from rich.console import Console
from rich.progress import track

from notsodeep.designs import design
from notsodeep.files import atomic_append
from notsodeep.models import DEQ, Explicit
from notsodeep.nets import SolverOptions
from notsodeep.nets.modules import Net
from notsodeep.nets.networks import DEQNet, ExplicitNet
from notsodeep.nets.samples import compute_features
from notsodeep.nets.training import fit
from notsodeep.papers.training_rows import Parts, parts_of

CONSOLE = Console()
JOURNAL = RESULTS / "injected_accuracy.jsonl"
PAGE = ROOT / "docs" / "results.md"
DATA = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10_vgg19": "CIFAR-10, VGG-19"}
ACTIVATIONS = {"relu": "ReLU", "tanh": "tanh"}
SIGMA_A2, HELD_OUT, BATCH, ROUNDS = 0.2, 2000, 256, 15
ROWS = {"readout": 18_000, "all": 12_000}
RIDGES = 10.0 ** np.arange(-6.0, 1.0)
RATES = (1e-3, 3e-3)
TOLERANCES = (1e-3, 1e-6)
NAMES = {
    "deq": "DEQ",
    "injected 2": "injected, 2 layers",
    "injected 3": "injected, 3 layers",
    "papers": "papers' twin",
    "plain": "plain, papers' depth",
    "plain 1": "plain, 1 layer",
    "cut": "DEQ cut after 2",
}
KEY = ("section", "data", "activation", "width", "seed", "model")


@lru_cache(maxsize=16)
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
    found = {
        "deq": deq,
        **injected,
        "papers": papers,
        "plain 1": Explicit([deq.activation]).centred(parts.tau0),
        "cut": Explicit([deq.activation] * 2, weights=(1.0 - SIGMA_A2, SIGMA_A2), inject=(1.0 - SIGMA_A2,)),
    }
    if len(papers.layers) > 1:
        found["plain"] = Explicit([deq.activation] * len(papers.layers)).centred(parts.tau0)
    return found


def built(
    spec: DEQ | Explicit, parts: Parts, width: int, train: str, seed: int, tolerance: float = 1e-5
) -> Net:
    """A network of finite width, as `explicit_twin` builds it."""
    sizes = parts.X.shape[1], width, parts.classes
    if isinstance(spec, DEQ):
        return DEQNet(spec, *sizes, train=train, seed=seed, solver=SolverOptions(tolerance=tolerance))
    return ExplicitNet(spec, *sizes, train=train, seed=seed, share_input=True)


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
    row: Row = dict(zip(KEY, (section, data, activation, width, seed, name), strict=True))
    start = time.process_time()
    if section == "readout":
        row["accuracy"] = ridge_accuracy(built(spec, parts, width, "readout", seed), parts)
    else:
        rates = [rate * (256 / width) ** 0.5 for rate in RATES]
        known = [
            r["rate"] for r in done if "rate" in r and all(r.get(k) == row[k] for k in KEY if k != "seed")
        ]
        found = [(*trained_accuracy(spec, parts, width, seed, rate), rate) for rate in known[:1] or rates]
        row["held_out"], row["accuracy"], row["rate"] = max(found)
    return {**row, "seconds": round(time.process_time() - start, 1)}


def journal() -> list[Row]:
    return [json.loads(line) for line in JOURNAL.read_text("utf-8").splitlines()] if JOURNAL.exists() else []


def keep(row: Row) -> None:
    atomic_append(JOURNAL, (json.dumps(row) + "\n").encode())


def run(section: str, data: list[str], widths: list[int], seeds: int) -> None:
    """Measure what is not done yet; all networks with one seed before the next seed."""
    done = journal()
    finished = {tuple(row[k] for k in KEY) for row in done if row["section"] == section and "seed" in row}
    tasks = [
        (section, d, phi, width, seed, name)
        for seed in range(seeds) for d in data for phi in ACTIVATIONS for width in widths for name in NAMES
        if name != "plain" or phi == "relu"
    ]  # fmt: skip
    for task in track([t for t in tasks if t not in finished], section, console=CONSOLE):
        row = measured(*task, done)
        done.append(row)
        keep(row)


def run_times(widths: list[int]) -> None:
    """Milliseconds of a batch; networks take turns, each round beginning with another one."""
    parts = parts_of("mnist", ROWS["readout"] + HELD_OUT, None)
    batch = parts.X[:BATCH]
    works: dict[str, Callable[[Net], None]] = {"forward": _forward(batch), "both": _training(batch)}
    for activation in ACTIVATIONS:
        specs = networks("mnist", activation, "readout")
        for width in widths:
            nets = {f"DEQ at {tol:g}": built(specs["deq"], parts, width, "all", 0, tol) for tol in TOLERANCES}
            nets |= {
                NAMES[k]: built(specs[k], parts, width, "all", 0) for k in NAMES if k in specs and k != "deq"
            }
            row: Row = {"section": "time", "activation": activation, "width": width}
            for word, work in works.items():
                taken: dict[str, list[float]] = {name: [] for name in nets}
                names = list(nets)
                for round_ in range(ROUNDS + 1):
                    shift = round_ % len(names)
                    for name in names[shift:] + names[:shift]:
                        start = time.process_time()
                        work(nets[name])
                        if round_:
                            taken[name].append(time.process_time() - start)
                row[word] = {
                    name: round(1e3 * statistics.median(values), 3) for name, values in taken.items()
                }
            keep(row)


def _forward(batch: torch.Tensor) -> Callable[[Net], None]:
    def work(net: Net) -> None:
        with torch.no_grad():
            net(batch)

    return work


def _training(batch: torch.Tensor) -> Callable[[Net], None]:
    def work(net: Net) -> None:
        net.zero_grad()
        net(batch).square().mean().backward()

    return work


# --- tables -----------------------------------------------------------------------------------------------------------


def accuracy_table(rows: list[Row]) -> str:
    """Mean ± standard error of the accuracy, one line for each data set, activation and width."""
    lines: list[Row] = []
    keys = {(r["data"], r["activation"], r["width"]) for r in rows}
    order = [
        (d, phi, width)
        for d in DATA
        for phi in ACTIVATIONS
        for width in sorted({k[2] for k in keys})
        if (d, phi, width) in keys
    ]
    for d, phi, width in order:
        line: Row = {"data": DATA[d], "φ": ACTIVATIONS[phi], "$m$": width}
        mine = [r for r in rows if (r["data"], r["activation"], r["width"]) == (d, phi, width)]
        counts = [
            sum(r["model"] == name and "seed" in r for r in mine) for name in {r["model"] for r in mine}
        ]
        # A row of an earlier table stands until as many seeds are done.
        before = max((r["seeds"] for r in mine if "mean" in r), default=0)
        anew = min(counts) >= before
        for name, words in NAMES.items():
            # The papers' twin of tanh has one layer.
            wanted = "plain 1" if name == "plain" and phi == "tanh" else name
            found = [100 * r["accuracy"] for r in mine if r["model"] == wanted and "seed" in r]
            known = [
                f"{r['mean']:.2f} ± {r['error']:.2f}" for r in mine if r["model"] == wanted and "mean" in r
            ]
            line[words] = _mean(found) if anew else known[-1]
        line["seeds"] = min(counts) if anew else before
        lines.append(line)
    return markdown_table(lines)


def _mean(values: list[float]) -> str:
    if not values:
        return "–"
    if len(values) == 1:
        return f"{values[0]:.2f}"
    return f"{statistics.mean(values):.2f} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def time_table(rows: list[Row]) -> str:
    """The last measurement of each activation and width, and how many times the DEQ takes longer."""
    last = {(row["activation"], row["width"]): row for row in rows}
    lines: list[Row] = []
    for (phi, width), row in sorted(last.items()):
        line: Row = {"φ": ACTIVATIONS[phi], "$m$": width}
        for name in (*(f"DEQ at {tol:g}" for tol in TOLERANCES), *list(NAMES.values())[1:]):
            known = name if name in row["forward"] else NAMES["plain 1"]
            line[name] = " / ".join(f"{row[word][known]:.1f}" for word in ("forward", "both"))
        for tol in TOLERANCES:
            line[f"DEQ at {tol:g} over injected, 3 layers"] = " / ".join(
                f"{row[word][f'DEQ at {tol:g}'] / row[word][NAMES['injected 3']]:.1f}"
                for word in ("forward", "both")
            )
        lines.append(line)
    return markdown_table(lines)


def publish() -> None:
    """Fill the marked parts of the page, and the file of results."""
    rows, text, parts = journal(), PAGE.read_text("utf-8"), ["# Accuracy of injected twins\n"]
    titles = {
        "readout": "Readout by ridge",
        "all": "All weights trained by Adam, three epochs",
        "time": f"Processor time in milliseconds of a batch of {BATCH}, forward / forward and backward, one thread",
    }
    for section, title in titles.items():
        found = [row for row in rows if row["section"] == section]
        if not found:
            continue
        table = time_table(found) if section == "time" else accuracy_table(found)
        text = filled(text, f"<!-- injected: {section} -->", f"<!-- end of injected: {section} -->", table)
        parts.append(f"### {title}\n\n{table}")
    write_atomically(PAGE, text)
    write_atomically(RESULTS / "injected_accuracy.md", "\n".join(parts))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    sections = ["all", "readout", "time"]
    parser.add_argument("--only", nargs="+", default=sections, choices=sections)
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=DATA)
    parser.add_argument("--widths", nargs="+", type=int, default=[256, 1024])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--publish", action="store_true", help="only write the tables from what is done")
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    if not wanted.publish:
        for section in wanted.only:
            if section == "time":
                run_times(wanted.widths)
            else:
                run(section, wanted.data, wanted.widths, wanted.seeds)
    publish()


if __name__ == "__main__":
    main()
