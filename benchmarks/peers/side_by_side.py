"""notsodeep beside the others, in one run: neural-tangents, TorchDEQ, scikit-learn, plain NumPy, the papers' way.

  make bench-peers                                           environments first, then all of it (15 min on two cores)
  python benchmarks/peers/side_by_side.py --quick            small, to see that it runs; its figures mean nothing
  python benchmarks/peers/side_by_side.py --only networks    some sections; the others keep their earlier results
  python benchmarks/peers/side_by_side.py --resume           go on after a stop: what has been measured is left out

Sections
  kernels         CK and NTK of all pairs on the papers' mixture: time, memory, error against mpmath
  approximations  what is cheaper than an n × n kernel: equivalents, Nyström, random features; distance from the kernel
  estimators      ridge classification on digits and MNIST, every way chosen by the same cross-validation
  networks        a DEQ and its gradient beside TorchDEQ (peers/torchdeq/compare.py): time, memory, gradient error
  abilities       what each can and cannot do, by running it where that is possible

Every contestant works in a process of its own and waits while the others work; all are held to the same processors
(two) with as many threads. Compilation comes before the first call and has a time of its own; the first call does not
count, except where one call takes half a minute. A contestant that is missing or fails is a row that says why.
Results: side_by_side.json and peers-SECTION.csv in --out; `python benchmarks/publish.py` draws them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import truth
from environments import hold_to_processors, python_of

sys.path.insert(0, str(Path(__file__).resolve().parent / "torchdeq"))  # its tables
sys.path.insert(0, str(Path(__file__).resolve().parent / "neural_tangents"))  # how it is started
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/: the shared harness

from cases import SIGMA_A2, data_folder, mixture
from compare import DEGREE, peer_command
from harness import RESULTS, Provenance, Row, markdown_provenance, versions, write_json, write_rows
from questions import table_rows
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tables import AHEAD, best_of, together
from turns import Entry, play, reason, stem_of

HERE = Path(__file__).resolve().parent
SECONDS, MEMORY, NOT_MEASURED = "seconds", "extra GB", "not measured"
CONSOLE = Console(highlight=False, stderr=True)
Step = Callable[[str], None]
#: Rows whose kernels are compared with the truth: all 136 pairs of 16.
JUDGED = 16
#: What a process may take that is not held to a number of turns.
LIMIT = 600


@dataclass(frozen=True)
class Scale:
    """Sizes and repeats: the figures of record, or a quick run that only shows that everything works.

    Attributes:
        kernels: (activation, n, calls that count).
        widths: of the papers' random networks, drawn where n is at most `drawn`.
        approximated: n of the approximated kernels, and how many calls count.
        estimators: rows to train, to test, to choose parameters on, number of random features.
        networks: (activation, width); rounds, true residuals.
    """

    kernels: tuple[tuple[str, int, int], ...] = (
        ("relu", 1000, 5),
        ("relu", 2000, 3),
        ("relu", 4000, 2),
        ("erf", 1000, 5),
        ("tanh", 500, 5),
    )
    widths: tuple[int, ...] = (1000, 4000)
    drawn: int = 1000
    approximated: tuple[int, int] = (4000, 2)
    estimators: tuple[int, int, int, int] = (5000, 3000, 600, 1000)
    fits: int = 2
    networks: tuple[tuple[str, int], ...] = (("tanh", 256), ("tanh", 1024), ("relu", 256), ("relu", 1024))
    rounds: int = 3
    targets: tuple[float, ...] = (1e-3, 1e-6)
    mnist: bool = True


QUICK = Scale(
    kernels=(("relu", 100, 2), ("tanh", 40, 2)),
    widths=(50, 100),
    approximated=(300, 1),
    estimators=(300, 200, 150, 100),
    fits=1,
    networks=(("tanh", 64),),
    rounds=2,
    mnist=False,
)


@dataclass(frozen=True)
class Case:
    """One measurement, stored or repeated completely.

    Attributes:
        section: where it belongs.
        name: what it is called in its section.
        steps: how many turns the progress bar is to expect.
        measure: gives the rows.
    """

    section: str
    name: str
    steps: int
    measure: Callable[[Step], list[Row]]


# --- contestants ---------------------------------------------------------------------------------------
def entry(name: str, repeats: int, **order: Any) -> Entry:
    """contestants.py with an order, in our own environment; compilation is judged where kernels are."""

    def command(output: Path) -> list[str]:
        program = [sys.executable, str(HERE / "contestants.py"), json.dumps(order)]
        return [*program, "--repeats", str(repeats), "--output", str(output), "--interactive"]

    return Entry(name, command, repeats, own_cache=order["what"] == "kernels")


def measured(entries: list[Entry], step: Step, folder: Path) -> list[Row]:
    """A row for each contestant: its times and memory, and whatever else it found."""
    found = play(entries, folder, step)
    return [{"contestant": each.name, **figures(found[each.name])} for each in entries]


def figures(found: Row) -> Row:
    if NOT_MEASURED in found:
        return {NOT_MEASURED: found[NOT_MEASURED]}
    seconds = found.pop("seconds")
    median = statistics.median(seconds)
    return {
        SECONDS: median,
        "spread": (max(seconds) - min(seconds)) / median if len(seconds) > 1 else None,
        "all seconds": seconds,
        "prepare (s)": round(found.pop("prepare_seconds"), 2),
        MEMORY: found.pop("peak_extra_gb"),
        **{key: value for key, value in found.items() if key not in ("first_seconds", "warm_median")},
    }


# --- kernels -------------------------------------------------------------------------------------------
def kernel_entries(activation: str, n: int, repeats: int, data: Path, scale: Scale) -> list[Entry]:
    order = {"what": "kernels", "activation": activation, "data": str(data)}
    slow = 0 if activation == "tanh" else repeats
    made = [
        entry("notsodeep, infinite depth", repeats, way="notsodeep", **order),
        entry("notsodeep, 20 layers", repeats, way="notsodeep", depth=20, **order),
        Entry(
            "neural-tangents, 20 layers",
            lambda output: peer_command(data, activation, slow, DEGREE, output),
            slow,
        ),
    ]
    if activation == "tanh":
        made += [
            entry("NumPy, 20 layers, product rule", 0, way="product rule", **order),
            entry("NumPy, 20 layers, Hermite series", repeats, way="Hermite series", **order),
        ]
    else:
        made.append(entry("NumPy, 20 layers", repeats, way="closed form", **order))
    if n <= scale.drawn:
        made += [
            entry(
                f"one random network, m = {width}", min(repeats, 2), way="Monte Carlo", width=width, **order
            )
            for width in scale.widths
        ]
    return made


def kernel_case(activation: str, n: int, repeats: int, scale: Scale) -> Case:
    data_name = "data.npz"

    def measure(step: Step) -> list[Row]:
        x = mixture(n, int(0.8 * n))
        rows = np.random.default_rng(1).choice(n, min(JUDGED, n), replace=False)
        exact = truth.kernels(x[rows], activation, SIGMA_A2)
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            np.savez(folder / data_name, X=x, rows=rows)
            entries = kernel_entries(activation, n, repeats, folder / data_name, scale)
            made = measured(entries, step, folder)
            stored = sorted(folder.glob("*.npz"))
            blocks = {path.stem: read_kernels(path) for path in stored if path.name != data_name}
        for row in made:
            block = blocks.get(stem_of(row["contestant"]))
            if block is not None and NOT_MEASURED not in row:
                row.update(truth.errors(block, exact))
        return [{"φ": activation, "n": n, **row} for row in made]

    entries = kernel_entries(activation, n, repeats, Path(data_name), scale)
    return Case("kernels", f"{activation}, n = {n}", turns_of(entries), measure)


def read_kernels(path: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(path, allow_pickle=False) as stored:
        return stored["ck"], stored["ntk"]


def turns_of(entries: list[Entry]) -> int:
    return sum(1 + each.repeats for each in entries)


# --- approximations and estimators ---------------------------------------------------------------------
#: Way, what it is compared with, and who does it.
APPROXIMATIONS = {
    "exact CK": ("kernel", "notsodeep: exact CK"),
    "RBF kernel": ("kernel", "scikit-learn: exact RBF kernel"),
    "asymptotic equivalent": ("approximation", "notsodeep: asymptotic equivalent (labels)"),
    "refined equivalent": ("approximation", "notsodeep: refined equivalent"),
    "random features of the CK": ("approximation", "notsodeep: 500 random features of the CK"),
    "Nyström of the CK": ("approximation", "Nyström, 500 rows of the CK"),
    "Nyström of RBF": ("approximation", "scikit-learn: Nyström, 500 rows of RBF"),
}


def in_own_folder(entries: list[Entry], about: list[Row], step: Step) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        return [head | row for head, row in zip(about, measured(entries, step, Path(name)), strict=True)]


def approximation_case(data: str, scale: Scale) -> Case:
    n, repeats = scale.approximated
    order = {"what": "approximation", "data": data, "n": n, "activation": "relu"}
    entries = [entry(title, repeats, way=way, **order) for way, (_, title) in APPROXIMATIONS.items()]
    about = [{"data": data, "n": n, "kind": kind} for kind, _ in APPROXIMATIONS.values()]
    return Case("approximations", data, turns_of(entries), lambda step: in_own_folder(entries, about, step))


def estimator_ways(features: int) -> dict[str, tuple[str, str]]:
    return {
        "exact NTK": ("kernel", "notsodeep: exact NTK"),
        "exact CK": ("kernel", "notsodeep: exact CK"),
        "exact Gaussian kernel": ("kernel", "scikit-learn: exact RBF kernel"),
        "equivalent of the NTK": ("cheaper", "notsodeep: equivalent of the NTK"),
        f"{features} features of the CK": ("cheaper", f"notsodeep: {features} features of the CK"),
        "Nyström of the NTK": ("cheaper", "notsodeep: Nyström, 500 rows of the NTK"),
        "Nyström of the Gaussian kernel": ("cheaper", "scikit-learn: Nyström, 500 rows of RBF"),
    }


def estimator_case(data: str, scale: Scale) -> Case:
    train, test, choose, features = scale.estimators
    sizes: Row = (
        {"train": train, "test": test} if data != "digits" or train < 1000 else {"train": None, "test": None}
    )
    order = {"what": "estimator", "data": data, "choose": choose, "features": features, **sizes}
    ways = estimator_ways(features)
    entries = [entry(title, scale.fits, way=way, **order) for way, (_, title) in ways.items()]
    about = [{"data": data, "kind": kind} for kind, _ in ways.values()]
    return Case("estimators", data, turns_of(entries), lambda step: in_own_folder(entries, about, step))


# --- networks ------------------------------------------------------------------------------------------
def network_case(activation: str, width: int, scale: Scale, processors: int) -> Case:
    def measure(step: Step) -> list[Row]:
        try:
            python_of("torchdeq")
            with tempfile.TemporaryDirectory() as folder:
                found = compared(activation, width, scale, processors, folder)
        except (RuntimeError, OSError) as error:
            found = [{"activation": activation, "m": width, NOT_MEASURED: reason(error)}]
        step(f"{activation}, m = {width}")
        return found

    return Case("networks", f"{activation}, m = {width}", 1, measure)


def compared(activation: str, width: int, scale: Scale, processors: int, folder: str) -> list[Row]:
    """What peers/torchdeq/compare.py finds for one network, with the peer's plain iteration from both starts."""
    solvers = ("fixed_point_iter", "fixed_point_iter, ahead")
    targets = [f"{target:g}" for target in scale.targets]
    program = [sys.executable, str(HERE / "torchdeq" / "compare.py"), "--out", folder, "--memory"]
    program += ["--only", activation, "--widths", str(width), "--rounds", str(scale.rounds)]
    program += ["--threads", str(processors), "--targets", *targets, "--solvers", *solvers]
    run(program)
    stored = json.loads((Path(folder) / "torchdeq.json").read_text())
    rows: list[Row] = stored[f"{activation}, m = {width}"]["rows"]
    return rows


