"""Results to make pages of: a sound experiment, and one that wants to break out of the page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from figure_rows import errors

from notsodeep import figures
from notsodeep.designs import design
from notsodeep.models import DEQ
from notsodeep_lab.papers.drawings import draw
from notsodeep_lab.papers.experiment import Expectation, Experiment, Row, Size, Spec, Task
from notsodeep_lab.papers.runner import Outcome, reproduce

HOSTILE = (
    "<script>window.broken = 1</script>",
    "\"'><img src=x onerror='window.broken = 1'>",
    "</title></style></table></pre><h1>broken</h1>",
    "javascript:window.broken=1",
    "&lt;b&gt; &#60;i&#62; ]]> <!-- \x00 \u202e",
)


@dataclass(frozen=True)
class PlainSpec(Spec):
    """Sizes, and words."""

    sizes: tuple[int, ...] = (250, 500, 1000)
    words: str = "plain"


class Plain(Experiment[PlainSpec]):
    """Errors that fall with the root of n."""

    name = "icml-error"
    paper = "A paper, Figure 1"
    summary = "error against n"
    minutes: ClassVar[dict[Size, float]] = {"quick": 0.1, "full": 1.0}
    cut = "the larger half of the paper's n"
    spec_type = PlainSpec

    def spec(self, size: Size, seeds: int | None = None) -> PlainSpec:
        return PlainSpec((250, 500, 1000, 2000)) if size == "full" else PlainSpec()

    def tasks(self, spec: PlainSpec) -> Sequence[Task]:
        return [Task(f"n={n}", {"n": n}) for n in spec.sizes]

    def run(self, spec: PlainSpec, task: Task, data_dir: Path | None) -> list[Row]:
        return [row for row in errors(("asymptotic",), ("features",)) if row["n"] == task.parameters["n"]]

    def expectations(self, spec: PlainSpec, rows: Sequence[Row]) -> list[Expectation]:
        return [
            Expectation("exponent of the error", -0.5, -0.4871, True, "fitted to the means over seeds"),
            Expectation("‖G − Ḡ‖", 0.12, 1.57, False, "which kernel is meant is not said"),
            Expectation("a number without a verdict", None, 3.0),
        ]


class Hostile(Plain):
    """Rows, settings and claims that want to be markup."""

    name = "hostile"
    paper = HOSTILE[0]
    summary = HOSTILE[1]

    def run(self, spec: PlainSpec, task: Task, data_dir: Path | None) -> list[Row]:
        return [{"kind": text, text: text, "label": [text], "deep": {text: text}} for text in HOSTILE]

    def expectations(self, spec: PlainSpec, rows: Sequence[Row]) -> list[Expectation]:
        return [Expectation(text, text, text, number % 2 == 0, text) for number, text in enumerate(HOSTILE)]


EXPERIMENTS: dict[str, Experiment[Any]] = {each.name: each for each in (Plain(), Hostile())}


@cache
def drawn(ending: str) -> bytes:
    """A figure as a file of this kind, drawn once."""
    with TemporaryDirectory() as folder:
        made = draw("icml-error", errors(("asymptotic",), ("features",)))
        return figures.save(made, Path(folder) / f"figure.{ending}").read_bytes()


def run_plain(root: Path, size: Size = "quick") -> Outcome:
    """A finished result with its figure."""
    outcome = reproduce(Plain(), size, root=root)
    for ending in ("png", "svg"):
        (outcome.folder / f"figure.{ending}").write_bytes(drawn(ending))
    return outcome


def run_hostile(root: Path) -> Outcome:
    """A finished result that is all markup, its provenance included."""
    outcome = reproduce(Hostile(), spec=PlainSpec(words=" ".join(HOSTILE)), root=root)
    origin = outcome.folder / "provenance.json"
    content = json.loads(origin.read_text())
    content["task_seconds"] = HOSTILE[0]
    content["sessions"][-1] |= {"commit": HOSTILE[1], "machine": {HOSTILE[0]: HOSTILE[1]}}
    origin.write_text(json.dumps(content))
    return outcome


def write_design(path: Path) -> Path:
    """A design as `notsodeep design --save` writes it, but named like markup."""
    content = json.loads(design(DEQ("tanh", 0.2), 1.0).to_json())
    path.write_text(json.dumps(content | {"family": HOSTILE[0], "reason": HOSTILE[1]}))
    return path


def write_training(path: Path, **changes: Any) -> Path:
    """A training as `notsodeep train --json` writes it."""
    row = {
        "data": "digits", "width": 64, "train": "readout", "optimizer": "sgd", "lr": 1.0, "seeds": 2, "model": "deq",
        "network": "DEQ(tanh)", "accuracy": 0.9512, "accuracy_sd": 0.004, "agreement": 0.97, "seconds_per_epoch": 0.2,
        "feature_seconds": 0.1, "inference_seconds": 0.0123, "stopped": None,
    }  # fmt: skip
    path.write_text(json.dumps([row | changes, row | {"model": "twin", "accuracy_sd": None} | changes]))
    return path
