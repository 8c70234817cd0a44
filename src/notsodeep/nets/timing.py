"""The clock of everything that is timed in this room."""

from __future__ import annotations

from time import perf_counter

import torch


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


__all__ = ["synchronised_time"]
