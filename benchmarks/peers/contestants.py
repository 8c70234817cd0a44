"""One contestant of side_by_side.py in a process of its own, in our environment: ours, NumPy's, scikit-learn's.

side_by_side.py starts it with one order, a line of JSON, and gives the turns; by hand, without turns:

    python contestants.py '{"what": "kernels", "way": "notsodeep", "activation": "relu", "data": "x.npz"}' --output relu

Orders
  kernels        CK and NTK of all pairs of rows of data.npz; the block of its `rows` goes to OUTPUT.npz
  approximation  something cheaper in the place of an n × n kernel, and its distance from the exact one (cheaper.py)
  estimator      a classifier chosen by cross-validation, fitted and asked for predictions (cheaper.py)
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/: harness and cases

from cases import SIGMA_A2
from harness import Row
from montecarlo import random_network_kernels
from recursion import DUALS, tanh_dual, tanh_dual_by_series, unrolled_kernels
from turns import Parts, Task, only_answers_on_stdout, take_turns

import notsodeep as nsd

Array = np.ndarray

DEPTH = 20
VARIANCES = {"sigma_a2": SIGMA_A2, "sigma_b2": 1 - SIGMA_A2}
NODES = 0.75  # step of the product rule for tanh: 25 × 25 nodes, like neural-tangents


# --- kernels -------------------------------------------------------------------------------------------
def kernels(order: Row, output: Path) -> Parts:
    with np.load(order["data"], allow_pickle=False) as stored:
        x, rows = stored["X"], stored["rows"]
    way = kernel_way(order)

    def prepare() -> Task:
        if order["way"].startswith("notsodeep"):
            way(x[:64])  # compiles
        return lambda: way(x)

    def finish(result: Any) -> Row:
        ck, ntk, *info = result
        block = np.ix_(rows, rows)
        np.savez(output.with_suffix(".npz"), ck=ck[block], ntk=ntk[block])
        return {"stated bound": float(info[0].error_bound)} if info else {}

    return prepare, finish


def kernel_way(order: Row) -> Callable[[Array], Any]:
    """x -> (CK, NTK), maybe with a `KernelInfo`."""
    activation = order["activation"]
    if order["way"] == "Monte Carlo":
        details = {"width": order["width"], "steps": DEPTH, "seed": 0, **VARIANCES}
        return lambda x: random_network_kernels(x, activation, **details)
    if order["way"].startswith("notsodeep"):
        model = nsd.DEQ(activation, sigma_a2=SIGMA_A2)
        return lambda x: nsd.kernels.both_kernels(model, x, depth=order.get("depth"), return_info=True)
    dual = {
        "closed form": DUALS[activation],
        "product rule": functools.partial(tanh_dual, step=NODES),
        "Hermite series": tanh_dual_by_series,
    }[order["way"]]
    return lambda x: unrolled_kernels(x, dual, depth=DEPTH, **VARIANCES)


# --- command line --------------------------------------------------------------------------------------
def parts_of(order: Row, output: Path) -> Parts:
    if order["what"] == "kernels":
        return kernels(order, output)
    import cheaper  # scikit-learn is no business of those who compute kernels

    return cheaper.approximation(order) if order["what"] == "approximation" else cheaper.estimator(order)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("order", type=json.loads)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--output", type=Path, required=True, help="results go to OUTPUT.json (and .npz)")
    parser.add_argument(
        "--interactive", action="store_true", help="wait for a line of input before every call"
    )
    options = parser.parse_args()
    with only_answers_on_stdout() as say:
        prepare, finish = parts_of(options.order, options.output)
        figures, result = take_turns(prepare, options.repeats, say, interactive=options.interactive)
        figures |= finish(result)
        options.output.with_suffix(".json").write_text(json.dumps(figures))
        say({"event": "done"})


if __name__ == "__main__":
    main()
