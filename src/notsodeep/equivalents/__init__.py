"""High-dimensional equivalents: scalars, structured operators, spectra (docs/theory.md, sections 4–6, 8)."""

from notsodeep.equivalents.coefficients import Coefficients, coefficients
from notsodeep.equivalents.equivalent import equivalent
from notsodeep.equivalents.operators import StructuredOperator

__all__ = ["Coefficients", "StructuredOperator", "coefficients", "equivalent"]
