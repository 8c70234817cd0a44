"""Moments of patches, and the Gaussian images that have them."""

from __future__ import annotations

import numpy as np
import pytest
from tolerances import Oracle, assert_close

from notsodeep.data import PatchMoments
from notsodeep.errors import InputError

RNG = np.random.default_rng(3)


def smoothed(count: int, *size: int) -> np.ndarray:
    """Two channels of averages over neighbours, the second a shifted mixture: correlated at short range alone."""
    noise = RNG.standard_normal((count, 2, *(length + 1 for length in size)))
    for axis in range(2, noise.ndim):
        length = noise.shape[axis] - 1
        noise = noise.take(range(length), axis) + 0.7 * noise.take(range(1, length + 1), axis)
    noise[:, 1] = 0.5 * noise[:, 0] + noise[:, 1]
    return noise


@pytest.mark.parametrize("size", [(5, 6), (7,)])
def test_moments_are_means_of_products(size: tuple[int, ...]) -> None:
    X = smoothed(4, *size)
    found = PatchMoments.of(X, size=3)
    assert (found.size, found.channels, found.covariance.shape) == (3, 2, (5,) * len(size) + (2, 2))
    for shift in ((0, 0), (1, -2), (-2, 2), (2, 1)):
        products = [
            np.outer(image[(slice(None), *place)], image[(slice(None), *other)])
            for image in X
            for place in np.ndindex(*size)
            for other in [tuple(np.add(place, shift[: len(size)]))]
            if all(0 <= at < length for at, length in zip(other, size, strict=True))
        ]
        place = tuple(step + 2 for step in shift[: len(size)])
        assert_close(found.covariance[place], np.mean(products, axis=0), Oracle.CLOSED_FORM)


@pytest.mark.parametrize("size", [(6, 5), (9,)])
def test_drawn_images_have_the_moments(size: tuple[int, ...]) -> None:
    """Correlations that end within the patch have a spectrum without a negative part: nothing is left out."""
    wanted = PatchMoments.of(smoothed(20_000, *size), size=3)
    drawn = wanted.images(20_000, size, seed=1)
    found = PatchMoments.of(drawn, size=3)
    # Each entry is a mean over 20 000 images of products of size one; the two samples are independent.
    assert np.abs(found.covariance - wanted.covariance).max() < 5.0 * 2.0 * np.sqrt(2.0 / 20_000)
    assert np.array_equal(wanted.images(3, size, seed=1), wanted.images(3, size, seed=1))


def test_the_scale_stays_where_no_covariance_has_the_moments() -> None:
    """Cut off at the patch, correlations of images of one colour have a spectrum with a negative part."""
    moments = PatchMoments.of(np.ones((3, 1, 6, 6)) * np.array([1.0, -1.0, 2.0])[:, None, None, None])
    drawn = moments.images(4000, 6)
    assert np.mean(drawn**2) == pytest.approx(2.0, rel=0.05)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(InputError, match=r"images must be finite, \(n, channels"):
        PatchMoments.of(np.zeros((4, 9)))
    with pytest.raises(InputError, match="Patches of 5 positions do not fit"):
        PatchMoments.of(np.zeros((4, 1, 4, 4)))
    with pytest.raises(InputError, match=r"PatchMoments.of\(images\) makes it"):
        PatchMoments(np.zeros((4, 4, 1, 1)))
    with pytest.raises(InputError, match="samples with 2 axes"):
        PatchMoments.of(np.ones((4, 1, 5, 5))).images(3, (5,))
