"""The base of results that explain themselves, and the evidence that accompanies a kernel."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from importlib import import_module
from math import isfinite
from typing import Any, ClassVar

import numpy as np

from notsodeep.display import Shown


class Result(Shown):
    """A result in words, `explain()` or `print`, as plain values, `to_dict()`, and as a figure, `plot()`."""

    # Names of the attributes that `to_dict` has, and of the function of `notsodeep.figures` that draws the result.
    _plain: ClassVar[tuple[str, ...]] = ()
    _figure: ClassVar[str] = ""

    def explain(self) -> str:
        """The result in words."""
        return repr(self)

    def __str__(self) -> str:
        return self.explain()

    def to_dict(self) -> dict[str, Any]:
        """The numbers and words as plain JSON values; infinite and undefined numbers are None."""
        return {name: plain(getattr(self, name)) for name in self._plain}

    def plot(self, ax: Any = None) -> Any:
        """Draw the result into the matplotlib axes `ax`, or into a new figure; returns the axes."""
        # By name: figures import results, and need matplotlib.
        return getattr(import_module("notsodeep.figures"), self._figure)(self, ax=ax)


def plain(value: Any) -> Any:
    """Convert arrays, sequences and results to JSON values; infinite and undefined numbers become None."""
    if isinstance(value, Result):
        return value.to_dict()
    if is_dataclass(value):
        return {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return None if isinstance(value, float) and not isfinite(value) else value


@dataclass(frozen=True, repr=False)
class KernelInfo(Shown):
    """The evidence behind a kernel matrix.

    Attributes:
        iterations: Newton steps of the slowest pair (0 where a closed form or a fit needs none).
        residual: worst residual of the pair equation Λ = σ_a² F(Λ) + …, relative to √(Λ_ii Λ_jj).
        error_bound: bound on the error of any entry, relative to √(G_ii G_jj): truncation of the series (proved), error
            of a table (measured) and residual, divided by 1 - σ_a² max F'.  What rounding of the Gram matrix does to
            nearly parallel rows is in it for cells and for activations with kinks, but not for DEQs and explicit
            networks at large norms whose activations are smooth or have kinks away from zero.
            Of images it bounds the conjugate kernel, relative to √(H_ii H_jj) with the conjugate kernel H of the same
            model with the readout "flatten": pooling leaves less on the diagonal.
        fallback_pairs: pairs that the fast path could not bound and that were computed by closed form or quadrature.
        methods: how the pairs were computed, docs/theory.md section 3: "closed form" (one kink at zero, sine, cosine,
            straight pieces), "series" (Mehler's, with the bound (3.15)), "table" (with a measured error), "integral"
            (Price's), "quadrature".
        caveat: a condition of the error bound; empty for built-in activations, a sentence for a function of the user's,
            which is known by its values only.
        checked_pairs: entries that were recomputed by independent quadrature.
        largest_difference: the largest difference that this found, as an error of an entry, relative as `error_bound`.
        recomputed: a difference was beyond the stated bound, or an entry was not finite, so that the kernel was
            computed again by the slowest and surest evaluators.
    """

    _shown = (
        "error_bound", "residual", "iterations", "fallback_pairs", "methods", "checked_pairs", "largest_difference",
        "recomputed", "caveat",
    )  # fmt: skip

    iterations: int
    residual: float
    error_bound: float
    fallback_pairs: int
    methods: tuple[str, ...] = ()
    caveat: str = ""
    checked_pairs: int = 0
    largest_difference: float = 0.0
    recomputed: bool = False

    def __post_init__(self) -> None:
        # JSON gives it back as a list.
        object.__setattr__(self, "methods", tuple(self.methods))

    def merge(self, other: KernelInfo) -> KernelInfo:
        """Combine the evidence of two parts of one computation."""
        return KernelInfo(
            max(self.iterations, other.iterations),
            max(self.residual, other.residual),
            max(self.error_bound, other.error_bound),
            self.fallback_pairs + other.fallback_pairs,
            tuple(sorted({*self.methods, *other.methods})),
            " ".join(dict.fromkeys(part for part in (self.caveat, other.caveat) if part)),
            self.checked_pairs + other.checked_pairs,
            max(self.largest_difference, other.largest_difference),
            self.recomputed or other.recomputed,
        )

    def with_caveat(self, caveat: str, inaccuracy: float) -> KernelInfo:
        """Add the inaccuracy of the activation itself to the error bound, with this caveat."""
        return replace(self, error_bound=self.error_bound + inaccuracy, caveat=caveat)
