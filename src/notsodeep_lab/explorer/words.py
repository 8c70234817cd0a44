"""Sentences of the page: the verdict, the spectrum, and what to try next."""

from __future__ import annotations

import re

import numpy as np

from notsodeep.designs import Design, TwinDistances
from notsodeep.validation import Array
from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.computations import Spectrum, samples_of

KERNEL_WORDS = {
    "ck": "conjugate kernel",
    "ntk": "tangent kernel",
    "ntk_paper": "papers' tangent kernel",
    "both": "two kernels",
}
_MOST_LISTED = 4


def plain(text: str) -> str:
    """Text that Markdown leaves as it is (formulas have stars, names have underscores), with numbers in one piece."""
    escaped = re.sub(r"([\\`*_{}\[\]<>()#+\-.!|$~:&^=])", r"\\\1", text)
    # A line may end after the hyphen of 3e-05, but not after one that does not break.
    return re.sub(r"(?<=\de)\\-(?=\d)", "\N{NON-BREAKING HYPHEN}", escaped)


def verdict(made: Design, found: TwinDistances) -> str:
    """What matters of the design: whether its numbers agree, how far kernels differ, what plain layers do."""
    layers = len(made.network.layers)
    network = f"{layers} hidden layer{'s' * (layers > 1)}"
    if made.misfit is not None:
        answer = "Yes" if found.is_clearly_closer else "Yes, but a plain network would do"
        return (
            f"{answer}: {network} with the DEQ's own activation that see the input again (an injected network); on "
            f"these samples the kernels differ by {found.twin}."
        )
    if not made.exact:
        return (
            f"Not quite: the closest network of this family, {network}, misses the four numbers of the "
            f"{KERNEL_WORDS[made.kernel]} by {made.residual:.2g}; on these samples the kernels differ by {found.twin}."
        )
    answer = "Yes" if found.is_clearly_closer else "Yes, but a plain network would do"
    return (
        f"{answer}: {network}. The four numbers of the {KERNEL_WORDS[made.kernel]} agree; on these samples the kernels "
        f"differ by {found.twin}."
    )


def spectrum_words(found: Spectrum) -> str:
    """The spectrum in one or two sentences."""
    if found.limit is None:
        return (
            f"The largest eigenvalue is {found.exact[-1]:.4g}. No predicted eigenvalue is off by more than "
            f"{100 * found.distance:.2g} % of it."
        )
    isolated = found.limit.isolated
    misplaced = max(1, round(found.distance * len(found.exact)))
    shift = f"The prediction misplaces at most {misplaced} of the {len(found.exact)} eigenvalues."
    if not len(isolated):
        return f"No eigenvalue is predicted outside the bulk: nothing of the classes stands out. {shift}"
    pairs = _nearest(isolated, found.exact)
    listed = ", ".join(f"{predicted:.4g} (found {exact:.4g})" for predicted, exact in pairs[:_MOST_LISTED])
    more = f" and {len(pairs) - _MOST_LISTED} more" if len(pairs) > _MOST_LISTED else ""
    return f"Predicted outside the bulk: {listed}{more}. {shift}"


def _nearest(predicted: Array, exact: Array) -> list[tuple[float, float]]:
    """The isolated eigenvalues, largest first, each beside the exact one nearest to it."""
    return [(float(one), float(exact[np.argmin(np.abs(exact - one))])) for one in predicted[::-1]]


def next_steps(choice: Choice, made: Design, found: Spectrum) -> list[str]:
    """Up to three things that are worth trying next."""
    steps = []
    if not made.exact and made.misfit is None:
        steps.append(
            "Match the true tangent kernel: the papers' one belongs to no network."
            if made.kernel == "ntk_paper"
            else "Set the layers to auto: it takes the simplest family that matches."
        )
    if choice.data.source == "mixture" and found.limit is not None and len(found.limit.isolated):
        steps.append(
            "Lower separation and covariance gap until the diamonds sink into the bulk: the kernel then sees no "
            "classes."
        )
    elif choice.data.source == "mixture":
        steps.append("Raise the separation until eigenvalues leave the bulk: these carry the classes.")
    if samples_of(choice.data).advice:
        steps.append("Choose another scaling of your rows: see the sentence above.")
    if choice.activation == "relu":
        steps.append("Choose tanh: up to a factor one plain layer is as close as the design there.")
    elif choice.activation == "tanh":
        steps.append(
            "Choose relu: two designed layers are much closer there than any plain ones, up to a factor too."
        )
    if choice.sigma_a2 < 0.5:
        steps.append("Raise σ_a² to 0.8: the DEQ gets deeper in effect, and plain layers drift away.")
    if choice.data.source != "digits":
        steps.append("Choose digits: real data, for which the theory was not made.")
    return steps[:3]
