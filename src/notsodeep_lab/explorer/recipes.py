"""The Python script that computes what the page shows."""

from __future__ import annotations

from notsodeep_lab.explorer.choice import Choice, PageData
from notsodeep_lab.explorer.computations import LAYERS, STEPS, labels_of

_DIGITS = """
from notsodeep.data import Preprocessing, load

digits = load("digits", n={n}, seed={seed})
X, y = Preprocessing.fit(digits.X).apply(digits.X), digits.y
"""
_MIXTURE = """
X, y = nsd.GaussianMixture.paper({p}, mean={mean}, gap={gap}).sample({n}, seed={seed})
"""
_FILE = """
import numpy as np

from notsodeep.data import Preprocessing, open_table

table = open_table({name!r}, label_column={label!r})
rows = np.sort(np.random.default_rng({seed}).permutation(len(table.rows))[:{n}])
X = Preprocessing.named({scale!r}, table.rows[rows]).apply(table.rows[rows])
{labels}
"""
_SCRIPT = """
import notsodeep as nsd
from notsodeep import DEQ, Equilibrium, cells

# The data: samples in rows
{data}

# The network
{network}

# Does it settle? How many steps does the task need?
forecast = nsd.forecast(model, X)
print(forecast.advice)
curve = nsd.depth_curve(model, {samples}, steps={steps}, kernel={kernel!r})
print(curve)
{plain}{twin}"""
_TWIN = """
# An explicit twin with the same kernel
twin = nsd.design(model, kernel={kernel!r}, X=X)
print(twin.explain())
"""
_PLAIN = """
# Plain networks: the same activation, no feedback; accuracy or explained variance
from notsodeep.kernels import exact_kernel
from notsodeep.verdicts.depth_curve import labelled_samples, left_out_scores

plain = {{}}
for layers in {layers}:
    K = exact_kernel(nsd.Explicit([{activation!r}] * layers), X, kernel={kernel!r})
    plain[layers] = left_out_scores(K, *labelled_samples(model, y, len(X)), None)[0].mean()
print(plain)
"""


def as_python(choice: Choice) -> str:
    """Return a Python script that computes what the page shows."""
    has_labels = labels_of(choice.data) is not None
    shared = {"kernel": choice.kernel, "layers": LAYERS, "activation": choice.network.activation}
    plain = _PLAIN.format(**shared) if has_labels else ""
    text = _SCRIPT.format(
        data=_data(choice.data).strip(),
        network=choice.network.code,
        samples="(X, y)" if has_labels else "X",
        steps=list(STEPS),
        kernel=choice.kernel,
        plain=plain,
        twin=_TWIN.format(**shared) if choice.network.kind == "deq" else "",
    )
    return text.strip() + "\n"


def _data(data: PageData) -> str:
    values = vars(data) | {"n": len(data.samples.rows)}
    if data.upload is None:
        return (_DIGITS if data.source == "digits" else _MIXTURE).format(**values)
    labels = "" if labels_of(data) is None else "y = table.labels[rows]"
    return _FILE.format(
        **values | {"name": data.upload.name, "label": data.upload.label_column, "labels": labels}
    )
