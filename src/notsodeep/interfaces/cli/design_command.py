"""`notsodeep design`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from notsodeep.extras import needed
from notsodeep.files import atomic_write, free_path
from notsodeep.interfaces.cli import options
from notsodeep.interfaces.cli.common import app, errors, print_distance, say


@app.command()
def design(
    activation: options.Activation = "tanh",
    sigma_a2: options.Variance = 0.2,
    tau0: Annotated[
        float | None, typer.Option(help="Norm of a typical input; 1, or that of the data if given.")
    ] = None,
    kernel: Annotated[str, typer.Option(help="What to match: ck, ntk, ntk_paper or both.")] = "ck",
    family: Annotated[
        str,
        typer.Option(
            help="auto, papers, hard_tanh, leaky_relu, piecewise_linear, smooth, cubic, quadratic or injected."
        ),
    ] = "auto",
    data: Annotated[str | None, typer.Option(help=f"Measure the kernel distance on: {options.DATA}")] = None,
    n: options.Count = 1000,
    p: options.Dimension = 800,
    classes: options.Classes = 2,
    mean: options.Mean = 8.0,
    gap: options.Gap = 8.0,
    seed: options.Seed = 0,
    data_dir: options.DataDir = None,
    save: Annotated[Path | None, typer.Option(help="Write the design as JSON.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the activations (png, svg or pdf).")] = None,
    overwrite: options.Overwrite = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the design as JSON.")] = False,
) -> None:
    """The shallow explicit network with the same kernel as a DEQ, or an honest no.

    Example: notsodeep design --activation relu --sigma-a2 0.2 --data digits

    Exit code 0: the scalars match; 3: this family cannot match and the closest network is given.
    """
    if figure is not None:
        needed("matplotlib", "--figure")
    from notsodeep.designs import design as make_design
    from notsodeep.interfaces.scenario import Data, read_activation
    from notsodeep.models import DEQ

    model = DEQ(read_activation(activation), sigma_a2)
    samples = None if data is None else Data(data, n, p, classes, mean, gap, seed, data_dir).samples()
    if tau0 is None:
        tau0 = 1.0 if samples is None else samples.tau0
    made = make_design(model, tau0, kernel, family)
    if as_json:
        sys.stdout.write(made.to_json() + "\n")
    else:
        say(str(made))
        say(made.explain())
        if samples is not None:
            print_distance(made, samples.rows)
    if save is not None:
        target = free_path(save, overwrite)
        with atomic_write(target) as temporary:
            temporary.write_text(made.to_json(), encoding="utf-8")
        say(f"design written to {target}", errors)
    if figure is not None:
        from notsodeep import figures

        drawing, panels = figures.new_figure()
        figures.plot_design(made, panels[0])
        say(f"figure: {figures.save(drawing, free_path(figure, overwrite))}", errors)
    if not made.exact:
        raise typer.Exit(3)
