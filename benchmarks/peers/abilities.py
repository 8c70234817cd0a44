"""The answers of notsodeep to questions.py, obtained by running it."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch
from questions import answered

import notsodeep as nsd
from notsodeep.nets import DEQNet, SolverOptions

X = np.random.default_rng(0).standard_normal((12, 20)) / np.sqrt(20)


def bound(model: Any) -> float:
    return float(nsd.tangent_kernel(model, X, return_info=True)[1].error_bound)


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
    names = [name for name in dir(nsd.nets) + dir(nsd) if re.search("conv(?!erge)|attention", name.lower())]
    if not names:
        return "no: fully connected networks only"
    found = ", ".join(f"`{name}`" for name in names)
    return f"convolutions and global pooling, of equilibria too: {found}; no attention"


def input_gradient() -> str:
    try:
        rows = torch.as_tensor(X).requires_grad_()
        nsd.conjugate_kernel(nsd.DEQ("relu", sigma_a2=0.2), rows)
    except (RuntimeError, TypeError, nsd.errors.InputError) as error:
        return f"no: a tensor that wants gradients raises {type(error).__name__}"
    return "no: the result is a NumPy array"


def equivalents() -> str:
    names = ("equivalent", "limiting_density", "design", "convergence")
    return "yes: " + ", ".join(f"`nsd.{name}`" for name in names if hasattr(nsd, name))


def train() -> str:
    net = DEQNet(nsd.DEQ("tanh", sigma_a2=0.2), 20, 64, 2)
    net(torch.as_tensor(X, dtype=torch.float32)).sum().backward()
    return f"yes: {sum(parameter.grad is not None for parameter in net.parameters())} weights with gradients"


def any_map() -> str:
    try:
        nsd.DEQ(torch.nn.Conv2d(3, 3, 3), sigma_a2=0.2)  # type: ignore[arg-type]
    except Exception as error:
        return (
            f"no: z = φ(σ_a A z + σ_b B x)/√m with any φ; a module in its place raises {type(error).__name__}"
        )
    return "yes"


def gradient() -> str:
    return f"implicit, {default_gradient_error():.0e}"


def default_gradient_error() -> float:
    net = DEQNet(nsd.DEQ("tanh", sigma_a2=0.2), 20, 64, 1)
    rows = torch.as_tensor(X, dtype=torch.float32)
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
    net(torch.as_tensor(X, dtype=torch.float32))
    return "returns without a word"


if __name__ == "__main__":
    print(answered(globals()))
