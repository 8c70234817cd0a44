"""Networks without a seed draw from torch's global generator: every test starts it alike."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _same_global_generator() -> None:
    torch.manual_seed(0)
