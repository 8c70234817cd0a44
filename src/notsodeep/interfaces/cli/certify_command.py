"""`notsodeep certify`."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.files import free_path
from notsodeep.interfaces.cli import options
from notsodeep.interfaces.cli.common import app, console, errors, print_json, say, spinner

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from notsodeep.convergence import Certificate, Descent


@app.command()
def certify(
    data: Annotated[
        str, typer.Option(help="sphere (random points), digits:0,1, mnist:0,1, cifar10:0,1, or rows.npy.")
    ] = "sphere",
    labels: Annotated[
        Path | None, typer.Option(help="A .npy file with one label per row; needed with rows.npy.")
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="How many samples.")] = 4,
    dimension: Annotated[int, typer.Option(min=1, help="Dimension of the sphere.")] = 50,
    width: Annotated[int, typer.Option(min=1, help="Width m of the network.")] = 1000,
    sigma_w2: Annotated[
        float, typer.Option("--sigma-w2", help="Variance of the recurrent weights, below 1/8.")
    ] = 0.01,
    readout_scale: Annotated[
        float, typer.Option(help="Factor on the initial readout; the paper's is 1.")
    ] = 1.0,
    label_scale: Annotated[float, typer.Option(help="Factor on the labels.")] = 1.0,
    delta: Annotated[float | None, typer.Option(help="δ of the condition; by default the best one.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of weights, samples and labels.")] = 0,
    train: Annotated[
        int, typer.Option(min=0, help="Then train for so many steps, and record what the theorem speaks of.")
    ] = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Draw the training: loss and ||W|| (png, svg or pdf).")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File from which an interrupted training goes on.")
    ] = None,
    data_dir: options.DataDir = None,
    overwrite: Annotated[bool, typer.Option(help="Replace the figure if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Will gradient descent train this DEQ to zero loss, at what rate, and what would guarantee it?

    Draws a ReLU DEQ of the given width, measures it, and checks the condition under which full-batch gradient descent
    is proved to reach a global minimum. Rows are scaled to norm √d, as the theorem asks; labels of two classes are ±1.

    Examples: notsodeep certify

    notsodeep certify --samples 2 --sigma-w2 0.0001 --readout-scale 0.001 --label-scale 0.01 --width 2000 --train 100

    notsodeep certify --data mnist:0,1 --samples 1000 --width 500 --sigma-w2 0.08 --train 200 --figure loss.png

    Exit code 0: certified; 3: not certified, with the reason and what would do.
    """
    if figure is not None and not train:
        raise InputError("--figure draws a training: add --train with a number of steps.")
    if figure is not None:
        needed("matplotlib", "--figure")
    target = None if figure is None else free_path(figure, overwrite)
    rows, y = _read(data, labels, samples, dimension, seed, data_dir)
    with spinner() as progress:
        progress.add_task("drawing the network and verifying its norms")
        from notsodeep.convergence import certificate

        found = certificate(
            rows,
            label_scale * y,
            width,
            sigma_w2,
            seed=seed,
            readout_scale=readout_scale,
            delta=delta,
            normalise=True,
        )
    if not as_json:
        _print_certificate(found)
    trained = None
    if train:
        trained = _train(found, rows, label_scale * y, train, checkpoint)
        if not as_json:
            _print_training(found, trained)
        if target is not None:
            say(f"figure: {_draw(trained, found, target)}", errors)
    if as_json:
        print_json(_record(found, trained))
    if not found.certified:
        raise typer.Exit(3)


