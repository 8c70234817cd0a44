"""Times on a device that works in the background are those of the work, not of giving orders."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
import torch

import notsodeep as nsd
from notsodeep.nets import ExplicitNet, measure, training, twins
from notsodeep.nets.measure import inference_seconds

NETS = Path(measure.__file__).parent
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


def test_the_speed_of_a_twin_on_cuda_is_that_of_its_work(background):
    assert twins._ratio(background.order, 6.0, 2.0, CUDA) == 3.0


def test_a_processor_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: pytest.fail("there is nothing to wait for"))
    assert measure.synchronised_time(torch.device("cpu")) <= measure.synchronised_time(torch.device("cpu"))


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


@pytest.mark.parametrize("mode", ["readout", "all"])
def test_an_epoch_and_the_features_are_timed_on_the_device_of_the_network(monkeypatch, mode):
    asked = []
    monkeypatch.setattr(training, "synchronised_time", lambda device: asked.append(device) or len(asked))
    net = ExplicitNet(nsd.Explicit(["tanh"]), 3, 8, 2, train=mode, seed=0)
    X, y = torch.zeros(6, 3), torch.tensor([0, 1] * 3)
    history = training.fit(net, (X, y), epochs=2, lr=0.1)
    assert [row.seconds for row in history.rows] == [1.0, 1.0]
    assert history.feature_seconds == (1.0 if mode == "readout" else None)
    assert set(asked) == {torch.device("cpu")}


def test_nothing_in_this_room_reads_another_clock():
    clocks = ("perf_counter", "monotonic", "process_time")
    texts = {path.name: path.read_text(encoding="utf-8") for path in NETS.glob("*.py")}
    readers = {
        name
        for name, text in texts.items()
        # Files without one of the words are not parsed: that takes a second for the whole room.
        if any(clock in text for clock in clocks)
        for node in ast.walk(ast.parse(text))
        if (isinstance(node, ast.Name) and node.id in clocks)
        or (isinstance(node, ast.Attribute) and node.attr in clocks)
    }
    assert readers == {"measure.py"}
