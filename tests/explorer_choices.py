"""Choices small enough to compute in a moment, one of every kind."""

from __future__ import annotations

import io

import numpy as np

from notsodeep_lab.explorer.choice import Choice, PageData
from notsodeep_lab.explorer.offered_networks import Network
from notsodeep_lab.explorer.uploads import Upload, read_upload

SMALL = PageData(n=80, p=20)


def upload(name: str = "rows.csv") -> Upload:
    """Rows of two loose groups in twelve dimensions; a CSV file has labels, sorted by class."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((90, 12)) / np.sqrt(12)
    rows[:40, 0] += 1.0
    if name.endswith(".npy"):
        content = io.BytesIO()
        np.save(content, rows)
        return read_upload(name, content.getvalue(), megabytes=1)
    lines = [",".join([*map(str, row), "ab"[number < 40]]) for number, row in enumerate(rows.tolist())]
    return read_upload(name, "\n".join(lines).encode(), megabytes=1)


CHOICES = {
    "residual cell": Choice(data=SMALL),
    "gated cell": Choice(Network("gated", "tanh"), "ntk", SMALL),
    "block": Choice(Network("swiglu", "swish"), data=PageData(n=60, p=20)),
    "deq": Choice(Network("deq", "relu"), data=SMALL),
    "digits": Choice(Network("deq", "tanh", 0.5, 1.0), "ntk", PageData("digits", n=90, seed=1)),
    "csv": Choice(Network("deq"), data=PageData("file", n=60, upload=upload())),
    "npy": Choice(Network("deq"), data=PageData("file", upload=upload("rows.npy"))),
}
