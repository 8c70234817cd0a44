"""Forecasts beside real networks: does the solver do what `notsodeep.forecast` says?

  python benchmarks/forecast.py                    about 25 minutes on one core; goes on where it was stopped
  python benchmarks/forecast.py --quick            a few models, to see that it runs

Models of rows, sequences, images and graphs, with centred and uncentred activations and predicted rates from 0.2 to
1.2, are drawn as networks of 256, 1024 and 2048 units. Compared with the forecast at this width are: whether plain
iteration reaches 1e-6, the median number of evaluations to 1e-3 and 1e-6, and the error of the gradient of three steps.
From rate 0.8 on steps vary much between networks, so that more of them are drawn. Writes the table
benchmarks/results/forecast.csv; `python benchmarks/publish.py` draws it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from drawing import GREY, column, diagonal, drawn, marked, publish, rows_of, with_figure_only
from harness import RESULTS, write_atomically, write_rows
from matplotlib.axes import Axes

import notsodeep as nsd
from notsodeep.errors import ConvergenceError
from notsodeep.forecasts.covariance_fields import fields_of
from notsodeep.nets.torch_activation import TorchActivation
from notsodeep_lab.plots.row_selection import grouped

TABLE = RESULTS / "forecast.csv"
SQUARE = "(4 + x**2)**0.5"
CASES = {
    "rows": {
        "tanh": (0.2, 0.4, 0.6, 0.75, 0.85, 0.93, 1.08, 1.2), "erf": (0.3, 0.5, 0.8, 1.1), "sin": (0.4, 0.7, 0.9),
        "hard_tanh": (0.5, 0.8, 1.1), "relu": (0.2, 0.4, 0.6, 0.75, 0.85, 0.93), "gelu": (0.3, 0.6, 0.85),
        "softplus": (0.3, 0.6, 0.8, 0.9), "sigmoid": (0.3, 0.6, 0.9), "leaky_relu": (0.5, 0.8), SQUARE: (0.6, 0.8),
    },
    "sequences": {"tanh": (0.4, 0.7, 0.9, 1.1), "relu": (0.4, 0.7, 0.9), "softplus": (0.5, 0.8)},
    "images": {"tanh": (0.6,), "relu": (0.8,)},
    "graph": {"tanh": (0.4, 0.7, 0.9, 1.1), "relu": (0.4, 0.7, 0.9), "softplus": (0.6,)},
}  # fmt: skip
# Networks by width: far from the edge, and for predicted rates between 0.8 and 1. Images cost as much as many rows.
DRAWS = {256: (12, 60), 1024: (8, 48), 2048: (6, 24)}
IMAGE_DRAWS = {256: (6, 32), 1024: (4, 16), 2048: (2, 6)}
# Networks whose gradients are measured.
GRADIENTS = 6
INJECTION, MAX_STEPS, GRADIENT_STEPS = 0.5, 600, 3
# Distance of the rate from 1 below which a sample is at the edge.
EDGE = 0.05
GRAPH = nsd.models.normalised_adjacency(
    sum(np.roll(np.eye(12), shift, axis=1) for shift in (1, -1)) + np.roll(np.eye(12), 6, axis=1)
)


def samples_of(kind: str) -> np.ndarray:
    """Rows of norms 0.8, 1 and 1.2; positions and nodes of norms around 1."""
    rng = np.random.default_rng(0)
    shape = {"rows": (3, 40), "sequences": (1, 8, 8), "images": (1, 8, 4, 4), "graph": (12, 20)}[kind]
    X = rng.standard_normal(shape) / np.sqrt(shape[1])
    if kind == "rows":
        X *= (np.array([0.8, 1.0, 1.2]) / np.linalg.norm(X, axis=1))[:, None]
    return X


def model_of(kind: str, activation: str, gain: float) -> Any:
    if kind == "graph":
        return nsd.GraphDEQ(GRAPH, activation, gain, INJECTION)
    if kind == "rows":
        return nsd.DEQ(activation, gain, INJECTION)
    return nsd.ConvDEQ(activation, gain, INJECTION, padding="circular" if kind == "images" else "zeros")


def gain_of(kind: str, activation: str, rate: float) -> float:
    """σ_a² at which the median predicted rate is `rate`."""

    def is_above(gain: float) -> bool:
        try:
            fields = fields_of(model_of(kind, activation, gain), samples_of(kind))
            return bool(np.median(np.maximum(fields.spread_rate, fields.norm_rate)) > rate)
        except ConvergenceError:
            return True

    grid = np.geomspace(1e-3, 200.0, 25)
    low, high = next(pair for pair in pairwise(grid) if is_above(pair[1]))
    while high - low > 1e-4 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if is_above(middle) else (middle, high)
    return float(low)


def network(model: Any, X: np.ndarray, width: int, seed: int) -> tuple[Any, torch.Tensor, bool]:
    """The linear map and the drive of pre-activations of a random network, and whether rows are samples.

    States have a row for each sample, each position of one image, or each node.
    """
    generator = torch.Generator().manual_seed(seed)

    def weights(inputs: int, variance: float) -> torch.Tensor:
        return torch.randn(inputs, width, generator=generator) * float(np.sqrt(variance))

    gather, taps = lambda rows: rows, 1
    if isinstance(model, nsd.GraphDEQ):
        S = torch.from_numpy(np.array(model.propagation)).float()
        gather = S.__matmul__
    if isinstance(model, nsd.ConvDEQ):
        gather, taps = patches(model, X.shape[2:]), model.filter_size ** (X.ndim - 2)
        X = X[0].reshape(X.shape[1], -1).T
    A = weights(taps * width, model.sigma_a2 / (taps * width))
    drive = gather(torch.from_numpy(np.array(X)).float()) @ weights(taps * X.shape[1], model.sigma_b2 / taps)
    return lambda z: gather(z) @ A, drive, isinstance(model, nsd.DEQ)


def patches(model: Any, positions: tuple[int, ...]) -> Any:
    """The function that gives each position the states of all positions under the filter, (positions, taps × units)."""
    mode = {"mode": "wrap"} if model.padding == "circular" else {"constant_values": np.prod(positions)}
    half = model.filter_size // 2
    numbers = np.pad(np.arange(np.prod(positions)).reshape(positions), half, **mode)
    shifts = np.ndindex(*[model.filter_size] * len(positions))
    parts = [
        numbers[tuple(slice(i, i + n) for i, n in zip(shift, positions, strict=True))] for shift in shifts
    ]
    taken = torch.from_numpy(np.stack([part.ravel() for part in parts], axis=1))
    # Zeros outside of the image: one more row.
    return lambda rows: torch.cat([rows, rows.new_zeros(1, rows.shape[1])])[taken].flatten(1)


def measured(
    model: Any, X: np.ndarray, width: int, seed: int, with_gradient: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of plain iteration, (samples, steps), and errors of the truncated gradient at its end, (samples,).

    States are followed by their increments in single precision, everything else is double: no rounding below 1e-6.
    """
    linear, drive, rows_are_samples = network(model, X, width, seed)
    phi, columns = TorchActivation(model.activation), []

    def norm(rows: torch.Tensor) -> torch.Tensor:
        return torch.linalg.norm(rows if rows_are_samples else rows.reshape(1, -1), dim=1)

    with torch.no_grad():
        h = drive.double()
        state = increment = phi(h)
        while len(columns) < MAX_STEPS and not (columns and columns[-1].max() <= 1e-6):
            columns.append((norm(increment) / norm(state)).numpy())
            h = h + linear(increment.float()).double()
            image = phi(h)
            state, increment = image, image - state
    residuals = np.stack(columns, axis=1)
    settled = residuals.min(axis=1) <= 1e-6
    if not (settled.any() and with_gradient):
        return residuals, np.full(len(residuals), np.nan)
    z = state.float().requires_grad_()
    image = phi(linear(z) + drive)
    w = torch.randn(z.shape, generator=torch.Generator().manual_seed(1))
    terms = [w]
    while len(terms) < MAX_STEPS and float(terms[-1].norm()) > 1e-4 * float(w.norm()):
        terms.append(torch.autograd.grad(image, z, terms[-1], retain_graph=True)[0])
    late = sum(terms[GRADIENT_STEPS:], torch.zeros_like(w))
    errors = norm(late) / norm(late + sum(terms[:GRADIENT_STEPS]))
    return residuals, np.where(settled, errors.detach().numpy(), np.nan)


