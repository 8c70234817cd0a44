"""`notsodeep spectrum`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.cli import options
from notsodeep.cli.common import (
    app,
    data_record,
    print_json,
    save_figure,
    say,
    say_notes,
)
from notsodeep.errors import InputError
from notsodeep.files import new_path
from notsodeep.progress import progress_bar
from notsodeep.validation import Array

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data, Prediction


@app.command()
@options.takes_data("mixture")
def spectrum(
    data: Data,
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    kernel: options.KernelName = "ck",
    form: Annotated[
        str,
        typer.Option(metavar="NAME", help="refined (with corrections at finite n) or asymptotic."),
    ] = "refined",
    check: Annotated[bool, typer.Option(help="Compare with the exact eigenvalues.")] = True,
    figure: Annotated[
        Path, typer.Option(metavar="FILE", help="File of the figure (png, svg or pdf).")
    ] = Path("notsodeep-spectrum.png"),
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Predict the eigenvalues of a DEQ's kernel, and compare with the exact ones.

    For mixture and sphere the prediction comes from their law alone, without
    samples. For data sets and files it is the spectrum of the refined equivalent of
    the same rows.

    Example: notsodeep spectrum --activation relu --kernel ntk --n 2000 --p 1600

    Example: notsodeep spectrum --data digits --activation 'x*sigmoid(x)'

    Example: notsodeep spectrum --data X.csv --label-column diagnosis
    """
    import numpy as np

    from notsodeep.cli import scenario

    new_path(figure, overwrite)
    if form != "refined" and not data.is_drawn:
        raise InputError(
            f"--form {form} needs data with a known law, mixture or sphere. Leave it out for {data.source}."
        )
    with progress_bar(f"spectrum of the {kernel} on {data.source}"):
        samples = data.dense_samples()
        model, exact = scenario.read_model(activation, sigma_a2).centred(samples.tau0), None
        if check:
            matrix = scenario.compute_kernel(model, samples.rows, kernel)
            exact = np.linalg.eigvalsh(matrix).astype(float)
        prediction = scenario.predict(model, samples, kernel, form)
    name = activation if len(activation) <= 40 else activation[:39] + "…"
    title = f"{name} DEQ, {kernel}, n = {len(samples.rows)}, p = {samples.rows.shape[1]}"
    drawn = save_figure(lambda axes: _draw(axes, prediction, exact, title), figure)
    if not as_json:
        say_notes(data, samples)
        _print(prediction, exact, data.source)
        return
    print_json(
        {
            "model": str(model), "activation": activation, "kernel": kernel, "data": data.source, "seed": data.seed,
            **data_record(data, samples), "form": form,
            "predicted": _record(prediction), "exact": None if exact is None else exact.tolist(),
            "distance": None if exact is None else prediction.distance_to(exact),
            "figure": drawn,
        }
    )  # fmt: skip


def _draw(axes: Any, prediction: Prediction, exact: Array | None, title: str) -> None:
    """Draw the predicted density over the exact eigenvalues, or the eigenvalues of both by rank."""
    from notsodeep import figures

    if prediction.limit is not None:
        figures.plot_spectrum(prediction.limit, exact, axes, title=title)
        return
    lines = {"exact kernel": exact, "refined equivalent": prediction.equivalent}
    shown = {name: values for name, values in lines.items() if values is not None}
    figures.plot_eigenvalues(shown, axes, title=title)


def _print(prediction: Prediction, exact: Array | None, source: str) -> None:
    distance = None if exact is None else prediction.distance_to(exact)
    if prediction.limit is not None:
        say(prediction.limit.describe())
        if distance is not None:
            say(f"Kolmogorov distance to the exact eigenvalues of one sample: {distance:.3f}")
    else:
        say(f"Largest eigenvalues of the refined equivalent on {source}: {_largest(prediction.equivalent)}")
        if distance is not None:
            say(f"Largest eigenvalues of the exact kernel: {_largest(exact)}")
            say(f"Largest difference at the same rank: {distance:.2g} of the largest eigenvalue")


def _largest(values: Any) -> str:
    return ", ".join(f"{value:.5g}" for value in values[:-6:-1])


def _record(prediction: Prediction) -> dict[str, Any]:
    limit = prediction.limit
    if limit is None:
        return {"eigenvalues": [] if prediction.equivalent is None else prediction.equivalent.tolist()}
    return {
        "edges": limit.edges.tolist(), "counts": list(limit.counts), "isolated": limit.isolated.tolist(),
        "alignment": limit.alignment.tolist(), "atoms": [list(atom) for atom in limit.atoms],
        "residual": limit.residual, "mass_error": limit.mass_error,
    }  # fmt: skip