def run(program: list[str]) -> str:
    """What a program prints.

    Raises:
        RuntimeError: if it fails, with its last words.
    """
    name = Path(program[1]).name
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=LIMIT)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"{name} took longer than {LIMIT} s") from None
    if done.returncode:
        words = done.stderr.strip().splitlines() or ["no words"]
        raise RuntimeError(f"{name} ended with code {done.returncode}: {words[-1]}")
    return done.stdout


# --- abilities -----------------------------------------------------------------------------------------
def ability_case(package: str, python: Callable[[], Path | str], script: str) -> Case:
    def measure(step: Step) -> list[Row]:
        try:
            answers: Any = json.loads(run([str(python()), str(HERE / script)]).splitlines()[-1])
        except (RuntimeError, OSError) as error:
            answers = reason(error)
        step(package)
        return [{"package": package, "answers": answers}]

    return Case("abilities", package, 1, measure)


# --- all of it -----------------------------------------------------------------------------------------
def cases(scale: Scale, processors: int) -> Iterator[Case]:
    for activation, n, repeats in scale.kernels:
        yield kernel_case(activation, n, repeats, scale)
    images = ["mnist"] if scale.mnist and data_folder(None) else []
    for data in ["mixture", *(images or ["digits"])]:
        yield approximation_case(data, scale)
    for data in ["digits", *images]:
        yield estimator_case(data, scale)
    for activation, width in scale.networks:
        yield network_case(activation, width, scale, processors)
    yield ability_case("notsodeep", lambda: sys.executable, "abilities.py")
    yield ability_case(
        "neural-tangents", lambda: python_of("neural_tangents"), "neural_tangents/abilities.py"
    )
    yield ability_case("TorchDEQ", lambda: python_of("torchdeq"), "torchdeq/abilities.py")