def steps_to(residuals: np.ndarray, tolerance: float) -> np.ndarray:
    reached = residuals <= tolerance
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)


def compare(
    kind: str, activation: str, rate: float, widths: dict[int, tuple[int, int]]
) -> list[dict[str, Any]]:
    """Predicted beside measured numbers, a row for each width."""
    X = samples_of(kind)
    model = model_of(kind, activation, gain_of(kind, activation, rate))
    limit = nsd.forecast(model, X, max_steps=MAX_STEPS)
    rows = []
    for width, counts in widths.items():
        forecast = nsd.forecast(model, X, width=width, max_steps=MAX_STEPS)
        draws = counts[0.8 <= rate < 1.0]
        found = [measured(model, X, width, seed, seed < GRADIENTS) for seed in range(draws)]
        settled = np.concatenate([residuals.min(axis=1) <= 1e-6 for residuals, _ in found])
        clear = np.tile(np.abs(forecast.rate - 1.0) > EDGE, draws)
        row = {
            "kind": kind, "activation": activation, "rate": float(np.median(limit.rate)), "width": width,
            "gain": model.sigma_a2, "samples": int(clear.sum()), "draws": draws,
            "right": int((settled == np.tile(forecast.settles, draws))[clear].sum()),
            "settled": float(settled.mean()), "predicted_settled": float(np.mean(forecast.settles)),
        }  # fmt: skip
        for tolerance in (1e-3, 1e-6):
            name = f"{tolerance:.0e}"
            ours = np.stack([steps_to(residuals, tolerance) for residuals, _ in found])
            row |= {
                f"steps_{name}": middle(ours),
                f"predicted_{name}": middle(forecast.steps(tolerance)[None]),
                f"limit_{name}": middle(limit.steps(tolerance)[None]),
                f"error_{name}": middle_error(ours),
            }
        errors = np.stack([error for _, error in found[:GRADIENTS]])
        errors = errors[np.isfinite(errors).all(axis=1)]
        row["gradient"] = middle(errors) if len(errors) else None
        row["predicted_gradient"] = middle(forecast.gradient.error(GRADIENT_STEPS)[None])
        rows.append(row)
    return rows


