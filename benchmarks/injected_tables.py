"""The tables of benchmarks/injected.py, from its journal."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from cases import ACTIVATIONS
from harness import RESULTS, ROOT, Row, filled, markdown_table, write_atomically

PAGE = ROOT / "docs" / "designs.md"
MARKS = "<!-- distances of injected networks -->", "<!-- end of the distances -->"
DATA = {
    "mixture": "mixture",
    "digits": "digits",
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "cifar10_vgg19": "VGG-19 features",
}
FITTED, WITHOUT = 5e-4, 5e-3


@dataclass(frozen=True)
class Entry:
    """One distance: of a network with so many layers, made for a kernel or for both, in one kernel."""

    data: str
    activation: str
    sigma_a2: float
    network: str
    layers: int
    goal: str
    kernel: str
    plain: float
    scaled: float
    centred: float

    @property
    def task(self) -> tuple[str, str, float]:
        return self.data, self.activation, self.sigma_a2


class Table:
    """All entries, and what is asked of them."""

    def __init__(self, tasks: list[dict[str, Any]]) -> None:
        self.tasks = tasks
        about = ("data", "activation", "sigma_a2")
        self.entries = [
            Entry(*(task[key] for key in about), *row[:7]) for task in tasks for row in task["rows"]
        ]

    def worse(self, network: str, layers: int | None, goal: str, field: str = "plain") -> dict[Any, float]:
        """For each task the larger of the distances of the kernels that the network is for."""
        found: dict[Any, float] = {}
        for entry in self.entries:
            if (entry.network, entry.goal) == (network, goal) and layers in (None, entry.layers):
                found[entry.task] = max(found.get(entry.task, 0.0), getattr(entry, field))
        return found

    def both(self, network: str, layers: int, goal: str, task: Any) -> str:
        """CK and NTK of one task."""
        found = [
            e for e in self.entries if (e.task, e.network, e.layers, e.goal) == (task, network, layers, goal)
        ]
        return ", ".join(f"{entry.plain:.1e}" for entry in found) or "–"

    def missing(self) -> list[str]:
        """Tasks without a kernel, with what was said."""
        return [
            f"{t['activation']} {t['sigma_a2']}, {DATA[t['data']]}: {t['verdict'].split('. ')[0]}"
            for t in self.tasks
            if "verdict" in t
        ]

    def papers(self) -> dict[Any, float]:
        """The worse of the two designs of the papers, one for each kernel."""
        ck, ntk = (self.worse("papers", None, goal) for goal in ("ck", "ntk"))
        return {task: max(ck[task], ntk[task]) for task in ck}


def middle_and_worst(found: dict[Any, float], chosen: Callable[[Any], bool]) -> str:
    """The median, and the largest with its activation."""
    kept = {task: value for task, value in found.items() if chosen(task)}
    if not kept:
        return "–"
    top = max(kept, key=lambda task: kept[task])
    return f"{statistics.median(kept.values()):.0e}, {kept[top]:.0e} ({top[1]})"


def by_data(table: Table) -> str:
    """Three layers for both kernels: median and worst activation for each σ_a² and data set."""
    columns = {
        "injected, fitted": table.worse("fitted", 3, "both"),
        "injected, without data": table.worse("injected", 3, "both"),
        "DEQ cut after 3": table.worse("cut", 3, ""),
        "1 plain layer × best factor": table.worse("plain", 1, "", "scaled"),
        "centred DEQ: papers' (a network for each kernel)": table.papers(),
        "centred DEQ: injected, fitted": table.worse("fitted, centred DEQ", 3, "both"),
    }
    lines: list[Row] = []
    for sigma in sorted({task["sigma_a2"] for task in table.tasks}):
        for data, words in DATA.items():
            line: Row = {"σ_a², data": f"{sigma}, {words}"}
            for title, found in columns.items():
                line[title] = middle_and_worst(
                    found, lambda task, d=data, s=sigma: (task[0], task[2]) == (d, s)
                )
            if any(line[title] != "–" for title in columns):
                lines.append(line)
    return markdown_table(lines)


def by_purpose(table: Table) -> str:
    """All networks: median and worst over activations and data sets."""
    lines: list[Row] = []
    cases: list[tuple[str, int | None, str]] = [("plain", 1, "")]
    cases += [(network, layers, "") for layers in (2, 3) for network in ("cut", "cut, own input")]
    cases += [
        (network, layers, goal)
        for layers in (2, 3)
        for goal in ("ck", "ntk", "both")
        for network in ("injected", "fitted")
    ]
    cases += [("papers", None, "ck"), ("papers", None, "ntk"), ("fitted, centred DEQ", 3, "both")]
    for sigma in sorted({task["sigma_a2"] for task in table.tasks}):
        for network, layers, goal in cases:
            line: Row = {"σ_a²": sigma, "network": network, "layers": layers, "for": goal or "–"}
            for field, words in (("plain", "plain"), ("scaled", "best factor"), ("centred", "centred")):
                line[words] = middle_and_worst(
                    table.worse(network, layers, goal, field), lambda task, s=sigma: task[2] == s
                )
            if line["plain"] != "–":
                lines.append(line)
    return markdown_table(lines)


def by_activation(table: Table) -> str:
    """Three layers for both kernels: the worst data set of each activation and σ_a²."""
    lines: list[Row] = []
    columns = {
        "fitted": table.worse("fitted", 3, "both"),
        "fitted, centred": table.worse("fitted", 3, "both", "centred"),
        "without data": table.worse("injected", 3, "both"),
        "cut after 3": table.worse("cut", 3, ""),
        "plain × best factor": table.worse("plain", 1, "", "scaled"),
        "papers' (centred DEQ)": table.papers(),
    }
    for name in ACTIVATIONS:
        for sigma in sorted({task["sigma_a2"] for task in table.tasks}):
            mine = [task for task in columns["fitted"] if task[1:] == (name, sigma)]
            if mine:
                worst = max(mine, key=lambda task: columns["fitted"][task])
                cells = {
                    words: largest([found[t] for t in mine if t in found]) for words, found in columns.items()
                }
                about: Row = {"φ": name, "σ_a²": sigma, "data sets": len(mine)}
                lines.append(about | cells | {"worst on": DATA[worst[0]]})
    return markdown_table(lines)


def largest(values: list[float]) -> str:
    return f"{max(values):.0e}" if values else "–"


def misses(table: Table) -> list[str]:
    """Tasks up to σ_a² = 0.5 in which three layers for both kernels miss their target."""
    lines = []
    for network, limit, words in (("fitted", FITTED, "fitted"), ("injected", WITHOUT, "without data")):
        found = table.worse(network, 3, "both")
        asked = {task: value for task, value in found.items() if task[2] <= 0.5}
        bad = {task: value for task, value in asked.items() if value > limit}
        lines.append(
            f"**{words.capitalize()}, {limit:g} for σ_a² ≤ 0.5: {len(asked) - len(bad)} of {len(asked)} rows.** "
        )
        if bad:
            lines[-1] += f"Above it: {_grouped(bad)}."
    for words, (network, layers) in {
        "With a fourth layer": ("fitted", 4),
    }.items():
        found = {t: value for t, value in table.worse(network, layers, "both").items() if t[2] <= 0.5}
        still = [task for task, value in found.items() if value > FITTED]
        lines.append(
            f"{words} {len(found) - len(still)} of {len(found)} of these fitted rows are within it; not: "
            f"{'; '.join(f'{t[1]} {t[2]}, {DATA[t[0]]} ({found[t]:.1e})' for t in still) or 'none'}."
        )
    return lines


def _grouped(bad: dict[Any, float]) -> str:
    """Tasks by activation and σ_a², with the largest distance."""
    groups: dict[Any, list[Any]] = {}
    for task in sorted(bad, key=lambda task: (task[2], task[1], list(DATA).index(task[0]))):
        groups.setdefault(task[1:], []).append(task)
    return "; ".join(
        f"*{name} {sigma}* ({', '.join(DATA[task[0]] for task in tasks)}: up to {max(bad[t] for t in tasks):.1e})"
        for (name, sigma), tasks in groups.items()
    )


def remedies(table: Table) -> str:
    """Tasks up to σ_a² = 0.5 in which three fitted layers miss their target, and what brings them closer."""
    lines: list[Row] = []
    for task, value in table.worse("fitted", 3, "both").items():
        if task[2] <= 0.5 and value > FITTED:
            line: Row = {"φ": task[1], "σ_a²": task[2], "data": DATA[task[0]]}
            for words, (network, layers) in {
                "three layers": ("fitted", 3),
                "four layers": ("fitted", 4),
            }.items():
                line[words] = table.both(network, layers, "both", task)
            lines.append(line)
    return markdown_table(lines) if lines else "none"


def beside_cutting(table: Table) -> list[str]:
    """In how many rows an injected network is further from the DEQ than the cut DEQ, kernel by kernel."""
    lines = []
    for cut, words in (
        ("cut", "as many steps, which cost the same where layers share their input weights"),
        ("cut, own input", "as many steps as cost the same where they do not (width 1024)"),
    ):
        known = {(e.task, e.layers, e.kernel): e.plain for e in table.entries if e.network == cut}
        parts = []
        for network in ("injected", "fitted"):
            ours = [
                e for e in table.entries if e.network == network and (e.task, e.layers, e.kernel) in known
            ]
            bad = [e for e in ours if e.plain > known[e.task, e.layers, e.kernel]]
            parts.append(
                f"{_share(bad, ours)} {'without data' if network == 'injected' else 'fitted'}{_named(bad)}"
            )
        lines.append(f"Further from the DEQ than the DEQ cut after {words}: {', '.join(parts)}.")
    return lines


def _share(bad: list[Entry], all_of_them: list[Entry]) -> str:
    return f"{len(bad)} of {len(all_of_them)} rows"


def _named(bad: Iterable[Entry], most: int = 8) -> str:
    named = [
        f"{e.activation} {e.sigma_a2}, {DATA[e.data]}, {e.layers} layers for {e.goal}, {e.kernel} {e.plain:.1e}"
        for e in bad
    ]
    if not named:
        return ""
    return f" ({'; '.join(named)})" if len(named) <= most else ""


def summary(tasks: list[dict[str, Any]]) -> str:
    """What is done, in a few lines."""
    table = Table(tasks)
    return "\n".join([how_many(tasks), *table.missing(), *misses(table), *beside_cutting(table)])


def how_many(tasks: list[dict[str, Any]]) -> str:
    """How much of the table is measured."""
    full = sum(not task.get("brief", False) for task in tasks)
    words = f"{len(tasks)} tasks of 480 (data set, activation, σ_a²) are measured, {full} of them with all networks"
    return f"{words}, the others with three layers for both kernels, the cut DEQ and the plain layer alone."


def publish(tasks: list[dict[str, Any]]) -> None:
    """The file of results, and the marked part of docs/designs.md."""
    table = Table(tasks)
    text = [how_many(tasks)]
    told = [*misses(table), *beside_cutting(table)]
    if table.missing():
        told.append(f"Without a kernel, and so not measured: {'; '.join(table.missing())}.")
    inside = [
        *text,
        "Median over the activations and the worst of them, by name; of CK and NTK the larger distance.\n\n"
        + by_data(table),
        *(f"- {line}" for line in told),
    ]
    write_atomically(PAGE, filled(PAGE.read_text("utf-8"), *MARKS, "\n\n".join(inside)))
    content = [
        "# Injected twins",
        "Relative distance in the operator norm on 150 rows that no network has seen; of CK and NTK the larger. "
        "Every row: benchmarks/results/injected.jsonl.",
        *text,
        "### By activation: three layers for both kernels, the worst of the data sets",
        by_activation(table),
        "### Above 5e-4 up to σ_a² = 0.5: fitted, for both kernels (CK, NTK), and what brings them closer",
        remedies(table),
        "### By network: median over activations and data sets, and the worst activation",
        by_purpose(table),
    ]
    write_atomically(RESULTS / "injected.md", "\n\n".join(content) + "\n")
