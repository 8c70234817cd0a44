"""`notsodeep verdict`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.cli import options
from notsodeep.cli.common import app, data_record, print_json, say, say_notes
from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.validation import one_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from notsodeep.cli.scenario import Data
    from notsodeep.verdicts import Verdict

_EXIT = {"yes": 0, "no": 3, "uncertain": 4}


@app.command()
@options.takes_data("digits", after_weights=True)
def verdict(
    data: Data,
    weights: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="Weights of a trained DEQ, as for distill; without it the model is judged before training.",
            show_default=False,
        ),
    ] = None,
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    kind: Annotated[
        str,
        typer.Option("--model", metavar="KIND", help="rows, or conv: a convolutional DEQ on images."),
    ] = "rows",
    readout: options.Readout = None,
    filter_size: options.FilterSize = None,
    width: Annotated[
        int | None,
        typer.Option(
            metavar="M", min=1, help="Units of the networks; for images channels.", show_default=False
        ),
    ] = None,
    train: Annotated[
        str | None,
        typer.Option(metavar="WHAT", help="What will be trained: all or readout.", show_default=False),
    ] = None,
    compared: Annotated[
        int | None,
        typer.Option(
            "--compared",
            metavar="N",
            min=20,
            show_default=False,
            help="Labelled samples that are compared: at most 1000 rows, or as many images as a minute allows.",
        ),
    ] = None,
    until: Annotated[
        float,
        typer.Option(metavar="SHARE", help="Of a trained DEQ: wanted share of samples with the same class."),
    ] = 0.99,
    as_json: options.Json = False,
) -> None:
    """Do I need this DEQ? Will a shallow network do: yes, no or uncertain, and why.

    Before training: distance of the exact kernels of DEQ and twin, their speed on
    this machine and, where the data have labels, the accuracies that are predicted
    for both and for one plain layer. For a trained DEQ (FILE, see notsodeep distill):
    how far training has left the kernel regime, and how often a few of its own
    steps choose the class it chooses.

    Example: notsodeep verdict digits --activation relu --sigma-a2 0.5

    Example: notsodeep verdict X.csv --label-column species --width 256

    Example: notsodeep verdict deq.pt X.csv --activation relu

    Exit code 0: yes; 3: no; 4: uncertain.
    """  # fmt: skip
    needed("torch", "verdict")
    from notsodeep.verdicts import verdict as judge

    conv = one_of(kind, ("rows", "conv"), "--model") == "conv"
    if weights is not None and (conv or width is not None or train is not None):
        raise InputError("FILE has a trained DEQ of rows: leave --model, --width and --train out.")
    if weights is not None:
        data = data.for_weights()
        samples = data.samples()
        found = judge(_trained(weights, activation), samples.rows, until=until, progress=not as_json)
    else:
        model = options.chosen_model(conv, activation, sigma_a2, readout=readout, filter_size=filter_size)
        samples = data.images() if conv else data.samples()
        settings: dict[str, Any] = {"width": width, "train": train, "samples": compared}
        found = judge(model, samples.rows, samples.labels, progress=not as_json, **settings)
    if weights is not None:
        more = ["--target-agreement", f"{until:g}", *([] if found.answer == "yes" else ["--epochs", "16"])]
        words = ["distill", str(weights), *_data_words(data, scale="none"), "--activation", activation, *more]
    else:
        geometry = {"--model": "conv" if conv else None, "--readout": readout, "--filter-size": filter_size}
        networks = geometry | {"--width": width, "--train": train or "all"}
        words = _next(found, data, samples.labels, (activation, sigma_a2), geometry, networks)
    command = shlex.join(["notsodeep", *words])
    if as_json:
        print_json({**found.as_dict(), "next": command, "data": data_record(data, samples)}, indent=2)
    else:
        say_notes(data, samples)
        say(found.words(command))
    if found.answer != "yes":
        raise typer.Exit(_EXIT[found.answer])


def _trained(weights: Path, activation: str) -> Any:
    from notsodeep.cli.distill_command import trained_network

    return trained_network(weights, activation)


def _next(
    found: Verdict,
    data: Data,
    labels: NDArray[Any] | None,
    model: tuple[str, float],
    geometry: Mapping[str, str | int | None],
    networks: Mapping[str, str | int | None],
) -> list[str]:
    """The command that goes on from here, with everything that was said about the data."""
    activation, sigma_a2 = model
    conv = geometry["--model"] is not None

    def command(name: str, options: Mapping[str, str | int | None], sigma_a2: float = sigma_a2) -> list[str]:
        said = [
            str(word) for option, value in options.items() if value is not None for word in (option, value)
        ]
        return [name, *_data_words(data), "--activation", activation, "--sigma-a2", f"{sigma_a2:g}", *said]

    if found.closeness is None:  # the DEQ has no solution on these samples
        return command("verdict", networks, 0.5 * sigma_a2)
    if not conv and (found.answer == "yes" or labels is None):
        return command("design", {})
    if labels is None:
        return command("verdict", {**networks, "--labels": "y.npy"})
    if labels.dtype.kind == "f":
        return command("kernel", geometry) if conv else command("predict", {"--width": networks["--width"]})
    return command("train", networks)


def _data_words(data: Data, scale: str = "auto") -> list[str]:
    """The options of the data, those left out that have the value they would have without."""
    from notsodeep.cli.scenario import Data

    usual = Data(n=None, scale=scale)
    words = ["--data", data.source]
    for entry in fields(usual):
        value = getattr(data, entry.name)
        if entry.name != "source" and value != getattr(usual, entry.name):
            words += [f"--{entry.name.replace('_', '-')}", str(value)]
    return words
