"""Linear maps of rows with their adjoints: a matrix, or filters that are shared over the positions of an image.

A row holds one layer of one sample. For images it is (channels, height, width) flattened, so that solvers and power
iteration, which work on rows, serve both.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.grad import conv1d_weight, conv2d_weight

from notsodeep.models.mixing import Convolution

# Power iteration: vectors of a block, and the fewest and most rounds.
_VECTORS = 8
_FEWEST_ROUNDS, _MOST_ROUNDS = 4, 60
# Two rounds in a row that raise the estimate by less than this share are the last ones.
_SETTLED = 3e-4


class MatrixMap:
    """W = factor · matrix, applied to every row.

    Args:
        matrix: (rows of W, columns of W).
        factor: a number; the product is never formed.
    """

    def __init__(self, matrix: Tensor, factor: float = 1.0) -> None:
        self.weights, self.factor = matrix, factor

    @property
    def columns(self) -> int:
        """Length of a row x."""
        return self.weights.shape[1]

    def image(self, x: Tensor) -> Tensor:
        """W x of every row."""
        return self.factor * (x @ self.weights.mT)

    def adjoint(self, x: Tensor) -> Tensor:
        """Wᵀ x of every row."""
        return self.factor * (x @ self.weights)

    def add_image(self, start: Tensor, x: Tensor, out: Tensor) -> None:
        """Write start + W x into `out`."""
        torch.addmm(start, x, self.weights.mT, alpha=self.factor, out=out)

    def write_adjoint(self, x: Tensor, out: Tensor) -> None:
        """Write Wᵀ x into `out`."""
        torch.addmm(out, x, self.weights, alpha=self.factor, beta=0.0, out=out)

    def norm(self) -> float:
        """||W||₂ by singular values: exact to rounding."""
        return self.factor * float(torch.linalg.matrix_norm(self.weights.detach(), ord=2))


class FilterMap:
    """W = factor · the convolution (W x)(s) = Σ_δ weights(δ) x(s + δ).

    Args:
        weights: (channels that leave, channels that enter, taps along each axis).
        factor: a number.
        geometry: positions, taps and padding.
    """

    def __init__(self, weights: Tensor, factor: float, geometry: Convolution) -> None:
        self.weights, self.factor, self.geometry = weights, factor, geometry

    @property
    def columns(self) -> int:
        """Length of a row x: channels times positions."""
        return self.weights.shape[1] * self.geometry.count

    def image(self, x: Tensor) -> Tensor:
        """W x of every row."""
        return convolve(x, self._scaled, self.geometry)

    def adjoint(self, x: Tensor) -> Tensor:
        """Wᵀ x of every row."""
        return convolve(x, self._turned, self.geometry)

    def add_image(self, start: Tensor, x: Tensor, out: Tensor) -> None:
        """Write start + W x into `out`."""
        torch.add(start, self.image(x), out=out)

    def write_adjoint(self, x: Tensor, out: Tensor) -> None:
        """Write Wᵀ x into `out`."""
        out.copy_(self.adjoint(x))

    @cached_property
    def _scaled(self) -> Tensor:
        return self.factor * self.weights

    @cached_property
    def _turned(self) -> Tensor:
        """The filters of Wᵀ: with an odd number of taps, those of W turned around, from the other channels."""
        axes = tuple(range(2, self.weights.ndim))
        return self._scaled.flip(axes).transpose(0, 1).contiguous()

    @torch.no_grad()
    def norm(self) -> float:
        """||W||₂ by the singular values of Σ_δ weights(δ) e^{iωδ} at all frequencies ω, docs/theory.md (10.9).

        Exact for circular padding.  With zeros beyond the border W is a part of the circular convolution on a grid that
        is longer by half a filter, whose norm is a bound from above, and the closer the larger the image.
        """
        geometry, axes = self.geometry, tuple(range(2, self.weights.ndim))
        beyond = 0 if geometry.padding == "circular" else geometry.filter_size // 2
        grid = [length + beyond for length in geometry.positions]
        transform = torch.fft.rfftn(self.weights.detach().double(), s=grid, dim=axes)
        symbols = transform.flatten(2).movedim(2, 0)
        return self.factor * float(torch.linalg.matrix_norm(symbols, ord=2).max())


LinearMap = MatrixMap | FilterMap


class NormTracker:
    """||W||₂ by block power iteration, started where the last call ended: cheap while W changes slowly.

    An estimate from below, for Gaussian weights by one or two percent: a bound that is enforced by it should leave at
    least that slack (the default bound leaves five).
    """

    def __init__(self) -> None:
        self._basis: Tensor | None = None
        self._generator_seed = 0

    def estimate(self, linear: LinearMap) -> float:
        """The estimate, iterated until it settles."""
        basis, norm, settled = self._start(linear), 0.0, 0
        for turn in range(_MOST_ROUNDS):
            image = linear.image(basis)
            before, norm = norm, float(torch.linalg.matrix_norm(image, ord=2))
            settled = settled + 1 if norm <= (1.0 + _SETTLED) * before else 0
            if settled >= 2 and turn >= _FEWEST_ROUNDS:
                break
            basis = _orthonormal(linear.adjoint(image))
        self._basis = basis
        return norm

    def _start(self, linear: LinearMap) -> Tensor:
        """The last basis with one new random row, which finds directions that are not in its span."""
        self._generator_seed += 1
        generator = torch.Generator().manual_seed(self._generator_seed)
        shape = (min(_VECTORS, linear.columns), linear.columns)
        drawn = torch.randn(shape, generator=generator, dtype=torch.float64).to(linear.weights)
        last = self._basis
        if last is not None and last.shape == drawn.shape and last.device == drawn.device:
            drawn[:-1] = last[:-1].to(drawn)
        return _orthonormal(drawn)


def _orthonormal(rows: Tensor) -> Tensor:
    """Orthonormal rows with the span of the given ones."""
    columns: Tensor = torch.linalg.qr(rows.mT).Q
    return columns.mT.contiguous()


# --- convolutions of rows ---------------------------------------------------------------------------------------------


def convolve(x: Tensor, filters: Tensor, geometry: Convolution, bias: Tensor | None = None) -> Tensor:
    """Σ_δ filters(δ) x(s + δ) + bias at every position s; rows in and rows out, differentiable."""
    images, border = _with_border(_images(x, geometry), geometry)
    function = functional.conv1d if len(geometry.positions) == 1 else functional.conv2d
    images_out: Tensor = function(images, filters, bias, padding=border)
    return images_out.flatten(1)


def filter_gradient(back: Tensor, x: Tensor, geometry: Convolution) -> Tensor:
    """Σ over rows and positions of back(s) x(s + δ)ᵀ: the gradient in the filters."""
    arrived = _images(back, geometry)
    images, border = _with_border(_images(x, geometry), geometry)
    taps = (geometry.filter_size,) * len(geometry.positions)
    gradient = conv1d_weight if len(taps) == 1 else conv2d_weight
    shape = (arrived.shape[1], images.shape[1], *taps)
    result: Tensor = gradient(images, shape, arrived, padding=border)  # type: ignore[no-untyped-call]
    return result


def patches(x: Tensor, geometry: Convolution) -> Tensor:
    """The patch under the filter at each position: (rows, channels × taps, positions)."""
    images, border = _with_border(_images(x, geometry), geometry)
    axes, taps = len(geometry.positions), geometry.filter_size
    images = functional.pad(images, (border,) * (2 * axes))
    for axis in range(2, 2 + axes):
        images = images.unfold(axis, taps, 1)
    # (rows, channels, positions of each axis, taps of each axis)
    order = [0, 1, *range(2 + axes, 2 + 2 * axes), *range(2, 2 + axes)]
    return images.permute(order).reshape(len(x), -1, geometry.count)


def _images(rows: Tensor, geometry: Convolution) -> Tensor:
    """Rows as images, (rows, channels, positions along each axis)."""
    # The number of rows is left open, so that an exported network takes any.
    return rows.reshape(-1, rows.shape[1] // geometry.count, *geometry.positions)


def _with_border(images: Tensor, geometry: Convolution) -> tuple[Tensor, int]:
    """Images padded by their opposite side, and the number of zeros that torch adds instead."""
    reach = geometry.filter_size // 2
    if geometry.padding == "zeros" or not reach:
        return images, reach
    for axis in range(2, images.ndim):
        length = images.shape[axis]
        sides = images.narrow(axis, length - reach, reach), images.narrow(axis, 0, reach)
        images = torch.cat([sides[0], images, sides[1]], dim=axis)
    return images, 0


__all__ = ["FilterMap", "LinearMap", "MatrixMap", "NormTracker", "convolve", "filter_gradient", "patches"]
