"""Second moments of the patches of images, and Gaussian images that have them: enough to design a network on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from numpy.typing import ArrayLike

from notsodeep.errors import InputError
from notsodeep.validation import Array, as_count, as_real


@dataclass(frozen=True, eq=False)
class PatchMoments:
    """E[x(s) x(s+δ)ᵀ] for the shifts δ within a patch, over all images and positions s.

    Where images cannot be handed out, Gaussian ones with the same moments take their place: a network designed on these
    serves the images, because kernels of wide convolutional networks see images through inner products of patches.

    Attributes:
        covariance: (2 size - 1 along each axis, channels, channels): shifts from -(size - 1) to size - 1.
    """

    covariance: Array

    def __post_init__(self) -> None:
        """Refuse what is no such field of matrices."""
        shape = np.shape(self.covariance)
        square = len(shape) in (3, 4) and shape[-1] == shape[-2] and len({*shape[:-2]}) == 1
        if not (square and shape[0] % 2 and np.all(np.isfinite(self.covariance))):
            raise InputError(
                "covariance must be finite, (2 size - 1 shifts along each of one or two axes, channels, channels); got "
                f"shape {shape}. PatchMoments.of(images) makes it."
            )

    @classmethod
    def of(cls, images: ArrayLike, size: int = 5) -> PatchMoments:
        """The moments of images (n, channels, height, width) or sequences (n, channels, length).

        Args:
            images: scaled as the network will see them.
            size: positions along each axis of a patch.
        """
        x = as_real(images, "images").astype(np.float64)
        if x.ndim not in (3, 4) or not x.size or not np.all(np.isfinite(x)):
            raise InputError(
                "images must be finite, (n, channels, height, width) or (n, channels, length); got shape "
                f"{x.shape}."
            )
        lengths, reach = x.shape[2:], as_count(size, "size") - 1
        if reach >= min(lengths):
            raise InputError(f"Patches of {size} positions do not fit into images of {lengths}.")
        found = np.empty((2 * reach + 1,) * len(lengths) + (x.shape[1],) * 2)
        for shift in product(range(-reach, reach + 1), repeat=len(lengths)):
            here, there = _shifted(x, shift), _shifted(x, tuple(-step for step in shift))
            places = here.shape[0] * here[0, 0].size
            found[tuple(step + reach for step in shift)] = (
                np.tensordot(here, there, axes=([0, *range(2, x.ndim)],) * 2) / places
            )
        return cls(found)

    @property
    def channels(self) -> int:
        """Number of channels."""
        return int(self.covariance.shape[-1])

    @property
    def size(self) -> int:
        """Positions along each axis of a patch."""
        return int(self.covariance.shape[0] + 1) // 2

    def images(self, count: int, image_size: int | Sequence[int], seed: int = 0) -> Array:
        """Gaussian images with these moments, (count, channels, *image_size).

        Shifts beyond the patch have no correlation. Where that leaves no covariance, because its spectrum is negative
        somewhere, the negative part is left out and the images keep the mean of |x(s)|².

        Args:
            count: number of images.
            image_size: (height, width), one number for square images, or (length,) for sequences.
            seed: of the draw.
        """
        axes = self.covariance.ndim - 2
        sizes = tuple(image_size) if isinstance(image_size, Sequence) else (image_size,) * axes
        if len(sizes) != axes:
            raise InputError(f"These moments are of samples with {axes} axes; image_size is {image_size!r}.")
        lengths = tuple(as_count(length, "image_size") for length in sizes)
        draw = np.random.default_rng(as_count(seed, "seed", least=0)).standard_normal
        # A period that is longer by the reach of a patch: opposite borders do not see each other.
        periods = tuple(length + self.size - 1 for length in lengths)
        shape = (as_count(count, "count"), *periods, self.channels)
        waves = np.einsum("...cd,n...d->nc...", self._root_spectrum(periods), draw(shape) + 1j * draw(shape))
        fields = np.fft.ifftn(waves, axes=tuple(range(2, 2 + axes))).real * np.sqrt(np.prod(periods))
        return np.asarray(fields[(slice(None), slice(None), *(slice(length) for length in lengths))])

    def _root_spectrum(self, periods: tuple[int, ...]) -> Array:
        """A square root of the spectrum of the covariance on a torus, (*periods, channels, channels)."""
        axes = tuple(range(len(periods)))
        field = np.zeros((*periods, self.channels, self.channels))
        for place in np.ndindex(*self.covariance.shape[:-2]):
            wrapped = tuple(
                (step - self.size + 1) % period for step, period in zip(place, periods, strict=True)
            )
            field[wrapped] += self.covariance[place]
        spectrum = np.fft.fftn(field, axes=axes)
        values, vectors = np.linalg.eigh(0.5 * (spectrum + spectrum.conj().swapaxes(-1, -2)))
        kept = np.maximum(values, 0.0)
        kept *= values.sum() / max(kept.sum(), np.finfo(float).tiny)
        return np.asarray(vectors * np.sqrt(np.maximum(kept, 0.0))[..., None, :])


def _shifted(x: Array, shift: tuple[int, ...]) -> Array:
    """The positions s of images for which s + shift is a position too."""
    cuts = (
        slice(max(0, -step), length - max(0, step)) for step, length in zip(shift, x.shape[2:], strict=True)
    )
    return x[(slice(None), slice(None), *cuts)]


__all__ = ["PatchMoments"]
