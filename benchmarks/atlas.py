"""The atlas: is `verdict` right? Every setting is judged first, then run for real.

  python benchmarks/atlas.py --judge --data-dir DATA     verdicts, made before anything is trained
  python benchmarks/atlas.py --run --data-dir DATA       the truth, setting by setting; the next call goes on
  python benchmarks/atlas.py --publish                   docs/atlas.md from what is done

Kinds of settings, and what is run for each:

  readout    hidden weights as drawn, the readout by ridge regression (its ridge by leaving samples out), DEQ and twin
  all        all weights by Adam, for each network the better of two rates, DEQ and twin
  regression as readout, for a table of numbers
  images     as readout, convolutional networks on images of digits
  chain      as images: two marks at the ends of a sequence, the class is whether they are alike; noise between them
  trained    a DEQ is trained on the labels of one half with all weights; then `distill` replaces it, without labels,
             on the other half, which the verdict sees too

The twin does, if its test accuracy is at most one point below that of the DEQ in the mean over seeds (regression: its
error at most a tenth above; trained: if the distilled network agrees with the DEQ on 99 % of the test samples) and it
is at least 1.2 times as fast.  A verdict is right if it is "yes" where the twin does and "no" where it does not;
"uncertain" is counted apart, and is not right.  Settings that are marked as tuning served to choose the limits of
`verdicts/rules.py`; the others did not.

Journals: results/atlas-verdicts.jsonl and results/atlas-truth.jsonl, one line for each setting.
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from atlas_data import Parts, parts_of
from atlas_page import publish
from atlas_settings import TUNING, Setting, settings
from harness import RESULTS, Row, commit

import notsodeep as nsd
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.files import atomic_append
from notsodeep.learning.labelled import Labelled
from notsodeep.nets import SolverOptions, compute_features, distill, explicit_twin, fit
from notsodeep.nets.modules import network_of
from notsodeep.nets.teacher_answers import answers_of, asked
from notsodeep.nets.twins import speed_ratios
from notsodeep.progress import silent

VERDICTS, TRUTH = RESULTS / "atlas-verdicts.jsonl", RESULTS / "atlas-truth.jsonl"
# Seeds at least and at most: as many as it takes to know the gap to a quarter of what is allowed, and in later
# rounds on which side of the limit it is (with 90 % confidence).
SEEDS = {
    1: {"readout": (5, 30), "regression": (5, 30), "all": (3, 3), "images": (4, 12), "chain": (4, 8)},
    2: {"readout": (5, 40), "regression": (5, 40), "all": (3, 8), "images": (4, 16), "chain": (4, 12)},
}
SURE = 1.28
# Draws of a DEQ without an equilibrium on some sample that are left out at most.
LEFT_OUT = 10
SOLVER = SolverOptions(max_steps=1000)
RATES = (3e-4, 1e-3)
POINT, TENTH, UNTIL, FASTER = 0.01, 0.10, 0.99, 1.2
RIDGES = 10.0 ** np.arange(-8.0, 2.1, 0.5)


def model_of(setting: Setting) -> nsd.DEQ | nsd.ConvDEQ:
    if setting.readout:
        return nsd.ConvDEQ(setting.activation, setting.sigma_a2, setting.sigma_b2, readout=setting.readout)
    return nsd.DEQ(setting.activation, setting.sigma_a2, setting.sigma_b2)


def training_of(setting: Setting) -> str:
    return "all" if setting.kind in ("all", "trained") else "readout"


# --- the verdict ----------------------------------------------------------------------------------------------------


def judged(setting: Setting, folder: Path | None) -> Row:
    """The verdict, before the setting is run: it sees the training part alone."""
    parts, model = parts_of(setting, folder), model_of(setting)
    begin = time.process_time()
    if setting.kind == "trained":
        own, others = parts.halves
        found = nsd.verdict(teacher_of(setting, own), others, until=UNTIL)
    else:
        found = nsd.verdict(model, parts.X, parts.y, width=setting.width, train=training_of(setting))
    return {**found.as_dict(), "seconds": time.process_time() - begin}


# --- the truth ------------------------------------------------------------------------------------------------------


def truth(setting: Setting, folder: Path | None) -> Row:
    """What really happens."""
    parts, model = parts_of(setting, folder), model_of(setting)
    if setting.kind == "trained":
        return distilled(setting, parts)
    run = trained_accuracy if setting.kind == "all" else ridge_accuracy
    labelled = Labelled.of(parts.y, len(parts.y))
    outputs = 1 if labelled.codes is None else len(labelled.classes)
    figures: dict[str, list[float]] = {"deq": [], "twin": []}
    regression = labelled.codes is None
    limit, error, (least, most) = (
        TENTH if regression else POINT,
        math.inf,
        SEEDS[min(setting.round, 2)][setting.kind],
    )
    mean, seed, left_out, design = 0.0, 0, 0, None
    while (count := len(figures["deq"])) < least or (
        not is_known(setting, mean, error, limit) and count < most
    ):
        # Seeds that the verdict has not seen.
        net = network_of(
            model,
            parts.X.shape[1:],
            setting.width,
            outputs,
            train=training_of(setting),
            seed=1000 + seed,
            solver=SOLVER,
        )
        seed += 1
        try:
            if design is None:
                design = explicit_twin(net, parts.X, evidence=False).design.network
            twin_net = net.counterpart(design, seed=1999 + seed)
            found = {
                name: run(one, setting, parts, labelled) for name, one in (("deq", net), ("twin", twin_net))
            }
        except ConvergenceError:
            left_out += 1
            if setting.round == 1 or left_out > LEFT_OUT:
                raise
            continue
        for name, value in found.items():
            figures[name].append(value)
        deq, twin = (np.array(figures[name]) for name in ("deq", "twin"))
        gap = twin / deq.mean() - deq / deq.mean() if regression else deq - twin
        mean, error = gap.mean(), float(gap.std(ddof=1) / math.sqrt(len(gap))) if len(gap) > 1 else math.inf
    forward, training = speed_ratios(net, twin_net, torch.as_tensor(parts.X[:256], dtype=torch.float32))
    speed = max(forward, training or 0.0)
    return {
        "deq": float(deq.mean()), "twin": float(twin.mean()), "gap": float(gap.mean()), "error": error, "speed": speed,
        "regression": regression, "does": bool(gap.mean() <= limit and speed >= FASTER), "seeds": len(gap),
        "left out": left_out,
    }  # fmt: skip


def is_known(setting: Setting, gap: float, error: float, limit: float) -> bool:
    """Whether the truth needs no more seeds."""
    return error <= limit / 4.0 and (setting.round == 1 or abs(gap - limit) > SURE * error)


def ridge_accuracy(net: Any, setting: Setting, parts: Parts, labelled: Labelled) -> float:
    """Test accuracy (or squared error) of a readout by ridge, the ridge by leaving training samples out."""
    train, test = (
        np.asarray(compute_features(net, torch.as_tensor(one, dtype=torch.float32)), dtype=np.float64)
        for one in (parts.X, parts.X_test)
    )
    centre, goal = train.mean(axis=0), labelled.targets.mean(axis=0)
    left, values, right = np.linalg.svd(train - centre, full_matrices=False)
    squares, rotated = values**2, left.T @ (labelled.targets - goal)
    best, weights = np.inf, None
    for ridge in squares.mean() * RIDGES:
        shrink = squares / (squares + ridge)
        fitted = left @ (shrink[:, None] * rotated)
        left_out = (labelled.targets - goal - fitted) / (1.0 - (left**2 @ shrink))[:, None]
        if np.mean(left_out**2) < best:
            best, weights = np.mean(left_out**2), right.T @ ((values / (squares + ridge))[:, None] * rotated)
    scores = (test - centre) @ weights + goal
    if labelled.codes is None:
        return float(np.mean((scores[:, 0] - parts.y_test) ** 2))
    found = (scores[:, 0] > 0).astype(int) if scores.shape[1] == 1 else scores.argmax(axis=1)
    return float(np.mean(labelled.classes[found] == parts.y_test))


def trained_accuracy(net: Any, setting: Setting, parts: Parts, labelled: Labelled) -> float:
    """Test accuracy after all weights were trained, at the better of two rates."""
    codes = {value: code for code, value in enumerate(labelled.classes)}
    y, y_test = (np.array([codes[one] for one in part]) for part in (parts.y, parts.y_test))
    start = {name: value.clone() for name, value in net.state_dict().items()}
    found = []
    for rate in RATES:
        net.load_state_dict(start)
        history = fit(
            net, (parts.X, y), (parts.X_test, y_test), epochs=setting.epochs, batch_size=64, lr=rate
        )
        found.append(history.last.test_accuracy if history.last is not None else 0.0)
    return max(found)


def teacher_of(setting: Setting, parts: Parts) -> Any:
    """A DEQ trained on labels; the weights of the chain's are as drawn, and its readout is fitted by ridge."""
    labelled = Labelled.of(parts.y, len(parts.y), one_hot=True)
    model, outputs = model_of(setting), len(labelled.classes)
    options: dict[str, Any] = {} if setting.readout else {"solver": SolverOptions(tolerance=1e-4)}
    net = network_of(model, parts.X.shape[1:], setting.width, outputs, train="all", seed=0, **options)
    if not setting.readout:
        fit(net, (parts.X, labelled.codes), epochs=setting.epochs, batch_size=64)
        return net
    features = compute_features(net, torch.as_tensor(parts.X, dtype=torch.float32)).double()
    square = features.mT @ features
    square.diagonal().add_(1e-10 * float(square.diagonal().mean()))
    goal = features.mT @ torch.as_tensor(labelled.targets)
    with torch.no_grad():
        net.readout.copy_(torch.linalg.solve(square, goal).mT / net.factors["readout"])
    return net


