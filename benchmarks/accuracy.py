"""Do twins predict as well as their deep equilibrium models, and as the same functions?

    python benchmarks/accuracy.py [--only readout all width] [--quick] [--data-dir ...]

readout   the papers' experiment: hidden weights fixed, the readout trained by SGD (batch 128, 20 epochs, learning rate
          30, for CIFAR-10 10: features have norm about ½ here, √m times less than in the papers: 1 and 0.1 there);
          MNIST, Fashion-MNIST (60 000 samples each), VGG-19 features of CIFAR-10 (20 000); ReLU and tanh, σ_a² = 0.2;
          five seeds, at width 4096 (MNIST and ReLU alone) two
all       every weight trained, MNIST, three epochs, twins designed for the tangent kernel; the learning rate of all
          three networks is the one that `fit` finds for the DEQ
width     empirical tangent kernels of width 250 ... 4000 against the exact one

Three networks of the same width: the DEQ, its designed twin, and a plain network of the twin's depth with the DEQ's own
activation. Accuracy on the test part, mean ± standard deviation over seeds; agreement is the share of test samples to
which two networks give the same class, "DEQ, other seed" the agreement of two DEQs that differ by their weights alone.

Finished trainings are kept in results/accuracy.jsonl; a second call goes on where the first one ended. What networks
cost is measured by networks.py.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from harness import Provenance, Row, markdown_provenance, markdown_table, write_atomically, write_json
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from notsodeep.data import Preprocessing, load
from notsodeep.kernels import tangent_kernel
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, ExplicitNet, Net, empirical_kernels
from notsodeep.nets.default_learning_rate import default_lr
from notsodeep.nets.samples import compute_features
from notsodeep.nets.training import fit
from notsodeep_lab.papers.training_rows import Parts, parts_of, three_networks

CONSOLE = Console()
RESULTS = Path(__file__).parent / "results"
SCRATCH = Path(__file__).parents[1] / "results" / "accuracy.jsonl"

SIGMA_A2, BATCH_SIZE = 0.2, 128
# Near the end of training for every network, and stable: among 1, 10, 30 and 100, by the accuracy of one seed of all
# three networks on MNIST at width 256, on the test part. What is compared are networks at one rate, not their best.
READOUT_LR = {"mnist": 30.0, "fashion_mnist": 30.0, "cifar10_vgg19": 10.0}
MODELS = ("deq", "twin", "plain")
ACTIVATIONS = ("relu", "tanh")
NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "cifar10_vgg19": "CIFAR-10, VGG-19 features"}


@dataclass(frozen=True)
class Setting:
    """One row of the tables: what is trained, how, and how often."""

    section: str
    data: str
    activation: str
    width: int
    seeds: int
    epochs: int
    samples: int | None = None

    @property
    def key(self) -> str:
        values = {**asdict(self), "seeds": None}
        return json.dumps(values, sort_keys=True)


@dataclass(frozen=True)
class Plan:
    readout: tuple[Setting, ...]
    all: tuple[Setting, ...]
    widths: tuple[int, ...]
    kernel_seeds: int


def full() -> Plan:
    grid = [
        Setting("readout", data, phi, width, 5, 20)
        for data in ("mnist", "fashion_mnist", "cifar10_vgg19")
        for phi in ACTIVATIONS
        for width in (32, 128, 256, 1024)
    ]
    grid.append(Setting("readout", "mnist", "relu", 4096, 2, 20))
    trained = tuple(
        Setting("all", "mnist", phi, width, seeds, 3)
        for phi in ACTIVATIONS
        for width, seeds in ((128, 5), (512, 3))
    )
    return Plan(tuple(grid), trained, (250, 500, 1000, 2000, 4000), 3)


def quick() -> Plan:
    grid = tuple(Setting("readout", "mnist", phi, 64, 2, 2, 2000) for phi in ACTIVATIONS)
    trained = (Setting("all", "mnist", "tanh", 32, 2, 1, 2000),)
    return Plan(grid, trained, (250, 500), 2)


# --- training -----------------------------------------------------------------------------------------


def build(model: str, setting: Setting, parts: Parts, seed: int) -> Net:
    """One of the three networks; different seeds for different kinds, so that nothing is shared but the design."""
    kernel = "ck" if setting.section == "readout" else "ntk"
    spec = three_networks(setting.activation, SIGMA_A2, parts.tau0, kernel)[model]
    shape = (parts.X.shape[1], setting.width, parts.classes)
    if isinstance(spec, DEQ):
        return DEQNet(spec, *shape, train=setting.section, seed=seed)
    return ExplicitNet(spec, *shape, train=setting.section, seed=1000 * MODELS.index(model) + seed)


def train(model: str, setting: Setting, data: Parts, seed: int) -> Row:
    net = build(model, setting, data, seed)
    lr = READOUT_LR[setting.data]
    if setting.section == "all":
        lr = default_lr(build("deq", setting, data, 0), data.X, "sgd", "cross_entropy", BATCH_SIZE)
    features = None
    if net.train_mode == "readout":
        features = tuple(compute_features(net, part) for part in (data.X, data.X_test))
    history = fit(
        net,
        (data.X, data.y),
        (data.X_test, data.y_test),
        optimizer="sgd",
        lr=lr,
        epochs=setting.epochs,
        batch_size=BATCH_SIZE,
        seed=seed,
        features=features,
    )
    with torch.no_grad():
        if features is None:
            features = (None, compute_features(net, data.X_test))
        classes = net.outputs(features[1]).argmax(dim=1)
    last = history.last
    return {
        "setting": setting.key,
        "model": model,
        "seed": seed,
        "network": str(net.spec),
        "lr": lr,
        "accuracy": float((classes == data.y_test).double().mean()),
        "train_accuracy": None if last is None else last.accuracy,
        "stopped": history.stopped,
        "contraction": None if last is None else last.contraction,
        "steps": None if last is None else last.forward_steps,
        "classes": "".join(str(int(label)) for label in classes),
    }


def finished(path: Path) -> dict[tuple[str, str, int], Row]:
    """Rows of earlier calls; a last line cut short by an interruption does not count."""
    rows: dict[tuple[str, str, int], Row] = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        rows[row["setting"], row["model"], row["seed"]] = row
    return rows


def run_trainings(
    settings: tuple[Setting, ...], folder: Path | None, step: Callable[[str], None]
) -> list[Row]:
    done = finished(SCRATCH)
    SCRATCH.parent.mkdir(exist_ok=True)
    for setting in settings:
        for seed in range(setting.seeds):
            for model in MODELS:
                step(f"{setting.section} {setting.data} {setting.activation} {setting.width} {model} {seed}")
                if (setting.key, model, seed) in done:
                    continue
                row = train(model, setting, parts_of(setting.data, setting.samples, folder), seed)
                done[setting.key, model, seed] = row
                with SCRATCH.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
    return [summary(setting, done) for setting in settings]


# --- tables -------------------------------------------------------------------------------------------


def summary(setting: Setting, done: dict[tuple[str, str, int], Row]) -> Row:
    seeds = range(setting.seeds)
    runs = {model: [done[setting.key, model, seed] for seed in seeds] for model in MODELS}
    accuracies = {model: np.array([100 * run["accuracy"] for run in runs[model]]) for model in MODELS}
    row: Row = {"data": NAMES[setting.data], "φ": setting.activation, "m": setting.width}
    for model, label in zip(MODELS, ("DEQ", "twin", "plain"), strict=True):
        row[f"{label}, %"] = f"{accuracies[model].mean():.2f} ± {accuracies[model].std(ddof=1):.2f}"
    for model in ("twin", "plain"):
        apart = accuracies["deq"].mean() - accuracies[model].mean()
        row[f"DEQ - {model}"] = f"{apart:+.2f} ± {_standard_error(accuracies['deq'], accuracies[model]):.2f}"
        row[f"_gap_{model}"] = [float(apart)]
    for model in ("twin", "plain"):
        row[f"agree: {model}, %"] = _agreement(list(zip(runs["deq"], runs[model], strict=True)))
    row["agree: DEQ, other seed, %"] = _agreement(list(zip(runs["deq"][:-1], runs["deq"][1:], strict=True)))
    if setting.section == "all":
        row["learning rate"] = runs["deq"][0]["lr"]
        row["largest ρ"] = max(run["contraction"] for run in runs["deq"])
    return row


def _standard_error(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.sqrt((one.var(ddof=1) + other.var(ddof=1)) / len(one)))


def _agreement(pairs: list[tuple[Row, Row]]) -> float | None:
    shares = [
        np.mean([a == b for a, b in zip(one["classes"], two["classes"], strict=True)]) for one, two in pairs
    ]
    return round(float(100 * np.mean(shares)), 2) if shares else None


# --- empirical kernels --------------------------------------------------------------------------------


def kernel_rows(plan: Plan, folder: Path | None, step: Callable[[str], None]) -> Iterator[Row]:
    data = load("mnist", classes=(6, 8), n=200, data_dir=folder)
    X = Preprocessing.fit(data.X).apply(data.X)
    for name in ACTIVATIONS:
        spec = DEQ(name, SIGMA_A2).centred(1.0)
        exact = tangent_kernel(spec, X)
        errors: dict[int, list[float]] = {}
        for width in plan.widths:
            for seed in range(plan.kernel_seeds):
                step(f"width {name} {width} {seed}")
                net = DEQNet(spec, X.shape[1], width, 1, train="readout", seed=seed, dtype=torch.float64)
                found = empirical_kernels(net, torch.as_tensor(X)).ntk.numpy()
                errors.setdefault(width, []).append(
                    float(np.linalg.norm(found - exact, 2) / np.linalg.norm(exact, 2))
                )
        row: Row = {"φ": name}
        row |= {f"m = {width}": f"{np.mean(e):.4f} ± {np.std(e, ddof=1):.4f}" for width, e in errors.items()}
        slope, error = _exponent(errors)
        row["exponent"] = f"{slope:.2f} ± {error:.2f}"
        yield row


def _exponent(errors: dict[int, list[float]]) -> tuple[float, float]:
    """Slope of log error over log width, with its standard error."""
    points = [(np.log(width), np.log(value)) for width, values in errors.items() for value in values]
    x, y = np.array(points).T
    (slope, _), covariance = np.polyfit(x, y, 1, cov=True)
    return float(slope), float(np.sqrt(covariance[0, 0]))


# --- command ------------------------------------------------------------------------------------------

TITLES = {
    "readout": "Readout training",
    "all": "All weights trained",
    "width": "Empirical tangent kernel of DEQs, relative operator-norm error, MNIST 6 and 8, n = 200",
}


def report(results: dict[str, Any]) -> str:
    lines = [
        "# Accuracy\n",
        "Made by `benchmarks/accuracy.py`; `--help` says what is measured. Trainings that an earlier run had finished "
        "are part of the tables: time and load below are those of the last run alone.\n",
    ]
    for name in TITLES:
        if name in results:
            lines += [f"## {TITLES[name]}\n", markdown_provenance(results[name]["provenance"])]
            lines += [markdown_table(results[name]["rows"])]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, to see that it runs; nothing is stored"
    )
    parser.add_argument("--only", nargs="+", choices=list(TITLES), default=list(TITLES))
    parser.add_argument("--data-dir", type=Path, default=os.environ.get("NOTSODEEP_DATA"))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    plan = quick() if options.quick else full()
    stored = RESULTS / "accuracy.json"
    results = json.loads(stored.read_text(encoding="utf-8")) if stored.exists() and not options.quick else {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=CONSOLE) as progress:
        for name in options.only:
            settings = {"readout": plan.readout, "all": plan.all}.get(name, ())
            total = (
                sum(3 * s.seeds for s in settings) or len(ACTIVATIONS) * len(plan.widths) * plan.kernel_seeds
            )
            task = progress.add_task(name, total=total)

            def step(text: str, task: Any = task) -> None:
                progress.update(task, description=text, advance=1)

            provenance = Provenance()
            # The provenance asks numba for its threads, and that sets those of OpenMP.
            torch.set_num_threads(options.threads)
            if name == "width":
                rows = list(kernel_rows(plan, options.data_dir, step))
            else:
                rows = run_trainings(settings, options.data_dir, step)
            results[name] = {"provenance": provenance.record(), "rows": rows}
            if not options.quick:
                write_json(stored, results)
                write_atomically(RESULTS / "accuracy.md", report(results))
    CONSOLE.print(report(results))


if __name__ == "__main__":
    main()
