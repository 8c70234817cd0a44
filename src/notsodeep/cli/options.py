"""Options that several commands take, with their help; those of the data are the same for all that take data."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

_PANEL = "Data"
SOURCES = (
    "A file with samples in rows (.csv, .npy, .npz, .parquet, .zarr), a data set (digits, mnist, mnist:6,8, "
    "fashion_mnist, cifar10), mixture (Gaussian classes as in the papers) or sphere (unit vectors)."
)
# The activation of every command if none is given.
ACTIVATION = "relu"
Activation = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The DEQ's activation: a name (tanh, relu, gelu), with parameters (elu:alpha=2), or a formula "
        "('x*sigmoid(x)').",
    ),
]
Variance = Annotated[
    float, typer.Option("--sigma-a2", metavar="NUMBER", help="Variance of the recurrent weights, 0 to 1.")
]
Readout = Annotated[
    str | None,
    typer.Option(
        help="With --model conv: flatten (the default) or pool, over all positions.", show_default=False
    ),
]
FilterSize = Annotated[
    int | None,
    typer.Option(
        help="With --model conv: taps of a filter along each axis; 3 if not given.", show_default=False
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of the data sets (or NOTSODEEP_DATA).", show_default=False),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace files that are there.")]
Json = Annotated[bool, typer.Option("--json", help="Print all numbers as JSON, and nothing else.")]
Figure = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Draw a figure (png, svg or pdf).", show_default=False)
]


def chosen_model(conv: bool, activation: str, sigma_a2: float, **geometry: Any) -> Any:
    """The DEQ of rows that was asked for, or the convolutional one with --readout and --filter-size."""
    from notsodeep.cli.scenario import read_model
    from notsodeep.errors import InputError
    from notsodeep.models import ConvDEQ

    given = {name: value for name, value in geometry.items() if value is not None}
    model = read_model(activation, sigma_a2)
    if conv:
        return ConvDEQ(model.activation, sigma_a2, **given)
    if given:
        options_given = " and ".join("--" + name.replace("_", "-") for name in given)
        raise InputError(f"{options_given}: for convolutional models. Add --model conv.")
    return model


def _data_parameters(n: int | None, p: int) -> dict[str, tuple[Any, Any]]:
    """The options by which data are chosen, apart from the source: annotation and default of each."""

    def option(kind: Any, *names: str, **settings: Any) -> Any:
        return Annotated[kind, typer.Option(*names, rich_help_panel=_PANEL, **settings)]

    whole, number = {"metavar": "N"}, {"metavar": "NUMBER"}
    return {
        "n": (
            option(
                int | None, "--n", "--samples", min=1, show_default=n is not None,
                help=f"Number of samples, of a file the first ones{'' if n else '; all if not given'}.", **whole,
            ),
            n,
        ),
        "scale": (
            option(
                str, "--scale", metavar="HOW",
                help="Rows of files and data sets: auto (centred, one factor, norm 1; standard where one column has "
                "nearly all of the variance; as they are for trained weights), none, center, standard (each column), "
                "unit (each row).",
            ),
            "auto",
        ),
        "label_column": (
            option(
                str | None, "--label-column", metavar="NAME", show_default=False,
                help="The column of the file with labels (name, or number from 1; -1 the last); in .npz an array.",
            ),
            None,
        ),
        "labels": (
            option(
                Path | None, "--labels", metavar="FILE", show_default=False,
                help="A .npy or .csv file with one label per row.",
            ),
            None,
        ),
        "p": (
            option(int, "--p", "--dimension", min=2, help="Dimension of mixture and sphere.", **whole),
            p,
        ),
        "classes": (option(int, "--classes", min=1, help="Classes of the mixture.", **whole), 2),
        "mean": (option(float, "--mean", help="Length of the class means of the mixture.", **number), 8.0),
        "gap": (
            option(float, "--gap", help="Covariance gap of the mixture: C = (1 + gap a/√p) I.", **number),
            8.0,
        ),
        "seed": (
            option(int, "--seed", min=0, help="Of what is drawn; files are read from the start.", **whole),
            0,
        ),
        "data_dir": (
            option(
                Path | None, "--data-dir", metavar="DIR", show_default=False,
                help="Folder of the data sets (or NOTSODEEP_DATA).",
            ),
            None,
        ),
    }  # fmt: skip


def takes_data(
    default: str | None = None,
    *,
    n: int | None = 1000,
    p: int = 800,
    drawn: int = 1000,
    needed: bool = False,
    after_weights: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the argument and options that choose data; it is called with `data`, a `scenario.Data`, instead.

    Args:
        default: the data if none are named; None leaves them out, and `data` is None.
        n: default of --n.
        p: default of --p.
        drawn: number of samples of mixture and sphere if --n is not given.
        needed: the data must be named.
        after_weights: the command has an argument `weights` before the data; data in its place are understood.
    """
    shown = f" [default: {default}]" if default else ""
    position = Annotated[
        str | None, typer.Argument(help=SOURCES + shown, metavar="[DATA]", show_default=False)
    ]
    option = Annotated[
        str | None,
        typer.Option(
            "--data", metavar="DATA", help="The same as DATA.", rich_help_panel=_PANEL, show_default=False
        ),
    ]
    chosen = {"source": (position, None), "named": (option, None)} | _data_parameters(n, p)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_data(**values: Any) -> None:
            from notsodeep.cli.scenario import DRAWN, Data, is_data
            from notsodeep.errors import InputError

            given = {name: values.pop(name) for name in chosen}
            weights = values.get("weights") if after_weights else None
            if weights is not None and given["source"] is None and is_data(str(weights)):
                given["source"], values["weights"] = str(weights), None
            sources = [source for source in (given["source"], given.pop("named")) if source is not None]
            if len(sources) > 1:
                raise InputError(
                    f"The data are named twice: {sources[0]} and --data {sources[1]}. Give one of them."
                )
            given["source"] = sources[0] if sources else default
            if given["source"] in DRAWN:
                given["n"] = given["n"] or drawn
            elif given["source"] is None and needed:
                raise InputError(f"Name the data: {SOURCES[0].lower()}{SOURCES[1:]}")
            command(data=None if given["source"] is None else Data(**given), **values)

        # What typer reads: the parameters and their types. That of `data` is imported when it is made.
        hints = get_type_hints(command, localns={"Data": object}, include_extras=True)
        own = {
            name: (hints[name], one.default)
            for name, one in inspect.signature(command).parameters.items()
            if name != "data"
        }
        given = own | chosen
        with_data.__annotations__ = {name: kind for name, (kind, _) in given.items()}
        with_data.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
                for name, (kind, default) in given.items()
            ]
        )
        return with_data

    return decorate
