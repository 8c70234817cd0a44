"""Operations of torch on the vectors of a cell, each read as nodes of `notsodeep.cells`.

An operation is looked up by its name, whether it was called as an operator, a function or a method.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.cells import expressions as ex
from notsodeep.errors import InputError
from notsodeep.nets.torch_norms import NormOperations, Shapes, size_of
from notsodeep.nets.torch_values import (
    Concatenation,
    InputVector,
    MeanSquare,
    Parts,
    Product,
    Square,
    Vector,
    Weights,
    with_bias,
)

ABSTRACT = (Vector, InputVector, Product, Concatenation, Parts, Square, MeanSquare)

# Names of one operation.
_SAME = {
    "iadd": "add", "isub": "sub", "subtract": "sub", "imul": "mul", "multiply": "mul",
    "truediv": "div", "itruediv": "div", "divide": "div", "true_divide": "div",
    "negative": "neg", "concat": "cat", "concatenate": "cat", "mm": "matmul", "linalg_norm": "norm",
    "vector_norm": "norm", "linalg_vector_norm": "norm", "clamp_min": "clamp", "clip": "clamp",
}  # fmt: skip
# Operations that leave values as they are.
_NOTHING = (
    "float", "double", "half", "bfloat16", "to", "type_as", "type", "contiguous", "clone", "dropout", "dropout1d",
    "dropout2d", "alpha_dropout", "feature_dropout", "identity",
)  # fmt: skip
_PASSED = (nn.Identity, nn.modules.dropout._DropoutNd)
# Activations whose functions have the parameters of these modules.
_PARAMETRISED: dict[str, type[nn.Module]] = {
    "leaky_relu": nn.LeakyReLU, "elu": nn.ELU, "celu": nn.CELU, "gelu": nn.GELU, "softplus": nn.Softplus,
    "hardtanh": nn.Hardtanh,
}  # fmt: skip
_ACTIVATIONS = (
    "relu", "tanh", "sigmoid", "silu", "mish", "selu", "relu6", "softsign", "logsigmoid", "hardsigmoid", "erf", "sin",
    "cos", "arctan", "atan", "abs", "absolute", "special_erf", "special_expit", "expit",
)  # fmt: skip
# Constants that keep norms from dividing by zero are at most this large.
_SMALL = 1e-2
_GELU_TANH = "0.5*x*(1 + tanh(sqrt(2/pi)*(x + 0.044715*x**3)))"
REASONS = {
    "softmax": "softmax attention is not Gaussian at infinite width.",
    "scaled_dot_product_attention": "softmax attention is not Gaussian at infinite width.",
    "multiheadattention": "softmax attention is not Gaussian at infinite width.",
    "grucell": "its gates multiply the state that they read.",
    "groupnorm": "it normalises over positions; a cell normalises the features at each position.",
    "batchnorm1d": "it depends on the other samples. Use LayerNorm or RMSNorm.",
    "batchnorm2d": "it depends on the other samples. Use LayerNorm or RMSNorm.",
}
_REARRANGED = (
    "view",
    "reshape",
    "permute",
    "transpose",
    "flatten",
    "unsqueeze",
    "squeeze",
    "rearrange",
    "movedim",
)


class Operations(NormOperations):
    """The operations, and the weights that were read so far.

    Args:
        axis: of the features, counted from the front.
    """

    def __init__(self, axis: int) -> None:
        super().__init__(axis)
        self._products: dict[tuple[int, ...], Product] = {}

    # --- calls ----------------------------------------------------------------------------------------------------

    def module(self, module: nn.Module, args: Any, kwargs: Any, shapes: Shapes) -> Any:
        """A call of a module of torch.nn."""
        self._shapes = shapes
        if isinstance(module, _PASSED):
            return args[0]
        if isinstance(module, nn.Linear):
            return self._product(args[0], (id(module),), module.weight, module.bias)
        if isinstance(module, nn.Conv1d | nn.Conv2d):
            return self._filters(args[0], module)
        if isinstance(module, nn.LayerNorm):
            return self.layer_norm(args[0], module.normalized_shape, module.weight, module.bias)
        if isinstance(module, nn.RMSNorm):
            return self.rms_norm(args[0], module.normalized_shape, module.weight)
        if isinstance(module, nn.GLU):
            return self.glu(args[0], module.dim)
        if isinstance(module, nn.GELU) and module.approximate == "tanh":
            return self.activated(args[0], _GELU_TANH)
        name = type(module).__name__.lower()
        if name in REASONS or next(module.parameters(), None) is not None:
            raise InputError(REASONS.get(name, "it is not an operation of a cell."))
        return self.activated(args[0], module)

    def function(self, target: Any, args: Any, kwargs: Any, shapes: Shapes) -> Any:
        """A call of a function, an operator or a method."""
        self._shapes = shapes
        kwargs = {key: value for key, value in kwargs.items() if key not in ("out", "dtype", "inplace")}
        given = getattr(target, "__name__", str(target))
        name = _SAME.get(given, given)
        if not any(isinstance(value, ABSTRACT) for value in _flat((args, tuple(kwargs.values())))):
            return _evaluated(target, args, kwargs)
        if name == "getattr":
            return self._attribute(args[0], args[1])
        if name in ("size", "dim"):
            shape = torch.Size(self._shapes[0] or ())
            return len(shape) if name == "dim" else shape if len(args) == 1 else shape[args[1]]
        if name in _NOTHING:
            if "dropout" in name and kwargs.get("training", args[2] if len(args) > 2 else True):
                raise InputError("it is active in evaluation mode: pass training=self.training.")
            return args[0]
        if name in _PARAMETRISED or name in _ACTIVATIONS:
            return self.activated(args[0], _activation_of(name, args[1:], kwargs))
        handler: Callable[..., Any] | None = getattr(self, name, None) if name in _HANDLED else None
        if handler is None:
            rearranged = "features and positions cannot be rearranged." if name in _REARRANGED else ""
            raise InputError(REASONS.get(name, rearranged or "it is not an operation of a cell."))
        try:
            return handler(*args, **kwargs)
        except TypeError as error:
            raise InputError(f"its arguments are not understood ({error}).") from None

    def _attribute(self, value: Any, name: str) -> Any:
        if name == "shape":
            return torch.Size(self._shapes[0] or ())
        if name in ("dtype", "device", "ndim"):
            return {"dtype": torch.float64, "device": torch.device("cpu")}.get(
                name, len(self._shapes[0] or ())
            )
        raise InputError(f"the attribute {name} is not an operation of a cell.")

    # --- sums and products ----------------------------------------------------------------------------------------

    def add(self, one: Any, other: Any, alpha: float = 1.0) -> Any:
        """one + alpha · other."""
        other = other if alpha == 1.0 else self.mul(other, alpha)
        if not isinstance(one, ABSTRACT):
            one, other = other, one
        if isinstance(one, MeanSquare) and not isinstance(other, ABSTRACT):
            if abs(float(other)) > _SMALL * one.factor:
                raise InputError(f"the constant {float(other):g} in a norm is not small.")
            return one
        if isinstance(other, ABSTRACT):
            self._same_shapes()
            left, right = self._plain(one), self._plain(other)
            return Vector(left.node + right.node, left.size)
        vector = self._plain(one)
        constant = torch.as_tensor(other)
        if not constant.any():
            return vector
        if constant.numel() == 1:
            raise InputError(
                f"the number {float(constant):g} is added to every feature; a cell adds vectors alone."
            )
        return Vector(with_bias(vector.node, self._features(constant, vector.size)), vector.size)

    def sub(self, one: Any, other: Any, alpha: float = 1.0) -> Any:
        """one − alpha · other."""
        return self.add(one, self.mul(other, -alpha) if isinstance(other, ABSTRACT) else -alpha * other)

    def neg(self, value: Any) -> Any:
        """Read a negation as a multiple."""
        return self.mul(value, -1.0)

    def mul(self, one: Any, other: Any) -> Any:
        """A multiple, gains, a norm that is written out, or a gate."""
        if not isinstance(one, ABSTRACT):
            one, other = other, one
        if not isinstance(other, ABSTRACT):
            return self._multiple(one, torch.as_tensor(other))
        if isinstance(one, MeanSquare):
            one, other = other, one
        if isinstance(other, MeanSquare):
            return self._written_norm(one, other)
        if one is other:
            return Square(one)
        self._same_shapes()
        left, right = self._plain(one), self._plain(other)
        for vector, gate in ((left, right), (right, left)):
            inner = gate.node
            if isinstance(inner, ex.Activated) and inner.node is vector.node and inner.phi.name == "sigmoid":
                return Vector(ex.activation(vector.node, "swish"), vector.size)
        return Vector(left.node * right.node, left.size)

    def div(self, one: Any, other: Any) -> Any:
        """A quotient by a number, or by the root mean square."""
        if isinstance(other, MeanSquare):
            return self._written_norm(one, other.inverted())
        if isinstance(other, ABSTRACT):
            raise InputError("a vector cannot be divided by another one.")
        return self.mul(one, 1.0 / other)

    def _multiple(self, value: Any, factor: Tensor) -> Any:
        if factor.numel() == 1:
            number = float(factor)
            if isinstance(value, MeanSquare):
                if number <= 0.0:
                    raise InputError("a norm is multiplied by a number that is not positive.")
                return value.times(number)
            if isinstance(value, InputVector):
                return InputVector(value.node, value.size, number * value.factor)
            vector = self._vector(value)
            if vector.gain is None and vector.shift is None:
                return Vector(vector.node * number, vector.size) if number != 1.0 else vector
            shift = None if vector.shift is None else number * vector.shift
            gain = torch.ones(vector.size) if vector.gain is None else vector.gain
            return Vector(vector.node, vector.size, number * gain, shift)
        if isinstance(value, Product):
            return value.times(self._features(factor, value.size))
        vector = self._vector(value)
        gain = self._features(factor, vector.size)
        shift = None if vector.shift is None else gain * vector.shift
        return Vector(vector.node, vector.size, gain if vector.gain is None else gain * vector.gain, shift)

    # --- weights --------------------------------------------------------------------------------------------------

    def linear(self, value: Any, weight: Tensor, bias: Tensor | None = None) -> Product:
        """A matrix times a vector, or times vectors side by side."""
        key = (weight.data_ptr(), *weight.shape)
        return self._product(value, key, weight, bias)

    def matmul(self, value: Any, matrix: Any) -> Product:
        """A vector times a constant matrix."""
        if not isinstance(matrix, Tensor) or matrix.ndim != 2 or isinstance(value, Tensor):
            raise InputError(
                "a product of two vectors of the cell, as in attention, is not Gaussian at infinite width."
            )
        return self.linear(value, matrix.mT)

    def _filters(self, value: Any, layer: nn.Conv1d | nn.Conv2d) -> Product:
        size, reach = layer.kernel_size[0], layer.kernel_size[0] // 2
        same = layer.padding == "same" or set(layer.padding) == {reach}
        plain = {*layer.stride, *layer.dilation, layer.groups} == {1}
        if len(set(layer.kernel_size)) > 1 or size % 2 == 0 or not same or not plain:
            raise InputError(
                "filters must be square, of odd size, padded to the same size, without stride or groups."
            )
        if layer.padding_mode not in ("zeros", "circular"):
            raise InputError(f"padding_mode must be 'zeros' or 'circular', not {layer.padding_mode!r}.")
        return self._product(value, (id(layer),), layer.weight, layer.bias, layer.padding_mode)

    def _product(
        self, value: Any, key: tuple[int, ...], weight: Tensor, bias: Tensor | None, padding: str = ""
    ) -> Product:
        """What weights make of a value; `key` identifies the weights, which a cell uses for one vector."""
        parts = value.parts if isinstance(value, Concatenation) else (value,)
        sources = tuple(part if isinstance(part, InputVector) else self._vector(part) for part in parts)
        last = len(self._shapes[0] or ()) - 1
        if sum(source.size for source in sources) != weight.shape[1] or (self.axis != last and not padding):
            raise InputError(f"weights {tuple(weight.shape)} do not act on the features.")
        constant = None if bias is None else bias.detach().double()
        product = Product(sources, Weights(weight.detach().double(), constant, padding))
        known = self._products.setdefault(key, product)
        if [id(one) for one in known.sources] != [id(one) for one in sources]:
            raise InputError(
                "its weights are used for two different vectors in one step; a cell has fresh ones for each."
            )
        return known

    def cat(self, tensors: Any, dim: int = 0) -> Concatenation:
        """Vectors side by side."""
        if dim % len(self._shapes[0] or (1,)) != self.axis:
            raise InputError("only features can be concatenated.")
        parts: list[Vector | InputVector] = []
        for value in tensors:
            inner = value.parts if isinstance(value, Concatenation) else (value,)
            parts += [part if isinstance(part, InputVector) else self._vector(part) for part in inner]
        return Concatenation(tuple(parts))

    def chunk(self, value: Any, chunks: int, dim: int = 0) -> Parts:
        """Equal parts of the output of weights."""
        return self.split(value, -(-size_of(value) // chunks), dim)

    def split(self, value: Any, split_size: Any, dim: int = 0) -> Parts:
        """Parts of the output of weights."""
        if dim % len(self._shapes[0] or (1,)) != self.axis or not isinstance(value, Product):
            raise InputError("only the features that a Linear or Conv has just made can be split.")
        sizes = split_size
        if isinstance(split_size, int):
            full, rest = divmod(value.size, split_size)
            sizes = [split_size] * full + [rest] * bool(rest)
        return value.split([int(size) for size in sizes])

    def glu(self, value: Any, dim: int = -1) -> Vector:
        """a ∘ sigmoid(b) of the two halves."""
        halves = self.chunk(value, 2, dim).items
        self._shapes = ()
        return self.mul(halves[0], self.activated(halves[1], "sigmoid"))  # type: ignore[no-any-return]

    def getitem(self, value: Any, place: Any) -> Any:
        """One part of a split."""
        if isinstance(value, Parts) and isinstance(place, int):
            return value.items[place]
        raise InputError("parts of a vector can be read with chunk or split alone.")


_HANDLED = (
    "add", "sub", "neg", "mul", "div", "layer_norm", "rms_norm", "normalize", "pow", "square", "mean", "sum", "norm",
    "sqrt", "rsqrt", "clamp", "linear", "matmul", "cat", "chunk", "split", "glu", "getitem",
)  # fmt: skip


def _activation_of(name: str, args: Any, kwargs: Any) -> Any:
    """An activation as this package takes it."""
    if name not in _PARAMETRISED:
        return name
    given = {key: value for key, value in kwargs.items() if key != "inplace"}
    module = _PARAMETRISED[name](*(value for value in args if not isinstance(value, bool)), **given)
    return _GELU_TANH if getattr(module, "approximate", "") == "tanh" else module


def _evaluated(target: Any, args: Any, kwargs: Any) -> Any:
    """A call without vectors of the cell: of parameters and numbers."""
    if isinstance(target, str):
        return getattr(args[0], target)(*args[1:], **kwargs)
    return target(*args, **kwargs)


def _flat(values: Any) -> list[Any]:
    if isinstance(values, list | tuple):
        return [one for value in values for one in _flat(value)]
    return [values]


__all__ = ["ABSTRACT", "REASONS", "Operations"]
