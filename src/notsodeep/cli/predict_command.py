"""`notsodeep predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from notsodeep.cli import options
from notsodeep.cli.common import (
    app,
    console,
    data_record,
    figures_if_installed,
    print_json,
    say,
    say_notes,
    spinner,
)
from notsodeep.errors import InputError
from notsodeep.files import new_path

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data

# Points of a range such as 100:10000.
_POINTS = 7


@app.command()
@options.takes_data("digits")
def predict(
    data: Data,
    sizes: Annotated[
        str,
        typer.Option(
            metavar="SIZES", help="Numbers of training samples: 500, 100,1000 or a range 100:10000."
        ),
    ] = "100:2000",
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    kernel: Annotated[
        str, typer.Option(metavar="NAME", help="ck (the readout is trained) or ntk (all weights).")
    ] = "ck",
    ridge: Annotated[str, typer.Option(metavar="NUMBER", help="The ridge, or best.")] = "best",
    width: Annotated[
        int | None,
        typer.Option(
            metavar="M", min=1, help="Width of a network; without it, the kernel.", show_default=False
        ),
    ] = None,
    figure: options.Figure = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Predict test accuracy before training: how many samples, which width?

    From labelled samples (--n): up to their number by leaving samples out, in
    closed form; beyond it by theory, marked as extrapolated. For a mixture no sample
    is needed.

    Example: notsodeep predict digits --sizes 100:5000

    Example: notsodeep predict mnist --n 2000 --sizes 100:10000 --width 1024

    Example: notsodeep predict mixture --mean 2 --sizes 200,800 --ridge 0.1
    """
    from notsodeep.cli import scenario
    from notsodeep.data import GaussianMixture
    from notsodeep.learning import learning_curve

    if figure is not None:
        new_path(figure, overwrite)
    wanted = _read_sizes(sizes)
    penalty = ridge if ridge == "best" else _read_ridge(ridge)
    model = scenario.read_model(activation, sigma_a2)
    with spinner() as progress:
        progress.add_task(f"{kernel} on {data.source}")
        samples = data.samples()
        if samples.labels is None:
            raise InputError(f"{data.source} has no labels: name them with --label-column or --labels.")
        source = samples.law if isinstance(samples.law, GaussianMixture) else (samples.rows, samples.labels)
        curve = learning_curve(model, source, wanted, penalty, width, kernel)
    drawn = None
    if figure is not None:
        figures = figures_if_installed()
        if figures is not None:
            drawn = figures.save(curve.plot().figure, figure)
    if as_json:
        where = None if drawn is None else str(drawn)
        print_json({**curve.to_dict(), "data": data_record(data, samples), "figure": where})
        return
    say_notes(data, samples)
    say(str(curve))
    if drawn is not None:
        console.print(f"Figure: [bold]{drawn}[/]", highlight=False)


def _read_sizes(text: str) -> list[int]:
    """500, or 100,1000, or 100:10000 in equal steps of the logarithm."""
    import numpy as np

    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            return [int(size) for size in np.unique(np.round(np.geomspace(first, last, _POINTS)))]
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--sizes {text}: write 500, or 100,1000, or a range 100:10000.") from None


def _read_ridge(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--ridge {text}: a number is needed, or best.") from None
