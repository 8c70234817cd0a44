"""`notsodeep forecast` and `verdict`: does the solver settle, and can explicit layers replace the DEQ?"""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.cli import options
from notsodeep.cli.common import app, data_record, print_json, save_figure, say, say_notes
from notsodeep.errors import InputError
from notsodeep.validation import one_of

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data

_WEIGHTS = "Weights of a trained DEQ, as for distill, to be measured; without it the model is predicted."
_INPUTS = "Variance of an input weight; 1 - sigma_a2 if not given."
_UNITS = "Width of the network, for its steps and the probability of an equilibrium; infinite by default."
_EXIT = {"replace": 0, "keep": 3, "unsure": 4}


@app.command()
@options.takes_data("digits", after_weights=True)
def forecast(
    data: Data,
    weights: Annotated[Path | None, typer.Argument(metavar="FILE", help=_WEIGHTS, show_default=False)] = None,
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: Annotated[
        float, options.option("NUMBER", "Width times the variance of a recurrent weight.")
    ] = 0.2,
    sigma_b2: Annotated[float | None, options.optional("NUMBER", _INPUTS)] = None,
    kind: options.ModelKind = "rows",
    filter_size: options.FilterSize = None,
    width: Annotated[int | None, options.optional("M", _UNITS, min=1)] = None,
    tolerance: Annotated[float, options.option("NUMBER", "Residual at which the solver stops.")] = 1e-6,
    figure: options.Figure = None,
    as_json: options.Json = False,
) -> None:
    """What will the solver do? Equilibria, steps, tolerance and gradients, before a network exists.

    Predicted from the model for wide networks with random weights, in seconds. For
    a trained DEQ (FILE, see notsodeep distill) everything is measured instead.

    Example: notsodeep forecast digits --activation tanh --sigma-a2 1.3 --sigma-b2 0.5

    Example: notsodeep forecast X.csv --activation relu --sigma-a2 0.9 --width 512

    Exit code 0: all samples settle; 3: some do not.
    """
    from notsodeep.cli.scenario import read_activation
    from notsodeep.forecasts import forecast as predict
    from notsodeep.models import DEQ, ConvDEQ

    conv = one_of(kind, ("rows", "conv"), "--model") == "conv"
    if weights is not None:
        from notsodeep.cli.distill_command import trained_network

        if conv or width is not None or sigma_b2 is not None:
            raise InputError("FILE has a trained DEQ of rows: leave --model, --width and --sigma-b2 out.")
        data = data.for_weights()
        samples = data.samples()
        found = predict(trained_network(weights, activation), samples.X)
    else:
        if filter_size is not None and not conv:
            raise InputError("--filter-size: for convolutional models. Add --model conv.")
        phi, samples = read_activation(activation), data.images() if conv else data.samples()
        model = ConvDEQ(phi, sigma_a2, sigma_b2, filter_size=filter_size or 3) if conv else None
        found = predict(model or DEQ(phi, sigma_a2, sigma_b2), samples.X, width)
    if figure is not None:
        save_figure(found.plot, figure)
    if as_json:
        print_json({**found.to_dict(), "tolerance": tolerance, "data": data_record(data, samples)}, indent=2)
    else:
        counts = found.steps(tolerance)
        say_notes(data, samples)
        say(f"{found.model}, {found.source} on {len(found.rate)} samples.")
        low, high = f"{counts.min():g}", f"{counts.max():g}"
        steps = low if low == high else f"{low} to {high}"
        say(f"Evaluations of the cell to a residual of {tolerance:g}: {steps}.")
        say(found.advice)
    if not found.settles.all():
        raise typer.Exit(3)


