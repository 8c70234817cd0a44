"""The probability that a network of finite width has an equilibrium, from a table of simulated networks.

`python -m notsodeep_lab.papers.settling_table` makes the table: for four activations, rates from 0.7 to 1.1 and widths
from 64 to 2048, how often the solver reached an equilibrium. Asymptotic laws of extreme eigenvalues are far off at
these widths.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from notsodeep.validation import Array

# Rate that is safe in the wide limit, and probability that a safe rate has at a width.
SAFE_RATE, SAFE_PROBABILITY = 0.95, 0.95


@cache
def _table() -> dict[str, Any]:
    return dict(json.loads(files(__package__).joinpath("settling_table.json").read_text(encoding="utf-8")))


def _counts(name: str) -> tuple[Array, Array]:
    """Share of networks with an equilibrium and its standard error, (rates, widths).

    An activation that was not simulated has the mean of those that were, and their spread as error. Where the variance
    of an activation has no fixed point at a rate, no network is expected to settle.
    """
    table = _table()
    networks = np.array(table["networks"], dtype=np.float64)
    known = {key: np.array(counts, dtype=np.float64) for key, counts in table["settled"].items()}
    shares = {
        key: np.nan_to_num(counts) / (table["samples_per_network"] * networks)
        for key, counts in known.items()
    }
    if name in shares:
        share, spread = shares[name], np.zeros_like(shares[name])
    else:
        stacked = np.stack(list(shares.values()))
        share, spread = stacked.mean(axis=0), stacked.std(axis=0)
    # The samples of one network are alike: networks are counted, with one success and one failure added.
    shrunk = (share * networks + 1.0) / (networks + 2.0)
    return share, np.sqrt(shrunk * (1.0 - shrunk) / networks + spread**2)


def settling_probability(name: str, rate: Array, width: int) -> tuple[Array, Array]:
    """Probability of an equilibrium and its standard error, for samples with these predicted rates.

    Args:
        name: of the activation.
        rate: predicted rates; outside of the table's range the nearest one counts.
        width: of the network; outside of the table's range the nearest one counts.
    """
    table = _table()
    rates, widths = np.array(table["rates"]), np.log2(table["widths"])
    points = np.stack(
        [
            np.clip(rate, rates[0], rates[-1]),
            np.full(len(rate), np.clip(np.log2(width), widths[0], widths[-1])),
        ],
        axis=1,
    )
    share, error = (RegularGridInterpolator((rates, widths), values)(points) for values in _counts(name))
    return np.asarray(share), np.asarray(error)


def safe_rate(name: str, width: int | None) -> float:
    """The largest rate at which a network of this width has an equilibrium with probability 95 %; 0.95 at most."""
    if width is None:
        return SAFE_RATE
    rates = np.linspace(0.5, SAFE_RATE, 91)
    safe = settling_probability(name, rates, width)[0] >= SAFE_PROBABILITY
    return round(float(rates[safe].max(initial=0.5)), 3)


__all__ = ["safe_rate", "settling_probability"]
