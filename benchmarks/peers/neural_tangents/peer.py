"""CK and NTK of a 20-layer network with input injection, by neural-tangents, in an environment of its own.

The network is the weight-untied unrolling of a DEQ: layer l has its own A_l, B_l, and

    u^(1) = σ_b B_1 x,     u^(l+1) = σ_a A_l φ(u^(l))/√m + σ_b B_l x,     f(x) = <a, φ(u^(L))>/√m.

neural-tangents' `Dense` divides by the number of inputs, so it is fed √p X: its first Gram matrix is X Xᵀ.
With Λ^(1) = T^(1) = σ_b² X Xᵀ the two arrays written, its kernels after the readout, are

    ck  = G^(L),                    G^(l) = F(Λ^(l)),  Λ^(l+1) = σ_a² G^(l) + σ_b² X Xᵀ           ('nngp')
    ntk = G^(L) + D^(L) ∘ T^(L),    D^(l) = F'(Λ^(l)), T^(l+1) = Λ^(l+1) + σ_a² D^(l) ∘ T^(l)     ('ntk')

which are the features' CK and the network's NTK of notsodeep at depth L, with everything trained.

This file imports nothing of notsodeep. `compare.py` drives it; by hand, inside the environment:

    python peer.py data.npz --activation relu --depth 20 --repeats 3 --output relu     # relu.npz, relu.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["JAX_ENABLE_X64"] = "1"  # float64; read when jax is imported

import jax
import jax.numpy as jnp
import neural_tangents as nt
import numpy as np
from neural_tangents import stax

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # benchmarks/peers/: how turns are taken

from turns import only_answers_on_stdout, take_turns

ACTIVATIONS = ("relu", "erf", "tanh")


def activation_layer(name: str, degree: int) -> Any:
    """The peer's layer for an activation: closed form for relu and erf, Gauss–Hermite quadrature for tanh."""
    if name == "relu":
        return stax.Relu()
    if name == "erf":
        return stax.Erf()
    return stax.ElementwiseNumerical(jnp.tanh, deg=degree)


def unrolled_network(name: str, depth: int, sigma_a2: float, sigma_b2: float, degree: int) -> Any:
    """L activation layers with the input injected before each, and a linear readout of unit variance."""

    def dense(variance: float) -> Any:
        return stax.Dense(1, W_std=variance**0.5, b_std=None, parameterization="ntk")

    net = dense(sigma_b2)
    for _ in range(depth - 1):
        hidden = stax.serial(net, activation_layer(name, degree), dense(sigma_a2))
        net = stax.serial(stax.FanOut(2), stax.parallel(hidden, dense(sigma_b2)), stax.FanInSum())
    return stax.serial(net, activation_layer(name, degree), dense(1.0))


def kernel_function(name: str, depth: int, sigma_a2: float, sigma_b2: float, degree: int) -> Any:
    """Compiled X -> (ck, ntk)."""
    _, _, kernel_fn = unrolled_network(name, depth, sigma_a2, sigma_b2, degree)

    @jax.jit
    def both(x: Any) -> Any:
        kernels = kernel_fn(jnp.sqrt(x.shape[1]) * x, None, ("nngp", "ntk"))
        return kernels.nngp, kernels.ntk

    return both


def measure(x: np.ndarray, options: argparse.Namespace, say: Any) -> tuple[dict[str, Any], Any]:
    """Compilation and a first call, then the warm repeats."""
    both = kernel_function(
        options.activation, options.depth, options.sigma_a2, options.sigma_b2, options.degree
    )
    data = jax.block_until_ready(jnp.asarray(x))

    def prepare() -> Any:
        compiled = both.lower(data).compile()
        return lambda: jax.block_until_ready(compiled(data))

    return take_turns(prepare, options.repeats, say, interactive=options.interactive)


def versions() -> dict[str, str]:
    return {
        "neural_tangents": nt.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
        "devices": str(jax.devices()),
        "cpus": str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()),
    }


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "data",
        type=Path,
        help=".npz file with X (n, p), samples in rows; and maybe rows, the indices whose kernels are kept",
    )
    parser.add_argument("--activation", choices=ACTIVATIONS, required=True)
    parser.add_argument("--depth", type=int, default=20, help="activation layers L (default: %(default)s)")
    parser.add_argument("--sigma-a2", type=float, default=0.2, help="variance of A (default: %(default)s)")
    parser.add_argument("--sigma-b2", type=float, default=None, help="variance of B (default: 1 - sigma_a2)")
    parser.add_argument(
        "--degree", type=int, default=25, help="quadrature nodes for tanh (default: %(default)s)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="warm calls after the first (default: %(default)s)"
    )
    parser.add_argument("--output", type=Path, required=True, help="results go to OUTPUT.npz and OUTPUT.json")
    parser.add_argument(
        "--interactive", action="store_true", help="wait for a line of input before every call"
    )
    options = parser.parse_args(arguments)
    if options.sigma_b2 is None:
        options.sigma_b2 = 1.0 - options.sigma_a2
    return options


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    with np.load(options.data, allow_pickle=False) as stored:
        x = stored["X"].astype(np.float64)
        kept = stored["rows"] if "rows" in stored else np.arange(len(x))
    with only_answers_on_stdout() as say:
        figures, kernels = measure(x, options, say)
        block = np.ix_(kept, kept)
        ck, ntk = (np.asarray(kernel)[block] for kernel in kernels)
        np.savez(options.output.with_suffix(".npz"), ck=ck, ntk=ntk)
        write_record(x, figures, options)
        say({"event": "done"})


def write_record(x: np.ndarray, figures: dict[str, Any], options: argparse.Namespace) -> None:
    settings = {key: value for key, value in vars(options).items() if not isinstance(value, Path)}
    record = {"shape": list(x.shape), "settings": settings, "versions": versions(), **figures}
    options.output.with_suffix(".json").write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
