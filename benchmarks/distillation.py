"""How faithfully and how much faster do a few explicit steps answer for a trained DEQ?

  python benchmarks/distillation.py                      what is not done yet, task by task; the next call goes on
  python benchmarks/distillation.py --minutes 20         as much as fits
  python benchmarks/distillation.py --only mnist relu    the tasks with these words
  python benchmarks/distillation.py --list               the tasks and which are done
  python benchmarks/distillation.py --summary            the tables from what is done
  python benchmarks/distillation.py --publish            and the short ones into docs/results.md

A task is a data set, an activation, a feedback, a width, what was trained (readout or all weights) and a seed. All
combinations would be 648 teachers; `TASKS` is a fraction of them: every data set with every activation, every level of
every other factor several times, and three seeds of two settings.
The teacher is trained on labels of 8000 rows (all weights: three epochs of Adam; readout: ten), then distilled
without labels on 36 000 others (CIFAR-10 5000 and 5000, VGG-19 features 8000 and 12 000), and everything is judged
on the whole test part: agreement of classes with the teacher, accuracy, and processor milliseconds of 1000 rows on one
thread, in turn, beside the DEQ solved to 1e-3 and to 1e-6 in the quicker of two ways. Feedback is σ_a² at the start,
0.2 or 0.5; "strong" starts at 0.9 (ReLU 0.8), from where training takes it to the edge of what the solver can do. What
it became is in every row: the norm of ∂f/∂z, its spectral radius (the rate at which iteration converges), and the
solver's steps.

Beside the candidates of `distill` (the DEQ cut, closed forms, fitted): "undesigned", a network of the chosen student's
shape with torch's usual random weights, fitted alike; and the guard at a fallback of 5 %. Tasks of images have
convolutional teachers with 16 channels.
With --epochs 4 a task takes a third of the time: all weights are fitted for one and two steps only (more steps have
closed forms); with --epochs 0 students have closed forms only.
--rows distils on fewer rows. Every result says so.
Results: distillation.jsonl in --out, one line for each candidate, finished tasks in one piece.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import shutil
import tempfile
import time
import warnings
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from distillation_tables import KEYS, report, short
from harness import RESULTS, Row, filled, write_atomically
from rich.console import Console
from scipy.sparse.linalg import eigs, svds
from torch import Tensor, nn

from notsodeep.data import as_images, load
from notsodeep.errors import ConvergenceError
from notsodeep.files import atomic_append
from notsodeep.models import DEQ, ConvDEQ
from notsodeep.nets import ConvDEQNet, DEQNet, Distilled, SolverOptions, distill, fit, guarded
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.fidelity import milliseconds, relative_error
from notsodeep.nets.student_fit import StudentFit, in_batches
from notsodeep.nets.students import StepsNet
from notsodeep.nets.teacher_answers import Answers, Split
from notsodeep.papers.training_rows import Parts, parts_of

CONSOLE = Console(width=150)
PAGE = Path(__file__).resolve().parents[1] / "docs" / "results.md"
# Rows with labels, of which the teacher has no more than half of a data set, and rows without.
ROWS, OTHERS, EPOCHS = 8_000, 36_000, {"all": 3, "readout": 10}
CHANNELS, IMAGE_ROWS, IMAGE_OTHERS, SIDE = 16, 2000, 5000, 16
# Of what the choice has to be certain: what is aimed at (`distillation_tables`).
UNTIL = {"mnist": 0.995}
UNTIL_ELSE = 0.99
# Epochs at least of the network that starts from random weights: without any it would know nothing.
_UNDESIGNED = 4
TOLERANCES = {"1e-3": 1e-3, "1e-6": 1e-6}


@dataclass(frozen=True)
class Task:
    """One teacher."""

    data: str
    activation: str
    feedback: str
    width: int = 512
    trained: str = "all"
    seed: int = 0

    @property
    def name(self) -> str:
        return "-".join(str(getattr(self, key)) for key in KEYS)

    @property
    def images(self) -> bool:
        return self.data.endswith(" images")

    @property
    def sigma_a2(self) -> float:
        if self.feedback == "strong":
            return 0.8 if self.activation == "relu" else 0.9
        return float(self.feedback)


def _tasks() -> list[Task]:
    """A fraction of all combinations, ordered such that an early end leaves some of everything."""
    return [
        Task("mnist", "relu", "0.5", trained="readout"),
        Task("cifar10_vgg19", "tanh", "0.5"),
        Task("cifar10", "relu", "0.2"),
        Task("fashion_mnist", "tanh", "0.5"),
        Task("mnist images", "relu", "0.5", CHANNELS),
        Task("mnist", "gelu", "strong"),
        Task("fashion_mnist", "gelu", "0.2", trained="readout"),
        Task("mnist", "relu", "0.2"),
        Task("cifar10_vgg19", "relu", "0.5", 1024, trained="readout"),
        Task("fashion_mnist images", "tanh", "0.2", CHANNELS),
        Task("fashion_mnist", "relu", "0.2"),
        Task("cifar10_vgg19", "gelu", "0.2"),
        Task("cifar10", "gelu", "0.5"),
        Task("mnist", "tanh", "0.5", 1024),
        Task("fashion_mnist", "gelu", "0.5", 2048),
        Task("mnist", "relu", "0.2", seed=1),
        Task("fashion_mnist", "tanh", "0.5", seed=1),
        Task("mnist", "relu", "0.2", seed=2),
        Task("fashion_mnist", "tanh", "0.5", seed=2),
        Task("cifar10", "tanh", "strong", trained="readout"),
        Task("cifar10 images", "gelu", "0.2", CHANNELS),
        Task("fashion_mnist", "relu", "0.2", 2048),
    ]


TASKS = _tasks()
# Those for which a network of the student's shape is fitted from random weights, which takes long.
UNDESIGNED = [
    next(task for task in TASKS if (task.data, task.trained) == (data, "all"))
    for data in ("mnist", "fashion_mnist", "cifar10_vgg19")
]


# --- teachers ----------------------------------------------------------------------------------------------
@lru_cache(maxsize=1)
def parts(data: str) -> Parts:
    if data.endswith(" images"):
        return image_parts(data.split()[0])
    return parts_of(data, ROWS + OTHERS if data in ("mnist", "fashion_mnist") else None, None)


def labelled(data: str) -> int:
    """Number of rows whose labels the teacher sees; the others are distilled on."""
    images = data.endswith(" images")
    return min(IMAGE_ROWS if images else ROWS, len(parts(data).X) // 2)


def image_parts(data: str) -> Parts:
    """Images of at most 16 × 16, less their mean image, with |x(s)|² = 1 on average."""
    found = []
    for split, count in (("train", IMAGE_ROWS + IMAGE_OTHERS), ("test", 2000)):
        read = load(data, split=split, n=count)
        images = as_images(data, np.asarray(read.X, dtype=np.float64))
        side = images.shape[-1]
        step = next(step for step in range(1, side + 1) if side % step == 0 and side // step <= SIDE)
        blocks = images.reshape(*images.shape[:2], side // step, step, side // step, step)
        found.append((blocks.mean(axis=(3, 5)), np.asarray(read.y)))
    mean = found[0][0].mean(axis=0)
    scale = math.sqrt(np.mean(np.sum((found[0][0] - mean) ** 2, axis=1)))
    X, X_test = (torch.as_tensor((images - mean) / scale, dtype=torch.float32) for images, _ in found)
    y, y_test = (torch.as_tensor(labels, dtype=torch.int64) for _, labels in found)
    return Parts(X, y, X_test, y_test, 1.0)


def teacher_of(task: Task, scratch: Path) -> EquilibriumNet:
    """A DEQ, trained on the first half of the rows; one that was trained before is read."""
    data = parts(task.data)
    options: dict[str, Any] = {
        "train": task.trained,
        "seed": task.seed,
        "solver": SolverOptions(tolerance=1e-4, max_steps=500),
    }
    net: EquilibriumNet
    if task.images:
        model = ConvDEQ(task.activation, task.sigma_a2)
        net = ConvDEQNet(model, data.X.shape[1], task.width, data.classes, tuple(data.X.shape[2:]), **options)
    else:
        deq = DEQ(task.activation, task.sigma_a2)
        net = DEQNet(deq, data.X.shape[1], task.width, data.classes, **options)
    file = scratch / f"{task.name}.teacher.pt"
    if file.exists():
        net.load_state_dict(torch.load(file, weights_only=True))
        return net
    rows = labelled(task.data)
    history = fit(net, (data.X[:rows], data.y[:rows]), epochs=EPOCHS[task.trained], seed=task.seed)
    if history.stopped:
        CONSOLE.print(f"{task.name}: training stopped early: {history.stopped}")
    torch.save(net.state_dict(), file)
    return net


def at_tolerance(net: EquilibriumNet, tolerance: float, method: str = "auto") -> EquilibriumNet:
    """The same network, solved to another residual, nothing to be trained.

    Args:
        net: the network.
        tolerance: the residual.
        method: of the solver.
    """
    task_solver = SolverOptions(method=method, tolerance=tolerance, max_steps=500)
    if isinstance(net, DEQNet):
        plain = net.plain_weights()
        other = DEQNet.from_weights(
            *plain[:3], net.spec.activation, plain.readout, solver=task_solver, on_failure="ignore"
        )
        return other.requires_grad_(False)
    sizes = (net.sample_shape[0], net.units, net.out_features, net.sample_shape[1:])
    images = ConvDEQNet(net.spec, *sizes, solver=task_solver, on_failure="ignore")
    images.load_state_dict(net.state_dict())
    return images.requires_grad_(False)


@torch.no_grad()
def feedback_of(net: EquilibriumNet, X: Tensor) -> Row:
    """Norm and spectral radius of ∂f/∂z at the equilibria of some rows: means, and the largest radius."""
    if not isinstance(net, DEQNet):
        return {"norm": net.contraction(exact=True), "rate": None, "rate_max": None}
    recurrent = net.plain_weights().recurrent
    slopes = net._settings.phi.slope(net.preactivations(X[:8])) * math.sqrt(net.units)
    jacobians = [(one[:, None] * recurrent).double().numpy() for one in slopes]
    norms = [float(svds(one, k=1, tol=1e-3, return_singular_vectors=False)[0]) for one in jacobians]
    radii = [float(abs(eigs(one, k=1, tol=1e-3, return_eigenvectors=False)[0])) for one in jacobians]
    return {"norm": float(np.mean(norms)), "rate": float(np.mean(radii)), "rate_max": max(radii)}


# --- students ----------------------------------------------------------------------------------------------
def undesigned(student: StepsNet, data: Split, epochs: int, seed: int) -> StepsNet:
    """The student's shape with torch's usual random weights (uniform, ±1/√fan_in), fitted alike."""
    drawn = copy.deepcopy(student)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in drawn.named_parameters():
            if name.startswith("gains"):
                weights.fill_(1.0)
            elif weights.ndim == 1:
                weights.zero_()
            else:
                bound = 1.0 / math.sqrt(weights[0].numel())
                weights.copy_(torch.rand(weights.shape, generator=generator) * 2 * bound - bound)
    work = StudentFit(data, 256, epochs, seed, lambda *_: None)
    work.fit_readout(drawn)
    work._descend("undesigned", drawn, "")
    work.fit_readout(drawn)
    return drawn


def judged(outputs: Tensor, data: Parts, wanted: Tensor) -> Row:
    """Agreement with the teacher and accuracy, on the test part, in percent."""
    classes = outputs.argmax(1)
    return {
        "agreement": 100.0 * float((classes == wanted.argmax(1)).double().mean()),
        "accuracy": 100.0 * float((classes == data.y_test).double().mean()),
        "error": relative_error(outputs, wanted),
    }


def task_rows(task: Task, scratch: Path, epochs: int, limit: int | None = None) -> list[Row]:
    """The teacher, every candidate, the undesigned student and the guard of one task."""
    data = parts(task.data)
    phases = [time.process_time()]
    precise = at_tolerance(teacher_of(task, scratch), 1e-6)
    phases.append(time.process_time())
    CONSOLE.print(f"   teacher {phases[1] - phases[0]:.0f} s of processor time")
    loose = at_tolerance(precise, 1e-3)
    wanted = in_batches(precise, data.X_test, 1000)
    until = UNTIL.get(task.data.split()[0], UNTIL_ELSE)
    options: dict[str, Any] = {"steps": (1, 2, 3) if epochs >= 8 else (1, 2), "epochs": epochs}
    others = data.X[labelled(task.data) :][:limit]
    small = distill(precise, others, until=until, seed=task.seed, **options)
    phases.append(time.process_time())
    modules: dict[str, nn.Module] = {"DEQ at 1e-3": loose, "DEQ at 1e-6": precise}
    about: dict[str, Row] = {name: {"kind": "teacher"} for name in modules}
    for one in small.front:
        modules[one.name] = one.network
        about[one.name] = {
            "kind": one.kind,
            "start": one.start,
            "operations": one.operations,
            "score": one.score,
            "lower": one.lower,
            "interval": one.fidelity.interval,
            "judged": one.fidelity.agreement,
            "expected": one.expected,
            "chosen": one.name == small.name,
        }
    for name, network in beside(task, small, precise, epochs, others).items():
        modules[name], about[name] = network, {"kind": name, "operations": network.operations}
    phases.append(time.process_time())
    safe = guarded(small, precise, share=0.05)
    modules["guarded"] = safe
    batch = data.X_test[:1000] if not task.images else data.X_test[:250]
    times = milliseconds(modules, batch, 3, clock=lambda _: time.process_time())
    steps = {}
    for words, tolerance in TOLERANCES.items():
        ways = {method: at_tolerance(precise, tolerance, method) for method in ("iteration", "anderson")}
        taken = milliseconds(ways, batch, 2, clock=lambda _: time.process_time())
        good = {way: ms for way, ms in taken.items() if ways[way].last_solve.converged}
        way = min(good or taken, key=lambda way: taken[way])
        name = f"DEQ at {words}"
        times[name] = min(times[name], taken[way])
        about[name] |= {"way": way, "ways": taken}
        steps[f"steps_{words}"] = ways[way].last_solve.steps
    common = {**steps, **feedback_of(precise, data.X_test), "seconds": phases[2] - phases[1]}
    common |= {
        "left_out": small.left_out,
        "epochs": options["epochs"],
        "until": until,
        "sure": small.reached,
        "rows": len(others),
    }
    about["guarded"] = {"kind": "guarded", **guard_facts(safe, data, wanted)}
    found = [
        {
            "name": name,
            **about[name],
            "ms": times[name],
            **judged(in_batches(module, data.X_test, 1000), data, wanted),
            **common,
        }
        for name, module in modules.items()
    ]
    taken = zip(
        phases, [*phases[1:], time.process_time()], ("teacher", "students", "beside", "judged"), strict=True
    )
    words = (f"{phase} {after - before:.0f} s" for before, after, phase in taken)
    CONSOLE.print(f"   processor time: {', '.join(words)}")
    return found


def beside(
    task: Task, small: Distilled, precise: EquilibriumNet, epochs: int, others: Tensor
) -> dict[str, StepsNet]:
    """What the chosen student is compared with, beyond the front."""
    outputs = in_batches(precise, others, 1000)
    split = Split.of(others, Answers(outputs, torch.ones(len(others), dtype=torch.bool)), task.seed)
    found = {}
    if task in UNDESIGNED:
        found["undesigned"] = undesigned(small.network, split, max(epochs, _UNDESIGNED), task.seed)
    return found


@torch.no_grad()
def guard_facts(safe: Any, data: Parts, wanted: Tensor) -> Row:
    """How often the guard asked on the test part, and what it expected beside what happened."""
    doubts = torch.cat([safe.doubts(part) for part in torch.split(data.X_test, 1000)])
    alone = in_batches(safe.student, data.X_test, 1000)
    return {
        "asked": 100.0 * float((doubts > safe.limit).double().mean()),
        "expected": 100.0 * float(doubts.mean()),
        "observed": 100.0 * float((alone.argmax(1) != wanted.argmax(1)).double().mean()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", default=(), help="words that the name of a task must have")
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument(
        "--epochs", type=int, default=8, help="in which all weights are fitted; 0: closed forms"
    )
    parser.add_argument("--rows", type=int, help="at most so many rows to distil on")
    parser.add_argument("--keep", action="store_true", help="leave teachers and students in --scratch")
    parser.add_argument("--list", action="store_true", help="the tasks, and which are done")
    parser.add_argument("--summary", action="store_true", help="only write the tables of what is done")
    parser.add_argument("--publish", action="store_true", help="the same, and into docs/results.md")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument(
        "--scratch", type=Path, default=Path(tempfile.gettempdir()) / "notsodeep-distillation"
    )
    wanted = parser.parse_args()
    torch.set_num_threads(1)
    path = wanted.out / "distillation.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
    done = {tuple(row[key] for key in KEYS) for row in rows}
    tasks = [task for task in TASKS if all(word in task.name.split("-") for word in wanted.only)]
    if wanted.list:
        for task in tasks:
            mark = "done" if tuple(getattr(task, key) for key in KEYS) in done else "    "
            CONSOLE.print(f"{mark} {task.name}")
        return
    tasks = [task for task in tasks if tuple(getattr(task, key) for key in KEYS) not in done]
    warnings.simplefilter("ignore")
    for folder in (wanted.scratch, wanted.out):
        folder.mkdir(parents=True, exist_ok=True)
    limit = time.monotonic() + 60.0 * wanted.minutes
    for number, task in enumerate([] if wanted.summary or wanted.publish else tasks, 1):
        if time.monotonic() > limit:
            break
        CONSOLE.print(f"{number} of {len(tasks)}: {task.name} …")
        start = time.monotonic()
        facts = {key: getattr(task, key) for key in KEYS}
        try:
            measured = task_rows(task, wanted.scratch, wanted.epochs, wanted.rows)
        except ConvergenceError as error:
            measured = [{"name": "failed", "kind": "failed", "reason": str(error)}]
        found = [{**facts, **row} for row in measured]
        atomic_append(path, "".join(json.dumps(row) + "\n" for row in found).encode())
        rows += found
        for file in () if wanted.keep else wanted.scratch.glob(f"{task.name}.*"):
            file.unlink()
        CONSOLE.print(f"   {time.monotonic() - start:.0f} s")
        write_atomically(wanted.out / "distillation.md", report(rows))
    if rows:
        text = report(rows)
        write_atomically(wanted.out / "distillation.md", text)
        CONSOLE.print(text, soft_wrap=True)
        if wanted.publish:
            page = PAGE.read_text(encoding="utf-8")
            write_atomically(
                PAGE, filled(page, "<!-- distillation -->", "<!-- end: distillation -->", short(rows))
            )
    if wanted.scratch.exists() and not any(wanted.scratch.iterdir()):
        shutil.rmtree(wanted.scratch)


if __name__ == "__main__":
    main()
