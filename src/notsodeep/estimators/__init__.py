"""The kernels of deep equilibrium models in scikit-learn's interface.

    from notsodeep.estimators import DEQKernelClassifier
    DEQKernelClassifier(kernel="ntk", activation="relu").fit(X, y).score(X_test, y_test)

Exact kernels: `DEQKernelRidge`, `DEQKernelClassifier`, and `DEQKernel` for Gaussian processes. Cheaper ones: random
features of the designed twin, `DEQFeatures`, and the high-dimensional equivalent, `DEQEquivalentRidge`.
"""

from notsodeep.estimators.equivalent_ridge import DEQEquivalentRidge
from notsodeep.estimators.features import DEQFeatures
from notsodeep.estimators.process import DEQKernel
from notsodeep.estimators.ridge import DEQKernelClassifier, DEQKernelRidge
from notsodeep.estimators.scaling import RowScaler

__all__ = [
    "DEQEquivalentRidge",
    "DEQFeatures",
    "DEQKernel",
    "DEQKernelClassifier",
    "DEQKernelRidge",
    "RowScaler",
]
