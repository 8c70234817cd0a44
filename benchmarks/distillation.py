"""How faithfully and how much faster do a few explicit steps answer for a trained DEQ?

  python benchmarks/distillation.py --minutes 20                         as much as fits; the next call goes on
  python benchmarks/distillation.py --data mnist --activations relu      some of it
  python benchmarks/distillation.py --summary                            the tables from what is done

A task is a data set, an activation, σ_a², a width, what was trained (readout or all weights) and a seed. The teacher
is trained on labels (all weights: three epochs of Adam on 12 000 rows; readout: ten epochs), then distilled without
labels on twice as many rows, and everything is judged on the whole test part: agreement of classes with the teacher,
accuracy, and milliseconds of 1000 rows in turn, beside the DEQ solved to 1e-3 and to 1e-6. "strong" is a teacher
trained with contractive=0.9 from σ_a² = 0.2.

Beside the front of `distill` (the DEQ cut, refitted, fitted): "undesigned", a network of the same shape with random
weights fitted to the same outputs for as many epochs; and the guard at a fallback of 5 %.
Results: distillation.jsonl in --out, one line for each candidate, finished tasks in one piece.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from harness import RESULTS, Row, markdown_table, write_atomically
from rich.console import Console
from rich.progress import track
from torch import nn

from notsodeep.files import atomic_append
from notsodeep.models import DEQ
from notsodeep.nets import DEQNet, SolverOptions, distill, fit, guarded
from notsodeep.nets.fidelity import milliseconds, relative_error
from notsodeep.papers.training_rows import Parts, parts_of

CONSOLE = Console(width=150)
DATA = ("mnist", "fashion_mnist", "cifar10", "cifar10_vgg19")
ACTIVATIONS, WIDTHS, TRAINED = ("relu", "tanh", "gelu"), (512, 1024, 2048), ("all", "readout")
FEEDBACKS = ("0.2", "0.5", "strong")
EPOCHS = {"all": 3, "readout": 10}
ROWS, STUDENT_EPOCHS, STRONG = 12_000, 6, 0.9
KEYS = ("data", "activation", "feedback", "width", "trained", "seed")


def teacher_of(parts: Parts, activation: str, feedback: str, width: int, trained: str, seed: int) -> DEQNet:
    """A DEQ, trained on the first half of the rows."""
    sigma_a2 = 0.2 if feedback == "strong" else float(feedback)
    net = DEQNet(
        DEQ(activation, sigma_a2),
        parts.X.shape[1],
        width,
        parts.classes,
        train=trained,
        seed=seed,
        contractive=STRONG if feedback == "strong" else False,
        solver=SolverOptions(tolerance=1e-4),
    )
    rows = min(ROWS, len(parts.X) // 2)
    fit(net, (parts.X[:rows], parts.y[:rows]), epochs=EPOCHS[trained], seed=seed)
    return net


def at_tolerance(net: DEQNet, tolerance: float) -> DEQNet:
    """The same network, solved to another residual."""
    solver = SolverOptions(tolerance=tolerance)
    other = DEQNet.from_weights(
        *net.plain_weights()[:3], net.spec.activation, net.plain_weights().readout, solver=solver
    )
    return other.requires_grad_(False)


@torch.no_grad()
def judged(module: nn.Module, parts: Parts, wanted: torch.Tensor) -> Row:
    """Agreement with the teacher and accuracy, on the test part, in percent."""
    outputs = torch.cat([module(block) for block in torch.split(parts.X_test, 2000)])
    classes = outputs.argmax(1)
    return {
        "agreement": 100.0 * float((classes == wanted.argmax(1)).double().mean()),
        "accuracy": 100.0 * float((classes == parts.y_test).double().mean()),
        "error": relative_error(outputs, wanted),
    }


def task_rows(data: str, activation: str, feedback: str, width: int, trained: str, seed: int) -> list[Row]:
    """The teacher, every candidate, the undesigned student and the guard of one task."""
    parts = parts_of(data, None if data == "cifar10_vgg19" else 2 * ROWS, None)
    net = teacher_of(parts, activation, feedback, width, trained, seed)
    precise = at_tolerance(net, 1e-6)
    with torch.no_grad():
        wanted = torch.cat([precise(block) for block in torch.split(parts.X_test, 2000)])
    start = time.perf_counter()
    small = distill(precise, parts.X, until=0.995, epochs=STUDENT_EPOCHS, seed=seed)
    seconds = time.perf_counter() - start
    undesigned = distill(
        nn.Sequential(precise), parts.X, width=width, steps=(2,), epochs=STUDENT_EPOCHS, seed=seed
    )
    modules: dict[str, nn.Module] = {"DEQ at 1e-3": at_tolerance(net, 1e-3), "DEQ at 1e-6": precise}
    kinds = dict.fromkeys(modules, "teacher")
    for one in small.front:
        modules[one.name], kinds[one.name] = one.network, one.kind
    modules["undesigned, 2 steps"], kinds["undesigned, 2 steps"] = undesigned.network, "undesigned"
    times = milliseconds(modules, parts.X_test[:1000])
    rows = [
        {"name": name, "kind": kinds[name], "ms": times[name], **judged(module, parts, wanted)}
        for name, module in modules.items()
    ]
    safe = guarded(small, precise, share=0.05)
    rows.append(
        {"name": f"{small.name}, guarded", "kind": "guarded", "ms": math.nan, **judged(safe, parts, wanted)}
    )
    contraction = net.contraction()
    return [
        {**row, "chosen": row["name"] == small.name, "contraction": contraction, "seconds": seconds}
        for row in rows
    ]


def summary(rows: list[Row]) -> str:
    """For each task the teacher, the fits, the cuts at the same price, and the guard."""
    lines = []
    by_task: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        by_task.setdefault(tuple(row[key] for key in KEYS[:-1]), []).append(row)
    for key, found in by_task.items():
        line: Row = dict(zip(KEYS[:-1], key, strict=True))
        line["seeds"] = len({row["seed"] for row in found})

        def mean(name: str, field: str, found: list[Row] = found) -> float:
            return statistics.mean(row[field] for row in found if row["name"] == name)

        line["DEQ accuracy"] = f"{mean('DEQ at 1e-6', 'accuracy'):.2f}"
        for steps in ("1 step", "2 steps", "3 steps"):
            cut, fitted = f"DEQ cut after {steps}", f"{steps} of its own, all weights fitted"
            line[f"{steps}: cut, fitted"] = f"{mean(cut, 'agreement'):.2f}, {mean(fitted, 'agreement'):.2f}"
        line["accuracy lost, 2 steps"] = (
            f"{mean('DEQ at 1e-6', 'accuracy') - mean('2 steps of its own, all weights fitted', 'accuracy'):.2f}"
        )
        line["undesigned"] = f"{mean('undesigned, 2 steps', 'agreement'):.2f}"
        line["guarded"] = (
            f"{statistics.mean(row['agreement'] for row in found if row['kind'] == 'guarded'):.2f}"
        )
        two = mean("2 steps of its own, all weights fitted", "ms")
        line["faster, 1e-3, 1e-6"] = (
            f"{mean('DEQ at 1e-3', 'ms') / two:.1f}, {mean('DEQ at 1e-6', 'ms') / two:.1f}"
        )
        lines.append(line)
    return markdown_table(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", nargs="+", choices=DATA, default=DATA)
    parser.add_argument("--activations", nargs="+", choices=ACTIVATIONS, default=ACTIVATIONS)
    parser.add_argument("--feedbacks", nargs="+", choices=FEEDBACKS, default=FEEDBACKS)
    parser.add_argument("--widths", nargs="+", type=int, default=WIDTHS)
    parser.add_argument("--trained", nargs="+", choices=TRAINED, default=TRAINED)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--summary", action="store_true", help="only show what is done")
    parser.add_argument("--out", type=Path, default=RESULTS)
    wanted = parser.parse_args()
    path = wanted.out / "distillation.jsonl"
    done = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    known = {tuple(row[key] for key in KEYS) for row in done}
    choices = (
        wanted.data,
        wanted.activations,
        wanted.feedbacks,
        wanted.widths,
        wanted.trained,
        range(wanted.seeds),
    )
    tasks = [task for task in itertools.product(*choices) if task not in known]
    warnings.simplefilter("ignore")
    limit = time.monotonic() + 60.0 * wanted.minutes
    for task in track([] if wanted.summary else tasks, "distillation", console=CONSOLE):
        if time.monotonic() > limit:
            break
        rows = [{**dict(zip(KEYS, task, strict=True)), **row} for row in task_rows(*task)]
        atomic_append(path, "".join(json.dumps(row) + "\n" for row in rows).encode())
        done += rows
    if done:
        text = summary(done)
        CONSOLE.print(text, soft_wrap=True)
        write_atomically(
            wanted.out / "distillation.md",
            "# Distillation\n\nAgreement of classes with the teacher on the test part in percent: the DEQ cut after "
            "one, two and three steps, and as many steps of its own with all weights fitted; an undesigned network of "
            "two steps; the chosen student guarded by the DEQ on 5 % of the rows. 'faster': the DEQ solved to 1e-3 and "
            "1e-6 over two "
            f"fitted steps.\n\n{text}",
        )


if __name__ == "__main__":
    main()
