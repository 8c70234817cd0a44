"""notsodeep beside neural-tangents: the same kernels, and the time of each.

Both compute the CK of the features and the NTK of the network (readout and every weight trained) of L = 20
layers with input injection and untied weights, sigma_a2 = 0.2, on the papers' mixture, p = 0.8 n, float64. We
also compute the infinite depth, which is what a DEQ is; at 20 layers the two differ by less than rounding.

What is done
  1. builds .venv here if it is missing (plain pip, requirements.txt: 3 GB, some minutes);
  2. checks definitions: the peer and notsodeep against a short NumPy recursion (recursion.py), n = 24;
  3. times: the peer runs in its own process and waits while we run, call by call in turn, so that both meet
     the same machine; both are held to the same number of processors. The peer's first call (compilation) is
     reported apart;
  4. writes neural_tangents.json and neural_tangents.csv into --out (by default benchmarks/results).

tanh goes through the peer's ElementwiseNumerical(deg=25), whose own error at these norms is 4e-5 off the
diagonal and 3e-3 on it: only relu and erf are held to 1e-9. With 150 nodes, affordable at n = 24, it meets
the reference. The peer takes arctan2 at ρ = 1 on the diagonal of relu's NTK and loses half the digits there
(7e-9); the diagonal therefore has its own column, and our diagonal is held to the reference instead.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # benchmarks/: the shared harness
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/peers/: how turns are taken

from environments import environment, hold_to_processors, python_of
from harness import (
    RESULTS,
    Provenance,
    Row,
    Times,
    clock,
    markdown_provenance,
    markdown_table,
    write_json,
    write_rows,
)
from recursion import DUALS, unrolled_kernels
from turns import Contestant

HERE = Path(__file__).resolve().parent
DEPTH = 20
SIGMA_A2 = 0.2
TOLERANCE = 1e-9
DEGREE = 25  # of the peer's quadrature for tanh: what its documentation advises
#: Definitions to check: (activation, nodes of the peer's quadrature), and how near it comes to the reference.
DEFINITIONS = {("relu", DEGREE): 1e-8, ("erf", DEGREE): 1e-12, ("tanh", DEGREE): 1e-2, ("tanh", 150): 1e-6}

Kernels = tuple[np.ndarray, np.ndarray]


# --- peer --------------------------------------------------------------------------------------------
class Peer(Contestant):
    """peer.py in its own process: one call each time it is given the turn."""

    def __init__(self, x: np.ndarray, activation: str, repeats: int, degree: int, folder: Path) -> None:
        data = folder / "data.npz"
        np.savez(data, X=x)
        self._output = folder / "peer"
        super().__init__(peer_command(data, activation, repeats, degree, self._output), folder / "peer.log")

    def finish(self) -> tuple[Row, Kernels]:
        """Its figures and its kernels, once all its turns are taken."""
        self.listen()
        figures = json.loads(self._output.with_suffix(".json").read_text())
        with np.load(self._output.with_suffix(".npz"), allow_pickle=False) as stored:
            return figures, (stored["ck"], stored["ntk"])


def peer_command(data: Path, activation: str, repeats: int, degree: int, output: Path) -> list[str]:
    return [
        *(str(python_of("neural_tangents")), str(HERE / "peer.py"), str(data), "--activation", activation),
        *("--depth", str(DEPTH), "--sigma-a2", str(SIGMA_A2), "--repeats", str(repeats)),
        *("--degree", str(degree), "--output", str(output), "--interactive"),
    ]


@contextmanager
def peer(x: np.ndarray, activation: str, repeats: int, degree: int = DEGREE) -> Iterator[Peer]:
    with tempfile.TemporaryDirectory() as folder:
        process = Peer(x, activation, repeats, degree, Path(folder))
        try:
            yield process
        finally:
            process.close()


# --- ours --------------------------------------------------------------------------------------------
def ours(x: np.ndarray, activation: str, depth: int | None) -> Kernels:
    """CK of the features and NTK of the network in one pass, at a depth or at infinity (None)."""
    import notsodeep as nsd

    model = nsd.DEQ(activation, sigma_a2=SIGMA_A2)
    ck, ntk, *_ = nsd.kernels.both_kernels(model, x, depth=depth)
    return ck, ntk


def have_ours() -> bool:
    try:
        import notsodeep as nsd

        return hasattr(nsd.kernels, "both_kernels")
    except (ImportError, AttributeError):
        return False


# --- comparison --------------------------------------------------------------------------------------
def difference(first: np.ndarray, second: np.ndarray, *, diagonal: bool) -> float:
    """Largest |first - second| relative to √(K_ii K_jj), on the diagonal or off it."""
    scale = np.sqrt(np.abs(np.diag(second)))
    relative = np.abs(first - second) / np.outer(scale, scale)
    if diagonal:
        return float(np.diag(relative).max())
    np.fill_diagonal(relative, 0.0)
    return float(relative.max())


def largest(first: Kernels, second: Kernels) -> float:
    return max(
        difference(a, b, diagonal=d) for a, b in zip(first, second, strict=True) for d in (False, True)
    )


def papers_mixture(n: int, p: int, seed: int) -> np.ndarray:
    """As cases.mixture, repeated here so that --check runs without notsodeep."""
    x = np.random.default_rng(seed).standard_normal((n, p))
    x[n // 2 :] *= np.sqrt(1 + 8 / np.sqrt(p))
    x[: n // 2, 0] += 8.0
    x[n // 2 :, 8] += 8.0
    return x / np.sqrt(p)


def check_definition(activation: str, degree: int, tolerance: float, n: int = 24) -> Row:
    """Peer, reference and (when it is there) notsodeep on the same small data."""
    x = papers_mixture(n, 400, seed=1)
    truth = unrolled_kernels(x, DUALS[activation], depth=DEPTH, sigma_a2=SIGMA_A2, sigma_b2=1 - SIGMA_A2)
    with peer(x, activation, 0, degree) as process:
        process.turn()
        _, theirs = process.finish()
    name = f"tanh (peer: {degree} nodes)" if activation == "tanh" else activation
    row: Row = {"activation": name, "n": n, "peer − reference": largest(theirs, truth)}
    row["peer agrees"] = row["peer − reference"] <= tolerance
    if have_ours():
        row["ours − reference"] = largest(ours(x, activation, DEPTH), truth)
        row["ours at infinity − reference"] = largest(ours(x, activation, None), truth)
        row["ours agrees"] = row["ours − reference"] <= TOLERANCE
    return row


def check_definitions(activations: list[str]) -> list[Row]:
    rows = []
    for (activation, degree), tolerance in DEFINITIONS.items():
        if activation in activations:
            rows.append(check_definition(activation, degree, tolerance))
            print(
                "peer within {peer − reference:.1e} of the reference: {activation}".format_map(rows[-1]),
                flush=True,
            )
    return rows


def in_turn(process: Peer, tasks: dict[str, Callable[[], Any]], repeats: int) -> dict[str, Times]:
    """Peer, then each of ours, `repeats` times around; everything was called once before."""
    taken: dict[str, list[float]] = {"theirs": [], **{name: [] for name in tasks}}
    for _ in range(repeats):
        taken["theirs"].append(process.turn())
        for name, task in tasks.items():
            taken[name].append(clock(task))
    return {name: Times(tuple(values)) for name, values in taken.items()}


def compare_case(activation: str, n: int, repeats: int) -> Row:
    """One row: times of both, taken in turn, and the differences of the kernels."""
    print(f"{activation}, n = {n} …", flush=True)
    x = papers_mixture(n, int(0.8 * n), seed=0)
    tasks = {"finite": lambda: ours(x, activation, DEPTH), "infinite": lambda: ours(x, activation, None)}
    mine, mine_infinite = (task() for task in tasks.values())  # also compiles, or loads from the cache
    with peer(x, activation, repeats) as process:
        process.turn()
        times = in_turn(process, tasks, repeats)
        figures, theirs = process.finish()
    return case_row(activation, n, times, figures) | differences(activation, mine, mine_infinite, theirs)


def case_row(activation: str, n: int, times: dict[str, Times], figures: Row) -> Row:
    theirs, finite, infinite = (times[name].median for name in ("theirs", "finite", "infinite"))
    return {
        "activation": activation,
        "n": n,
        "peer first call (s)": figures["first_seconds"],
        "peer (s)": theirs,
        "ours L=20 (s)": finite,
        "ours L=∞ (s)": infinite,
        "times faster, L=20": theirs / finite,
        "times faster, L=∞": theirs / infinite,
        "peer peak memory (GB)": figures["peak_extra_gb"],
        "all seconds": [list(times[name].seconds) for name in ("theirs", "finite", "infinite")],
        "peer": {key: figures[key] for key in ("versions", "settings")},
    }


def differences(activation: str, mine: Kernels, mine_infinite: Kernels, theirs: Kernels) -> Row:
    (ck, ntk), (peer_ck, peer_ntk) = mine, theirs
    row: Row = {
        "CK difference": max(difference(ck, peer_ck, diagonal=d) for d in (False, True)),
        "NTK difference": difference(ntk, peer_ntk, diagonal=False),
        "NTK difference, diagonal": difference(ntk, peer_ntk, diagonal=True),
        "L=20 against L=∞": largest(mine, mine_infinite),
    }
    if activation != "tanh":  # the peer's quadrature is no measure of 1e-9
        row["same to 1e-9"] = max(row["CK difference"], row["NTK difference"]) <= TOLERANCE
    return row


# --- reporting ---------------------------------------------------------------------------------------
def sizes(activation: str, options: argparse.Namespace) -> list[int]:
    if options.quick:
        return [100] if activation == "tanh" else [200]
    if activation == "tanh":
        return [500]
    return [1000, 2000, 4000] if options.full else [1000, 2000]


def repeats_of(activation: str, options: argparse.Namespace) -> int:
    """One call of the peer's tanh takes half a minute: three are enough."""
    return 1 if options.quick else min(options.repeats, 3) if activation == "tanh" else int(options.repeats)


