"""`notsodeep spectrum`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from notsodeep.validation import Array

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data, ErrorPoint, Prediction


@app.command()
@options.takes_data("mixture")
def spectrum(
    data: Data,
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    kernel: Annotated[str, typer.Option(metavar="NAME", help="ck, ntk or ntk_paper.")] = "ck",
    form: Annotated[
        str,
        typer.Option(metavar="NAME", help="refined (with what is known of finite n) or asymptotic."),
    ] = "refined",
    check: Annotated[bool, typer.Option(help="Compare with the exact eigenvalues of a sample.")] = True,
    errors: Annotated[
        bool,
        typer.Option("--errors", help="The error of the equivalents against n, as a second panel."),
    ] = False,
    output: Annotated[
        Path,
        typer.Option("--save", "--output", metavar="FILE", help="Where the figure goes (png, svg or pdf)."),
    ] = Path("notsodeep-spectrum.png"),
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Predict the eigenvalues of a DEQ's kernel, and check them on a sample.

    Where the law of the samples is known (mixture, sphere) the prediction needs
    no data at all. For digits, images and files it is the spectrum of the refined
    equivalent of the same rows.

    Example: notsodeep spectrum --activation relu --kernel ntk --n 2000 --p 1600

    Example: notsodeep spectrum --data digits --activation 'x*sigmoid(x)' --errors

    Example: notsodeep spectrum --data X.csv --label-column diagnosis
    """
    import numpy as np

    from notsodeep.cli import scenario

    new_path(output, overwrite)
    if form != "refined" and not data.is_drawn:
        raise InputError(
            f"--form {form} needs classes whose law is known: mixture or sphere. Leave it out for {data.source}."
        )
    uncentred = scenario.read_model(activation, sigma_a2)
    with spinner() as progress:
        progress.add_task(f"{kernel} on {data.source}")
        samples = data.samples()
        model = uncentred.centred(samples.tau0)
        exact = (
            np.linalg.eigvalsh(scenario.compute_kernel(model, samples.rows, kernel)).astype(float)
            if check
            else None
        )
        found = scenario.predict(model, samples, kernel, form)
        points = [
            point
            for part in (data.smaller(len(samples.rows)) if errors else ())
            for point in scenario.equivalent_errors(uncentred, part.samples(), kernel)
        ]
    name = activation if len(activation) <= 40 else activation[:39] + "…"
    title = f"{name} DEQ, {kernel}, n = {len(samples.rows)}, p = {samples.rows.shape[1]}"
    figure = _draw(found, exact, points, title, output)
    if not as_json:
        say_notes(data, samples)
        _print(found, exact, points, data.source)
        if figure is not None:
            console.print(f"Figure: [bold]{figure}[/]", highlight=False)
        return
    print_json(
        {
            "model": str(model), "activation": activation, "kernel": kernel, "data": data.source, "seed": data.seed,
            **data_record(data, samples), "form": form,
            "predicted": _record(found), "exact": None if exact is None else exact.tolist(),
            "distance": None if exact is None else found.distance_to(exact),
            "errors": [point.as_row() for point in points], "figure": None if figure is None else str(figure),
        }
    )  # fmt: skip


def _draw(
    found: Prediction, exact: Array | None, points: list[ErrorPoint], title: str, target: Path
) -> Path | None:
    """The path of the figure; None, and a word about it, where nothing can be drawn."""
    figures = figures_if_installed()
    if figures is None:
        return None
    drawing, panels = figures.new_figure(columns=2 if points else 1)
    if found.limit is not None:
        figures.plot_spectrum(found.limit, exact, panels[0], title=title)
    else:
        lines = {"exact kernel": exact, "refined equivalent": found.equivalent}
        shown = {name: values for name, values in lines.items() if values is not None}
        figures.plot_eigenvalues(shown, panels[0], title=title)
    if points:
        figures.plot_errors([point.as_row() for point in points], panels[1], by=("form",))
    saved: Path = figures.save(drawing, target)
    return saved


def _print(found: Prediction, exact: Array | None, points: list[ErrorPoint], data: str) -> None:
    distance = None if exact is None else found.distance_to(exact)
    if found.limit is not None:
        say(found.limit.describe())
        if distance is not None:
            say(f"Kolmogorov distance to the exact eigenvalues of one sample: {distance:.3f}")
    else:
        say(f"Largest eigenvalues of the refined equivalent on {data}: {_largest(found.equivalent)}")
        if distance is not None:
            say(f"Largest eigenvalues of the exact kernel: {_largest(exact)}")
            say(f"Largest difference between eigenvalues of the same rank: {distance:.2g} of the largest one")
    for point in points:
        say(
            f"Relative error of the {point.form} equivalent at n = {point.n}, p = {point.p}: {point.relative:.3g}"
        )


def _largest(values: Any) -> str:
    return ", ".join(f"{value:.5g}" for value in values[:-6:-1])


def _record(found: Prediction) -> dict[str, Any]:
    limit = found.limit
    if limit is None:
        return {"eigenvalues": [] if found.equivalent is None else found.equivalent.tolist()}
    return {
        "edges": limit.edges.tolist(), "counts": list(limit.counts), "isolated": limit.isolated.tolist(),
        "alignment": limit.alignment.tolist(), "atoms": [list(atom) for atom in limit.atoms],
        "residual": limit.residual, "mass_error": limit.mass_error,
    }  # fmt: skip
