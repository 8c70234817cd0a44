"""A torch cell whose evaluations are computed in float64, with clear errors; the caller's objects stay as they are.

Published cells hold float32 weights in closures, normalise in float32 whatever their inputs are, and create tensors of
torch's default type. Every torch function that they call is given float64 in the place of narrower types. The weights
themselves are not changed; copies of them are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from notsodeep.errors import InputError

NARROW = (torch.float32, torch.float16, torch.bfloat16)
CASTS = {Tensor.float, Tensor.half, Tensor.bfloat16}
# Relative differences above this are no rounding, in either precision.
ALIKE = {torch.float64: 1e-9, torch.float32: 1e-3}


class _Widened(TorchFunctionMode):
    """Gives float64 to every torch function in the place of narrower types."""

    def __init__(self) -> None:
        super().__init__()
        # Tensors that the cell holds itself; what it writes into them stays in the copies.
        self.copies: Any = WeakTensorKeyDictionary()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in CASTS:
            func = Tensor.double
        arguments, options = self._wide(args, held=True), self._wide(kwargs or {}, held=True)
        return self._wide(func(*arguments, **options), held=False)

    def _wide(self, value: Any, held: bool) -> Any:
        if isinstance(value, Tensor):
            if value.dtype not in NARROW:
                return value
            if not held or not value.is_leaf:
                return value.double()
            if value not in self.copies:
                self.copies[value] = value.detach().double()
            return self.copies[value]
        if isinstance(value, torch.dtype):
            return torch.float64 if value in NARROW else value
        if type(value) in (tuple, list):
            return type(value)(self._wide(each, held) for each in value)
        if type(value) is dict:
            return {key: self._wide(each, held) for key, each in value.items()}
        return value


class CellInFloat64:
    """The map of flat states (samples, size) of a cell and one input for each sample.

    Args:
        function: cell(z, x), samples along the first axis.
        shape: shape of the state of a sample.
        z0: the first states, (samples, *shape).
        x: the inputs.
        narrow: whether the function may hold or create tensors of narrower types.

    Attributes:
        dtype: float64, or the type of the states where the cell cannot be computed in float64.
        start: the first states, flat, in this type.
        inputs: the inputs in this type.
    """

    def __init__(
        self, function: Callable[..., Any], shape: tuple[int, ...], z0: Tensor, x: Tensor, narrow: bool = True
    ) -> None:
        self.function, self.shape, self._mode = function, shape, _Widened() if narrow else None
        # Compiled cells cannot be widened. An error of the cell itself comes again in its own precision.
        for dtype in dict.fromkeys((torch.float64, z0.dtype)):
            try:
                self._place(dtype, z0, x)
                with self.untouched():
                    self._check()
            except Exception as error:
                if isinstance(error, InputError) or dtype is z0.dtype:
                    raise
            else:
                break

    def _place(self, dtype: torch.dtype, z0: Tensor, x: Tensor) -> None:
        self.dtype = dtype
        with torch.inference_mode(False):
            self.start = z0.detach().clone().to(dtype).flatten(1)
            copied = x.detach().clone()
            self.inputs = copied.to(dtype) if copied.is_floating_point() else copied

    def __call__(self, z: Tensor, x: Tensor) -> Tensor:
        """The images of states, (samples, size)."""
        if self.dtype is not torch.float64 or self._mode is None:
            return self._image(z, x)
        with self._mode:
            return self._image(z, x)

    def _image(self, z: Tensor, x: Tensor) -> Tensor:
        image = self.function(z.reshape(len(z), *self.shape), x)
        if not isinstance(image, Tensor) or image.shape != (len(z), *self.shape):
            got = tuple(image.shape[1:]) if isinstance(image, Tensor) else type(image).__name__
            raise InputError(
                f"cell(z, x) must return a tensor of the shape of z, {self.shape}; got {got}."
                + ("" if isinstance(image, Tensor) else " Write it with torch functions.")
            )
        return image.flatten(1)

    @contextmanager
    def untouched(self) -> Iterator[None]:
        """Afterwards random states and buffers of the modules are as they were; inside, gradients can be taken."""
        devices = [self.start.device] if self.start.device.type == "cuda" else []
        buffers = {
            id(one): one
            for module in _modules(self.function)
            for one in module.buffers()
            if not one.is_inference()
        }
        before = [(one, one._version, one.detach().clone()) for one in buffers.values()]
        try:
            with torch.inference_mode(False), torch.random.fork_rng(devices):
                yield
        finally:
            for one, version, values in before:
                if one._version != version:
                    with torch.no_grad():
                        one.copy_(values)

    def _check(self) -> None:
        """Refuse cells that are not a differentiable torch function of each sample."""
        z, x = self.start.clone(), self.inputs.clone()
        versions = z._version, x._version
        try:
            with torch.no_grad():
                first = self(z, x)
                if not bool(torch.isfinite(first).all()):
                    raise InputError("cell(z0, X) has NaN or infinite entries: its first evaluation fails.")
                later = first.clone()
                self(later, x)
            # What is written by way of .data leaves the version as it is.
            if (z._version, x._version) != versions or not torch.equal(later, first):
                raise InputError(
                    "cell(z, x) writes into z or x. Let it return a new tensor: z = z + …, not z += …."
                )
            with torch.enable_grad():
                image = self(z.requires_grad_(), x)
        except (RuntimeError, TypeError, AttributeError) as error:
            if "numpy" in str(error).lower():
                raise InputError(
                    "cell(z, x) uses NumPy functions, which torch cannot differentiate. Write it with torch functions: "
                    "torch.tanh(z) for np.tanh(z)."
                ) from error
            raise
        if not image.requires_grad:
            raise InputError(
                "cell(z, x) does not depend on z differentiably: its Jacobian cannot be measured. Write it with torch "
                "functions, without detach or no_grad."
            )
        allowed = ALIKE.get(self.dtype, 1e-1)
        if not _alike(first, image.detach(), allowed):
            raise InputError(
                "cell(z, x) is random: two evaluations of one state differ. Switch dropout off (module.eval()), or fix "
                "the noise."
            )
        if len(z) > 1 and not self._same_alone(z.detach(), x, first, allowed):
            raise InputError(
                "The image of a sample depends on the other samples, as with batch normalisation in training mode. "
                "Call module.eval(), or give one sample at a time."
            )

    def _same_alone(self, z: Tensor, x: Tensor, images: Tensor, allowed: float) -> bool:
        """Whether the first sample has the same image without the others."""
        try:
            with torch.no_grad():
                return _alike(images[:1], self(z[:1], x[:1]), allowed)
        except (RuntimeError, ValueError):
            return False


def _alike(one: Tensor, other: Tensor, allowed: float) -> bool:
    size = torch.linalg.vector_norm(one.double())
    return not bool(torch.linalg.vector_norm((one - other).double()) > allowed * size)


def _modules(function: Any, depth: int = 3) -> Iterator[nn.Module]:
    """Modules that a function uses: itself, its object, what it closes over, and globals that it names."""
    if isinstance(function, nn.Module):
        yield function
    elif depth:
        code = getattr(function, "__code__", None)
        known = getattr(function, "__globals__", {})
        parts = [known.get(name) for name in code.co_names] if code else []
        for cell in getattr(function, "__closure__", None) or ():
            try:
                parts.append(cell.cell_contents)
            except ValueError:
                continue
        parts += [getattr(function, "__self__", None), *(getattr(function, "__defaults__", None) or ())]
        if isinstance(function, functools.partial):
            parts += [function.func, *function.args, *function.keywords.values()]
        elif code is None:
            parts += list(getattr(function, "__dict__", {}).values())
        for part in parts:
            for each in part if isinstance(part, list | tuple) else (part,):
                if not isinstance(each, type | ModuleType):
                    yield from _modules(each, depth - 1)


__all__ = ["CellInFloat64"]
