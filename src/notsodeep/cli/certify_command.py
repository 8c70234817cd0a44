"""`notsodeep certify`."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from notsodeep.cli import options
from notsodeep.cli.common import app, console, errors, print_json, say, spinner
from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.files import new_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from notsodeep.cli.scenario import Data
    from notsodeep.convergence import Certificate, Descent


@app.command()
@options.takes_data("sphere", n=None, p=50, drawn=4)
def certify(
    data: Data,
    width: Annotated[int, typer.Option(metavar="N", min=1, help="Width m of the network.")] = 1000,
    sigma_w2: Annotated[
        float,
        typer.Option("--sigma-w2", metavar="NUMBER", help="Variance of the recurrent weights, below 1/8."),
    ] = 0.01,
    readout_scale: Annotated[
        float, typer.Option(metavar="NUMBER", help="Factor on the initial readout; the paper's is 1.")
    ] = 1.0,
    label_scale: Annotated[float, typer.Option(metavar="NUMBER", help="Factor on the labels.")] = 1.0,
    train: Annotated[int, typer.Option(metavar="N", min=0, help="Also train for N steps and log them.")] = 0,
    figure: options.Figure = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Will gradient descent train this DEQ to zero loss, and what guarantees it?

    Draws a ReLU DEQ of the given width, measures it, and checks the condition
    under which full-batch gradient descent is proved to reach a global minimum.
    Rows are scaled to norm √d, as the theorem asks; two classes become -1 and 1;
    points of a sphere, 4 unless --n says otherwise, have random labels.

    Certified: notsodeep certify --n 2 --sigma-w2 0.0001 --readout-scale 0.001
    --label-scale 0.01 --width 2000 --train 100

    Not certified, with the reason and what would help: notsodeep certify

    Your data: notsodeep certify --data X.csv --label-column diagnosis --n 50

    Exit code 0: certified; 3: not certified.
    """
    if figure is not None and not train:
        raise InputError("--figure draws a training: add --train with a number of steps.")
    if figure is not None:
        needed("matplotlib", "--figure")
    target = None if figure is None else new_path(figure, overwrite)
    rows, y, notes = _read(data)
    if data.is_file and not as_json:
        for note in notes:
            say(f"{data.source}: {note}")
    with spinner() as progress:
        progress.add_task("drawing the network and verifying its norms")
        from notsodeep.convergence import certificate

        found = certificate(
            rows,
            label_scale * y,
            width,
            sigma_w2,
            seed=data.seed,
            readout_scale=readout_scale,
            normalise=True,
        )
    if not as_json:
        _print_certificate(found)
    trained = None
    if train:
        trained = _train(found, rows, label_scale * y, train)
        if not as_json:
            _print_training(found, trained)
        if target is not None:
            say(f"figure: {_draw(trained, found, target)}", errors)
    if as_json:
        print_json(
            {"data": data.source, "scale": data.scale, "notes": list(notes), **_record(found, trained)}
        )
    if not found.certified:
        raise typer.Exit(3)


def _read(data: Data) -> tuple[NDArray[np.float64], NDArray[np.float64], tuple[str, ...]]:
    """Rows, labels as numbers, and what was done to the rows."""
    import numpy as np

    if not data.is_drawn and not data.is_file:
        from notsodeep.data import parse_spec

        name, classes = parse_spec(data.source)
        if classes is None or len(classes) != 2:
            raise InputError(
                f"--data {data.source}: name two classes, such as {name}:0,1. Their labels become -1 and 1."
            )
    samples = data.samples()
    if data.source == "sphere":
        return samples.rows, np.random.default_rng(data.seed + 1).standard_normal(len(samples.rows)), ()
    return samples.rows, _as_targets(data.needed_labels(samples), data.source), samples.notes


def _as_targets(labels: NDArray[Any], source: str) -> NDArray[np.float64]:
    """Two classes as -1 and 1, other numbers as they are."""
    import numpy as np

    names, codes = np.unique(labels, return_inverse=True)
    if len(names) == 2 and labels.dtype.kind != "f":
        return np.where(codes == 1, 1.0, -1.0)
    if labels.dtype.kind not in "biuf":
        raise InputError(
            f"These {len(labels)} rows of {source} have {len(names)} class{'es' * (len(names) > 1)}; needed are two, "
            "or numbers as labels. Take other rows or more of them (--n)."
        )
    return labels.astype(np.float64)


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


def _train(found: Certificate, rows: Any, y: Any, steps: int) -> Descent:
    from notsodeep.convergence import gradient_descent

    return gradient_descent(
        rows,
        y,
        found.width,
        found.sigma_w2,
        steps,
        lr=found.step if found.certified else None,
        seed=found.seed,
        readout_scale=found.readout_scale,
        normalise=True,
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
