"""How long a network takes on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from time import perf_counter

import torch
from torch import Tensor

from notsodeep.nets.modules import Net

_REPEATS, _ROWS = 5, 1000


def synchronised_time(device: torch.device) -> float:
    """Seconds on a monotonic clock, read when the device has finished what it was given.

    A GPU takes orders and works on them later: without waiting, the difference of two readings would be the time to
    give the orders.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()
    return perf_counter()


@contextmanager
def one_thread() -> Iterator[None]:
    """Torch on one thread: several that wait for each other, as they do on a busy machine, spend its time, too."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def inference_seconds(module: Net, X: Tensor) -> float:
    """Seconds per 1000 samples: the median of five passes over at most 1000 rows in one batch, after a first."""
    batch, times = X[:_ROWS], []
    with torch.no_grad():
        module(batch)
        for _ in range(_REPEATS):
            start = synchronised_time(X.device)
            module(batch)
            times.append(synchronised_time(X.device) - start)
    return 1000.0 * median(times) / len(batch)