def middle(values: np.ndarray) -> float | None:
    """The median sample of medians over networks (rows); None if it is infinite."""
    # Below the middle where there are infinite ones: the mean of a number and infinity would say nothing.
    method = "lower" if np.isinf(values).any() else "linear"
    value = float(np.median(np.quantile(values, 0.5, axis=0, method=method)))
    return value if np.isfinite(value) else None


def middle_error(values: np.ndarray) -> float | None:
    """Standard error of the median over draws (rows), by resampling them."""
    rng = np.random.default_rng(0)
    medians = [middle(values[rng.integers(0, len(values), len(values))]) for _ in range(200)]
    return None if None in medians else float(np.std(medians))


def is_close(row: dict[str, Any], name: str, forecast: str = "predicted") -> bool:
    """Within 10 % or one step; or never, as predicted."""
    ours, theirs = row[f"steps_{name}"], row[f"{forecast}_{name}"]
    if ours is None or theirs is None:
        return ours is theirs
    return abs(ours - theirs) <= max(1.0, 0.1 * theirs)


def summary(rows: list[dict[str, Any]]) -> str:
    right, samples = (sum(row[name] for row in rows) for name in ("right", "samples"))
    models = {(row["kind"], row["activation"], row["gain"]) for row in rows}
    lines = [
        f"{len(models)} models, {len(rows)} rows. Settles or not: right for {right} of {samples} samples more than "
        f"5 % from the edge ({100 * right / samples:.1f} %)."
    ]
    for width in sorted({row["width"] for row in rows}):
        part = [row for row in rows if row["width"] == width and row["rate"] < 1.0]
        close = {
            (name, source): f"{sum(is_close(row, name, source) for row in part)}"
            for name in ("1e-03", "1e-06")
            for source in ("predicted", "limit")
        }
        known = [row for row in part if row["gradient"] and row["predicted_gradient"]]
        ratios: Any = np.array([row["gradient"] / row["predicted_gradient"] for row in known])
        lines.append(
            f"Width {width}, {len(part)} models of rate below 1: steps within 10 % or one step for "
            f"{close['1e-03', 'predicted']} (1e-3) and {close['1e-06', 'predicted']} (1e-6); with the wide limit "
            f"instead {close['1e-03', 'limit']} and {close['1e-06', 'limit']}. Error of the gradient of three steps "
            f"within 25 % for {int((np.abs(ratios - 1.0) <= 0.25).sum())} of {len(ratios)}, median ratio "
            f"{np.median(ratios):.3f}."
        )
    far = [row for row in rows if row["width"] >= 1024 and row["rate"] < 1.0]
    missed = [
        f"{row['kind']}, {row['activation'].replace('**', '^')}, rate {row['rate']:.2f}, width {row['width']}, {name}: "
        f"predicted {shown(row['predicted_' + name])}, measured {shown(row['steps_' + name])} ± "
        f"{shown(row['error_' + name])}"
        for row in far
        for name in ("1e-03", "1e-06")
        if not is_close(row, name)
    ]
    lines.append("Beyond 10 % at width 1024 and more: " + ("; ".join(missed) or "none") + ".")
    return "\n\n".join(lines)