def report(definitions: list[Row], rows: list[Row], provenance: Row, options: argparse.Namespace) -> None:
    """Write both files atomically; a quick run has files of its own."""
    name = "neural_tangents-quick" if options.quick else "neural_tangents"
    content = {"provenance": provenance, "definitions": definitions, "cases": rows}
    write_json(options.out / f"{name}.json", content)
    write_rows(options.out / f"{name}.csv", rows, markdown_provenance(provenance))
    print(markdown_table(definitions), markdown_table(rows), sep="\n")


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="definitions only: peer against reference (2 min)"
    )
    parser.add_argument("--quick", action="store_true", help="n = 200, one repeat: does it run? (3 min)")
    parser.add_argument(
        "--full", action="store_true", help="n = 4000 as well (the peer takes 8 GB of memory)"
    )
    parser.add_argument("--only", nargs="+", choices=list(DUALS), default=list(DUALS), metavar="ACTIVATION")
    parser.add_argument(
        "--repeats", type=int, default=5, help="calls of each, in turn (default: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=2, help="processors for each (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where the results go")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    environment("neural_tangents")
    provenance = Provenance()
    processors = hold_to_processors(options.threads)
    definitions = check_definitions(options.only)
    agree = all(value for row in definitions for key, value in row.items() if key.endswith("agrees"))
    if options.check or not agree:
        print(markdown_table(definitions))
        return 0 if agree else 1
    if not have_ours():
        sys.exit("notsodeep.kernels.both_kernels is not there: install the package (make test does it) first")
    rows = [
        compare_case(name, n, repeats_of(name, options))
        for name in options.only
        for n in sizes(name, options)
    ]
    report(definitions, rows, {**provenance.record(), "processors": processors}, options)
    return 0 if all(row.get("same to 1e-9", True) for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