@app.command()
@options.takes_data("digits", after_weights=True)
def verdict(
    data: Data,
    weights: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="Weights of a trained DEQ, as for distill; without it the model is judged before training.",
            show_default=False,
        ),
    ] = None,
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    kind: options.ModelKind = "rows",
    readout: options.Readout = None,
    filter_size: options.FilterSize = None,
    kernel: Annotated[
        str | None,
        options.optional(
            "NAME", "ck (the default) if the readout will be trained, ntk if all weights will be."
        ),
    ] = None,
    max_steps: Annotated[
        int | None,
        options.optional("K", "Largest number of layers that may replace the DEQ [default: 4].", min=1),
    ] = None,
    compared: Annotated[
        int | None,
        options.optional(
            "N",
            "Number of samples to compare [default: up to 1000 rows, or the images of half a minute].",
            min=20,
        ),
    ] = None,
    intercept: options.Intercept = True,
    target_agreement: Annotated[
        float, options.option("SHARE", "For a trained DEQ: share of samples that must get the same class.")
    ] = 0.99,
    epochs: Annotated[
        int | None,
        options.optional("N", "For a trained DEQ: training epochs, as for distill [default: 8].", min=0),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Can a few explicit layers replace the DEQ? Yes, no or unsure, and why.

    Before training: the accuracy predicted for 1, 2, 3 and more steps and the
    equilibrium, and for an ordinary network of the same cost; without labels, their
    kernels. For a trained DEQ (FILE, see notsodeep distill): what distill builds
    from it, and how often a few of its own steps choose the class it chooses.

    Example: notsodeep verdict digits --activation relu --sigma-a2 0.5

    Example: notsodeep verdict X.csv --label-column species

    Example: notsodeep verdict deq.pt X.csv --activation relu

    Exit code 0: yes; 3: no, keep the DEQ; 4: unsure.
    """
    from notsodeep.cli.scenario import command_after_verdict
    from notsodeep.verdicts import verdict as judge

    conv = one_of(kind, ("rows", "conv"), "--model") == "conv"
    geometry: dict[str, Any] = {
        "--model": "conv" if conv else None,
        "--readout": readout,
        "--filter-size": filter_size,
    }
    own = {"--kernel": kernel, "--max-steps": max_steps, "--compared": compared}
    if weights is not None:
        if conv or not intercept or any(value is not None for value in own.values()):
            raise InputError(
                "FILE has a trained DEQ of rows. Leave out --model, --kernel, --max-steps, --compared and "
                "--no-intercept."
            )
        from notsodeep.cli.distill_command import trained_network

        data = data.for_weights()
        samples = data.samples()
        net = trained_network(weights, activation)
        passes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
        found = judge(net, samples.X, target_agreement=target_agreement, progress=not as_json, **passes)
    elif epochs is not None:
        raise InputError(
            "--epochs is for a trained DEQ: give its FILE first, notsodeep verdict deq.pt X.csv."
        )
    else:
        model = options.chosen_model(conv, activation, sigma_a2, readout=readout, filter_size=filter_size)
        samples = data.images() if conv else data.samples()
        settings: dict[str, Any] = {
            "kernel": kernel or "ck", "samples": compared, "intercept": intercept, "progress": not as_json,
        }  # fmt: skip
        if max_steps is not None:
            settings["max_steps"] = max_steps
        found = judge(model, samples.X, samples.y, **settings)
    solved, trained = found.curve is not None, weights is not None
    name = command_after_verdict(found.answer, samples.y, images=conv, trained=trained, solved=solved)
    if trained:
        more: dict[str, Any] = {"--target-agreement": f"{target_agreement:g}", "--epochs": epochs}
        words = [name, str(weights), *_data_words(data, scale="none"), "--activation", activation]
    else:
        # Without a solution half of the feedback is tried.
        variance = sigma_a2 if solved else 0.5 * sigma_a2
        words = [name, *_data_words(data), "--activation", activation, "--sigma-a2", f"{variance:g}"]
        more = geometry
        if name in ("kernel", "predict"):
            more["--kernel"] = kernel
        elif name == "verdict":
            more |= own | {"--labels": "y.npy" if solved else None}
    words += [str(word) for option, value in more.items() if value is not None for word in (option, value)]
    command = shlex.join(["notsodeep", *words])
    if as_json:
        print_json({**found.to_dict(), "next": command, "data": data_record(data, samples)}, indent=2)
    else:
        say_notes(data, samples)
        say(f"{found.explain()}\nNext step: {command}")
    if found.answer != "replace":
        raise typer.Exit(_EXIT[found.answer])


def _data_words(data: Data, scale: str = "auto") -> list[str]:
    """The options of the data that do not have their default value."""
    from notsodeep.cli.scenario import Data

    usual = Data(n=None, scale=scale)
    words = ["--data", data.source]
    for entry in fields(usual):
        value = getattr(data, entry.name)
        if entry.name != "source" and value != getattr(usual, entry.name):
            words += [f"--{entry.name.replace('_', '-')}", str(value)]
    return words
