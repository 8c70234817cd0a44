"""Images of CIFAR-10 as the benchmarks of convolutional kernels take them."""

from __future__ import annotations

import math

import numpy as np

import notsodeep as nsd


def cifar10(n: int, side: int = 32) -> np.ndarray:
    """Images (n, 3, side, side) less their mean image, with |x(s)|² = 1 on average."""
    data = nsd.data.load("cifar10", n=n)
    images = nsd.data.as_images("cifar10", data.X)
    step = 32 // side
    images = images.reshape(len(images), 3, side, step, side, step).mean(axis=(3, 5))
    images = images - images.mean(axis=0)
    return np.asarray(images / math.sqrt(np.mean(np.sum(images**2, axis=1))))
