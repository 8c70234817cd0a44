"""Choices small enough to compute in a moment, one of every kind."""

from __future__ import annotations

import io

import numpy as np

from notsodeep_lab.explorer.choice import Choice, PageData
from notsodeep_lab.explorer.uploads import Upload, read_upload

SMALL = PageData(n=120, p=80)


def upload(name: str = "rows.csv") -> Upload:
    """Rows of two loose groups in twelve dimensions."""
    rng = np.random.default_rng(3)
    rows = rng.standard_normal((90, 12)) / np.sqrt(12)
    rows[:40, 0] += 0.5
    if name.endswith(".npy"):
        content = io.BytesIO()
        np.save(content, rows)
        return read_upload(name, content.getvalue(), megabytes=1)
    text = "\n".join(",".join(repr(float(cell)) for cell in row) for row in rows)
    return read_upload(name, text.encode(), megabytes=1)


CHOICES = {
    "mixture": Choice(data=SMALL),
    "tangent kernel": Choice(
        activation="relu", kernel="ntk", data=PageData(n=100, p=150, mean=4.0, gap=2.5, seed=3)
    ),
    "both kernels": Choice(kernel="both", sigma_a2=0.35, data=SMALL),
    "papers' tangent kernel": Choice(activation="swish", kernel="ntk_paper", family="leaky_relu", data=SMALL),
    "sphere": Choice(activation="gelu", sigma_a2=0.3, data=PageData("sphere", n=110, p=90, seed=2)),
    "digits": Choice(activation="elu", parameters=(("alpha", 0.7),), data=PageData("digits", n=120, seed=1)),
    "csv": Choice(data=PageData("file", n=80, upload=upload())),
    "npy": Choice(activation="relu", data=PageData("file", n=2000, upload=upload("rows.npy"))),
    "formula": Choice(activation="formula", expression="x * sigmoid(1.5*x) - 0.1*abs(x)", data=SMALL),
    "parameters": Choice(
        activation="leaky_relu", parameters=(("a", 1.0), ("b", 0.1)), family="polynomial", data=SMALL
    ),
    "even": Choice(activation="abs", data=SMALL),
}
