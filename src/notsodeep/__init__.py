"""notsodeep: exact kernels of deep equilibrium models, and the shallow networks that share them.

    import notsodeep as nsd
    deq = nsd.DEQ("tanh", sigma_a2=0.2)
    G = nsd.conjugate_kernel(deq, X)

Names are imported when first used, so that `import notsodeep` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.3.0"

_HOMES = {
    "activation": "gaussian.activations",
    "custom_activation": "gaussian.activations",
    "Activation": "gaussian.activations",
    "Model": "models",
    "DEQ": "models",
    "Explicit": "models",
    "ConvDEQ": "models",
    "ConvExplicit": "models",
    "GraphDEQ": "models",
    "Equilibrium": "models",
    "Loop": "models",
    "NeuralODE": "models",
    "GaussianMixture": "data",
    "UnitSphere": "data",
    "MixtureStatistics": "data",
    "conjugate_kernel": "kernels",
    "tangent_kernel": "kernels",
    "both_kernels": "kernels",
    "Kernel": "kernel_names",
    "open_kernel": "scale",
    "coefficients": "equivalents",
    "equivalent": "equivalents",
    "equivalence_error": "equivalents",
    "kernel_distance": "equivalents",
    "twin_distances": "designs",
    "limiting_density": "equivalents",
    "design": "designs",
    "Design": "designs",
    "DEQKernelRidge": "estimators",
    "DEQKernelClassifier": "estimators",
    "DEQKernel": "estimators",
    "RowScaler": "estimators",
    "adaptive_kernel": "feature_learning",
    "AdaptiveKernel": "feature_learning",
    "learning_curve": "learning",
    "best_ridge": "learning",
    "loop_curve": "learning",
    "LoopCurve": "learning",
    "depth_curve": "verdicts",
    "DepthCurve": "verdicts",
    "distill": "distillation",
    "guarded": "distillation",
    "forecast": "forecasts",
    "phase_diagram": "forecasts",
    "Forecast": "forecasts",
    "verdict": "verdicts",
    "Verdict": "verdicts",
    "InputError": "errors",
    "ConvergenceError": "errors",
}
_ROOMS = (
    "gaussian",
    "cells",
    "models",
    "data",
    "kernels",
    "equivalents",
    "designs",
    "nets",
    "convergence",
    "scale",
    "estimators",
    "forecasts",
    "feature_learning",
    "learning",
    "distillation",
    "verdicts",
)

__all__ = [*_HOMES, *_ROOMS, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    elif name in _ROOMS:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
