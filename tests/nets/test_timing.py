"""Times on a device that works in the background are those of the work, not of giving orders."""

from __future__ import annotations

import pytest
import torch

import notsodeep as nsd
from notsodeep.nets import ExplicitNet, measure, twins
from notsodeep.nets.measure import inference_seconds

CUDA = torch.device("cuda", 0)


class Background:
    """A GPU in play: orders are taken at once, and the work is done when somebody waits for it."""

    def __init__(self) -> None:
        self.time, self.queued = 0.0, 0.0

    def order(self, seconds: float) -> None:
        self.queued += seconds

    def synchronize(self, device: torch.device) -> None:
        assert device == CUDA
        self.time, self.queued = self.time + self.queued, 0.0


class Batch:
    """Samples that lie on the device."""

    device = CUDA

    def __getitem__(self, rows: slice) -> Batch:
        return self

    def __len__(self) -> int:
        return 500


@pytest.fixture
def background(monkeypatch) -> Background:
    found = Background()
    monkeypatch.setattr(torch.cuda, "synchronize", found.synchronize)
    monkeypatch.setattr(measure, "perf_counter", lambda: found.time)
    return found


def test_inference_on_cuda_is_timed_to_its_end(background):
    assert inference_seconds(lambda batch: background.order(0.25), Batch()) == 0.5


def test_speeds_are_compared_on_one_thread(monkeypatch):
    """Threads that wait for each other on a busy machine made a twin a hundred times as fast."""
    seen = []
    monkeypatch.setattr(twins, "work_time", lambda device: seen.append(torch.get_num_threads()) or len(seen))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        nets = [ExplicitNet(nsd.Explicit([phi]), 3, 8, 2, seed=0) for phi in ("tanh", "relu")]
        ratios = twins.speed_ratios(*nets, torch.zeros(6, 3))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert set(seen) == {1}
    assert ratios == (1.0, 1.0)
