"""The evidence that accompanies a kernel: iterations, residual, error bound."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from notsodeep.display import Shown


@dataclass(frozen=True, repr=False)
class KernelInfo(Shown):
    """The evidence behind a kernel matrix.

    Attributes:
        iterations: Newton steps of the slowest pair (0 where a closed form or a fit needs none).
        residual: worst residual of the pair equation Λ = σ_a² F(Λ) + …, relative to √(Λ_ii Λ_jj).
        error_bound: bound on the error of any entry, relative to √(G_ii G_jj): truncation of the series (proved), error
            of a table (measured) and residual, divided by 1 - σ_a² max F'.  What rounding of the Gram matrix does to
            nearly parallel rows is in it for cells and for activations with kinks, but not for smooth activations of
            other models at large norms.
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

    def _facts(self) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "error_bound": self.error_bound,
            "residual": self.residual,
            "iterations": self.iterations,
            "fallback_pairs": self.fallback_pairs,
        }
        shown |= {"methods": ", ".join(self.methods), "checked_pairs": self.checked_pairs}
        shown |= {"largest_difference": self.largest_difference, "recomputed": self.recomputed}
        return shown | {"caveat": self.caveat} if self.caveat else shown
