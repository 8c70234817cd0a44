"""The names of the five kernels of a network, for every function with an argument `kernel=` or `of=`."""

from __future__ import annotations

from enum import StrEnum

from notsodeep.errors import InputError


class Kernel(StrEnum):
    """The kernels of a network; docs/theory.md, section 3.

    `Kernel("ntk") == "ntk"`: members are strings, and every argument `kernel=` takes the plain string as well.
    """

    #: ⟨z_i, z_j⟩ of the features, (3.3) and (3.11).
    CK = "ck"
    #: Λ_ij, the covariance of what enters the last activation.
    CK_PREACTIVATIONS = "ck_preactivations"
    #: The neural tangent kernel of the network f = ⟨a, z⟩ with all weights trained, (3.8).
    NTK = "ntk"
    #: G/(1 - σ_a² D), the tangent kernel as the papers define it, (3.9).
    NTK_PAPER = "ntk_paper"
    #: Λ/(1 - σ_a² D), the tangent kernel of the pre-activations, (3.10).
    NTK_PREACTIVATIONS = "ntk_preactivations"

    @property
    def is_tangent(self) -> bool:
        """Whether this is one of the tangent kernels, which need the slope F' of every pair."""
        return self in TANGENT


CONJUGATE = (Kernel.CK, Kernel.CK_PREACTIVATIONS)
TANGENT = (Kernel.NTK, Kernel.NTK_PAPER, Kernel.NTK_PREACTIVATIONS)

# Short names that are clear beside the function they are given to: conjugate_kernel(of="features").
_CONJUGATE_ALIASES = {"features": Kernel.CK, "preactivations": Kernel.CK_PREACTIVATIONS}
_TANGENT_ALIASES = {
    "network": Kernel.NTK,
    "paper": Kernel.NTK_PAPER,
    "preactivations": Kernel.NTK_PREACTIVATIONS,
}


def as_kernel(name: str) -> Kernel:
    """Convert a name to a kernel: "ck", "ck_preactivations", "ntk", "ntk_paper" or "ntk_preactivations"."""
    return _find("kernel", name, tuple(Kernel), {})


def as_conjugate_kernel(name: str) -> Kernel:
    """Convert a name to a conjugate kernel, or with the alias "features" or "preactivations"."""
    return _find("of", name, CONJUGATE, _CONJUGATE_ALIASES)


def as_tangent_kernel(name: str) -> Kernel:
    """Convert a name to a tangent kernel, or with the alias "network", "paper" or "preactivations"."""
    return _find("of", name, TANGENT, _TANGENT_ALIASES)


def _find(argument: str, name: str, kernels: tuple[Kernel, ...], aliases: dict[str, Kernel]) -> Kernel:
    known = {**aliases, **{str(kernel): kernel for kernel in kernels}}
    if isinstance(name, str) and name in known:
        return known[name]
    raise InputError(f"{argument}={name!r} is not known. Choose one of: {', '.join(known)}.")
