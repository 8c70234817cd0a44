"""`notsodeep train`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from notsodeep.extras import needed
from notsodeep.interfaces.cli.common import ACTIVATION_HELP, app, console, errors, read_activation

if TYPE_CHECKING:
    from notsodeep.nets.race import Race, Standing


@app.command()
def train(
    data: Annotated[
        str,
        typer.Option(help="digits, mnist, fashion_mnist, cifar10, cifar10_vgg19; mnist:6,8 for two classes."),
    ] = "digits",
    activation: Annotated[str, typer.Option(help=ACTIVATION_HELP)] = "relu",
    sigma_a2: Annotated[float, typer.Option("--sigma-a2", help="Variance of the recurrent weights.")] = 0.2,
    width: Annotated[int, typer.Option(min=1, help="Width of all networks.")] = 1024,
    model: Annotated[str, typer.Option(help="Which to train, with commas.")] = "deq,twin,plain",
    mode: Annotated[
        str,
        typer.Option(
            "--train", help="readout (hidden weights stay random; features are computed once) or all."
        ),
    ] = "readout",
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training samples.")] = 20,
    optimizer: Annotated[str, typer.Option(help="sgd, momentum, adam, or gd (full batch).")] = "sgd",
    lr: Annotated[
        float | None, typer.Option(help="Learning rate; by default from the kernel's largest eigenvalue.")
    ] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="Samples per step.")] = 128,
    loss: Annotated[str, typer.Option(help="cross_entropy or squared.")] = "cross_entropy",
    seeds: Annotated[int, typer.Option(min=1, help="How many times, with fresh weights.")] = 3,
    samples: Annotated[
        int | None, typer.Option(min=2, help="Training samples to use; all by default.")
    ] = None,
    contractive: Annotated[
        bool, typer.Option(help="Keep the DEQ's equilibrium unique while it trains.")
    ] = False,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of torch; fewer than the cores are faster on a busy machine.")
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data sets (or NOTSODEEP_DATA).")
    ] = None,
    checkpoint_dir: Annotated[
        Path | None,
        typer.Option(help="Existing folder to keep the trainings in; a second call goes on from there."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the rows as JSON, and nothing else.")
    ] = False,
) -> None:
    """Train a DEQ, its explicit twin and a plain network alike, and compare them.

    **deq**: z = φ(σ_a A z + σ_b B x)/√m, solved for its equilibrium at every sample. **twin**: the shallow explicit
    network designed to have the same kernel (`notsodeep design`). **plain**: as deep as the twin, with the DEQ's own
    activation and no design.

    If the theory holds, the twin is as accurate as the DEQ and predicts the same classes about as often as a second
    DEQ does (the agreement in the DEQ's own row), at a fraction of its time.

    Examples:
    notsodeep train

    notsodeep train --data mnist --data-dir DATA --width 1024 --seeds 5

    notsodeep train --data mnist:6,8 --train all --width 256 --epochs 5 --activation tanh
    """
    names = [name.strip() for name in model.split(",")]
    _set_threads(threads)
    result = _race(
        data, activation, sigma_a2, samples, data_dir, checkpoint_dir,
        models=names, width=width, mode=mode, seeds=seeds, epochs=epochs, optimizer=optimizer, lr=lr,
        batch_size=batch_size, loss=loss, contractive=contractive,
    )  # fmt: skip
    if as_json:
        shared = {
            "data": data,
            "width": width,
            "train": mode,
            "optimizer": optimizer,
            "lr": result.lr,
            "seeds": seeds,
        }
        sys.stdout.write(json.dumps([shared | row for row in result.as_dicts()], indent=1) + "\n")
    else:
        _print(result, seeds)
    _print_doubts(result)


def _set_threads(threads: int | None) -> None:
    torch = needed("torch", "Training")
    if threads is not None:
        torch.set_num_threads(threads)


def _race(
    data: str,
    activation: str,
    sigma_a2: float,
    samples: int | None,
    data_dir: Path | None,
    checkpoint_dir: Path | None,
    **settings: Any,
) -> Race:
    from notsodeep.data import load, parse_spec
    from notsodeep.models import DEQ
    from notsodeep.nets.race import RaceSettings, race

    deq, wanted = DEQ(read_activation(activation), sigma_a2), RaceSettings(**settings)
    name, classes = parse_spec(data)
    train = load(name, classes=classes, n=samples, data_dir=data_dir, dtype="float32")
    test = load(name, classes=classes, split="test", data_dir=data_dir, dtype="float32")
    parts = (train.X, train.y), (test.X, test.y)
    return race(deq, *parts, wanted, checkpoint_dir=checkpoint_dir, progress=True)


def _print(result: Race, seeds: int) -> None:
    cached = any(standing.feature_seconds is not None for standing in result.standings)
    table = Table("model", "test accuracy", "agrees with DEQ", *(["features"] if cached else []), "epoch")
    for column in ("1000 samples", "peak memory"):
        table.add_column(column)
    for standing in result.standings:
        table.add_row(*_cells(standing, cached))
    console.print(table)
    for standing in result.standings:
        console.print(f"{standing.model}: {standing.network}", highlight=False, markup=False)
    console.print(
        f"Learning rate {result.lr:.3g}. Accuracy: mean ± standard deviation over {seeds} seed{'s' * (seeds > 1)}. "
        "Agreement in the DEQ's row: between DEQs of different seeds. Memory: of one training step, weights included.",
        highlight=False,
    )


def _cells(standing: Standing, cached: bool) -> list[str]:
    spread = "" if standing.accuracy_sd is None else f" ± {100 * standing.accuracy_sd:.2f}"
    cells = [standing.model, f"{100 * standing.accuracy:.2f}{spread} %"]
    cells.append("" if standing.agreement is None else f"{100 * standing.agreement:.1f} %")
    if cached:
        cells.append(_time(standing.feature_seconds))
    cells += [_time(standing.seconds_per_epoch), _time(standing.inference_seconds)]
    return [*cells, f"{standing.memory / 2**20:.1f} MiB"]


def _time(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return f"{seconds:.2f} s" if seconds >= 1.0 else f"{1e3 * seconds:.3g} ms"


def _print_doubts(result: Race) -> None:
    """What keeps the table from meaning what it says."""
    if not result.design.exact:
        errors.print(f"note: no exact twin was found. {result.design.reason}", highlight=False, markup=False)
    for standing in result.standings:
        if standing.stopped is not None:
            errors.print(
                f"note: {standing.model} stopped early: {standing.stopped}", highlight=False, markup=False
            )
