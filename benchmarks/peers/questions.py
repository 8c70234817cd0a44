"""What can each package do? The questions, and how they are answered by running code.

    python abilities.py            our answers, as JSON
    python */abilities.py          a peer's, in its own environment

An answer is found by running the package wherever that is possible ("run"); the others cite its documentation ("docs").
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import Any

#: Questions by key, as printed in the table.
QUESTIONS = {
    "infinite_depth": "kernels of infinitely many tied layers",
    "error_bound": "an error bound with every kernel",
    "tanh": "CK and NTK of tanh",
    "any_callable": "kernels of any callable as activation",
    "convolution": "kernels of convolutions, pooling, attention",
    "input_gradient": "kernels differentiable with respect to the inputs",
    "accelerator": "kernels on GPU or TPU",
    "beyond_memory": "kernels larger than memory",
    "equivalents": "random-matrix equivalents, spectra without data, explicit twins, certificates",
    "train": "DEQs of finite width that train",
    "any_map": "any map z ↦ f(z, x) as the layer",
    "gradient": "gradient when nothing is set: relative error against a float64 solve",
    "divergence": "a solve that does not converge",
    "regularisers": "Jacobian regularisation, spectral and weight normalisation",
    "gradient_flow": "predictions of infinitely wide networks along gradient descent",
}
#: What cannot be run without hardware or data that are not here.
DOCUMENTED = {
    ("notsodeep", "accelerator"): "no: compiled for the processor; `nets` run wherever torch does",
    ("neural-tangents", "accelerator"): "yes, through XLA",
    ("notsodeep", "beyond_memory"): "yes: on disk, resumable, on a cluster (docs/how-to/large-data.md)",
    (
        "neural-tangents",
        "beyond_memory",
    ): "in batches and over devices (`nt.batch`); the result is held in memory",
    ("notsodeep", "regularisers"): "a bound on the contraction rate is kept or recorded; no others",
    (
        "notsodeep",
        "gradient_flow",
    ): "no",
}


def answered(namespace: Mapping[str, Any]) -> str:
    """The answers of all functions that are named like a question, as JSON; one that raises is an answer too."""
    found = {}
    for key in QUESTIONS:
        if key in namespace:
            try:
                found[key] = namespace[key]()
            except Exception as error:
                words = textwrap.shorten(str(error), 100, placeholder=" …")
                found[key] = f"raises {type(error).__name__}: {words}"
    return json.dumps(found)


def table_rows(found: Mapping[str, Mapping[str, str] | str]) -> list[dict[str, Any]]:
    """A row for each question; `found` has the answers of each package, or why there are none."""
    rows = []
    for key, question in QUESTIONS.items():
        row: dict[str, Any] = {"question": question}
        for package, answers in found.items():
            if isinstance(answers, str):
                row[package] = f"not measured: {answers}"
            elif key in answers:
                row[package] = f"{answers[key]} [run]"
            elif (package, key) in DOCUMENTED:
                row[package] = f"{DOCUMENTED[package, key]} [docs]"
            else:
                row[package] = "–"
        rows.append(row)
    return rows
