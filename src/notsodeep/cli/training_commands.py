"""`notsodeep certify` and `predict`: what training will reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from notsodeep.cli import options
from notsodeep.cli.common import (
    app,
    check_outputs,
    console,
    data_record,
    print_json,
    save_figure,
    say,
    say_notes,
)
from notsodeep.errors import InputError
from notsodeep.progress import progress_bar

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from notsodeep.cli.scenario import Data
    from notsodeep.convergence import Certificate
    from notsodeep.data import Samples

# Number of sizes in a range such as 100:10000.
_POINTS = 7


@app.command()
@options.takes_data("sphere", p=50, drawn=4)
def certify(
    data: Data,
    width: Annotated[int, options.option("N", "Width of the network.", min=1)] = 1000,
    sigma_w2: Annotated[
        float,
        options.option(
            "NUMBER", "Half the width times the variance of a recurrent weight, below 1/8.", "--sigma-w2"
        ),
    ] = 0.01,
    readout_scale: Annotated[
        float, options.option("NUMBER", "Factor on the initial readout; the paper's is 1.")
    ] = 1.0,
    label_scale: Annotated[float, options.option("NUMBER", "Factor on the labels.")] = 1.0,
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
    samples, y = _labelled_samples(data)
    if not as_json:
        say_notes(data, samples)
    with progress_bar("drawing the network and measuring its norms"):
        from notsodeep.convergence import certificate

        proof = certificate(
            samples.X, label_scale * y, width, sigma_w2, seed=data.seed, readout_scale=readout_scale,
            normalise=True,
        )  # fmt: skip
    if as_json:
        print_json({"data": data_record(data, samples), **proof.to_dict()})
    else:
        _print_certificate(proof)
    if not proof.certified:
        raise typer.Exit(3)


def _labelled_samples(data: Data) -> tuple[Samples, NDArray[np.float64]]:
    """Read the samples and their labels as numbers: two classes as -1 and 1, other numbers as they are."""
    import numpy as np

    samples = data.samples()
    if data.source == "sphere":
        return samples, np.random.default_rng(data.seed + 1).standard_normal(len(samples.X))
    labels = data.required_labels(samples)
    names, codes = np.unique(labels, return_inverse=True)
    if len(names) == 2 and labels.dtype.kind != "f":
        return samples, np.where(codes == 1, 1.0, -1.0)
    if labels.dtype.kind not in "biuf" or not data.is_file:
        few = len(names) < 2
        remedy = "Take more samples (--n)." if few else "Keep two of the classes (as in digits:0,1)."
        raise InputError(
            f"The {len(labels)} samples of {data.source} have {len(names)} class{'' if few else 'es'}; certify needs "
            f"two classes, or numbers as labels. {remedy}"
        )
    return samples, labels.astype(np.float64)


def _print_certificate(proof: Certificate) -> None:
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


@app.command()
@options.takes_data("digits")
def predict(
    data: Data,
    sizes: Annotated[
        str, options.option("SIZES", "Numbers of training samples: 500, 100,1000 or a range 100:10000.")
    ] = "100:2000",
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    kernel: Annotated[
        str, options.option("NAME", "ck (only the readout is trained) or ntk (all weights).")
    ] = "ck",
    ridge: Annotated[str, options.option("NUMBER", "The ridge, or best.")] = "best",
    width: Annotated[
        int | None, options.optional("N", "Width of the network; infinite by default.", min=1)
    ] = None,
    intercept: options.Intercept = True,
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
    numbers = _read_sizes(sizes)
    try:
        penalty = ridge if ridge == "best" else float(ridge)
    except ValueError:
        raise InputError(f"--ridge {ridge}: give a number, or best.") from None
    model = read_model(activation, sigma_a2)
    with progress_bar(f"learning curve of the {kernel} on {data.source}"):
        samples = data.dense_samples()
        labelled = samples.X, data.required_labels(samples)
        source = samples.law if isinstance(samples.law, GaussianMixture) else labelled
        curve = learning_curve(model, source, numbers, penalty, width, kernel, intercept=intercept)
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
