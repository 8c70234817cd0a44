"""`notsodeep predict`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from notsodeep.cli import options
from notsodeep.cli.common import (
    app,
    check_outputs,
    data_record,
    print_json,
    save_figure,
    say,
    say_notes,
)
from notsodeep.errors import InputError
from notsodeep.progress import progress_bar

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data

# Number of sizes in a range such as 100:10000.
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
        str, typer.Option(metavar="NAME", help="ck (only the readout is trained) or ntk (all weights).")
    ] = "ck",
    ridge: Annotated[str, typer.Option(metavar="NUMBER", help="The ridge, or best.")] = "best",
    width: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Width of the network; infinite by default.", show_default=False
        ),
    ] = None,
    figure: options.Figure = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Predict test accuracy before training: how many samples, and which width?

    Up to the number of labelled samples (--n) the prediction is leave-one-out in
    closed form; beyond it comes from theory and is marked as extrapolated. For a
    mixture no samples are needed.

    Example: notsodeep predict digits --sizes 100:5000

    Example: notsodeep predict mnist --n 2000 --sizes 100:10000 --width 1024

    Example: notsodeep predict mixture --mean 2 --sizes 200,800 --ridge 0.1
    """
    from notsodeep.cli.scenario import read_model
    from notsodeep.data import GaussianMixture
    from notsodeep.learning import learning_curve

    check_outputs(overwrite, figure=figure)
    numbers, penalty = _read_sizes(sizes), _read_ridge(ridge)
    model = read_model(activation, sigma_a2)
    with progress_bar(f"learning curve of the {kernel} on {data.source}"):
        samples = data.dense_samples()
        labelled = samples.rows, data.required_labels(samples)
        source = samples.law if isinstance(samples.law, GaussianMixture) else labelled
        curve = learning_curve(model, source, numbers, penalty, width, kernel)
    drawn = None if figure is None else save_figure(curve.plot, figure)
    if as_json:
        print_json({**curve.to_dict(), "data": data_record(data, samples), "figure": drawn})
        return
    say_notes(data, samples)
    say(str(curve))


def _read_sizes(text: str) -> list[int]:
    """Parse 500, 100,1000, or 100:10000 in equal steps of the logarithm."""
    import numpy as np

    try:
        if ":" in text:
            first, last = (int(part) for part in text.split(":"))
            return [int(size) for size in np.unique(np.round(np.geomspace(first, last, _POINTS)))]
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--sizes {text}: write 500, or 100,1000, or a range 100:10000.") from None


def _read_ridge(text: str) -> float | str:
    try:
        return text if text == "best" else float(text)
    except ValueError:
        raise InputError(f"--ridge {text}: give a number, or best.") from None
