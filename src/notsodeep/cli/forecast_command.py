"""`notsodeep forecast`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from notsodeep.cli import options
from notsodeep.cli.common import app, data_record, print_json, save_figure, say, say_notes
from notsodeep.errors import InputError
from notsodeep.validation import one_of

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data

_NOT_SETTLED = 3
_WEIGHTS = "Weights of a trained DEQ, as for distill, on which to measure; without it the model is predicted."
_INPUTS = "Variance of the input weights; 1 - sigma_a2 if not given."
_UNITS = "Units, for steps and the probability of an equilibrium at this width."


@app.command()
@options.takes_data("digits", after_weights=True)
def forecast(
    data: Data,
    weights: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help=_WEIGHTS, show_default=False)
    ] = None,
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: Annotated[
        float, typer.Option(metavar="NUMBER", help="Variance of the recurrent weights.")
    ] = 0.2,
    sigma_b2: Annotated[
        float | None, typer.Option(metavar="NUMBER", help=_INPUTS, show_default=False)
    ] = None,
    kind: options.ModelKind = "rows",
    filter_size: options.FilterSize = None,
    width: Annotated[int | None, typer.Option(metavar="M", min=1, help=_UNITS, show_default=False)] = None,
    tolerance: Annotated[float, typer.Option(metavar="NUMBER", help="Residual to count steps to.")] = 1e-6,
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
        found = predict(trained_network(weights, activation), samples.rows)
    else:
        if filter_size is not None and not conv:
            raise InputError("--filter-size: for convolutional models. Add --model conv.")
        phi, samples = read_activation(activation), data.images() if conv else data.samples()
        model = ConvDEQ(phi, sigma_a2, sigma_b2, filter_size=filter_size or 3) if conv else None
        found = predict(model or DEQ(phi, sigma_a2, sigma_b2), samples.rows, width)
    if figure is not None:
        save_figure(found.plot, figure)
    if as_json:
        print_json({**found.to_dict(), "tolerance": tolerance, "data": data_record(data, samples)}, indent=2)
    else:
        counts = found.steps(tolerance)
        say_notes(data, samples)
        say(f"{found.model}, {found.source} on {len(found.rate)} samples.")
        say(f"Evaluations of the cell to a residual of {tolerance:g}: {counts.min():g} to {counts.max():g}.")
        say(found.advice)
    if not found.settles.all():
        raise typer.Exit(_NOT_SETTLED)
