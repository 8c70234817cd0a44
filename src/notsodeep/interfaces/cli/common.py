"""What the commands share: the application, where things are printed, how data are read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from notsodeep.errors import InputError, MissingExtraError

if TYPE_CHECKING:
    from notsodeep.gaussian.activations import Activation

app = typer.Typer(
    name="notsodeep",
    help="Deep equilibrium models and the shallow networks that share their kernels. Start with: notsodeep demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
# Texts of users may hold colons, as in leaky_relu:a=1: not emoji.
console = Console(emoji=False)
errors = Console(stderr=True, emoji=False)


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


ACTIVATION_HELP = (
    "The DEQ's activation: a name (tanh, relu, swish, gelu, …), with parameters (leaky_relu:a=1,b=0.1), "
    "or a formula in x ('formula:x*sigmoid(x)')."
)


def read_activation(text: str) -> Activation:
    """An activation as it is typed: tanh, leaky_relu:a=1,b=0.1, polynomial:coefficients=0;1, formula:x*sigmoid(x)."""
    from notsodeep.gaussian.activations import activation

    name, _, rest = text.partition(":")
    if name == "formula":
        return activation(name, expression=rest)
    parameters: dict[str, Any] = {}
    for part in rest.split(",") if rest else []:
        key, equals, value = part.partition("=")
        try:
            numbers = [float(word) for word in value.split(";")]
        except ValueError:
            numbers = []
        if not (equals and numbers):
            raise InputError(
                f"--activation {text}: {part!r} is not a parameter. Write them as in leaky_relu:a=1,b=0.1, lists "
                "as in polynomial:coefficients=0;1;0.5, and a formula as in formula:x*sigmoid(x)."
            )
        parameters[key.strip()] = numbers if ";" in value else numbers[0]
    return activation(name, **parameters)


def read_rows(data: str, samples: int | None, data_dir: Path | None, seed: int = 0) -> Any:
    """Rows of a .npy or .csv file as they are, or of a data set by name, preprocessed; checked either way."""
    from notsodeep.validation import as_rows

    path = Path(data)
    if path.suffix in (".npy", ".csv"):
        if not path.is_file():
            raise InputError(f"There is no file {data}.")
        rows = read_npy(path) if path.suffix == ".npy" else _csv_rows(path)
        return as_rows(rows[:samples] if getattr(rows, "ndim", 0) else rows, name=data)
    from notsodeep.data import Preprocessing, load, parse_spec

    name, classes = parse_spec(data)
    loaded = load(name, classes=classes, n=samples, seed=seed, data_dir=data_dir)
    return Preprocessing.fit(loaded.X).apply(loaded.X)


def read_npy(path: Path) -> Any:
    """The array of a .npy file; nothing is unpickled."""
    import numpy as np

    try:
        rows = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(
            f"{path} cannot be read as a matrix of numbers: {error}. Write it with numpy.save and numbers only."
        ) from None
    if not isinstance(rows, np.ndarray):
        raise InputError(f"{path} holds several arrays; one matrix is needed. Write it with numpy.save.")
    return rows


def _csv_rows(path: Path) -> Any:
    import numpy as np

    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} cannot be read as text: {error}. Save it as plain CSV.") from None
    table: list[list[float]] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        cells = line.split(",")
        try:
            table.append([float(cell) for cell in cells])
        except ValueError:
            hint = (
                "It looks like a header: remove it." if number == 1 else "Only numbers, with commas between."
            )
            raise InputError(
                f"{path}, line {number}: {line[:60]!r} is not a row of numbers. {hint}"
            ) from None
        if len(table[-1]) != len(table[0]):
            raise InputError(
                f"{path}, line {number}, has {len(cells)} numbers and the first row {len(table[0])}: make them equal."
            )
    if not table:
        raise InputError(f"{path} has no rows: one sample in each line is needed.")
    return np.array(table)


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
    from notsodeep.equivalents.error import operator_norm
    from notsodeep.kernels import exact_kernel
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
