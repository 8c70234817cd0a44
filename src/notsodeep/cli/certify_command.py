"""`notsodeep certify`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from notsodeep.cli import options
from notsodeep.cli.common import app, console, data_record, print_json, say, say_notes
from notsodeep.errors import InputError
from notsodeep.progress import progress_bar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from notsodeep.cli.scenario import Data, PreparedSamples
    from notsodeep.convergence import Certificate


@app.command()
@options.takes_data("sphere", p=50, drawn=4)
def certify(
    data: Data,
    width: Annotated[int, typer.Option(metavar="N", min=1, help="Width of the network.")] = 1000,
    sigma_w2: Annotated[
        float,
        typer.Option("--sigma-w2", metavar="NUMBER", help="Variance of the recurrent weights, below 1/8."),
    ] = 0.01,
    readout_scale: Annotated[
        float, typer.Option(metavar="NUMBER", help="Factor on the initial readout; the paper's is 1.")
    ] = 1.0,
    label_scale: Annotated[float, typer.Option(metavar="NUMBER", help="Factor on the labels.")] = 1.0,
    as_json: options.Json = False,
) -> None:
    """Check whether gradient descent provably trains this DEQ to zero loss.

    Draws a ReLU DEQ of the given width, measures its norms, and checks the
    condition under which full-batch gradient descent reaches a global minimum.
    Rows are scaled to norm √p, as the theorem requires; two classes become -1 and
    1; points on the sphere get random labels.

    Certified: notsodeep certify --n 2 --sigma-w2 0.0001 --readout-scale 0.001
    --label-scale 0.01 --width 2000

    Not certified, with the reason and a remedy: notsodeep certify

    Your data: notsodeep certify --data X.csv --label-column diagnosis --n 50

    Exit code 0: certified; 3: not certified.
    """
    samples, y = _read(data)
    if not as_json:
        say_notes(data, samples)
    with progress_bar("drawing the network and measuring its norms"):
        from notsodeep.convergence import certificate

        proof = certificate(
            samples.rows, label_scale * y, width, sigma_w2, seed=data.seed, readout_scale=readout_scale,
            normalise=True,
        )  # fmt: skip
    if as_json:
        print_json({"data": data_record(data, samples), **_record(proof)})
    else:
        _print(proof)
    if not proof.certified:
        raise typer.Exit(3)


def _read(data: Data) -> tuple[PreparedSamples, NDArray[np.float64]]:
    """Read the samples and their labels as numbers: two classes as -1 and 1, other numbers as they are."""
    import numpy as np

    samples = data.samples()
    if data.source == "sphere":
        return samples, np.random.default_rng(data.seed + 1).standard_normal(len(samples.rows))
    labels = data.required_labels(samples)
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) == 2 and labels.dtype.kind != "f":
        return samples, np.where(codes == 1, 1.0, -1.0)
    if labels.dtype.kind not in "biuf" or not data.is_file:
        raise InputError(
            f"The {len(labels)} samples of {data.source} have {len(names)} class{'es' * (len(names) > 1)}; certify "
            "needs two (as in digits:0,1) or numbers as labels. Choose other samples, or more of them (--n)."
        )
    return samples, labels.astype(np.float64)


def _print(proof: Certificate) -> None:
    say(
        f"width {proof.width}, σ_w² = {proof.sigma_w2:g}, readout scale {proof.readout_scale:g}, seed {proof.seed}; "
        f"δ = {proof.delta:.4g}"
    )
    table = Table("inequality", "in the paper", "purpose", "left side", "right side", "left / right")
    for one in proof.inequalities:
        mark = "[green]holds[/]" if one.holds else "[red]fails[/]"
        sides = (f"{one.left:.4g}", f"{one.right:.4g}", f"{one.ratio:.3g} {mark}")
        table.add_row(f"({one.number})", one.printed, one.meaning, *sides)
    console.print(table)
    say(proof.explain())


def _record(proof: Certificate) -> dict[str, Any]:
    numbers = [
        "certified",
        "width",
        "sigma_w2",
        "readout_scale",
        "seed",
        "delta",
        "step",
        "printed_step",
        "rate",
        "ceiling",
    ]
    checks = [{**asdict(one), "ratio": one.ratio, "holds": one.holds} for one in proof.inequalities]
    return {name: getattr(proof, name) for name in (*numbers, "ceiling")} | {
        "explanation": proof.explain(),
        "inequalities": checks,
        "constants": asdict(proof.constants),
        "measured": asdict(proof.measured),
        "lambda_star": asdict(proof.gram.least),
        "tangent_least": proof.tangent.least,
        "tangent_largest": proof.tangent.largest,
        "remedy": asdict(proof.remedy),
    }
