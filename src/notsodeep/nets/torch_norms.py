"""Vectors of a torch cell while it is read, and its norms, of which some are written out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import sqrt
from numbers import Number
from typing import Any

from torch import Tensor, nn

from notsodeep.cells import expressions as ex
from notsodeep.errors import InputError
from notsodeep.nets.torch_values import Concatenation, InputVector, MeanSquare, Product, Square, Value, Vector

Shapes = Sequence[tuple[int, ...] | None]


class NormOperations:
    """What values are as vectors of the cell, and the operations of norms.

    Args:
        axis: of the features, counted from the front.
    """

    def __init__(self, axis: int) -> None:
        self.axis = axis
        self._input = ex.input()
        self._direct: dict[int, ex.Node] = {}
        self._shapes: Shapes = ()

    # --- arguments and results ------------------------------------------------------------------------------------

    def state(self, size: int) -> Vector:
        """Return the state as a vector of the cell."""
        return Vector(ex.state(), size)

    def input(self, size: int) -> InputVector:
        """Return the input as a value that weights may read."""
        return InputVector(self._input, size)

    def node(self, value: Any) -> ex.Node:
        """The node of a value."""
        return self._vector(value).settled()

    def _vector(self, value: Any) -> Vector:
        """A value as a vector of the cell; the input as if weights had read it."""
        if isinstance(value, Product):
            return value.as_vector()
        if isinstance(value, InputVector):
            node = self._direct.setdefault(value.size, ex.dense(self._input, 1.0 / value.size))
            return Vector(node if value.factor == 1.0 else node * value.factor, value.size)
        if isinstance(value, Vector):
            return value
        if isinstance(value, Square):
            raise InputError("a product of a vector with itself is a gate whose factors share weights.")
        if isinstance(value, Concatenation):
            raise InputError("vectors side by side can be read by a Linear alone.")
        raise InputError(f"a vector of the cell is needed here, not {_kind(value)}.")

    def _plain(self, value: Any) -> Vector:
        """A value as a vector without gains of its own."""
        vector = self._vector(value)
        return Vector(vector.settled(), vector.size)

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
        vector = self._plain(value)
        last = len(self._shapes[0] or ()) - 1
        if tuple(shape) != (vector.size,) or self.axis != last:
            raise InputError(
                f"it normalises {tuple(shape)}; a cell normalises its {vector.size} features alone."
            )
        gain = None if weight is None else weight.detach().double()
        shift = None if bias is None or not bool(bias.any()) else bias.detach().double()
        return Vector(ex.norm(vector.node, kind), vector.size, gain, shift)

    def normalize(self, value: Any, p: float = 2.0, dim: int = 1, eps: float = 0.0) -> Vector:
        """The vector divided by its Euclidean norm."""
        vector = self._plain(value)
        self._over_features(dim, True)
        if p != 2.0:
            raise InputError("only the Euclidean norm can be read.")
        return Vector(ex.norm(vector.node) * (1.0 / sqrt(vector.size)), vector.size)

    def pow(self, value: Any, exponent: Any) -> Any:
        """A square, or the root of a mean square."""
        if isinstance(value, MeanSquare) and exponent in (0.5, -0.5) and not value.root:
            return value.rooted() if exponent > 0 else value.rooted().inverted()
        if isinstance(value, Value) and exponent == 2:
            return Square(value)
        raise InputError("powers can be read in norms alone; give an activation instead.")

    def square(self, value: Any) -> Any:
        """The squares, of a norm that is written out."""
        return self.pow(value, 2)

    def mean(self, value: Any, dim: Any = None, keepdim: bool = False) -> MeanSquare:
        """The mean square over features."""
        if not isinstance(value, Square):
            raise InputError("means can be read in norms alone, as the mean of squares.")
        self._over_features(dim, keepdim)
        return MeanSquare(value.of, 1.0)

    def sum(self, value: Any, dim: Any = None, keepdim: bool = False) -> MeanSquare:
        """The sum of squares over features."""
        return self.mean(value, dim, keepdim).times(float(size_of(value.of)))

    def norm(
        self, value: Any, p: Any = 2, dim: Any = None, keepdim: bool = False, ord: Any = None
    ) -> MeanSquare:
        """The Euclidean norm over features."""
        self._over_features(dim, keepdim)
        if (p if ord is None else ord) not in (2, 2.0, "fro") or not isinstance(value, Value):
            raise InputError("only the Euclidean norm of a vector can be read.")
        return MeanSquare(value, float(size_of(value))).rooted()

    def sqrt(self, value: Any) -> MeanSquare:
        """The root mean square."""
        return self.pow(value, 0.5)  # type: ignore[no-any-return]

    def rsqrt(self, value: Any) -> MeanSquare:
        """The reciprocal of the root mean square."""
        return self.pow(value, -0.5)  # type: ignore[no-any-return]

    def clamp(self, value: Any, min: Any = None, max: Any = None) -> Any:
        """A lower bound of a norm, or a bounded activation."""
        if isinstance(value, MeanSquare) and max is None:
            return value
        low, high = (None if bound is None else float(bound) for bound in (min, max))
        if low is None or high is None:
            raise InputError("clamp needs two bounds to be an activation.")
        return self.activated(value, nn.Hardtanh(low, high))

    def _written_norm(self, value: Any, inverse: MeanSquare) -> Vector:
        if not (inverse.root and inverse.inverse) or value is not inverse.of:
            raise InputError("only a vector divided by its own root mean square can be read.")
        vector = self._plain(value)
        node = ex.norm(vector.node)
        return Vector(node if inverse.factor == 1.0 else node * inverse.factor, vector.size)

    def _over_features(self, dim: Any, keepdim: bool) -> None:
        shape = self._shapes[0] or ()
        axes = list(dim) if isinstance(dim, list | tuple) else [dim]
        if None in axes or [int(axis) % len(shape) for axis in axes] != [self.axis] or not keepdim:
            raise InputError(f"it must be over the features (dim={self.axis}, keepdim=True); got dim={dim}.")

    def activated(self, value: Any, phi: Any) -> Vector:
        """An activation of each feature."""
        vector = self._plain(value)
        return Vector(ex.activation(vector.node, phi), vector.size)


def size_of(value: Any) -> int:
    """Number of features of a value."""
    size = getattr(value, "size", None)
    if not isinstance(size, int):
        raise InputError(f"a vector of the cell is needed here, not {_kind(value)}.")
    return size


def _kind(value: Any) -> str:
    return "a number" if isinstance(value, Number) else type(value).__name__.lower()


__all__ = ["NormOperations", "Shapes", "size_of"]
