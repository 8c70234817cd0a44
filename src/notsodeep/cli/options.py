"""Options that several commands share, with their help; all commands that take data take them in the same way."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

_PANEL = "Data"
SOURCES = (
    "A file with samples in rows (.csv, .parquet, .npy, .npz, .zarr), a data set (digits, mnist, mnist:6,8, "
    "fashion_mnist, cifar10), mixture (Gaussian classes as in the papers) or sphere (unit vectors)."
)


def option(metavar: str, text: str, *names: str, **settings: Any) -> Any:
    """An option: the word that stands for its value, and its help."""
    return typer.Option(*names, metavar=metavar, help=text, **settings)


def optional(metavar: str, text: str, *names: str, **settings: Any) -> Any:
    """An option without a value of its own, so that no default is shown."""
    return option(metavar, text, *names, show_default=False, **settings)


# The default activation of every command.
ACTIVATION = "relu"
Activation = Annotated[
    str,
    option(
        "NAME",
        "Activation of the DEQ: a name (tanh, relu, gelu), with parameters (elu:alpha=2), or a formula "
        "('x*sigmoid(x)').",
    ),
]
Variance = Annotated[
    float, option("NUMBER", "σ_a², width times the variance of a recurrent weight, 0 to 1.", "--sigma-a2")
]
KernelName = Annotated[str, option("NAME", "ck, ntk or ntk_paper.", "--kernel")]
ModelKind = Annotated[
    str,
    option(
        "KIND",
        "rows, or conv: a convolutional DEQ for images (digits, mnist, fashion_mnist, cifar10, or a .npy or "
        ".zarr file of shape n, channels, height, width).",
        "--model",
    ),
]
Readout = Annotated[str | None, optional("NAME", "With --model conv: flatten (default) or pool.")]
FilterSize = Annotated[
    int | None, optional("N", "With --model conv: taps of a filter along each axis, 3 by default.")
]
Intercept = Annotated[
    bool,
    typer.Option("--intercept/--no-intercept", help="Fit a bias of the readout, which is not penalised."),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Json = Annotated[bool, typer.Option("--json", help="Print all numbers as JSON, and nothing else.")]
Figure = Annotated[Path | None, optional("FILE", "Save a figure (png, svg or pdf).")]


def chosen_model(conv: bool, activation: str, sigma_a2: float, **geometry: Any) -> Any:
    """Construct the DEQ of rows, or the convolutional one with --readout and --filter-size."""
    from notsodeep.cli.scenario import read_model
    from notsodeep.errors import InputError
    from notsodeep.models import ConvDEQ

    given = {name: value for name, value in geometry.items() if value is not None}
    model = read_model(activation, sigma_a2)
    if conv:
        return ConvDEQ(model.activation, sigma_a2, **given)
    if given:
        names = " and ".join("--" + name.replace("_", "-") for name in given)
        raise InputError(f"Only convolutional models take {names}. Add --model conv.")
    return model


def _data_parameters(p: int, drawn: int) -> dict[str, tuple[Any, Any]]:
    """The options that choose the data, apart from the source: annotation and default of each."""

    def entry(kind: Any, default: Any, *names: str, **settings: Any) -> tuple[Any, Any]:
        if default is None:
            settings["show_default"] = False
        return Annotated[kind, typer.Option(*names, rich_help_panel=_PANEL, **settings)], default

    whole, number = {"metavar": "N"}, {"metavar": "NUMBER"}
    return {
        "n": entry(
            int | None, None, "--n", min=1, **whole,
            help=f"Number of samples; the first ones of a file. Default: all, {drawn} of mixture and sphere.",
        ),
        "scale": entry(
            str, "auto", "--scale", metavar="HOW",
            help="Scaling of files and data sets: auto (centre, then one factor to norm 1; standard if one column "
            "dominates; none for trained weights), none, center, standard (each column) or unit (each row).",
        ),
        "label_column": entry(
            str | None, None, "--label-column", metavar="NAME",
            help="Column with the labels: its name, or its number from 1 (-1 is the last); an array of .npz.",
        ),
        "labels": entry(
            Path | None, None, "--labels", metavar="FILE", help="A .npy or .csv file with one label per row."
        ),
        "p": entry(int, p, "--p", min=2, help="Dimension of mixture and sphere.", **whole),
        "classes": entry(int, 2, "--classes", min=1, help="Number of classes of the mixture.", **whole),
        "mean": entry(float, 8.0, "--mean", help="Norm of the class means of the mixture.", **number),
        "gap": entry(
            float, 8.0, "--gap", help="Covariance gap of the mixture: class a has (1 + gap a/√p) I.", **number
        ),
        "seed": entry(int, 0, "--seed", min=0, help="Random seed of drawn samples, splits and fits.", **whole),
    }  # fmt: skip


def takes_data(
    default: str | None = None,
    *,
    p: int = 800,
    drawn: int = 1000,
    required: bool = False,
    after_weights: bool = False,
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the argument and options that choose data; it is called with `data`, a `scenario.Data`, instead.

    Args:
        default: the source if none is given; with None `data` is then None.
        p: default of --p.
        drawn: number of samples of mixture and sphere if --n is not given.
        required: a source must be given.
        after_weights: the command has an argument `weights` before the data; a source in its place is recognised.
    """
    shown = f" [default: {default}]" if default else ""
    position = Annotated[str | None, typer.Argument(help=SOURCES + shown, metavar="DATA", show_default=False)]
    flag = Annotated[str | None, optional("DATA", "Same as DATA.", "--data", rich_help_panel=_PANEL)]
    shared = {"source": (position, None), "named": (flag, None)} | _data_parameters(p, drawn)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(command)
        def with_data(**values: Any) -> None:
            from notsodeep.cli.scenario import DRAWN, Data, is_data
            from notsodeep.errors import InputError

            given = {name: values.pop(name) for name in shared}
            weights = values.get("weights") if after_weights else None
            if weights is not None and given["source"] is None and is_data(str(weights)):
                given["source"], values["weights"] = str(weights), None
            sources = [source for source in (given["source"], given.pop("named")) if source is not None]
            if len(sources) > 1:
                raise InputError(f"Got two sources of data, {sources[0]} and --data {sources[1]}; give one.")
            given["source"] = sources[0] if sources else default
            if given["source"] in DRAWN:
                given["n"] = given["n"] or drawn
            elif given["source"] is None and required:
                raise InputError(f"Give the data: {SOURCES[0].lower()}{SOURCES[1:]}")
            command(data=None if given["source"] is None else Data(**given), **values)

        # What typer reads: the parameters and their types. `Data` is imported when it is constructed.
        hints = get_type_hints(command, localns={"Data": object}, include_extras=True)
        own = {
            name: (hints[name], one.default)
            for name, one in inspect.signature(command).parameters.items()
            if name != "data"
        }
        parameters = own | shared
        with_data.__annotations__ = {name: kind for name, (kind, _) in parameters.items()}
        with_data.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
                for name, (kind, default) in parameters.items()
            ]
        )
        return with_data

    return decorate
