"""Networks of finite width, from simulations: `papers.settling_table` of the laboratory makes the table.

Two things differ from the wide limit. A network may have no equilibrium: the table counts how often the solver reached
one, for four activations, rates from 0.7 to 1.1 and widths from 64 to 2048. And errors fall more slowly: after k steps
the Jacobian J has multiplied them by r^k times what k products with a Gaussian matrix of the same size do,
docs/theory.md (13.5), of which the table has the median logarithm.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from scipy.interpolate import RegularGridInterpolator

from notsodeep.validation import Array

# Sizes of matrices to which the growth of errors is interpolated and extrapolated.
SIZES = (32.0, 8192.0)


@cache
def _table() -> dict[str, Any]:
    text = files("notsodeep.forecasts").joinpath("settling_table.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def log_growth(size: Array, steps: Array) -> Array:
    """Median of log ‖Gᵏv‖/‖v‖ for Gaussian matrices G with entries of variance 1/size, (sizes, steps)."""
    table, place = _table()["growth"], np.log2(np.clip(size, *SIZES))[:, None]
    grid = np.log2(table["sizes"]), np.array(table["scaled_steps"])
    # Beyond the table the growth of a step is that of its last steps: the logarithm of the spectral radius.
    growth = RegularGridInterpolator(grid, table["log_growth"], bounds_error=False, fill_value=None)
    points = np.broadcast_arrays(place, steps / np.exp2(0.5 * place))
    return np.asarray(growth(np.stack(points, axis=-1)))


def settling_probability(name: str, rate: Array, width: int) -> tuple[Array | None, Array | None, str]:
    """Probability of an equilibrium, its standard error, and a remark if the table does not have the width.

    `rate` is that of the wide limit. An activation that was not simulated has the mean of those that were, and their
    spread as error. Where the variance of an activation has no fixed point at a rate, no network is expected to settle.
    Rates outside of the table count as its nearest. Below its widths the probability is None. Above them it lies
    between that of the widest network and the limit 0 or 1, and the error covers both.
    """
    table = _table()
    narrowest, widest = table["widths"][0], table["widths"][-1]
    if width < narrowest:
        return None, None, f"unknown, networks of less than {narrowest} units were not simulated"
    networks = np.array(table["networks"], dtype=np.float64)
    names = [name] if name in table["settled"] else list(table["settled"])
    counts = np.array([table["settled"][each] for each in names], dtype=np.float64)
    shares = np.nan_to_num(counts) / (table["samples_per_network"] * networks)
    # The samples of one network are alike: networks are counted, with one success and one failure added.
    share = shares.mean(axis=0)
    shrunk = (share * networks + 1.0) / (networks + 2.0)
    error = np.sqrt(shrunk * (1.0 - shrunk) / networks + shares.var(axis=0))
    grid = np.array(table["rates"]), np.log2(table["widths"])
    places = np.clip(rate, grid[0][0], grid[0][-1]), np.log2(min(width, widest))
    points = np.stack(np.broadcast_arrays(*places), axis=-1)
    chance, spread = (RegularGridInterpolator(grid, values)(points) for values in (share, error))
    if width <= widest:
        return np.asarray(chance), np.asarray(spread), ""
    spread = np.maximum(spread, np.abs(chance - (rate < 1.0)))
    return np.asarray(chance), np.asarray(spread), f"extrapolated, widths up to {widest} were simulated"


__all__ = ["log_growth", "settling_probability"]
