"""A learning rate that works, from the largest eigenvalue of the kernel that training follows.

On weights of variance 1, gradient descent with rate η multiplies the error along an eigenvector of the kernel (over n
samples) by 1 - η λ/n for the squared loss: stable below 2n/λ_max, fastest for the top eigenvector at n/λ_max. A batch
of B samples adds the noise of single samples, mean diagonal/B, to λ_max/n. The Hessian of cross-entropy in the outputs
is at most ½. `Net.parameter_groups` turns the rate into one for each weight as it is stored.

Adam moves every stored weight by about its rate, whatever the gradient. A matrix of m columns whose entries all move by
η moves what it feeds by up to η m in "standard" scaling and η √m in "ntk" scaling: the rate falls with the width.  For
filters the columns are channels times taps.
"""

from __future__ import annotations

from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from notsodeep.kernels import exact_kernel
from notsodeep.nets.empirical import empirical_kernels
from notsodeep.nets.modules import Net

OPTIMIZERS = ("sgd", "momentum", "adam")
MOMENTUM = 0.9
# Largest curvature of each loss in the outputs.
_CURVATURE = {"squared": 1.0, "cross_entropy": 0.5}
# How far a step of Adam may move an output: 0.256 is the usual rate 1e-3 at the width 256. The readout alone tolerates
# ten times as much (measured on 6000 images of MNIST at width 256).
_ADAM = {"readout": 2.56, "all": 0.256}
_SAMPLE = 512
# Images whose tangent kernel is that of the network itself: the exact one costs as much as thousands of rows.
_IMAGES = 32


def default_lr(module: Net, inputs: Tensor, optimizer: str, loss: str, batch_size: int) -> float:
    """Choose the learning rate that `fit` uses when none is given.

    Args:
        module: the network.
        inputs: its training samples; for a readout module their features.
        optimizer: "sgd", "momentum" or "adam".
        loss: "cross_entropy" or "squared".
        batch_size: samples per step.
    """
    if optimizer == "adam":
        columns = module.width if module.train_mode == "readout" else module.hidden_fan_in
        return _ADAM[module.train_mode] / (columns if module.scaling == "standard" else sqrt(columns))
    kernel = _kernel(module, inputs[:: max(1, len(inputs) // _SAMPLE)][:_SAMPLE])
    top = float(np.linalg.eigvalsh(kernel)[-1]) / len(kernel)
    # All samples together have no noise.
    noise = float(np.mean(np.diag(kernel))) / batch_size if batch_size < len(inputs) else 0.0
    rate = 1.0 / (_CURVATURE[loss] * (top + noise))
    # In the long run momentum multiplies a step by 1/(1 - momentum).
    return rate * (1.0 - MOMENTUM) if optimizer == "momentum" else rate


def _kernel(module: Net, rows: Tensor) -> NDArray[np.float64]:
    """The kernel that gradient descent follows: of the features, or the tangent kernel of infinite width.

    For images it is the kernel of this network, averaged over its outputs.
    """
    if module.train_mode == "all" and module.takes_images:
        some = rows[:: max(1, len(rows) // _IMAGES)][:_IMAGES]
        return empirical_kernels(module, some).ntk.to("cpu", torch.float64).numpy()
    values: NDArray[np.float64] = rows.detach().to("cpu", torch.float64).numpy()
    if module.train_mode == "readout":
        gram: NDArray[np.float64] = values @ values.T
        return gram
    return exact_kernel(module.spec, values, kernel="ntk")


__all__ = ["MOMENTUM", "OPTIMIZERS", "default_lr"]