def shown(value: float | None) -> str:
    return "never" if value is None else f"{value:.0f}"


def forecast_points(axes: Axes, fields: Iterable[tuple[str, str, bool]]) -> None:
    """Measured against predicted values, by width; open where told."""
    rows = rows_of("forecast")
    for number, ((width,), part) in enumerate(grouped(rows, "width").items()):
        for predicted, measured, is_open in fields:
            known = [row for row in part if row[predicted] and row[measured]]
            more = {"markerfacecolor": "none"} if is_open else {"label": f"width {width:.0f}"}
            axes.plot(column(known, predicted), column(known, measured), **marked(number, **more))
    axes.set(xscale="log", yscale="log")


@drawn("forecast-steps", 3.0)
def forecast_steps(axes: Axes) -> None:
    forecast_points(
        axes, (("predicted_1e-03", "steps_1e-03", True), ("predicted_1e-06", "steps_1e-06", False))
    )
    diagonal(axes, 4, 460)
    axes.set(xlabel="predicted steps", ylabel="measured steps")
    axes.set_title("residual $10^{-3}$ (open) and $10^{-6}$ (filled)")
    axes.legend()


@drawn("forecast-gradient", 3.0)
def forecast_gradient(axes: Axes) -> None:
    forecast_points(axes, (("predicted_gradient", "gradient", False),))
    diagonal(axes, 0.005, 1.0)
    axes.set(xlabel="predicted relative error", ylabel="measured relative error")
    axes.set_title("gradient through three steps")
    axes.legend()


@drawn("forecast-settles", 3.0)
def forecast_settles(axes: Axes) -> None:
    for number, ((width,), part) in enumerate(grouped(rows_of("forecast"), "width").items()):
        style = marked(number, label=f"width {width:.0f}")
        axes.plot(column(part, "rate"), 100 * column(part, "settled"), **style)
    axes.axvline(1.0, color=GREY, linewidth=0.8, label="predicted edge")
    axes.set(xlabel="predicted rate", ylabel="samples that settled (%)")
    axes.legend(loc="lower left")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few models, one width")
    parser.add_argument(
        "--out", type=Path, default=TABLE, help="the table; a JSON file beside it allows to go on"
    )
    arguments = with_figure_only(parser)
    torch.set_num_threads(1)
    raw = arguments.out.with_suffix(".json")
    rows = json.loads(raw.read_text()) if raw.exists() else []
    done = {row["case"] for row in rows}
    for kind, activations in CASES.items():
        widths = IMAGE_DRAWS if kind in ("sequences", "images") else DRAWS
        widths = {256: (2, 4)} if arguments.quick else widths
        for activation, rates in activations.items():
            for rate in rates[1:2] if arguments.quick else rates:
                case = f"{kind} {activation} {rate}"
                if case in done:
                    continue
                rows += [{"case": case, **row} for row in compare(kind, activation, rate, widths)]
                write_atomically(raw, json.dumps(rows))
                print(
                    case,
                    *(f"{row['width']}: {row['right']}/{row['samples']}" for row in rows[-len(widths) :]),
                    flush=True,
                )
    write_rows(arguments.out, rows, summary(rows))
    print(summary(rows))
    if arguments.out == TABLE and not arguments.quick:
        publish()


if __name__ == "__main__":
    main()