def pinned(peer: str) -> dict[str, str]:
    """The versions that requirements.txt asks for, which are exact."""
    lines = (HERE / peer / "requirements.txt").read_text().splitlines()
    pairs = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {name: version for name, version in pairs if name in ("neural-tangents", "jax", "torchdeq")}


def record_of(provenance: Provenance, processors: int) -> Row:
    record = provenance.record()
    record["versions"] |= versions(["scikit-learn", "torch"]) | pinned("neural_tangents") | pinned("torchdeq")
    return record | {"threads": {"each contestant": processors}}


def network_rows(rows: list[Row]) -> list[Row]:
    """Ours and the peer's faster start, forward and training."""
    made: list[Row] = []
    for row in rows:
        about: Row = {"φ": row["activation"], "m": row["m"], "residual ≤": row.get("target")}
        if NOT_MEASURED in row:
            made.append({**about, "contestant": "TorchDEQ", NOT_MEASURED: row[NOT_MEASURED]})
            continue
        for mode, seconds in row["seconds"].items():
            best = best_of(seconds)
            start = "from φ(σ_b B x)" if best == AHEAD else "from zero"
            names = {"ours": ("notsodeep", row["ours"]), "peer": (f"TorchDEQ, {start}", row["theirs"][best])}
            for side, (title, found) in names.items():
                megabytes = row.get("megabytes", {}).get(f"{mode}, {side}")
                made.append(
                    {
                        **about,
                        "what": mode,
                        "contestant": title,
                        SECONDS: statistics.median(seconds["ours" if side == "ours" else best]),
                        MEMORY: None if megabytes is None else megabytes / 1000,
                        "true residual": found["residual"],
                        "gradient error": found["gradient error"] if mode == "training" else None,
                    }
                )
    return made


