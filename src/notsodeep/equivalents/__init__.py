"""High-dimensional equivalents: scalars, structured operators, spectra (docs/theory.md, sections 4–6, 8)."""

from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.equivalents.equivalent import (
    KernelDistance,
    equivalence_error,
    equivalent,
    kernel_distance,
)
from notsodeep.equivalents.flow_series import flow_coefficients as _registered  # noqa: F401
from notsodeep.equivalents.operators import StructuredOperator
from notsodeep.equivalents.spectrum import LimitingSpectrum, limiting_density

__all__ = [
    "Coefficients",
    "KernelDistance",
    "LimitingSpectrum",
    "StructuredOperator",
    "coefficients",
    "equivalence_error",
    "equivalent",
    "kernel_distance",
    "limiting_density",
]
