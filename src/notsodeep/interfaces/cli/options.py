"""Options that several commands take, with their help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

DATA = (
    "mixture (Gaussian classes as in the papers: --n, --p, --classes, --mean, --gap), sphere (unit vectors: --n, --p), "
    "digits, mnist:6,8, …, or rows.npy, rows.csv with samples in rows."
)
Activation = Annotated[
    str,
    typer.Option(
        help="The DEQ's activation: a name (tanh, relu, swish, gelu, …), with parameters (leaky_relu:a=1,b=0.1), "
        "or a formula in x ('formula:x*sigmoid(x)')."
    ),
]
Variance = Annotated[float, typer.Option("--sigma-a2", help="Variance of the recurrent weights.")]
Count = Annotated[
    int, typer.Option("--n", "--samples", min=10, help="Number of samples; of a file the first ones.")
]
Dimension = Annotated[
    int, typer.Option(min=2, help="Dimension of mixture and sphere; other data have their own.")
]
Classes = Annotated[int, typer.Option(min=1, help="Classes of the mixture.")]
Mean = Annotated[float, typer.Option(help="Length of the class means of the mixture.")]
Gap = Annotated[float, typer.Option(help="Covariance gap of the mixture: class a has C = (1 + gap a/√p) I.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the draw; a file is read from its beginning.")]
DataDir = Annotated[Path | None, typer.Option(help="Folder of the data sets (or NOTSODEEP_DATA).")]
Overwrite = Annotated[bool, typer.Option(help="Replace files that are there.")]
Json = Annotated[bool, typer.Option("--json", help="Print all numbers as JSON, and nothing else.")]
