"""`notsodeep train`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from notsodeep.cli import options
from notsodeep.cli.common import app, console, errors, print_json, say
from notsodeep.cli.value_formats import seconds
from notsodeep.extras import needed

_WIDTH, _CHANNELS = 1024, 32

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data
    from notsodeep.nets.race import Race


@app.command()
@options.takes_data("digits")
def train(
    data: Data,
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    width: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, show_default=False,
            help="Width of all networks, 1024 by default; with --model conv channels, 32 by default.",
        ),
    ] = None,
    kind: options.ModelKind = "rows",
    readout: options.Readout = None,
    filter_size: options.FilterSize = None,
    networks: Annotated[
        str, typer.Option(metavar="NAMES", help="Networks to train, separated by commas.")
    ] = "deq,twin,plain",
    mode: Annotated[
        str,
        typer.Option("--train", metavar="WHAT", help="readout (hidden weights stay random) or all."),
    ] = "readout",
    epochs: Annotated[int, typer.Option(metavar="N", min=1, help="Passes over the training samples.")] = 20,
    lr: Annotated[
        float | None,
        typer.Option(metavar="NUMBER", help="Learning rate; computed from the kernel by default.", show_default=False),
    ] = None,
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Number of runs, each with other random weights.")] = 3,
    contractive: Annotated[
        bool, typer.Option("--contractive", help="Keep the equilibrium of the DEQ unique during training.")
    ] = False,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Existing folder for checkpoints; a second call continues from there.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Train a DEQ, its explicit twin and a plain network alike, and compare them.

    **deq**: z = φ(σ_a A z + σ_b B x)/√m, solved for its equilibrium at every
    sample. **twin**: the explicit network designed to have the same kernel
    (`notsodeep design`). **plain**: the same number of layers with the DEQ's own
    activation.

    If the theory holds, the twin is as accurate as the DEQ and predicts the same
    classes about as often as a second DEQ does (the agreement in the row of the
    DEQ), in a fraction of its time. A fifth of each class of a file is used for
    testing.

    Example: notsodeep train

    Example: notsodeep train --data X.csv --label-column diagnosis

    Example: notsodeep train --data mnist:6,8 --train all --width 256 --epochs 5

    Example: notsodeep train --model conv --data fashion_mnist --n 1000
    """
    needed("torch", "Training")
    from notsodeep.data import Preprocessing, inspect_rows
    from notsodeep.nets.race import RaceSettings, race
    from notsodeep.validation import one_of

    conv = one_of(kind, ("rows", "conv"), "--model") == "conv"
    names = [one.strip() for one in networks.split(",")]
    deq = options.chosen_model(conv, activation, sigma_a2, readout=readout, filter_size=filter_size)
    scale = "none" if data.is_drawn else data.scale
    width = width or (_CHANNELS if conv else _WIDTH)
    settings = RaceSettings(
        models=names,
        width=width,
        mode=mode,
        seeds=seeds,
        epochs=epochs,
        lr=lr,
        contractive=contractive,
        scale=scale,
    )
    parts = data.parts(images=conv)
    # Images are scaled like rows, and then by the root of the number of positions.
    rows = parts[0][0].reshape(len(parts[0][0]), -1)
    seen = inspect_rows(Preprocessing.named(scale, rows).apply(rows))
    if data.is_file or data.scale != "auto":
        say(f"{data.source}: {Preprocessing.note(scale, rows)}", errors)
    if seen.advice:
        say(f"{data.source}: {seen.advice}", errors)
    result = race(deq, *parts, settings, checkpoint_dir=checkpoint_dir, progress=True)
    if as_json:
        shared = {
            "data": data.source, "scale": scale, "advice": seen.advice, "width": width, "train": mode,
            "lr": result.lr, "seeds": seeds,
        }  # fmt: skip
        print_json([shared | row for row in result.as_dicts()], indent=1)
    else:
        _print(result, seeds)
    # What limits the meaning of the table.
    if result.design.fitted_to:
        from notsodeep.designs import INJECTED_IN_WORDS

        say(
            f"Note: the twin is an injected network, fitted to {result.design.fitted_to} samples. {INJECTED_IN_WORDS}",
            errors,
        )
    elif not result.design.exact:
        say(f"Note: the four numbers of the twin do not all agree. {result.design.reason}", errors)
    for standing in result.standings:
        if standing.stopped is not None:
            say(f"Note: {standing.model} stopped early: {standing.stopped}", errors)


def _print(result: Race, seeds: int) -> None:
    cached = any(standing.feature_seconds is not None for standing in result.standings)
    times = [*(["features"] if cached else []), "epoch", "1000 samples"]
    table = Table("model", "test accuracy", "agrees with DEQ", *times)
    for one in result.standings:
        spread = "" if one.accuracy_sd is None else f" ± {100 * one.accuracy_sd:.2f}"
        table.add_row(
            one.model,
            f"{100 * one.accuracy:.2f}{spread} %",
            "" if one.agreement is None else f"{100 * one.agreement:.1f} %",
            *([seconds(one.feature_seconds)] if cached else []),
            seconds(one.seconds_per_epoch),
            seconds(one.inference_seconds),
        )
    console.print(table)
    for one in result.standings:
        say(f"{one.model}: {one.network}")
    say(
        f"Learning rate {result.lr:.3g}. Accuracy: mean ± standard deviation over {seeds} seed{'s' * (seeds > 1)}. "
        "Agreement in the row of the DEQ: between DEQs of different seeds."
    )
