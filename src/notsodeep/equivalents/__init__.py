"""High-dimensional equivalents: scalars, structured operators, spectra (docs/theory.md, sections 4–6, 8)."""

from notsodeep.equivalents.coefficients import Coefficients, coefficients

__all__ = ["Coefficients", "coefficients"]
