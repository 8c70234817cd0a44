"""Speeds of two networks are compared on one thread."""

from __future__ import annotations

import torch

import notsodeep as nsd
from notsodeep.nets import ExplicitNet, twins


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
