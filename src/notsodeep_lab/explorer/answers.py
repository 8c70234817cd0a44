"""The answer of the page in one sentence: does it settle, how many steps are enough, is a plain network as good?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from notsodeep.forecasts import Forecast
from notsodeep_lab.explorer.computations import LAYERS, STEPS, Behind, Depths, Twin

RESIDUAL, SMALL_RESIDUAL = 1e-3, 1e-6


@dataclass(frozen=True)
class Answer:
    """An answer.

    Attributes:
        tone: "shallow" if a few steps or plain layers are certain to be enough, "deep" if they are certain not to be,
            "unsettled" if the network does not settle, else "unsure".
        sentence: the sentence, in Markdown.
    """

    tone: str
    sentence: str


def median_steps(forecast: Forecast, tolerance: float) -> str:
    """Number of steps of the median sample to a residual, as text."""
    steps = float(np.median(forecast.steps(tolerance)))
    return f"{steps:.0f}" if np.isfinite(steps) else "never"


def slowest_rate(forecast: Forecast) -> str:
    """The largest rate as text; a rate close to 1 has the digits that show on which side it is."""
    rate = float(np.max(forecast.rate))
    if not rate < 100.0:
        return "above 100"
    digits = 2 if abs(rate - 1.0) >= 0.005 else 2 + int(-np.log10(max(abs(rate - 1.0), 1e-6) / 0.05))
    return f"{rate:.{digits}f}"


def unsettled(forecast: Forecast) -> Answer | None:
    """The answer for a network that does not settle on all samples; None for one that does."""
    late, rate = int(np.sum(~np.asarray(forecast.settles))), slowest_rate(forecast)
    if not late:
        return None
    where = "" if late == len(forecast.rate) else f" on {late} of {len(forecast.rate)} samples"
    advice = "lower the feedback or raise the input"
    return Answer("unsettled", f"**It does not settle**{where} (rate {rate}; below 1 is needed): {advice}.")


def answer_of(forecast: Forecast, depths: Depths) -> Answer:
    """The answer for a network that settles."""
    rate, count = slowest_rate(forecast), median_steps(forecast, RESIDUAL)
    settles = f"**It settles** (rate {rate}, {count} steps to a residual of {RESIDUAL:g})"
    curve = depths.curve
    learnt = curve.interval[curve.best_place, 0] > curve.chance
    if curve.scores is not None and not learnt and not any(one.is_better for one in depths.plain.values()):
        best = f"{curve.percent(curve.best_place)} at best, {100.0 * curve.chance:.1f} % by chance"
        return Answer("unsure", f"{settles}, but **these labels cannot be predicted** ({best}): add samples.")
    enough = np.isfinite(curve.steps_needed) or any(one.is_enough for one in depths.plain.values())
    if curve.scores is None:
        more = "add labels to see whether a plain network does as well"
        return Answer("shallow" if enough else "unsure", f"{settles}; {_steps(depths)}; {more}.")
    worse = all(one.is_worse for one in (*depths.steps[:-1], *depths.plain.values()))
    tone = "shallow" if enough else "deep" if worse else "unsure"
    return Answer(tone, f"{settles}; {_steps(depths)}; {_plain(depths)}.")


def _steps(depths: Depths) -> str:
    curve, last = depths.curve, depths.steps[-2]
    if np.isfinite(curve.steps_needed):
        last = depths.steps[curve.steps.tolist().index(curve.steps_needed)]
        words = "1 step is enough" if curve.steps_needed == 1 else f"{curve.steps_needed} steps are enough"
    elif last.is_worse:
        words = f"more than {STEPS[-1]} steps are needed"
    else:
        words = f"whether {STEPS[-1]} steps are enough is not certain from {curve.source}"
    if curve.scores is None:
        return f"**{words}** for the same kernel (kernel error {100.0 * last.high:.2g} %)"
    return f"**{words}** ({curve.measure} {_percent(last)}, equilibrium {curve.percent(-1)})"


def _plain(depths: Depths) -> str:
    enough = [layers for layers, one in depths.plain.items() if one.is_enough]
    best = enough[0] if enough else max(depths.plain, key=lambda layers: depths.plain[layers].score)
    name, value = f"{best} layer{'s' * (best > 1)}", _percent(depths.plain[best])
    if enough:
        does = "does better" if depths.plain[best].is_better else "does as well"
        return f"**a plain network of {name} {does}** ({value})"
    if all(one.is_worse for one in depths.plain.values()):
        return (
            f"**no plain network of up to {LAYERS[-1]} layers does as well** (the best has {name}: {value})"
        )
    return f"**whether a plain network does as well is not certain** (the best has {name}: {value})"


def _percent(one: Behind) -> str:
    return f"{100.0 * one.score:.1f} %"


def twin_answer(twin: Twin) -> str:
    """Compare the twin with 1 plain layer in one sentence."""
    layers = len(twin.design.network.layers)
    error, plain = (100.0 * one.up_to_factor for one in twin.errors.values())
    ratio = float(f"{plain / max(error, 1e-12):.2g}")
    compared = (
        f"{ratio:,g} times closer than 1 plain layer ({plain:.2g} %)"
        if ratio >= 1.5
        else f"no closer than 1 plain layer ({plain:.2g} %)"
    )
    return (
        f"A twin of {layers} layer{'s' * (layers > 1)} has the kernel of the DEQ to {error:.2g} %, up to a factor: "
        f"{compared}."
    )
