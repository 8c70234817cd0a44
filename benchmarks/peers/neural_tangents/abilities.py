"""The answers of neural-tangents to questions.py, obtained by running it in its own environment."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["JAX_ENABLE_X64"] = "1"  # read when jax is imported

import dataclasses

import jax
import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
from neural_tangents import stax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/peers/: the questions

from questions import answered
from recursion import tanh_dual

X = jnp.asarray(np.random.default_rng(0).standard_normal((6, 20)))


def names_with(*parts: str) -> list[str]:
    """Public names of the package that contain one of these."""
    everything = [*dir(nt), *dir(stax), *dir(nt.predict)]
    return [name for name in everything if any(part in name.lower() for part in parts)]


def network(layer: Any) -> Any:
    """The kernels of one hidden layer."""
    return stax.serial(stax.Dense(1, b_std=None), layer, stax.Dense(1, b_std=None))[2]


def infinite_depth() -> str:
    found = names_with("fixed", "equilib", "implicit")
    return f"yes: {found}" if found else "no such layer: a number of layers stands for it, weights untied"


def error_bound() -> str:
    fields = [field.name for field in dataclasses.fields(network(stax.Relu())(X, None))]
    return (
        "yes"
        if any("err" in name or "bound" in name for name in fields)
        else "no: its `Kernel` has no such field"
    )


def tanh() -> str:
    found = np.asarray(network(stax.ElementwiseNumerical(jnp.tanh, deg=25))(X, None, "nngp"))
    gram = np.asarray(X @ X.T / X.shape[1])
    q = np.diag(gram)
    exact = tanh_dual(q[:, None], q[None, :], gram)[0]
    error = np.abs(found - exact).max() / exact.max()
    return f"by quadrature: CK of one layer wrong by {error:.0e} with the 25 nodes of its documentation"


def any_callable() -> str:
    try:
        network(stax.Elementwise(lambda v: jnp.tanh(2 * v) / 2))(X, None, "nngp")
    except Exception as error:
        name = type(error).__name__
        return f"`Elementwise` without its Gaussian integral raises {name}; `ElementwiseNumerical` takes it"
    return "yes"


def convolution() -> str:
    return "yes: " + ", ".join(
        f"`{name}`" for name in ("Conv", "AvgPool", "GlobalSelfAttention") if hasattr(stax, name)
    )


def input_gradient() -> str:
    kernel = network(stax.Erf())
    gradient = jax.grad(lambda x: kernel(x, None, "ntk").sum())(X)
    return "yes" if bool(jnp.isfinite(gradient).all()) else "not finite"


def equivalents() -> str:
    found = names_with("equivalent", "spectr", "density", "design", "certif")
    return f"yes: {found}" if found else "no"


def train() -> str:
    return "no: layers for networks of finite depth" if infinite_depth().startswith("no") else "yes"


def gradient_flow() -> str:
    return "yes: `nt.predict`" if names_with("gradient_descent_mse") else "no"


if __name__ == "__main__":
    print(answered(globals()))
