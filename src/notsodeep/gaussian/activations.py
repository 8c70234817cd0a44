"""Activations by name: one definition that kernels, designs and networks share.

An activation is amplitude · shape(gain · x) + offset.  Scaling and shifting live here, the function in its shape.  To
add a built-in activation, write its shape (see `shapes`) and name it in BUILDERS; its oracle goes to tests/oracles.py.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import InputError
from notsodeep.gaussian import piecewise, smooth
from notsodeep.gaussian.activation_names import is_own_function, resolve_name
from notsodeep.gaussian.custom import Custom
from notsodeep.gaussian.formula import formula
from notsodeep.gaussian.shapes import MAX_ORDER, Shape
from notsodeep.validation import Array


@dataclass(frozen=True)
class Activation:
    """φ(x) = amplitude · shape(gain · x) + offset.

    Call it on arrays; `derivative` gives φ^(k) away from the kinks.  `name` and `parameters` are what made it, so
    that it can be stored as text and made again by `activation(name, **parameters)`.
    """

    shape: Shape
    name: str
    parameters: tuple[tuple[str, Any], ...] = ()
    amplitude: float = 1.0
    gain: float = 1.0
    offset: float = 0.0

    def __call__(self, x: ArrayLike) -> Array:
        """The activation φ(x), elementwise on an array."""
        return self.amplitude * self.shape(self.gain * _array(x)) + self.offset

    def derivative(self, x: ArrayLike, order: int = 1) -> Array:
        """The derivative φ^(order)(x), order 1 or 2; at a kink one of the one-sided values."""
        if not 1 <= order <= MAX_ORDER:
            raise InputError(f"Derivatives of order 1 and {MAX_ORDER} are available, not {order}.")
        return self.amplitude * self.gain**order * self.shape(self.gain * _array(x), order)

    def scaled(self, amplitude: float = 1.0, gain: float = 1.0) -> Activation:
        """The activation amplitude · φ(gain · x)."""
        _finite(amplitude=amplitude, gain=gain)
        return replace(
            self, amplitude=amplitude * self.amplitude, gain=gain * self.gain, offset=amplitude * self.offset
        )

    def shifted(self, offset: float) -> Activation:
        """The activation φ(x) + offset."""
        _finite(offset=offset)
        return replace(self, offset=self.offset + offset)

    @property
    def kinks(self) -> tuple[float, ...]:
        """Points where φ or one of its derivatives jumps."""
        return tuple(sorted(kink / self.gain for kink in self.shape.kinks)) if self.gain else ()

    @property
    def parity(self) -> int:
        """+1 even, -1 odd, 0 neither: an offset spoils oddness but not evenness."""
        return 0 if self.shape.parity == -1 and self.offset else self.shape.parity

    @property
    def lipschitz(self) -> float:
        """Lip(φ) = sup |φ'|, docs/theory.md (1.5); infinite for what grows faster than a line."""
        factor = abs(self.amplitude * self.gain)
        return factor * self.shape.lipschitz() if factor else 0.0

    @property
    def caveat(self) -> str:
        """What error bounds take for granted about φ; empty for built-in activations, a sentence for callables."""
        return self.shape.caveat

    def __str__(self) -> str:
        inner = ", ".join(f"{key}={_short(value)}" for key, value in self.parameters)
        text = f"{self.name}({inner})" if inner else self.name
        own_amplitude, own_gain, own_offset = _affine_of(self.name, self.shape)
        gain, amplitude = self.gain / own_gain, self.amplitude / own_amplitude
        if gain != 1.0:
            text = f"{text}∘({gain:.6g}·x)"
        if amplitude != 1.0:
            text = f"{amplitude:.6g}·{text}"
        offset = self.offset - amplitude * own_offset
        return f"{text} {'+' if offset > 0 else '-'} {abs(offset):.6g}" if offset else text


def _array(x: ArrayLike) -> Array:
    """The numbers x in double precision; a tensor, which would lose its device and its gradient, is refused."""
    if type(x).__module__.partition(".")[0] == "torch":
        raise InputError(
            "An Activation takes NumPy arrays, not torch tensors. On tensors it is "
            "notsodeep.nets.torch_activation.TorchActivation(phi); for its values alone pass x.detach().cpu().numpy()."
        )
    return np.asarray(x, dtype=np.float64)


