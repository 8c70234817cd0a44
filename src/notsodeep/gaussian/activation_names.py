"""Names of activations in torch, NumPy, SciPy and JAX, and their functions and modules.

Functions and modules are recognised by their library and name: none of these libraries is imported.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable
from typing import Any

from notsodeep.errors import InputError

# The name of an activation of this package and its parameters.
Named = tuple[str, dict[str, Any]]

# Other words for a name, without their underscores.
ALIASES = {
    "silu": "swish",
    "atan": "arctan",
    "logistic": "sigmoid",
    "expit": "sigmoid",
    "linear": "identity",
    "rectifier": "relu",
    "absolute": "abs",
    "fabs": "abs",
    "sine": "sin",
    "cosine": "cos",
    "specialerf": "erf",
    "specialexpit": "sigmoid",
}
# scale and alpha of the self-normalising ELU.
_SELU = (1.0507009873554805, 1.6732632423543772)
_LIBRARIES = ("torch", "numpy", "scipy", "jax", "jaxlib", "flax")
_FORMULA = re.compile(r"[-+*/()^]")


def _gelu(approximate: str = "none", **_: Any) -> Named:
    if approximate != "none":
        raise InputError(
            "GELU(approximate='tanh') is another function than GELU. Use activation('gelu'), or write it as a formula: "
            "activation('0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))')."
        )
    return "gelu", {}


def _hard_tanh(min_val: float = -1.0, max_val: float = 1.0, **_: Any) -> Named:
    low, high = float(min_val), float(max_val)
    if low == -high:
        return "hard_tanh", {"a": 1.0, "c": high} if high != 1.0 else {}
    return "formula", {"expression": f"clip(x, {low!r}, {high!r})"}


# Functions and modules with parameters, as torch calls them; JAX has the same defaults.
_PARAMETRISED: dict[str, Callable[..., Named]] = {
    "leakyrelu": lambda negative_slope=0.01, **_: ("leaky_relu", {"a": 1.0, "b": float(negative_slope)}),
    "elu": lambda alpha=1.0, **_: ("elu", {"alpha": float(alpha)} if alpha != 1.0 else {}),
    "selu": lambda **_: ("elu", {"alpha": _SELU[1], "amplitude": _SELU[0]}),
    "celu": lambda alpha=1.0, **_: ("elu", {"amplitude": float(alpha), "gain": 1.0 / float(alpha)}),
    "gelu": _gelu,
    "softplus": lambda beta=1.0, **_: ("softplus", {"amplitude": 1.0 / beta, "gain": float(beta)}),
    "logsigmoid": lambda **_: ("softplus", {"amplitude": -1.0, "gain": -1.0}),
    "hardtanh": _hard_tanh,
    "relu6": lambda **_: ("formula", {"expression": "clip(x, 0, 6)"}),
}
_ATTRIBUTES = ("negative_slope", "alpha", "beta", "approximate", "min_val", "max_val")


def resolve_name(given: Any, known: Iterable[str]) -> Named:
    """Find the name and parameters of an activation given by a name, a formula, a function or a torch module.

    Args:
        given: the name, formula, function or module.
        known: names of the activations of this package.

    Raises:
        InputError: where nothing has this name, with the nearest names.
    """
    names = tuple(known)
    if isinstance(given, str):
        return _from_text(given, names)
    library = _library_of(given)
    if library is not None:
        return _from_object(given, library, names)
    raise InputError(
        f"An activation is a name, a formula in x, an Activation, or a function of NumPy, torch or JAX; not "
        f"{type(given).__name__}."
    )


def _from_text(text: str, names: tuple[str, ...]) -> Named:
    plain = text.strip()
    if plain in names:
        return plain, {}
    if _FORMULA.search(plain) and re.search(r"\bx\b", plain):
        return "formula", {"expression": plain}
    last = plain.rpartition(".")[2]
    name = _same_word(last, names)
    if name is not None:
        return name, {}
    if _word(last) in _PARAMETRISED:
        return _PARAMETRISED[_word(last)]()
    raise InputError(f"There is no activation {text!r}.{_nearest(last, names)}")


def _from_object(given: Any, library: str, names: tuple[str, ...]) -> Named:
    if isinstance(given, type):
        try:
            given = given()
        except TypeError as error:
            raise InputError(f"{given.__name__} is a class that needs arguments: {error}.") from None
    called = getattr(given, "__name__", type(given).__name__)
    settings = {key: getattr(given, key) for key in _ATTRIBUTES if hasattr(given, key)}
    if library in ("jax", "jaxlib", "flax") and _word(called) == "gelu":
        settings["approximate"] = "tanh"  # the default there
    if _word(called) in _PARAMETRISED:
        return _PARAMETRISED[_word(called)](**settings)
    name = _same_word(called, names)
    if name is not None and not list(getattr(given, "parameters", tuple)()):
        return name, {}
    raise InputError(f"{library}'s {called} is not an activation of this package.{_nearest(called, names)}")


def is_own_function(given: Any) -> bool:
    """Whether this is a function that no known library defines, and not a class."""
    return callable(given) and not isinstance(given, type) and _library_of(given) is None


def _library_of(given: Any) -> str | None:
    """The library that a function, a ufunc or a module comes from; None for a user's own."""
    kind = given if isinstance(given, type) else type(given)
    for home in (getattr(given, "__module__", None), kind.__module__):
        first = (home or "").partition(".")[0]
        if first in _LIBRARIES and callable(given):
            return first
    return None


def _word(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "").replace(" ", "")


def _same_word(name: str, names: tuple[str, ...]) -> str | None:
    """The name that is the same word in another spelling, or an alias of it."""
    words = {_word(one): one for one in names} | ALIASES
    return words.get(_word(name))


def _nearest(name: str, names: tuple[str, ...]) -> str:
    words = {_word(one): one for one in (*names, *ALIASES)}
    near = [words[one] for one in difflib.get_close_matches(_word(name), words, n=3, cutoff=0.6)]
    question = f" Did you mean {' or '.join(repr(one) for one in near)}?" if near else ""
    return f"{question} Known: {', '.join(sorted(names))}; a formula in x; or custom_activation(f)."
