"""Text of the page: the design, the spectrum, and what to try next."""

from __future__ import annotations

import re

import numpy as np

from notsodeep.designs import Design, TwinDistances
from notsodeep.validation import Array
from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.computations import KernelSpectrum, samples_of

KERNEL_WORDS = {
    "ck": "conjugate kernel",
    "ntk": "tangent kernel",
    "ntk_paper": "papers' tangent kernel",
    "both": "two kernels",
}
_MOST_LISTED = 4


def plain(text: str) -> str:
    """Escape Markdown in a text (formulas have stars, names have underscores), and keep numbers unbroken."""
    escaped = re.sub(r"([\\`*_{}\[\]<>()#+\-.!|$~:&^=])", r"\\\1", text)
    # A browser would break a line after the hyphen of 3e-05.
    return re.sub(r"(?<=\de)\\-(?=\d)", "\N{NON-BREAKING HYPHEN}", escaped)


def design_summary(designed: Design, distances: TwinDistances) -> str:
    """Summarise a design: whether its scalars match, how far the kernels differ, and whether plain layers suffice."""
    layers = len(designed.network.layers)
    network = f"{layers} hidden layer{'s' * (layers > 1)}"
    if designed.misfit is not None:
        answer = "Yes" if distances.is_clearly_closer else "Yes, but a plain network is as close"
        return (
            f"{answer}: {network} with the DEQ's activation and the input fed to every layer (an injected network). On "
            f"these samples the kernels differ by {distances.twin}."
        )
    if not designed.exact:
        return (
            f"Not quite: the closest network of this family, {network}, misses the four scalars of the "
            f"{KERNEL_WORDS[designed.kernel]} by {designed.residual:.2g}. On these samples the kernels differ by "
            f"{distances.twin}."
        )
    answer = "Yes" if distances.is_clearly_closer else "Yes, but a plain network is as close"
    return (
        f"{answer}: {network}. The four scalars of the {KERNEL_WORDS[designed.kernel]} match. On these samples the "
        f"kernels differ by {distances.twin}."
    )


def spectrum_summary(spectrum: KernelSpectrum) -> str:
    """Summarise a spectrum and its prediction in one or two sentences."""
    if spectrum.limit is None:
        return (
            f"The largest eigenvalue is {spectrum.exact[-1]:.4g}. The error of every predicted eigenvalue is at most "
            f"{100 * spectrum.distance:.2g} % of it."
        )
    isolated = spectrum.limit.isolated
    misplaced = max(1, round(spectrum.distance * len(spectrum.exact)))
    shift = f"The prediction misplaces at most {misplaced} of the {len(spectrum.exact)} eigenvalues."
    if not len(isolated):
        return f"No eigenvalue is predicted outside the bulk: the kernel does not show the classes. {shift}"
    pairs = _nearest(isolated, spectrum.exact)
    listed = ", ".join(f"{predicted:.4g} (exact: {exact:.4g})" for predicted, exact in pairs[:_MOST_LISTED])
    more = f" and {len(pairs) - _MOST_LISTED} more" if len(pairs) > _MOST_LISTED else ""
    return f"Predicted outside the bulk: {listed}{more}. {shift}"


def _nearest(predicted: Array, exact: Array) -> list[tuple[float, float]]:
    """Pair the isolated eigenvalues, largest first, with the nearest exact ones."""
    return [(float(one), float(exact[np.argmin(np.abs(exact - one))])) for one in predicted[::-1]]


def next_steps(choice: Choice, designed: Design, spectrum: KernelSpectrum) -> list[str]:
    """Suggest up to three things to try next."""
    steps = []
    if not designed.exact and designed.misfit is None:
        steps.append(
            "Match the true tangent kernel: no network has the papers' one."
            if designed.kernel == "ntk_paper"
            else "Set the layers to auto, which chooses the simplest family that matches."
        )
    if choice.data.source == "mixture" and spectrum.limit is not None and len(spectrum.limit.isolated):
        steps.append(
            "Lower the separation and the covariance gap until the diamonds disappear in the bulk: then the kernel "
            "no longer shows the classes."
        )
    elif choice.data.source == "mixture":
        steps.append("Raise the separation until eigenvalues leave the bulk: they show the classes.")
    if samples_of(choice.data).advice:
        steps.append("Choose another scaling of the rows: see the warning above.")
    if choice.activation == "relu":
        steps.append("Choose tanh: there one plain layer is as close as the design, up to a constant factor.")
    elif choice.activation == "tanh":
        steps.append(
            "Choose relu: there two designed layers are much closer than plain ones, even up to a constant factor."
        )
    if choice.sigma_a2 < 0.5:
        steps.append(
            "Raise σ_a² to 0.8: the DEQ becomes effectively deeper, and plain layers are less close."
        )
    if choice.data.source != "digits":
        steps.append("Choose digits: real data, which violate the assumptions of the theory.")
    return steps[:3]