def _short(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(f"{v:.6g}" for v in value) + "]"
    return f"{value:.6g}"


def _finite(**numbers: float) -> None:
    """Refuse numbers that are not finite, by their names."""
    for name, value in numbers.items():
        if not np.isfinite(value):
            raise InputError(f"{name} must be a finite number, not {value}.")


# What makes the shape of each name.  The parameters of an activation are those of the function or class named here: the
# ordinary ones are always stated, keyword-only ones where they differ from their default.
BUILDERS: dict[str, Callable[..., Shape]] = {
    "identity": lambda: piecewise.PiecewiseLinear((), (1.0,)),
    "relu": piecewise.relu,
    "leaky_relu": piecewise.leaky_relu,
    "abs": lambda: piecewise.PiecewiseLinear((0.0,), (-1.0, 1.0)),
    "hard_tanh": piecewise.hard_tanh,
    "hard_sigmoid": lambda: piecewise.PiecewiseLinear((-3.0, 3.0), (0.0, 1.0 / 6.0, 0.0), value=0.5),
    "piecewise_linear": piecewise.PiecewiseLinear,
    "tanh": smooth.Tanh,
    "erf": smooth.Erf,
    "sigmoid": smooth.Tanh,
    "swish": smooth.Swish,
    "gelu": smooth.Gelu,
    "softplus": smooth.Softplus,
    "elu": smooth.Elu,
    "mish": smooth.Mish,
    "arctan": smooth.Arctan,
    "softsign": smooth.Softsign,
    "sin": lambda: smooth.Wave(0),
    "cos": lambda: smooth.Wave(1),
    "polynomial": smooth.Polynomial,
    "formula": formula,
}


def rebuilt(phi: Activation) -> Activation | None:
    """What name and parameters make, before scaling and shifting; None for a callable, whatever name it bears."""
    if phi.name not in BUILDERS:
        return None
    try:
        made = activation(phi.name, **dict(phi.parameters))
    except (TypeError, InputError):
        # A user's function may be called polynomial: the builder misses its coefficients.
        return None
    return made if made.shape == phi.shape else None


def _affine_of(name: str, shape: Shape) -> tuple[float, float, float]:
    """Amplitude, gain and offset that go with a name; a user's function may have the name of a built-in one."""
    # A logistic function is a tanh scaled and shifted; written so, its symmetry about 1/2 is exact.
    return (0.5, 0.5, 0.5) if name == "sigmoid" and type(shape) is smooth.Tanh else (1.0, 1.0, 0.0)


def activation(name: Any, **parameters: Any) -> Activation:
    """Return the activation of that name, e.g. activation("leaky_relu", a=1, b=0.1).

    Other names and functions are understood, too: "silu", "Tanh", np.tanh, torch.tanh, torch.nn.LeakyReLU(0.1) with its
    slope; and so is a formula in x: activation("x*sigmoid(x)"), and a smooth function of your own, as
    `custom_activation` takes it.

    Names: identity, relu, leaky_relu(a, b), abs, hard_tanh(a, c), hard_sigmoid, piecewise_linear(knots, slopes),
    tanh, erf, sigmoid, swish, gelu, softplus, elu, mish, arctan, softsign, sin, cos, polynomial(coefficients),
    and formula(expression), text in x that is read and never executed: activation("formula", expression="x**2 / 2").
    `amplitude`, `gain` and `offset` give amplitude · φ(gain · x) + offset.
    """
    if isinstance(name, Activation):
        if parameters:
            raise InputError("Parameters go with a name; use .scaled() and .shifted() on an Activation.")
        return name
    if is_own_function(name):
        return custom_activation(name, **parameters)
    name, implied = resolve_name(name, BUILDERS)
    parameters = implied | parameters
    # Of NumPy's numbers float32 compares with others after rounding them: the shape would not be what its numbers say.
    parameters = {key: one.item() if isinstance(one, np.generic) else one for key, one in parameters.items()}
    affine = {key: parameters.pop(key) for key in ("amplitude", "gain") if key in parameters}
    offset = parameters.pop("offset", 0.0)
    try:
        shape = BUILDERS[name](**parameters)
    except TypeError as error:
        raise InputError(f"activation({name!r}) does not take these parameters: {error}.") from None
    stated = _stated_parameters(name, shape, parameters)
    made = Activation(shape, name, stated, *_affine_of(name, shape))
    return made.scaled(**affine).shifted(offset)


def _stated_parameters(name: str, shape: Shape, given: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
    """What makes this shape again; a shape that tidies a parameter keeps the tidied one under the same name."""
    signature = inspect.signature(BUILDERS[name])
    stated = {key: one.default for key, one in signature.parameters.items()} | given
    return tuple(
        (key, getattr(shape, key, stated[key]))
        for key, one in signature.parameters.items()
        if one.kind is not one.KEYWORD_ONLY or getattr(shape, key, stated[key]) != one.default
    )


def custom_activation(
    f: Callable[[Array], Array],
    derivative: Callable[[Array], Array] | None = None,
    kinks: Sequence[float] = (),
    *,
    torch: Callable[[Any], Any] | None = None,
    name: str | None = None,
) -> Activation:
    """Make an activation from any vectorised callable R → R that is smooth between its declared kinks.

    The callable is sampled at once: an undeclared kink or jump, a non-finite value or a wrong derivative is an
    InputError that says where.  A feature narrower than the distance of these samples cannot be excluded: `caveat` of
    the activation says so with numbers, and so does the evidence of a kernel (`return_info=True`).

    Args:
        f: takes and returns arrays of one shape, in double precision.
        derivative: f', if known; else it is computed from f.
        kinks: all points where f or one of its first three derivatives jumps.
        torch: the same function of a torch tensor, for networks.  Not needed if f itself takes tensors, as abs(x) or
            x * x.clip(-1, 1) do; without either, a network sends its values through NumPy, with a warning.
        name: what the activation is called in texts and messages; the name of f if None.
    """
    if not callable(f):
        raise InputError(f"custom_activation needs a function of an array, got {type(f).__name__}.")
    shape = Custom(f, derivative, tuple(float(kink) for kink in kinks), torch, name)
    return Activation(shape, shape.name)