def distilled(setting: Setting, parts: Parts) -> Row:
    """The distilled network beside its teacher on the test part."""
    own, others = parts.halves
    teacher = teacher_of(setting, own)
    small = distill(teacher, others, until=UNTIL, batch_size=128)
    rows = torch.as_tensor(parts.X_test, dtype=torch.float32)
    with torch.no_grad(), asked(teacher) as copied:
        answers = answers_of(copied, rows, 500, silent)
        found = torch.cat([small.network(part) for part in torch.split(rows, 500)]).argmax(1)
    wanted, good = answers.outputs.argmax(1), answers.good
    agreement, speed = float((wanted == found)[good].double().mean()), small.fidelity.speed
    return {
        "agreement": agreement, "speed": speed, "does": agreement >= UNTIL and speed >= FASTER, "student": small.name,
        "regression": False, "accuracy": float((wanted.numpy() == parts.y_test).mean()), "seeds": 1,
        "rows": int(good.sum()),
    }  # fmt: skip


# --- journals -------------------------------------------------------------------------------------------------------


def known(path: Path) -> dict[str, Row]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["name"]: row for row in rows}


def go_on(path: Path, task: Callable[[Setting, Path | None], Row], arguments: argparse.Namespace) -> None:
    """Work through the settings that the journal does not have."""
    done, begin = known(path), time.monotonic()
    for number, setting in enumerate(settings()):
        if setting.name in done or (arguments.only and arguments.only not in setting.name):
            continue
        if arguments.round and setting.round != arguments.round:
            continue
        if task is truth and setting.name not in known(VERDICTS):
            continue  # the verdict comes first
        if time.monotonic() - begin > 60.0 * arguments.minutes:
            break
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = task(setting, arguments.data_dir)
        except (ConvergenceError, InputError) as error:
            found = {"failed": str(error)}
        row = {
            "name": setting.name,
            "tuning": setting.round == 2
            or (setting.round == 1 and (number % 5 == 0 or setting.name in TUNING)),
            **asdict(setting),
            **found,
            "commit": commit(),
        }
        atomic_append(path, (json.dumps(row, ensure_ascii=False) + "\n").encode())
        shown = found.get("answer") or found.get("failed") or f"does {found['does']}, gap {found.get('gap')}"
        print(f"{setting.name:60s} {shown}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--judge", action="store_true")
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--publish", action="store_true")
    parser.add_argument("--only", default="", help="settings whose name has this in it")
    parser.add_argument("--round", type=int, choices=(1, 2, 3), help="one of the three rounds")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--data-dir", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    if arguments.judge:
        go_on(VERDICTS, judged, arguments)
    if arguments.run:
        go_on(TRUTH, truth, arguments)
    if arguments.publish:
        publish(known(VERDICTS), known(TRUTH))


if __name__ == "__main__":
    main()
