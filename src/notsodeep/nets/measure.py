"""What a network costs on this machine: time of inference and memory of a training step."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

from notsodeep.nets.modules import Net
from notsodeep.nets.objectives import LOSSES, FullObjective, Objective, ReadoutObjective, Tally
from notsodeep.nets.samples import Samples

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


def work_time(device: torch.device) -> float:
    """Seconds for ratios of work: of the processor where that does it, all threads together, else as they pass.

    Other programs lengthen the time that passes, and most of all that of long calls, which they interrupt more often.
    """
    return process_time() if device.type == "cpu" else synchronised_time(device)


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


def training_memory(module: Net, X: Tensor, target: Tensor, loss: str) -> int:
    """Peak bytes of one training step on these rows: all weights, and everything torch holds beside them at once.

    The peak is exact for what torch allocates on the CPU, as its profiler records each allocation; scratch space
    inside the BLAS library is not seen. With train="readout" the step computes the features of the rows and the
    gradient of the readout; the cache of all features, the same for every model, is not part of it.
    """
    weights = sum(value.numel() * value.element_size() for value in module.state_dict().values())
    # Gradients are counted as part of the step, so there must be none yet.
    module.zero_grad(set_to_none=True)
    with _quiet_stderr(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        _step(module, Samples(X, target, None), loss)
    module.zero_grad(set_to_none=True)
    return int(weights) + _peak(record)


def _step(module: Net, samples: Samples, loss: str) -> None:
    everything = torch.arange(len(samples), device=samples.inputs.device)
    objective: Objective
    if module.train_mode == "readout":
        with torch.no_grad():
            samples = replace(samples, inputs=module.features(samples.inputs))
        objective = ReadoutObjective(module, samples, None, LOSSES[loss])
    else:
        objective = FullObjective(module, samples, None, LOSSES[loss])
    objective.add_gradient(everything, 1.0 / len(samples), Tally.empty(module))


def _peak(record: profile) -> int:
    """The highest sum of allocations minus releases."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        record.export_chrome_trace(str(file))
        events = json.loads(file.read_text(encoding="utf-8"))["traceEvents"]
    changes = [event for event in events if event.get("name") == "[memory]"]
    now = peak = 0
    for event in sorted(changes, key=lambda event: float(event["ts"])):
        now += int(event["args"]["Bytes"])
        peak = max(peak, now)
    return peak


@contextmanager
def _quiet_stderr() -> Iterator[None]:
    """The profiler's library writes when it starts and stops, past Python and whatever its log level."""
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)