def _read(
    data: str, labels: Path | None, samples: int, dimension: int, seed: int, data_dir: Path | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Rows, and labels as numbers."""
    import numpy as np

    from notsodeep.data import UnitSphere, load, parse_spec
    from notsodeep.interfaces.tables import ENDINGS, open_table, read_npy

    if data == "sphere":
        values = np.random.default_rng(seed + 1).standard_normal(samples)
        return UnitSphere(dimension).sample(samples, seed), values
    if Path(data).suffix in ENDINGS:
        if labels is None or not labels.is_file():
            raise InputError(
                f"{data} has no labels of its own: give a file with one per row by --labels y.npy."
                if labels is None
                else f"There is no file {labels}."
            )
        rows = open_table(data, samples)
        with labels.open("rb") as file:
            return rows, read_npy(file, str(labels))[: len(rows)]
    name, classes = parse_spec(data)
    if classes is None or len(classes) != 2:
        raise InputError(
            f"--data {data}: name two classes, such as {name}:0,1. Their labels become -1 and 1."
        )
    loaded = load(name, classes=classes, n=samples, seed=seed, data_dir=data_dir)
    return np.asarray(loaded.X, dtype=np.float64), np.where(np.asarray(loaded.y) == classes[1], 1.0, -1.0)


def _print_certificate(found: Certificate) -> None:
    measured, constants = found.measured, found.constants
    say(
        f"m = {found.width}, σ_w² = {found.sigma_w2:g}, readout scale {found.readout_scale:g}, seed {found.seed}; "
        f"δ = {found.delta:.4g}"
    )
    table = Table("inequality", "in the paper", "so that", "left side", "right side", "left / right")
    for one in found.inequalities:
        mark = "[green]holds[/]" if one.holds else "[red]fails[/]"
        sides = (f"{one.left:.4g}", f"{one.right:.4g}", f"{one.ratio:.3g} {mark}")
        table.add_row(f"({one.number})", one.printed, one.meaning, *sides)
    console.print(table)
    numbers: dict[str, Any] = {
        "λ_*": found.gram.least, "λ_0": measured.least, "‖W‖₂": measured.recurrent, "‖U‖₂": measured.inputs,
        "‖a‖": measured.readout, "c_w": constants.c_w, "c_u": constants.c_u, "c_a": constants.c_a,
        "λ_min(H)/λ_0": found.tangent.gain_over_bound,
    }  # fmt: skip
    table = Table(*numbers)
    table.add_row(*(f"{float(value):.4g}" for value in numbers.values()))
    console.print(table)
    say(found.explain())


def _train(found: Certificate, rows: Any, y: Any, steps: int, checkpoint: Path | None) -> Descent:
    from notsodeep.convergence import DescentSettings, gradient_descent

    return gradient_descent(
        rows,
        y,
        found.width,
        found.sigma_w2,
        DescentSettings(steps, lr=found.step if found.certified else None),
        seed=found.seed,
        readout_scale=found.readout_scale,
        normalise=True,
        checkpoint=checkpoint,
        progress=True,
    )


def _print_training(found: Certificate, trained: Descent) -> None:
    rows = trained.rows
    largest = max(row.recurrent_norm for row in rows)
    rate = "the certified one" if found.certified else "found: 1/λ_max(H)"
    halved = f", halved {trained.halvings} times" if trained.halvings else ""
    say(
        f"Trained for {rows[-1].step} steps with learning rate {trained.lr:.3g} ({rate}{halved}): loss "
        f"{trained.losses[0]:.4g} → {trained.losses[-1]:.4g}; largest ‖W‖₂ {largest:.4f}, "
        f"{'below' if largest < 1.0 else 'NOT below'} 1 at every recorded step."
    )
    if found.certified:
        least = 0.5 * found.measured.least.lower
        held = all(row.loss <= row.loss_bound and row.least >= least and row.pl_ratio >= 1.0 for row in rows)
        say(f"Every conclusion of (8.21) {'held' if held else 'did NOT hold'} at {len(rows)} recorded steps.")
    if trained.stopped:
        say(f"Stopped: {trained.stopped}")


def _draw(trained: Descent, found: Certificate, target: Path) -> Path:
    from notsodeep import figures

    row = {
        "kind": "training",
        "width": found.width,
        "steps": [row.step for row in trained.rows],
        "losses": [row.loss for row in trained.rows],
        "norms": [row.recurrent_norm for row in trained.rows],
        "n": len(found.gram.matrix),
    }
    drawing, panels = figures.new_figure(columns=2)
    figures.plot_losses([row], panels[0])
    figures.plot_norms([row], panels[1])
    return figures.save(drawing, target)


def _record(found: Certificate, trained: Descent | None) -> dict[str, Any]:
    return {
        "certified": found.certified,
        "verdict": found.explain(),
        "width": found.width,
        "sigma_w2": found.sigma_w2,
        "readout_scale": found.readout_scale,
        "seed": found.seed,
        "delta": found.delta,
        "inequalities": [
            {**asdict(one), "ratio": one.ratio, "holds": one.holds} for one in found.inequalities
        ],
        "constants": asdict(found.constants),
        "measured": asdict(found.measured),
        "step": found.step,
        "printed_step": found.printed_step,
        "rate": found.rate,
        "ceiling": found.ceiling,
        "lambda_star": asdict(found.gram.least),
        "tangent_least": found.tangent.least,
        "tangent_largest": found.tangent.largest,
        "remedy": asdict(found.remedy),
        "training": None if trained is None else _trained(trained),
    }


def _trained(trained: Descent) -> dict[str, Any]:
    rows = [
        {name: value if math.isfinite(value) else None for name, value in row.items()}
        for row in trained.as_dicts()
    ]
    return {"lr": trained.lr, "halvings": trained.halvings, "stopped": trained.stopped, "rows": rows}
