"""What can each package do? Questions, how they are answered by running code, and our own answers.

    python questions.py            our answers, as JSON
    python */abilities.py          a peer's, in its own environment

An answer is found by running the package wherever that is possible ("run"); the others cite its documentation ("docs").
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

#: Key, and the question as it stands in the table.
QUESTIONS = {
    "infinite_depth": "kernels of infinitely many tied layers",
    "error_bound": "an error bound with every kernel",
    "tanh": "CK and NTK of tanh",
    "callable": "kernels of any callable as activation",
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
    ("notsodeep", "beyond_memory"): "yes: on disk, resumable, on a cluster (docs/scale.md)",
    (
        "neural-tangents",
        "beyond_memory",
    ): "in batches and over devices (`nt.batch`); the result is held in memory",
    ("notsodeep", "regularisers"): "a bound on the contraction rate is kept or watched; no others",
    (
        "notsodeep",
        "gradient_flow",
    ): "no: kernel ridge and Gaussian processes; `convergence` watches finite networks",
}
Answer = Callable[[], str]


def answered(answers: Mapping[str, Answer]) -> dict[str, str]:
    """Every answer by running it; one that raises is an answer too."""
    found = {}
    for key, answer in answers.items():
        try:
            found[key] = answer()
        except Exception as error:
            found[key] = (
                f"raises {type(error).__name__}: {textwrap.shorten(str(error), 100, placeholder=' …')}"
            )
    return found


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


# --- ours ----------------------------------------------------------------------------------------------
def ours() -> dict[str, Answer]:
    import numpy as np
    import torch

    import notsodeep as nsd
    from notsodeep.nets import DEQNet, SolverOptions

    x = np.random.default_rng(0).standard_normal((12, 20)) / np.sqrt(20)

    def bound(model: Any) -> float:
        return float(nsd.tangent_kernel(model, x, return_info=True)[1].error_bound)

    def infinite_depth() -> str:
        return f"yes: one equation per pair, solved to {bound(nsd.DEQ('relu', sigma_a2=0.2)):.0e}"

    def error_bound() -> str:
        return f"yes: `return_info=True`, here {bound(nsd.DEQ('swish', sigma_a2=0.2)):.0e}"

    def tanh() -> str:
        return f"yes, bound {bound(nsd.DEQ('tanh', sigma_a2=0.2)):.0e}"

    def any_callable() -> str:
        model = nsd.DEQ(nsd.custom_activation(lambda v: np.tanh(2 * v) / 2), sigma_a2=0.2)
        return f"yes, bound {bound(model):.0e}"

    def convolution() -> str:
        names = [
            name for name in dir(nsd.nets) + dir(nsd) if re.search("conv(?!erge)|attention", name.lower())
        ]
        return f"yes: {', '.join(names)}" if names else "no: fully connected networks only"

    def input_gradient() -> str:
        try:
            rows = torch.as_tensor(x).requires_grad_()
            nsd.conjugate_kernel(nsd.DEQ("relu", sigma_a2=0.2), rows)
        except (RuntimeError, TypeError, nsd.errors.InputError) as error:
            return f"no: a tensor that wants gradients raises {type(error).__name__}"
        return "no: the result is a NumPy array"

    def equivalents() -> str:
        names = ("equivalent", "limiting_density", "design", "convergence")
        return "yes: " + ", ".join(f"`nsd.{name}`" for name in names if hasattr(nsd, name))

    def train() -> str:
        net = DEQNet(nsd.DEQ("tanh", sigma_a2=0.2), 20, 64, 2)
        net(torch.as_tensor(x, dtype=torch.float32)).sum().backward()
        return (
            f"yes: {sum(parameter.grad is not None for parameter in net.parameters())} weights with gradients"
        )

    def any_map() -> str:
        try:
            nsd.DEQ(torch.nn.Conv2d(3, 3, 3), sigma_a2=0.2)  # type: ignore[arg-type]
        except Exception as error:
            return f"no: z = φ(σ_a A z + σ_b B x)/√m with any φ; a module in its place raises {type(error).__name__}"
        return "yes"

    def gradient() -> str:
        return f"implicit, {default_gradient_error():.0e}"

    def default_gradient_error() -> float:
        net = DEQNet(nsd.DEQ("tanh", sigma_a2=0.2), 20, 64, 1)
        rows = torch.as_tensor(x, dtype=torch.float32)
        net(rows).sum().backward()
        a, b, v = (getattr(net, name).detach().double() for name in ("recurrent", "inputs", "readout"))
        a.requires_grad_()
        z = torch.zeros(len(rows), 64, dtype=torch.float64)
        for _ in range(100):  # unrolled, to rounding
            z = torch.tanh(0.2**0.5 * z @ a.T + 0.8**0.5 * rows.double() @ b.T) / 8.0
        (z @ v.T).sum().backward()
        assert a.grad is not None
        assert net.recurrent.grad is not None
        return float((net.recurrent.grad - a.grad).norm() / a.grad.norm())

    def divergence() -> str:
        net = DEQNet(nsd.DEQ("tanh", sigma_a2=0.2), 20, 64, 1, solver=SolverOptions(max_steps=2))
        net(torch.as_tensor(x, dtype=torch.float32))
        return "returns without a word"

    return {
        "infinite_depth": infinite_depth,
        "error_bound": error_bound,
        "tanh": tanh,
        "callable": any_callable,
        "convolution": convolution,
        "input_gradient": input_gradient,
        "equivalents": equivalents,
        "train": train,
        "any_map": any_map,
        "gradient": gradient,
        "divergence": divergence,
    }


if __name__ == "__main__":
    print(json.dumps(answered(ours())))
