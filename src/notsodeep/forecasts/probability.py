"""The probability that a network of finite width has an equilibrium, from a table of simulated networks.

The laboratory makes the table (`papers.settling_table`): for four activations, rates from 0.7 to 1.1 and widths from 64
to 2048, how often the solver reached an equilibrium.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from notsodeep.validation import Array


@cache
def _table() -> dict[str, Any]:
    text = files("notsodeep.forecasts").joinpath("settling_table.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def settling_probability(name: str, rate: Array, width: int) -> tuple[Array, Array]:
    """Probability of an equilibrium and its standard error, for samples with these predicted rates.

    An activation that was not simulated has the mean of those that were, and their spread as error. Where the variance
    of an activation has no fixed point at a rate, no network is expected to settle. Rates and widths outside of the
    table count as its nearest.
    """
    table = _table()
    networks = np.array(table["networks"], dtype=np.float64)
    names = [name] if name in table["settled"] else list(table["settled"])
    counts = np.array([table["settled"][each] for each in names], dtype=np.float64)
    shares = np.nan_to_num(counts) / (table["samples_per_network"] * networks)
    # The samples of one network are alike: networks are counted, with one success and one failure added.
    share = shares.mean(axis=0)
    shrunk = (share * networks + 1.0) / (networks + 2.0)
    error = np.sqrt(shrunk * (1.0 - shrunk) / networks + shares.var(axis=0))
    grid = np.array(table["rates"]), np.log2(table["widths"])
    places = [
        np.clip(each, axis[0], axis[-1]) for each, axis in zip((rate, np.log2(width)), grid, strict=True)
    ]
    points = np.stack(np.broadcast_arrays(*places), axis=-1)
    chance, spread = (RegularGridInterpolator(grid, values)(points) for values in (share, error))
    return np.asarray(chance), np.asarray(spread)


__all__ = ["settling_probability"]