def ability_rows(rows: list[Row]) -> list[Row]:
    return table_rows({row["package"]: row["answers"] for row in rows})


SECTIONS: dict[str, Callable[[list[Row]], list[Row]]] = {
    "kernels": list,
    "approximations": list,
    "estimators": list,
    "networks": network_rows,
    "abilities": ability_rows,
}


def write(path: Path, found: dict[str, Row]) -> None:
    """Write all files after every case, so that an interrupted run keeps its results."""
    write_json(path.with_suffix(".json"), {"cases": found})
    for section, table in SECTIONS.items():
        members = [case for case in found.values() if case["section"] == section]
        if members:
            rows = table([row for case in members for row in case["rows"]])
            note = markdown_provenance(together([case["provenance"] for case in members]))
            stem = path.name.replace("side_by_side", "peers")
            write_rows(path.with_name(f"{stem}-{section}.csv"), rows, note)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="small sizes; writes side_by_side-quick.json, peers-quick-*.csv"
    )
    parser.add_argument(
        "--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS), metavar="SECTION"
    )
    parser.add_argument("--resume", action="store_true", help="leave out what the results already have")
    parser.add_argument("--threads", type=int, default=2, help="processors for each (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    scale = QUICK if options.quick else Scale()
    processors = hold_to_processors(options.threads)
    path = options.out / ("side_by_side-quick" if options.quick else "side_by_side")
    file = path.with_suffix(".json")
    found: dict[str, Row] = json.loads(file.read_text())["cases"] if file.exists() else {}
    wanted = [case for case in cases(scale, processors) if case.section in options.only]
    todo = [case for case in wanted if not (options.resume and complete(found.get(key_of(case))))]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=CONSOLE) as progress:
        task = progress.add_task("side by side", total=sum(case.steps for case in todo))
        for case in todo:

            def step(who: str, case: Case = case) -> None:
                progress.update(task, advance=1, description=f"{case.section}, {case.name}: {who}")

            progress.update(task, description=f"{case.section}, {case.name}")
            provenance = Provenance()
            rows = case.measure(step)
            record = record_of(provenance, processors)
            found[key_of(case)] = {"section": case.section, "rows": rows, "provenance": record}
            write(path, found)
    CONSOLE.print(f"Written: {path.with_suffix('.json')} and one table for each section")
    return 0


def complete(case: Row | None) -> bool:
    """Whether a case is complete; incomplete ones are repeated."""
    return case is not None and not any(
        row.get(NOT_MEASURED) or isinstance(row.get("answers"), str) for row in case["rows"]
    )


def key_of(case: Case) -> str:
    return f"{case.section}: {case.name}"


if __name__ == "__main__":
    sys.exit(main())
