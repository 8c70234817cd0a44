"""Activations by name: one definition that kernels, designs and networks share.

An activation is amplitude · shape(gain · x) + offset.  Scaling and shifting live here, the function in its shape.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from notsodeep.errors import InputError
from notsodeep.gaussian.shapes import MAX_ORDER, PiecewiseLinear, Polynomial, Shape, Wave
from notsodeep.gaussian.smooth import Smooth, SmoothSum

Array = NDArray[np.float64]


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
        """φ(x), elementwise."""
        return self.amplitude * self.shape(self.gain * np.asarray(x, dtype=np.float64)) + self.offset

    def derivative(self, x: ArrayLike, order: int = 1) -> Array:
        """φ^(order)(x), order 1 to 4; at a kink one of the one-sided values."""
        if not 1 <= order <= MAX_ORDER:
            raise InputError(f"Derivatives of order 1 to {MAX_ORDER} are available, not {order}.")
        return (
            self.amplitude * self.gain**order * self.shape(self.gain * np.asarray(x, dtype=np.float64), order)
        )

    def scaled(self, amplitude: float = 1.0, gain: float = 1.0) -> Activation:
        """amplitude · φ(gain · x)."""
        _finite(amplitude=amplitude, gain=gain)
        return replace(
            self, amplitude=amplitude * self.amplitude, gain=gain * self.gain, offset=amplitude * self.offset
        )

    def shifted(self, offset: float) -> Activation:
        """φ(x) + offset."""
        _finite(offset=offset)
        return replace(self, offset=self.offset + offset)

    @property
    def kinks(self) -> tuple[float, ...]:
        """Points where φ or one of its derivatives jumps."""
        return tuple(sorted(kink / self.gain for kink in self.shape.kinks)) if self.gain else ()

    @property
    def is_odd(self) -> bool:
        """φ(-x) = -φ(x), so that E[φ] and E[φ''] vanish at every scale."""
        return self.shape.parity == -1 and self.offset == 0.0

    @property
    def caveat(self) -> str:
        """What error bounds take for granted about φ; empty for built-in activations, a sentence for callables."""
        return self.shape.caveat

    def __str__(self) -> str:
        inner = ", ".join(f"{key}={_short(value)}" for key, value in self.parameters)
        text = f"{self.name}({inner})" if inner else self.name
        reference = rebuilt(self) or Activation(self.shape, self.name)
        gain, amplitude = self.gain / reference.gain, self.amplitude / reference.amplitude
        if gain != 1.0:
            text = f"{text}∘({gain:.6g}·x)"
        if amplitude != 1.0:
            text = f"{amplitude:.6g}·{text}"
        offset = self.offset - amplitude * reference.offset
        return f"{text} {'+' if offset > 0 else '-'} {abs(offset):.6g}" if offset else text


def _short(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, tuple):
        return "[" + ", ".join(f"{v:.6g}" for v in value) + "]"
    return f"{value:.6g}"


def _finite(**numbers: float) -> None:
    for name, value in numbers.items():
        if not np.isfinite(value):
            raise InputError(f"{name} must be a finite number, not {value}.")


def _piecewise(knots: Sequence[float], slopes: Sequence[float], value: float = 0.0) -> PiecewiseLinear:
    ends, rates = np.asarray(knots, dtype=float), np.asarray(slopes, dtype=float)
    if ends.ndim != 1 or rates.ndim != 1 or len(rates) != len(ends) + 1:
        raise InputError(
            f"piecewise_linear needs one more slope than knots; got {ends.size} knots and {rates.size} slopes."
        )
    if not (np.all(np.isfinite(ends)) and np.all(np.isfinite(rates)) and np.isfinite(value)):
        raise InputError("piecewise_linear needs finite knots, slopes and value.")
    if np.any(np.diff(ends) <= 0):
        raise InputError(f"piecewise_linear needs increasing knots, got {ends.tolist()}.")
    # + 0.0 turns -0.0 into 0.0, so that equal functions compare equal.
    return PiecewiseLinear(tuple((ends + 0.0).tolist()), tuple((rates + 0.0).tolist()), float(value))


def _leaky_relu(a: float, b: float) -> Activation:
    """max(a x, b x)."""
    return _made(_piecewise((0.0,), (min(a, b), max(a, b))), "leaky_relu", a=a, b=b)


def _hard_tanh(a: float, c: float) -> Activation:
    """a · clip(x, -c, c)."""
    if not c > 0:
        raise InputError(f"hard_tanh clips at ±c and needs c > 0, got {c}.")
    return _made(_piecewise((-c, c), (0.0, a, 0.0)), "hard_tanh", a=a, c=c)


def _polynomial(coefficients: Sequence[float]) -> Activation:
    series = np.atleast_1d(np.asarray(coefficients, dtype=float))
    if series.ndim != 1 or not len(series) or not np.all(np.isfinite(series)):
        raise InputError("polynomial needs a list of finite coefficients [c0, c1, ...].")
    return _made(Polynomial(tuple(series.tolist())), "polynomial", coefficients=tuple(series.tolist()))


def _elu(alpha: float = 1.0) -> Activation:
    _finite(alpha=alpha)
    return _made(Smooth("elu", (float(alpha),)), "elu", **({} if alpha == 1.0 else {"alpha": alpha}))


def _smooth_sum(linear: float, bend: float, sharpness: float, bounded: float, clip: float) -> Activation:
    shape = SmoothSum(*(float(number) for number in (linear, bend, sharpness, bounded, clip)))
    return _made(shape, "smooth_sum", **vars(shape))


def _general_piecewise(knots: Sequence[float], slopes: Sequence[float], value: float = 0.0) -> Activation:
    shape = _piecewise(knots, slopes, value)
    extra = {"value": shape.value} if shape.value else {}
    return _made(shape, "piecewise_linear", knots=shape.knots, slopes=shape.slopes, **extra)


def _formula(expression: str = "") -> Activation:
    """A formula in x, read and never executed."""
    from notsodeep.gaussian.formula import formula_shape, read_formula

    shape = formula_shape(read_formula(expression)[1])
    return _made(shape, "formula", expression=shape.text)


def _made(shape: Shape, name: str, **parameters: Any) -> Activation:
    return Activation(shape, name, tuple(parameters.items()))


def _smooth(name: str) -> Callable[[], Activation]:
    return lambda: _made(Smooth(name), name)


BUILDERS: dict[str, Callable[..., Activation]] = {
    "identity": lambda: _made(_piecewise((), (1.0,)), "identity"),
    "relu": lambda: _made(_piecewise((0.0,), (0.0, 1.0)), "relu"),
    "leaky_relu": _leaky_relu,
    "abs": lambda: _made(_piecewise((0.0,), (-1.0, 1.0)), "abs"),
    "hard_tanh": _hard_tanh,
    "hard_sigmoid": lambda: _made(_piecewise((-3.0, 3.0), (0.0, 1.0 / 6.0, 0.0), 0.5), "hard_sigmoid"),
    "piecewise_linear": _general_piecewise,
    "tanh": _smooth("tanh"),
    "erf": _smooth("erf"),
    # A logistic function is a tanh; written so, its symmetry about 1/2 is exact.
    "sigmoid": lambda: Activation(Smooth("tanh"), "sigmoid", amplitude=0.5, gain=0.5, offset=0.5),
    "swish": _smooth("swish"),
    "gelu": _smooth("gelu"),
    "softplus": _smooth("softplus"),
    "elu": _elu,
    "mish": _smooth("mish"),
    "arctan": _smooth("arctan"),
    "softsign": _smooth("softsign"),
    "smooth_sum": _smooth_sum,
    "sin": lambda: _made(Wave(sine=True), "sin"),
    "cos": lambda: _made(Wave(sine=False), "cos"),
    "polynomial": _polynomial,
    "formula": _formula,
}

DEFAULTS: dict[str, dict[str, float]] = {
    "leaky_relu": {"a": 1.0, "b": 0.1},
    "hard_tanh": {"a": 1.0, "c": 1.0},
}


def _plain(name: str, parameters: dict[str, Any]) -> Activation:
    # Of NumPy's numbers float32 compares with others after rounding them: the shape would not be what its numbers say.
    numbers = {
        key: value.item() if isinstance(value, np.generic) else value for key, value in parameters.items()
    }
    return BUILDERS[name](**{**DEFAULTS.get(name, {}), **numbers})


def rebuilt(phi: Activation) -> Activation | None:
    """What name and parameters make, before scaling and shifting; None for a callable, whatever name it bears."""
    if phi.name not in BUILDERS:
        return None
    try:
        made = _plain(phi.name, dict(phi.parameters))
    except (TypeError, InputError):
        # A user's function may be called polynomial: the builder misses its coefficients.
        return None
    return made if made.shape == phi.shape else None


def activation(name: str | Activation, **parameters: Any) -> Activation:
    """The activation of that name, e.g. activation("leaky_relu", a=1, b=0.1).

    Names: identity, relu, leaky_relu(a, b), abs, hard_tanh(a, c), hard_sigmoid, piecewise_linear(knots, slopes),
    tanh, erf, sigmoid, swish, gelu, softplus, elu, mish, arctan, softsign, sin, cos, polynomial(coefficients),
    smooth_sum(linear, bend, sharpness, bounded, clip): linear x + bend softplus(sharpness x) + bounded tanh(clip x),
    and formula(expression), e.g. activation("formula", expression="x * sigmoid(x)"): text in x that is read and never
    executed.
    `amplitude`, `gain` and `offset` give amplitude · φ(gain · x) + offset.
    """
    if isinstance(name, Activation):
        if parameters:
            raise InputError("Parameters go with a name; use .scaled() and .shifted() on an Activation.")
        return name
    if name not in BUILDERS:
        raise InputError(
            f"There is no activation {name!r}. Known: {', '.join(sorted(BUILDERS))}; or custom_activation(f)."
        )
    affine = {key: parameters.pop(key) for key in ("amplitude", "gain") if key in parameters}
    offset = parameters.pop("offset", 0.0)
    try:
        made = _plain(name, parameters)
    except TypeError as error:
        raise InputError(f"activation({name!r}) does not take these parameters: {error}.") from None
    return made.scaled(**affine).shifted(offset)


def custom_activation(
    f: Callable[[Array], Array],
    derivative: Callable[[Array], Array] | None = None,
    kinks: Sequence[float] = (),
) -> Activation:
    """Any vectorised callable R → R that is smooth between its declared kinks.

    The callable is sampled at once: an undeclared kink or jump, a non-finite value or a wrong derivative is an
    InputError that says where.  A feature narrower than the distance of these samples cannot be excluded: `caveat` of
    the activation says so with numbers, and so does the evidence of a kernel (`return_info=True`).

    Args:
        f: takes and returns arrays of one shape, in double precision.
        derivative: f', if known; else it is computed from f.
        kinks: all points where f or one of its first three derivatives jumps.
    """
    from notsodeep.gaussian.custom import Custom

    if not callable(f):
        raise InputError(f"custom_activation needs a function of an array, got {type(f).__name__}.")
    shape = Custom(f, derivative, tuple(float(kink) for kink in kinks))
    return Activation(shape, shape.name)
