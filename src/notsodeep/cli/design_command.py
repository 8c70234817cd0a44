"""`notsodeep design`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from notsodeep.cli import options
from notsodeep.cli.common import (
    app,
    check_outputs,
    data_record,
    errors,
    print_json,
    save_figure,
    say,
    say_notes,
)
from notsodeep.files import atomic_write
from notsodeep.progress import progress_bar

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data

# Kernel error up to which an injected network counts as a match.
_CLOSE = 0.01


@app.command()
@options.takes_data()
def design(
    data: Data | None,
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    tau0: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER", help="Norm of a typical input; 1, or that of the data.", show_default=False
        ),
    ] = None,
    kernel: Annotated[
        str, typer.Option(metavar="NAME", help="Kernel to match: ck, ntk, ntk_paper or both.")
    ] = "ck",
    family: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="auto, papers, hard_tanh, leaky_relu, polynomial, quadratic or injected.",
        ),
    ] = "auto",
    layers: Annotated[
        int | None, typer.Option(metavar="N", help="Number of hidden layers.", show_default=False)
    ] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the design as JSON.", show_default=False)
    ] = None,
    figure: options.Figure = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Design the shallow explicit network with the kernel of a DEQ, or say why none exists.

    Without data, the design matches the four numbers that determine the kernel in
    high dimension. With data, the kernel error is measured on them, next to plain
    networks with the DEQ's own activation; auto then also tries injected networks
    (two or three layers of the DEQ's activation that see the input again), fitted
    to the data, and uses one if it is closer.

    Example: notsodeep design --activation relu --data digits

    Example: notsodeep design --data X.csv --label-column diagnosis

    Exit code 0: the four numbers agree, or the kernel error of an injected network
    is below 1 %; 3: this family has no match, and the closest network is printed.
    """
    check_outputs(overwrite, save, figure=figure)
    from notsodeep.cli.scenario import read_model, rows_to_fit
    from notsodeep.designs import INJECTED_IN_WORDS, twin_distances
    from notsodeep.designs import design as find_design

    model = read_model(activation, sigma_a2)
    with progress_bar("designing the network"):
        samples = None if data is None else data.dense_samples()
        if tau0 is None:
            tau0 = 1.0 if samples is None else samples.tau0
        # What a network is fitted to says nothing about how close it is: every other sample is held out.
        rows = None if samples is None else rows_to_fit(samples.rows[::2], kernel, family)
        result = find_design(model, tau0, kernel, family, layers=layers, X=rows)
        kernels, distances = ("ck", "ntk") if kernel == "both" else (kernel,), []
        if samples is not None:
            others = samples.rows[1::2] if result.fitted_to else samples.rows
            distances = [twin_distances(result, others, one) for one in kernels]
    if as_json:
        content = json.loads(result.to_json())
        if data is not None and samples is not None:
            content = {"design": content, "data": data_record(data, samples)}
            content["measured"] = [one.as_dict() for one in distances]
        print_json(content, indent=2)
    else:
        if data is not None and samples is not None:
            say_notes(data, samples)
        say(str(result))
        say(result.explain())
        for one in distances:
            say(str(one))
        if result.misfit is not None:
            say(INJECTED_IN_WORDS)
    if save is not None:
        with atomic_write(save) as temporary:
            temporary.write_text(result.to_json(), encoding="utf-8")
        say(f"Design: {save}", errors)
    if figure is not None:
        from notsodeep.figures import plot_design

        save_figure(lambda axes: plot_design(result, axes), figure)
    if not result.exact and (result.misfit is None or result.misfit > _CLOSE):
        raise typer.Exit(3)
