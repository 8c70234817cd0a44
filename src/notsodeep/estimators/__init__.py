"""The kernels of deep equilibrium models in scikit-learn's interface.

    from notsodeep.estimators import DEQKernelClassifier
    DEQKernelClassifier(kernel="ntk", activation="relu").fit(X, y).score(X_test, y_test)

Exact kernels: `DEQKernelRidge`, `DEQKernelClassifier`, and `DEQKernel` for Gaussian processes.
"""

from notsodeep.estimators.gaussian_process import DEQKernel
from notsodeep.estimators.ridge import DEQKernelClassifier, DEQKernelRidge
from notsodeep.estimators.scaling import RowScaler

__all__ = [
    "DEQKernel",
    "DEQKernelClassifier",
    "DEQKernelRidge",
    "RowScaler",
]
