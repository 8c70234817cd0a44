"""Operations of torch on the vectors of a cell, each read as nodes of `notsodeep.cells`.

An operation is looked up by its name, whether it was called as an operator, a function or a method.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.cells import expressions as ex
from notsodeep.errors import InputError
from notsodeep.nets.torch_activation import activation_of_function, activation_of_module
from notsodeep.nets.torch_values import (
    Concatenation,
    InputVector,
    MeanSquare,
    Product,
    Square,
    Value,
    Vector,
    with_bias,
)

ABSTRACT = (Vector, InputVector, Product, Concatenation, Square, MeanSquare)
Shapes = Sequence[tuple[int, ...] | None]

# Names of one operation.
_SAME = {
    "iadd": "add", "isub": "sub", "subtract": "sub", "imul": "mul", "multiply": "mul",
    "truediv": "div", "itruediv": "div", "divide": "div", "true_divide": "div",
    "negative": "neg", "concat": "cat", "concatenate": "cat", "mm": "matmul",
}  # fmt: skip
# Operations that leave values as they are.
_NOTHING = (
    "float", "double", "half", "bfloat16", "to", "type_as", "type", "contiguous", "clone", "dropout", "dropout1d",
    "dropout2d", "alpha_dropout", "feature_dropout", "identity",
)  # fmt: skip
_PASSED = (nn.Identity, nn.modules.dropout._DropoutNd)
_POWERS = {"square": 2, "sqrt": 0.5, "rsqrt": -0.5}
# Constants that keep norms from dividing by zero are at most this large.
_SMALL = 1e-2
REASONS = {
    "softmax": "softmax attention is not Gaussian at infinite width.",
    "scaled_dot_product_attention": "softmax attention is not Gaussian at infinite width.",
    "multiheadattention": "softmax attention is not Gaussian at infinite width.",
    "grucell": "its gates multiply the state that they read.",
    "glu": "its halves can be read with chunk: a * sigmoid(b).",
    "groupnorm": "it normalises over positions; a cell normalises the features at each position.",
    "batchnorm1d": "it depends on the other samples. Use LayerNorm or RMSNorm.",
    "batchnorm2d": "it depends on the other samples. Use LayerNorm or RMSNorm.",
}
_REARRANGED = (
    "view", "reshape", "permute", "transpose", "flatten", "unsqueeze", "squeeze", "rearrange", "movedim",
)  # fmt: skip


class Operations:
    """The operations, and the weights that were read so far.

    Args:
        axis: axis of the features, counted from the front.
    """

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self._products: dict[tuple[int, ...], Product] = {}
        # The input as if weights had read it, where it is added without weights.
        self._direct: ex.Node | None = None
        self._shapes: Shapes = ()
        # Constants that are added to vectors.
        self._constants: list[Tensor] = []

    def given_weights(self) -> tuple[list[Tensor], list[Tensor]]:
        """The weights of each vector that they read, and biases of all kinds."""
        products = self._products.values()
        weights = [
            part
            for one in products
            for part in torch.split(one.weights, [source.size for source in one.sources], 1)
        ]
        return weights, [*self._constants, *(one.bias for one in products if one.bias is not None)]

    @property
    def adds_input(self) -> bool:
        """Whether the input is added without weights."""
        return self._direct is not None

    # --- values as vectors ----------------------------------------------------------------------------------------

    def _vector(self, value: Any) -> Vector:
        """A value as a vector of the cell; the input as if weights had read it."""
        if isinstance(value, Product):
            return value.as_vector()
        if isinstance(value, InputVector):
            node = self._direct = self._direct or ex.dense(value.node, 1.0 / value.size)
            return Vector(node if value.factor == 1.0 else node * value.factor, value.size)
        if isinstance(value, Vector):
            return value
        if isinstance(value, Square):
            raise InputError("a product of a vector with itself is a gate whose factors share weights.")
        if isinstance(value, Concatenation):
            raise InputError("vectors side by side can be read by a Linear alone.")
        raise InputError(f"a vector of the cell is needed here, not {type(value).__name__.lower()}.")

    def plain(self, value: Any) -> Vector:
        """A value as a vector without gains of its own."""
        vector = self._vector(value)
        return Vector(vector.settled, vector.size)

    def _features(self, constant: Tensor, size: int) -> Tensor:
        """A constant that has one number for each feature and is the same elsewhere."""
        shape = self._shapes[0] if self._shapes else None
        ndim = len(shape or (1, 1))
        full = constant.reshape((1,) * (ndim - constant.ndim) + tuple(constant.shape))
        if full.shape[self.axis] != size or full.numel() != size:
            raise InputError(
                f"a constant of shape {tuple(constant.shape)} is not one number for each of {size} features."
            )
        return full.flatten().double()

    def _same_shapes(self) -> None:
        if len({shape for shape in self._shapes if shape is not None}) > 1:
            raise InputError(f"it combines vectors of different shapes, {list(self._shapes)}.")

    # --- calls ----------------------------------------------------------------------------------------------------

    def module(self, module: nn.Module, value: Any, shapes: Shapes) -> Any:
        """A call of a module of torch.nn."""
        self._shapes = shapes
        if isinstance(module, _PASSED):
            return value
        if isinstance(module, nn.Linear):
            return self._product(value, _key(module), module.weight, module.bias)
        if isinstance(module, nn.Conv1d | nn.Conv2d):
            return self._filters(value, module)
        if isinstance(module, nn.LayerNorm):
            return self.layer_norm(value, module.normalized_shape, module.weight, module.bias)
        if isinstance(module, nn.RMSNorm):
            return self.rms_norm(value, module.normalized_shape, module.weight)
        name = type(module).__name__.lower()
        if name in REASONS or next(module.parameters(), None) is not None:
            raise InputError(REASONS.get(name, "it is not an operation of a cell."))
        return self.activated(value, activation_of_module(module))

    def function(self, target: Any, args: Any, kwargs: Any, shapes: Shapes) -> Any:
        """A call of a function, an operator or a method."""
        self._shapes = shapes
        kwargs = {key: value for key, value in kwargs.items() if key not in ("out", "dtype", "inplace")}
        given = getattr(target, "__name__", str(target))
        name = _SAME.get(given, given)
        if not any(isinstance(value, ABSTRACT) for value in _flat((args, tuple(kwargs.values())))):
            return _evaluated(target, args, kwargs)
        shape = torch.Size((shapes[0] if shapes else None) or ())
        if name == "getattr":
            cpu = torch.device("cpu")
            known = {"shape": shape, "ndim": len(shape), "dtype": torch.float64, "device": cpu}
            if args[1] not in known:
                raise InputError(f"the attribute {args[1]} is not an operation of a cell.")
            return known[args[1]]
        if name in ("size", "dim"):
            return len(shape) if name == "dim" else shape if len(args) == 1 else shape[args[1]]
        if name in _POWERS:
            return self.pow(args[0], _POWERS[name])
        if name in _NOTHING:
            if "dropout" in name and kwargs.get("training", args[2] if len(args) > 2 else True):
                raise InputError("it is active in evaluation mode: pass training=self.training.")
            return args[0]
        if (phi := activation_of_function(name, args[1:], kwargs)) is not None:
            return self.activated(args[0], phi)
        handler: Callable[..., Any] | None = getattr(self, name, None) if name in _HANDLED else None
        if handler is None:
            rearranged = "features and positions cannot be rearranged." if name in _REARRANGED else ""
            raise InputError(REASONS.get(name, rearranged or "it is not an operation of a cell."))
        try:
            return handler(*args, **kwargs)
        except TypeError as error:
            raise InputError(f"its arguments are not understood ({error}).") from None

    # --- sums and products ----------------------------------------------------------------------------------------

    def add(self, one: Any, other: Any) -> Any:
        """A sum of vectors, or a bias."""
        if not isinstance(one, ABSTRACT):
            one, other = other, one
        if isinstance(one, MeanSquare) and not isinstance(other, ABSTRACT):
            if abs(float(other)) > _SMALL:
                raise InputError(f"the constant {float(other):g} in a norm is not small.")
            return one
        if isinstance(other, ABSTRACT):
            self._same_shapes()
            left, right = self.plain(one), self.plain(other)
            return Vector(left.node + right.node, left.size)
        vector = self.plain(one)
        constant = torch.as_tensor(other)
        if not constant.any():
            return vector
        if constant.numel() == 1:
            raise InputError(
                f"the number {float(constant):g} is added to every feature; a cell adds vectors alone."
            )
        self._constants.append(self._features(constant, vector.size))
        return Vector(with_bias(vector.node, self._constants[-1]), vector.size)

    def sub(self, one: Any, other: Any) -> Any:
        """Read a difference as a sum."""
        return self.add(one, self.neg(other) if isinstance(other, ABSTRACT) else -other)

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
            return self._written_norm(one, other, -0.5)
        if one is other:
            return Square(one)
        self._same_shapes()
        left, right = self.plain(one), self.plain(other)
        for vector, gate in ((left, right), (right, left)):
            inner = gate.node
            if isinstance(inner, ex.Activated) and inner.node is vector.node and inner.phi.name == "sigmoid":
                return Vector(ex.activation(vector.node, "swish"), vector.size)
        return Vector(left.node * right.node, left.size)

    def div(self, one: Any, other: Any) -> Any:
        """A quotient by a number, or by the root mean square."""
        if isinstance(other, MeanSquare):
            return self._written_norm(one, other, 0.5)
        if isinstance(other, ABSTRACT):
            raise InputError("a vector cannot be divided by another one.")
        return self.mul(one, 1.0 / other)

    def _multiple(self, value: Any, factor: Tensor) -> Any:
        if factor.numel() > 1:
            read = value if isinstance(value, Product) else self._vector(value)
            return read.times(self._features(factor, read.size))
        number = float(factor)
        if isinstance(value, InputVector):
            return InputVector(value.node, value.size, number * value.factor)
        vector = self._vector(value)
        if vector.gain is not None or vector.shift is not None:
            return vector.times(factor.double())
        return vector if number == 1.0 else Vector(vector.node * number, vector.size)

    def activated(self, value: Any, phi: Any) -> Vector:
        """An activation of each feature."""
        vector = self.plain(value)
        return Vector(ex.activation(vector.node, phi), vector.size)

    # --- norms ----------------------------------------------------------------------------------------------------

    def layer_norm(
        self, value: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 0.0
    ) -> Vector:
        """LayerNorm over the features."""
        return self._norm(value, normalized_shape, "layer", weight, bias)

    def rms_norm(
        self, value: Any, normalized_shape: Any, weight: Any = None, eps: float | None = None
    ) -> Vector:
        """RMSNorm over the features."""
        return self._norm(value, normalized_shape, "rms", weight, None)

    def _norm(self, value: Any, shape: Any, kind: str, weight: Any, bias: Any) -> Vector:
        vector = self.plain(value)
        last = len(self._shapes[0] or ()) - 1
        if tuple(shape) != (vector.size,) or self.axis != last:
            raise InputError(
                f"it normalises {tuple(shape)}; a cell normalises its {vector.size} features alone."
            )
        gain = None if weight is None else weight.detach().double()
        shift = None if bias is None or not bool(bias.any()) else bias.detach().double()
        self._constants += [] if shift is None else [shift]
        return Vector(ex.norm(vector.node, kind), vector.size, gain, shift)

    def pow(self, value: Any, exponent: Any) -> Any:
        """A square, or the root of a mean square."""
        if isinstance(value, MeanSquare) and exponent in (0.5, -0.5) and value.power == 1.0:
            return MeanSquare(value.of, exponent)
        if isinstance(value, Value) and exponent == 2:
            return Square(value)
        raise InputError("powers can be read in norms alone; give an activation instead.")

    def mean(self, value: Any, dim: Any = None, keepdim: bool = False) -> MeanSquare:
        """The mean square over features."""
        if not isinstance(value, Square):
            raise InputError("means can be read in norms alone, as the mean of squares.")
        axes, ndim = list(dim) if isinstance(dim, list | tuple) else [dim], len(self._shapes[0] or ())
        if None in axes or [int(axis) % ndim for axis in axes] != [self.axis] or not keepdim:
            raise InputError(f"it must be over the features (dim={self.axis}, keepdim=True); got dim={dim}.")
        return MeanSquare(value.of)

    def _written_norm(self, value: Any, square: MeanSquare, power: float) -> Vector:
        """A vector times its mean square to the power -1/2, or divided by its root."""
        if square.power != power or value is not square.of:
            raise InputError("only a vector divided by its own root mean square can be read.")
        vector = self.plain(value)
        return Vector(ex.norm(vector.node), vector.size)

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
        return self._product(value, _key(layer), layer.weight, layer.bias, layer.padding_mode)

    def _product(
        self, value: Any, key: tuple[int, ...], weight: Tensor, bias: Tensor | None, padding: str = ""
    ) -> Product:
        """What weights make of a value; `key` identifies the weights, which a cell uses for one vector."""
        sources = self._sources(value)
        last = len(self._shapes[0] or ()) - 1
        if sum(source.size for source in sources) != weight.shape[1] or (self.axis != last and not padding):
            raise InputError(f"weights {tuple(weight.shape)} do not act on the features.")
        constant = None if bias is None else bias.detach().double()
        product = Product(sources, weight.detach().double(), constant, padding)
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
        return Concatenation(tuple(part for value in tensors for part in self._sources(value)))

    def _sources(self, value: Any) -> tuple[Vector | InputVector, ...]:
        """What weights read: vectors side by side, or one."""
        if isinstance(value, Concatenation):
            return value.parts
        return (value if isinstance(value, InputVector) else self._vector(value),)

    def chunk(self, value: Any, chunks: int, dim: int = 0) -> tuple[Product, ...]:
        """Equal parts of the output of weights."""
        return self.split(value, -(-getattr(value, "size", 0) // chunks), dim)

    def split(self, value: Any, split_size: Any, dim: int = 0) -> tuple[Product, ...]:
        """Parts of the output of weights."""
        if dim % len(self._shapes[0] or (1,)) != self.axis or not isinstance(value, Product):
            raise InputError("only the features that a Linear or Conv has just made can be split.")
        sizes = split_size
        if isinstance(split_size, int):
            full, rest = divmod(value.size, split_size)
            sizes = [split_size] * full + [rest] * bool(rest)
        return value.split([int(size) for size in sizes])

    def getitem(self, value: Any, place: Any) -> Any:
        """One part of a split."""
        if isinstance(value, tuple) and isinstance(place, int):
            return value[place]
        raise InputError("parts of a vector can be read with chunk or split alone.")


_HANDLED = (
    "add", "sub", "neg", "mul", "div", "layer_norm", "rms_norm", "pow", "mean", "linear", "matmul",
    "cat", "chunk", "split", "getitem",
)  # fmt: skip


def _key(layer: nn.Module) -> tuple[int, ...]:
    """What identifies the weights of a layer: layers may share them; computed weights are the layer's own."""
    weight = dict(layer.named_parameters(recurse=False)).get("weight")
    return (id(layer),) if weight is None else (weight.data_ptr(), *weight.shape)


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
