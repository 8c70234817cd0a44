"""One measurement in a fresh process, printed as one JSON line.

`run.py` starts it; by hand:

    python benchmarks/probe.py memory tanh both --n 4000 --p 3200     # peak extra memory of one call
    python benchmarks/probe.py first-call tanh                        # import, first and second call
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from itertools import pairwise
from typing import Any

from harness import memory_bytes, reset_peak


def call(kernel: str, model: Any, x: Any) -> Any:
    import notsodeep as nsd

    return nsd.conjugate_kernel(model, x) if kernel == "ck" else nsd.kernels.both_kernels(model, x)


def memory(activation: str, kernel: str, n: int, p: int) -> dict[str, Any]:
    """Highest resident memory during the call minus that before it, in n² doubles; the output is included."""
    from cases import deq, mixture

    model, x = deq(activation), mixture(n, p)
    call(kernel, model, mixture(min(n, 300), p))  # compile, start the threads, allocate the BLAS buffers
    exact = reset_peak()
    before = memory_bytes("VmRSS")
    result = call(kernel, model, x)
    peak = memory_bytes("VmHWM")
    del result
    if before is None or peak is None:
        return {"n2_doubles": None, "megabytes": None, "peak_reset": exact}
    extra = peak - before
    return {"n2_doubles": extra / (8 * n * n), "megabytes": extra / 1e6, "peak_reset": exact}


def first_call(activation: str, kernel: str) -> dict[str, Any]:
    """Processor seconds to import, to the first answer at n = 100 and to the next ones; how much was compiled."""
    start = time.process_time()
    from cases import deq, mixture
    from numba.core import event

    imported = time.process_time()
    model, x = deq(activation), mixture(100, 80)
    begin = time.process_time()
    with event.install_recorder("numba:compile") as compiled:
        call(kernel, model, x)
    times = [time.process_time()]
    for _ in range(20):
        call(kernel, model, x)
        times.append(time.process_time())
    calls = [after - before for before, after in pairwise(times)]
    return {
        "import": imported - start,
        "first": times[0] - begin,
        "second": calls[0],
        "later": statistics.median(calls),
        "compiled": len(compiled.buffer),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("memory", "first-call"))
    parser.add_argument("activation")
    parser.add_argument("kernel", nargs="?", choices=("ck", "both"), default="both")
    parser.add_argument("--n", type=int, default=4000)
    parser.add_argument("--p", type=int, default=3200)
    options = parser.parse_args()
    if options.what == "memory":
        found = memory(options.activation, options.kernel, options.n, options.p)
    else:
        found = first_call(options.activation, options.kernel)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
