"""Forecasts beside real networks: does the solver do what `notsodeep.forecast` says?

  python benchmarks/forecast.py                    about 20 minutes on one core; goes on where it was stopped
  python benchmarks/forecast.py --quick            a few models, to see that it runs

Models of rows, sequences, images and graphs, with centred and uncentred activations and predicted rates from 0.2 to
1.2, are drawn as networks of 256, 1024 and 2048 units. Compared are: whether plain iteration reaches 1e-6, the median
number of evaluations to 1e-3 and 1e-6, and the error of the gradient of three steps. Writes the table
benchmarks/results/forecast.md and the figure docs/images/forecast.png.
"""

from __future__ import annotations

import argparse
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from harness import markdown_table, write_atomically

import notsodeep as nsd
from notsodeep import figures
from notsodeep.errors import ConvergenceError
from notsodeep.forecasts.covariance_fields import fields_of
from notsodeep.nets import ConvDEQNet, DEQNet

HERE = Path(__file__).parent
TABLE, FIGURE = HERE / "results" / "forecast.md", HERE.parent / "docs" / "images" / "forecast.png"
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
DRAWS = {256: 4, 1024: 3, 2048: 2}
# Networks of sequences and images cost as much as many of rows.
IMAGE_DRAWS = {256: 3, 1024: 1}
INJECTION, MAX_STEPS, GRADIENT_STEPS = 0.5, 400, 3
# Distance of the rate from 1 below which a sample is at the edge.
EDGE = 0.05
GRAPH = nsd.models.normalised_adjacency(
    sum(np.roll(np.eye(12), shift, axis=1) for shift in (1, -1)) + np.roll(np.eye(12), 6, axis=1)
)


def samples_of(kind: str) -> np.ndarray:
    """Samples with norms (of positions) between about 0.7 and 1.3."""
    rng = np.random.default_rng(0)
    shape = {"rows": (6, 40), "sequences": (3, 8, 8), "images": (2, 8, 4, 4), "graph": (12, 20)}[kind]
    X = rng.standard_normal(shape) / np.sqrt(shape[1])
    return X * np.linspace(0.7, 1.3, len(X)).reshape(-1, *[1] * (X.ndim - 1))


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


def network_cell(model: Any, X: np.ndarray, width: int, seed: int) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """cell(z, x), the samples and the first state of a network."""
    x = torch.from_numpy(X)
    options = {"seed": seed, "dtype": torch.float64, "train": "readout"}
    if isinstance(model, nsd.DEQ):
        net = DEQNet(model, X.shape[1], width, 1, **options)
        return net.cell, x, torch.zeros(len(x), width, dtype=torch.float64)
    if isinstance(model, nsd.ConvDEQ):
        # Convolutions in double precision take ten times as long.
        net = ConvDEQNet(model, X.shape[1], width, 1, X.shape[2:], **(options | {"dtype": torch.float32}))
        return net.cell, x.float(), torch.zeros(len(x), width * X[0, 0].size)
    generator = torch.Generator().manual_seed(seed)
    A, B = (
        torch.randn(width, size, generator=generator, dtype=torch.float64) for size in (width, X.shape[1])
    )
    S, phi = torch.from_numpy(np.array(model.propagation)), torch_function(model.activation)
    drive = np.sqrt(model.sigma_b2) * (S @ x @ B.T)

    def cell(z: torch.Tensor, _: Any) -> torch.Tensor:
        state = S @ z.reshape(len(X), width) @ A.T
        return (phi(np.sqrt(model.sigma_a2) * state + drive) / np.sqrt(width)).reshape(1, -1)

    return cell, x, torch.zeros(1, len(X) * width, dtype=torch.float64)


def torch_function(activation: Any) -> Any:
    from notsodeep.nets.torch_activation import TorchActivation

    return TorchActivation(activation)


