"""`notsodeep design`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from notsodeep.extras import needed
from notsodeep.files import atomic_write, free_path
from notsodeep.interfaces.cli import sources
from notsodeep.interfaces.cli.common import (
    ACTIVATION_HELP,
    app,
    console,
    errors,
    print_distance,
    read_activation,
)


@app.command()
def design(
    activation: Annotated[str, typer.Option(help=ACTIVATION_HELP)] = "tanh",
    sigma_a2: Annotated[float, typer.Option("--sigma-a2", help="Variance of the recurrent weights.")] = 0.2,
    tau0: Annotated[
        float | None, typer.Option(help="Norm of a typical input; 1, or that of the data if given.")
    ] = None,
    kernel: Annotated[str, typer.Option(help="What to match: ck, ntk, ntk_paper or both.")] = "ck",
    family: Annotated[
        str, typer.Option(help="auto, hard_tanh, leaky_relu, piecewise_linear, smooth, cubic or quadratic.")
    ] = "auto",
    data: Annotated[
        str | None, typer.Option(help=f"Measure the kernel distance on: {sources.DATA_HELP}")
    ] = None,
    n: Annotated[int, typer.Option("--n", "--samples", min=20, help=sources.N_HELP)] = 1000,
    p: Annotated[int, typer.Option(min=2, help=sources.P_HELP)] = 800,
    classes: Annotated[int, typer.Option(min=1, help=sources.CLASSES_HELP)] = 2,
    mean: Annotated[float, typer.Option(help=sources.MEAN_HELP)] = 8.0,
    gap: Annotated[float, typer.Option(help=sources.GAP_HELP)] = 8.0,
    seed: Annotated[int, typer.Option(min=0, help=sources.SEED_HELP)] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data sets (or NOTSODEEP_DATA).")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the design as JSON.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the activations (png, svg or pdf).")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files that are there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the design as JSON.")] = False,
) -> None:
    """The shallow explicit network with the same kernel as a DEQ, or an honest no.

    Example: notsodeep design --activation relu --sigma-a2 0.2 --data digits

    Exit code 0: the scalars match; 3: this family cannot match and the closest network is given.
    """
    if figure is not None:
        needed("matplotlib", "--figure")
    from notsodeep.designs import design as make_design
    from notsodeep.models import DEQ

    phi = read_activation(activation)
    samples = None
    if data is not None:
        samples = sources.Source(data, n, p, classes, mean, gap, seed, data_dir).samples()
    if tau0 is None:
        tau0 = 1.0 if samples is None else samples.tau0
    made = make_design(DEQ(phi, sigma_a2), tau0, kernel, family)
    if as_json:
        sys.stdout.write(made.to_json() + "\n")
    else:
        console.print(str(made), highlight=False, markup=False)
        console.print(made.explain(), highlight=False, markup=False)
        if samples is not None:
            print_distance(made, samples.rows)
    if save is not None:
        target = free_path(save, overwrite)
        with atomic_write(target) as temporary:
            temporary.write_text(made.to_json(), encoding="utf-8")
        errors.print(f"design written to {target}", highlight=False)
    if figure is not None:
        from notsodeep import figures

        drawing, panels = figures.new_figure()
        figures.plot_design(made, panels[0])
        errors.print(f"figure: {figures.save(drawing, free_path(figure, overwrite))}", highlight=False)
    if not made.exact:
        raise typer.Exit(3)
