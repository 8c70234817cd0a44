"""What the commands share: the application, where things are printed, how data are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from notsodeep.errors import InputError, MissingExtraError

app = typer.Typer(
    name="notsodeep",
    help="Deep equilibrium models and the shallow networks that share their kernels. Start with: notsodeep demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)


def _print_version(wanted: bool) -> None:
    if wanted:
        from notsodeep import __version__

        console.print(f"notsodeep {__version__}", highlight=False)
        raise typer.Exit


@app.callback()
def _top(
    # Eager: heard before the command line misses a command.
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """What stands before the commands; its help is that of `app`."""


def spinner() -> Progress:
    """A spinner on stderr that vanishes when the work is done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=errors, transient=True)


def read_rows(data: str, samples: int | None, data_dir: Path | None) -> Any:
    """Rows of a .npy or .csv file as they are, or of a data set by name, preprocessed."""
    import numpy as np

    path = Path(data)
    if path.suffix in (".npy", ".csv"):
        if not path.exists():
            raise InputError(f"There is no file {data}.")
        try:
            rows = (
                np.load(path, allow_pickle=False)
                if path.suffix == ".npy"
                else np.loadtxt(path, delimiter=",", ndmin=2)
            )
        except ValueError as error:
            raise InputError(f"{data} cannot be read as a matrix of numbers: {error}.") from None
        return rows if samples is None else rows[:samples]
    from notsodeep.data import Preprocessing, load, parse_spec

    name, classes = parse_spec(data)
    loaded = load(name, classes=classes, n=samples, data_dir=data_dir)
    return Preprocessing.fit(loaded.X).apply(loaded.X)


def figures_if_installed() -> Any:
    """The room of figures; without matplotlib None, and a word on how to get it."""
    try:
        from notsodeep import figures
    except MissingExtraError as error:
        errors.print(f"No figure. {error}", highlight=False, markup=False, soft_wrap=True)
        return None
    return figures


def print_distance(made: Any, rows: Any) -> dict[str, tuple[float, float]]:
    """How far the twin and the undesigned network (the DEQ's activation in one layer) are from the DEQ, by kernel."""
    from scipy.sparse.linalg import aslinearoperator

    from notsodeep.designs import tangent_kernel_with_multipliers
    from notsodeep.equivalents.error import exact_kernel, operator_norm
    from notsodeep.models import Explicit

    def norm(matrix: Any) -> float:
        return operator_norm(aslinearoperator(matrix))

    plain = Explicit([made.model.activation]).centred(made.tau0)
    distances = {}
    for kernel in ("ck", "ntk") if made.kernel == "both" else (made.kernel,):
        target = exact_kernel(made.model, rows, kernel=kernel)
        twin = exact_kernel(made.network, rows, kernel=kernel)
        if kernel == "ntk" and made.multipliers is not None:
            twin = tangent_kernel_with_multipliers(made.network, rows, made.multipliers)
        other = exact_kernel(plain, rows, kernel=kernel)
        near, far = (norm(matrix - target) / norm(target) for matrix in (twin, other))
        distances[kernel] = near, far
        console.print(
            f"Exact {kernel} on {len(rows)} rows: the designed network is {near:.2g} away from the DEQ, "
            f"its own activation in one plain layer {far:.2g}",
            highlight=False,
        )
    return distances