def measured(cell: Any, x: torch.Tensor, z: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of plain iteration, (samples, steps), and errors of the truncated gradient at its end, (samples,)."""
    columns = []
    with torch.no_grad():
        for _ in range(MAX_STEPS):
            image = cell(z, x)
            columns.append((torch.linalg.norm(image - z, dim=1) / torch.linalg.norm(image, dim=1)).numpy())
            z = image
            if columns[-1].max() < 5e-7:
                break
    residuals = np.stack(columns, axis=1)
    settled = residuals.min(axis=1) <= 1e-6
    if not settled.any():
        return residuals, np.full(len(residuals), np.nan)
    z = z.detach().requires_grad_()
    image = cell(z, x)
    w = torch.randn(z.shape, generator=torch.Generator().manual_seed(1), dtype=z.dtype)
    terms = [w]
    while len(terms) < MAX_STEPS and float(terms[-1].norm()) > 1e-4 * float(w.norm()):
        terms.append(torch.autograd.grad(image, z, terms[-1], retain_graph=True)[0])
    late = sum(terms[GRADIENT_STEPS:], torch.zeros_like(w))
    errors = torch.linalg.norm(late, dim=1) / torch.linalg.norm(late + sum(terms[:GRADIENT_STEPS]), dim=1)
    return residuals, np.where(settled, errors.detach().numpy(), np.nan)


def steps_to(residuals: np.ndarray, tolerance: float) -> np.ndarray:
    reached = residuals <= tolerance
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1.0, np.inf)


def compare(kind: str, activation: str, rate: float, widths: dict[int, int]) -> list[dict[str, Any]]:
    """Predicted beside measured numbers, a row for each width."""
    X = samples_of(kind)
    model = model_of(kind, activation, gain_of(kind, activation, rate))
    forecast = nsd.forecast(model, X, max_steps=MAX_STEPS)
    rows = []
    for width, draws in widths.items():
        found = [measured(*network_cell(model, X, width, seed)) for seed in range(draws)]
        settled = np.concatenate([residuals.min(axis=1) <= 1e-6 for residuals, _ in found])
        clear = np.tile(np.abs(forecast.rate - 1.0) > EDGE, draws)
        row = {
            "kind": kind, "activation": activation, "rate": float(np.median(forecast.rate)), "width": width,
            "gain": model.sigma_a2, "samples": int(clear.sum()),
            "right": int((settled == np.tile(forecast.settles, draws))[clear].sum()),
            "settled": float(settled.mean()), "predicted_settled": float(np.mean(forecast.settles)),
        }  # fmt: skip
        for tolerance in (1e-3, 1e-6):
            name = f"{tolerance:.0e}"
            ours = np.concatenate([steps_to(residuals, tolerance) for residuals, _ in found])
            row |= {
                f"steps_{name}": float(np.median(ours)),
                f"predicted_{name}": float(np.median(forecast.steps(tolerance))),
            }
        errors = np.concatenate([error for _, error in found])
        row["gradient"] = float(np.nanmedian(errors)) if np.isfinite(errors).any() else None
        row["predicted_gradient"] = float(np.median(forecast.gradient.error(GRADIENT_STEPS)))
        rows.append({key: None if value in (np.inf, -np.inf) else value for key, value in row.items()})
    return rows


def is_close(row: dict[str, Any], name: str) -> bool:
    """Within 10 % or one step."""
    ours, theirs = row[f"steps_{name}"], row[f"predicted_{name}"]
    return ours is not None and abs(ours - theirs) <= max(1.0, 0.1 * theirs)


def summary(rows: list[dict[str, Any]]) -> str:
    right, samples = (sum(row[name] for row in rows) for name in ("right", "samples"))
    models = {(row["kind"], row["activation"], row["predicted_settled"], row["gain"]) for row in rows}
    lines = [
        f"{len(models)} models, {len(rows)} rows. Settles or not: right for {right} of {samples} samples more than "
        f"5 % from the edge ({100 * right / samples:.1f} %)."
    ]
    for width in sorted({row["width"] for row in rows}):
        part = [row for row in rows if row["width"] == width and row["predicted_settled"] == 1.0]
        shares = {name: np.mean([is_close(row, name) for row in part]) for name in ("1e-03", "1e-06")}
        ratios = [row["gradient"] / row["predicted_gradient"] for row in part if row["gradient"] is not None]
        within = np.mean([abs(ratio - 1.0) <= 0.25 for ratio in ratios])
        lines.append(
            f"Width {width}, {len(part)} models that settle: steps within 10 % or one step for "
            f"{100 * shares['1e-03']:.0f} % (1e-3) and {100 * shares['1e-06']:.0f} % (1e-6); error of the gradient of "
            f"three steps within 25 % for {100 * within:.0f} %, median ratio {np.median(ratios):.3f}."
        )
    return "\n\n".join(lines)


def table(rows: list[dict[str, Any]]) -> str:
    def pair(ours: Any, theirs: Any, form: str) -> str:
        return " / ".join("never" if each is None else format(each, form) for each in (theirs, ours))

    shown = [
        {
            "model": f"{row['kind']}, {row['activation'].replace('**', '^')}", "σ_a²": f"{row['gain']:.3g}",
            "rate": f"{row['rate']:.2f}", "width": str(row["width"]),
            "settled, %": pair(100 * row["settled"], 100 * row["predicted_settled"], ".0f"),
            "steps to 1e-3": pair(row["steps_1e-03"], row["predicted_1e-03"], ".0f"),
            "steps to 1e-6": pair(row["steps_1e-06"], row["predicted_1e-06"], ".0f"),
            "gradient error": pair(row["gradient"], row["predicted_gradient"], ".3f") if row["gradient"] else "",
        }
        for row in rows
    ]  # fmt: skip
    return markdown_table(shown)


def draw(rows: list[dict[str, Any]]) -> Any:
    figure, (steps, gradient, settling) = figures.new_figure(3, height=2.5)
    for number, width in enumerate(sorted({row["width"] for row in rows})):
        part = [row for row in rows if row["width"] == width]
        style = {
            "color": figures.COLOURS[number],
            "marker": figures.MARKERS[number],
            "s": 9,
            "label": f"$m$ = {width}",
        }
        for name, filled in (("1e-03", False), ("1e-06", True)):
            known = [row for row in part if row[f"steps_{name}"] and row[f"predicted_{name}"]]
            face = {} if filled else {"facecolors": "none", "edgecolors": style["color"], "label": None}
            shown = style | face if filled else {key: style[key] for key in ("marker", "s")} | face
            steps.scatter(
                [row[f"predicted_{name}"] for row in known], [row[f"steps_{name}"] for row in known], **shown
            )
        known = [row for row in part if row["gradient"] is not None and row["predicted_gradient"] is not None]
        gradient.scatter(
            [row["predicted_gradient"] for row in known], [row["gradient"] for row in known], **style
        )
        settling.scatter([row["rate"] for row in part], [row["settled"] for row in part], **style)
    for axes, (low, high) in ((steps, (3, 400)), (gradient, (5e-3, 1.0))):
        axes.plot([low, high], [low, high], color="0.4", linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="predicted", ylabel="measured")
    steps.set_title("steps to 1e-3 (open), 1e-6")
    gradient.set_title("error of the 3-step gradient")
    settling.axvline(1.0, color="0.4", linewidth=0.8)
    settling.set(xlabel="predicted rate", ylabel="share of samples that settled", title="settles or not")
    settling.legend(loc="lower left")
    return figure


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="few models, one width")
    parser.add_argument("--out", type=Path, default=TABLE, help="the table; raw rows are put beside it")
    parser.add_argument("--figure", type=Path, default=FIGURE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    raw = arguments.out.with_suffix(".json")
    rows = json.loads(raw.read_text()) if raw.exists() else []
    done = {row["case"] for row in rows}
    for kind, activations in CASES.items():
        widths = {256: 2} if arguments.quick else IMAGE_DRAWS if kind in ("sequences", "images") else DRAWS
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
    text = (
        "# Forecasts beside networks\n\nEach cell: predicted / measured (medians over samples and draws).\n\n"
    )
    write_atomically(arguments.out, text + summary(rows) + "\n\n" + table(rows) + "\n")
    print(summary(rows))
    with mpl.rc_context(figures.STYLE):
        print(figures.save(draw(rows), arguments.figure))


if __name__ == "__main__":
    main()
