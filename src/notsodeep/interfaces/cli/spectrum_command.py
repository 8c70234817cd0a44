"""`notsodeep spectrum`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.errors import InputError
from notsodeep.files import free_path
from notsodeep.interfaces.cli import sources
from notsodeep.interfaces.cli.common import (
    ACTIVATION_HELP,
    app,
    console,
    figures_if_installed,
    read_activation,
    spinner,
)

if TYPE_CHECKING:
    from notsodeep.equivalents.spectrum import LimitingSpectrum
    from notsodeep.interfaces.cli.sources import Samples, Source
    from notsodeep.models import DEQ


@dataclass(frozen=True, eq=False)
class Spectra:
    """What was predicted and what was measured.

    Attributes:
        limit: the prediction from the law alone, where it is known.
        equivalent: else the eigenvalues of the refined equivalent of the same rows, ascending.
        exact: eigenvalues of the exact kernel, ascending, if they were asked for.
        distance: with a law, Kolmogorov's between the two distributions; else the largest difference between
            eigenvalues of the same rank, relative to the largest one.
    """

    limit: LimitingSpectrum | None
    equivalent: Any
    exact: Any
    distance: float | None


@app.command()
def spectrum(
    activation: Annotated[str, typer.Option(help=ACTIVATION_HELP)] = "tanh",
    sigma_a2: Annotated[float, typer.Option("--sigma-a2", help="Variance of the recurrent weights.")] = 0.2,
    kernel: Annotated[str, typer.Option(help="ck, ntk or ntk_paper.")] = "ck",
    data: Annotated[str, typer.Option(help=sources.DATA_HELP)] = sources.MIXTURE,
    n: Annotated[int, typer.Option(min=10, help=sources.N_HELP)] = 1000,
    p: Annotated[int, typer.Option(min=2, help=sources.P_HELP)] = 800,
    classes: Annotated[int, typer.Option(min=1, help=sources.CLASSES_HELP)] = 2,
    mean: Annotated[float, typer.Option(help=sources.MEAN_HELP)] = 8.0,
    gap: Annotated[float, typer.Option(help=sources.GAP_HELP)] = 8.0,
    seed: Annotated[int, typer.Option(min=0, help=sources.SEED_HELP)] = 0,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data sets (or NOTSODEEP_DATA).")
    ] = None,
    form: Annotated[
        str, typer.Option(help="refined (with what is known of finite n) or asymptotic.")
    ] = "refined",
    check: Annotated[bool, typer.Option(help="Compare with the exact eigenvalues of a sample.")] = True,
    errors: Annotated[
        bool,
        typer.Option("--errors", help="How the error of the equivalents falls with n, as a second panel."),
    ] = False,
    output: Annotated[Path, typer.Option(help="Where the figure goes.")] = Path("notsodeep-spectrum.png"),
    overwrite: Annotated[bool, typer.Option(help="Replace the figure if it is there.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all numbers as JSON, and nothing else.")
    ] = False,
) -> None:
    """Predict the eigenvalues of a DEQ's kernel, and check them on a sample.

    Where the law of the samples is known (mixture, sphere) the prediction needs no data at all. For digits, images and
    files it is the spectrum of the refined equivalent of the same rows.

    Examples: notsodeep spectrum --activation relu --kernel ntk --n 2000 --p 1600

    notsodeep spectrum --data digits --activation 'formula:x*sigmoid(x)' --errors
    """
    from notsodeep.models import DEQ

    source = sources.Source(data, n, p, classes, mean, gap, seed, data_dir)
    if form != "refined" and not source.is_drawn:
        raise InputError(
            f"--form {form} needs classes whose law is known: mixture or sphere. Leave it out for {data}."
        )
    uncentred = DEQ(read_activation(activation), sigma_a2)
    with spinner() as progress:
        progress.add_task(f"{kernel} on {data}")
        samples = source.samples()
        model = uncentred.centred(samples.tau0)
        found = _spectra(model, samples, kernel, form, check)
        curve = _errors(uncentred, source.smaller(len(samples.rows)), kernel) if errors else []
    title = f"{_short(activation)} DEQ, {kernel}, n = {len(samples.rows)}, p = {samples.rows.shape[1]}"
    figure = _draw(found, curve, title, free_path(output, overwrite))
    if as_json:
        facts = {"model": str(model), "activation": activation, "kernel": kernel, "data": data, "seed": seed,
                 "n": len(samples.rows), "p": samples.rows.shape[1], "tau0": samples.tau0, "form": form}  # fmt: skip
        record = {
            **facts,
            **_record(found),
            "errors": curve,
            "figure": None if figure is None else str(figure),
        }
        sys.stdout.write(json.dumps(record) + "\n")
    else:
        _print(found, curve, data)
        if figure is not None:
            console.print(f"Figure: [bold]{figure}[/]", highlight=False)


def _short(text: str) -> str:
    return text if len(text) <= 40 else text[:39] + "…"


def _spectra(model: DEQ, samples: Samples, kernel: str, form: str, check: bool) -> Spectra:
    import numpy as np

    from notsodeep.equivalents import equivalent, limiting_density
    from notsodeep.kernels import exact_kernel

    exact = None
    if check:
        exact = np.asarray(
            np.linalg.eigvalsh(exact_kernel(model, samples.rows, kernel=kernel)), dtype=np.float64
        )
    if samples.law is not None:
        limit = limiting_density(model, samples.law, len(samples.rows), kernel, form=form)
        return Spectra(limit, None, exact, None if exact is None else _kolmogorov(limit, exact))
    # Inner products of real samples do not concentrate, and their squares want a sketch.
    values = np.sort(equivalent(model, samples.rows, None, kernel, form, square="sketch").eigvalsh())
    distance = None if exact is None else float(np.abs(exact - values).max() / exact[-1])
    return Spectra(None, values, exact, distance)


def _kolmogorov(limit: LimitingSpectrum, exact: Any) -> float:
    import numpy as np

    steps = np.arange(len(exact) + 1) / len(exact)
    share = limit.cdf(exact)
    return float(np.maximum(np.abs(share - steps[1:]), np.abs(share - steps[:-1])).max())


def _errors(model: DEQ, sizes: list[Source], kernel: str) -> list[dict[str, Any]]:
    """‖K - K̄‖₂/‖K‖₂ at each size, docs/theory.md (4.8), as rows that figures take."""
    from notsodeep.equivalents import equivalence_error

    rows: list[dict[str, Any]] = []
    for source in sizes:
        samples = source.samples()
        centred, shape = model.centred(samples.tau0), samples.rows.shape
        square = "sketch" if samples.law is None else "mixture"
        for form in ("refined",) if samples.law is None else ("asymptotic", "refined"):
            distance = equivalence_error(
                centred, samples.rows, samples.statistics, kernel, form, square=square
            )
            rows.append(
                {"kind": "error", "form": form, "n": shape[0], "p": shape[1], "relative": distance.relative}
            )
    return rows


def _draw(found: Spectra, curve: list[dict[str, Any]], title: str, target: Path) -> Path | None:
    """The path of the figure; None, and a word about it, where nothing can be drawn."""
    figures = figures_if_installed()
    if figures is None:
        return None
    drawing, panels = figures.new_figure(columns=2 if curve else 1)
    if found.limit is not None:
        figures.plot_spectrum(found.limit, found.exact, panels[0], title=title)
    else:
        lines = {"exact kernel": found.exact, "refined equivalent": found.equivalent}
        shown = {name: values for name, values in lines.items() if values is not None}
        figures.plot_eigenvalues(shown, panels[0], title=title)
    if curve:
        figures.plot_errors(curve, panels[1], by=("form",))
    saved: Path = figures.save(drawing, target)
    return saved


def _print(found: Spectra, curve: list[dict[str, Any]], data: str) -> None:
    if found.limit is not None:
        console.print(found.limit.describe(), highlight=False, markup=False)
        if found.distance is not None:
            console.print(
                f"Kolmogorov distance to the exact eigenvalues of one sample: {found.distance:.3f}",
                highlight=False,
            )
    else:
        largest = ", ".join(f"{value:.5g}" for value in found.equivalent[:-6:-1])
        console.print(f"Largest eigenvalues of the refined equivalent on {data}: {largest}", highlight=False)
    if found.limit is None and found.exact is not None:
        largest = ", ".join(f"{value:.5g}" for value in found.exact[:-6:-1])
        console.print(f"Largest eigenvalues of the exact kernel: {largest}", highlight=False)
        console.print(
            f"Largest difference between eigenvalues of the same rank: {found.distance:.2g} of the largest one",
            highlight=False,
        )
    for row in curve:
        console.print(
            f"Relative error of the {row['form']} equivalent at n = {row['n']}, p = {row['p']}: {row['relative']:.3g}",
            highlight=False,
        )


def _record(found: Spectra) -> dict[str, Any]:
    limit = found.limit
    predicted = {"eigenvalues": found.equivalent.tolist()} if limit is None else {
        "edges": limit.edges.tolist(), "counts": list(limit.counts), "isolated": limit.isolated.tolist(),
        "alignment": limit.alignment.tolist(), "atoms": [list(atom) for atom in limit.atoms],
        "residual": limit.residual, "mass_error": limit.mass_error,
    }  # fmt: skip
    exact = None if found.exact is None else found.exact.tolist()
    return {"predicted": predicted, "exact": exact, "distance": found.distance}
