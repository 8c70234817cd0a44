"""`notsodeep kernel`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from notsodeep.cli import options
from notsodeep.cli.common import app, console, data_record, print_json, say, say_notes
from notsodeep.errors import InputError
from notsodeep.files import new_path

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data

_FOLDER = "A kernel larger than memory"


@app.command()
@options.takes_data(n=None, needed=True)
def kernel(
    data: Data,
    save: Annotated[
        Path, typer.Option(metavar="FILE", help="Where the kernel goes: .npy, .npz, .csv or .parquet.")
    ] = Path("kernel.npy"),
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    tangent: Annotated[
        bool, typer.Option("--ntk", help="The neural tangent kernel instead of the conjugate one.")
    ] = False,
    kind: Annotated[
        str,
        typer.Option(
            "--model",
            help="rows: a DEQ of plain rows. conv: a convolutional DEQ, for images (digits, mnist, "
            "fashion_mnist, cifar10, or a .npy or .zarr file of the shape n, channels, height, width).",
        ),
    ] = "rows",
    readout: options.Readout = None,
    filter_size: options.FilterSize = None,
    depth: Annotated[
        int | None,
        typer.Option(metavar="N", help="Cut after so many layers; infinite if not given.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", rich_help_panel=_FOLDER, show_default=False,
            help="A folder (G.zarr) that the kernel goes to block by block, instead of --save. The same command goes "
            "on where it was stopped. With --scale none rows of .npy and .zarr stay in their file.",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", rich_help_panel=_FOLDER, show_default=False,
            help="What the process may hold, 4GB; half of what is free if not given.",
        ),
    ] = None,
    storage: Annotated[
        str, typer.Option(metavar="TYPE", rich_help_panel=_FOLDER, help="float64 or float32.")
    ] = "float64",
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, rich_help_panel=_FOLDER, show_default=False,
            help="So many processes of this machine.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="URL", rich_help_panel=_FOLDER, show_default=False,
            help="The address of a dask scheduler, tcp://host:8786.",
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file (or the folder).")] = False,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """The exact kernel of a DEQ on your data, written to a file.

    Example: notsodeep kernel X.csv --label-column species --save K.npy

    Example: notsodeep kernel digits --activation relu --ntk --save relu-ntk.npy

    Example: notsodeep kernel mnist --out mnist.zarr --storage float32

    Example: notsodeep kernel cifar10 --samples 200 --model conv --ntk
    """
    from notsodeep.data.table_files import check_writable
    from notsodeep.validation import one_of

    conv = one_of(kind, ("rows", "conv"), "--model") == "conv"
    model = options.chosen_model(conv, activation, sigma_a2, readout=readout, filter_size=filter_size)
    _check_options(out, workers, scheduler, {"--max-memory": max_memory, "--storage": storage})
    if out is None:
        check_writable(new_path(save, overwrite))
    start = time.perf_counter()
    rows, record = (_images if conv else _rows)(data, whole=out is None, quiet=as_json)
    if out is None:
        target = save
        matrix, info = _in_memory(model, rows, tangent, depth, target)
    else:
        target, client = out, workers if scheduler is None else scheduler
        how = {"out": out, "client": client, "max_memory": max_memory, "storage": storage}
        matrix, info = _on_disk(model, rows, tangent, depth, overwrite, how)
    facts = {
        "model": str(model), "kernel": "ntk" if tangent else "ck", "depth": depth, "shape": list(matrix.shape),
        "seconds": round(time.perf_counter() - start, 3), "iterations": info.iterations,
        "error_bound": info.error_bound, "file": str(target), "data": record,
    }  # fmt: skip
    if out is not None:
        facts |= {"storage": storage, "repaired": [list(cell) for cell in matrix.repaired]}
    if as_json:
        print_json(facts)
    else:
        _print_facts(facts)


def _print_facts(facts: dict[str, Any]) -> None:
    if facts.get("repaired"):
        say(f"{len(facts['repaired'])} blocks were missing or damaged and have been computed again.")
    size = " × ".join(map(str, facts["shape"]))
    console.print(
        f"{facts['kernel'].upper()} of {facts['model']}: {size} in {facts['seconds']:.2f} s, error below "
        f"{facts['error_bound']:.0e}, written to [bold]{facts['file']}[/]",
        highlight=False,
    )


def _in_memory(model: Any, rows: Any, tangent: bool, depth: int | None, target: Path) -> tuple[Any, Any]:
    from notsodeep.data.table_files import write_table
    from notsodeep.kernels import conjugate_kernel, tangent_kernel
    from notsodeep.progress import progress_bar

    compute = tangent_kernel if tangent else conjugate_kernel
    with progress_bar(f"{len(rows)} × {len(rows)} pairs") as report:
        matrix, info = compute(model, rows, depth=depth, return_info=True, progress=report)
    write_table(target, matrix)
    return matrix, info


def _on_disk(
    model: Any, rows: Any, tangent: bool, depth: int | None, overwrite: bool, how: dict[str, Any]
) -> tuple[Any, Any]:
    from notsodeep.kernels import conjugate_kernel, tangent_kernel
    from notsodeep.progress import progress_bar
    from notsodeep.scale.store import remove_store

    if overwrite and how["out"].exists():
        remove_store(how["out"])
    compute = tangent_kernel if tangent else conjugate_kernel
    with progress_bar(f"{rows.shape[0]} × {rows.shape[0]} pairs") as report:
        matrix, info = compute(model, rows, depth=depth, return_info=True, progress=report, **how)
    return matrix, info


def _rows(data: Data, *, whole: bool, quiet: bool) -> tuple[Any, dict[str, Any]]:
    """The rows, and what is known of them; unscaled ones stay in their file where that and the kernel allow it."""
    stays = Path(data.source).suffix in (".npy", ".zarr") and data.n is None and data.label_column is None
    if not whole and stays and data.scale == "none":
        from notsodeep.scale.sample_sources import open_rows

        rows = open_rows(data.source)
        return rows, {"source": data.source, "n": rows.shape[0], "scale": "none"}
    samples = data.samples()
    if not quiet:
        say_notes(data, samples)
    return samples.rows, data_record(data, samples)


def _images(data: Data, *, whole: bool, quiet: bool) -> tuple[Any, dict[str, Any]]:
    """Images of a file or of a data set by name; those that are scaled have |x(s)|² = 1 on average over positions."""
    from notsodeep.data import Preprocessing
    from notsodeep.data.datasets import as_images, parse_spec

    if Path(data.source).suffix not in (".npy", ".zarr"):
        samples = data.samples()
        if not quiet:
            say_notes(data, samples)
        images, record = as_images(parse_spec(data.source)[0], samples.rows), data_record(data, samples)
        scaled = data.scale != "none"
    else:
        from notsodeep.scale.sample_sources import open_rows

        file = open_rows(data.source)
        record = {"source": data.source, "n": data.n or file.shape[0], "scale": data.scale}
        if data.scale == "none" and not whole and data.n is None:
            return file, record
        images, scaled = file.read(slice(0, data.n)), False
        if data.scale != "none" and images.ndim > 2:
            flat = images.reshape(len(images), -1)
            images = np.asarray(Preprocessing.named(data.scale, flat).apply(flat), np.float64).reshape(
                images.shape
            )
            scaled = True
    return images * float(np.prod(images.shape[2:])) ** 0.5 if scaled else images, record


def _check_options(
    out: Path | None, workers: int | None, scheduler: str | None, others: dict[str, str | None]
) -> None:
    if workers is not None and scheduler is not None:
        raise InputError(
            "--workers starts processes here, --scheduler uses those of a cluster: give one of them."
        )
    given = {"--workers": workers, "--scheduler": scheduler, **others}
    lost = [name for name, value in given.items() if value is not None and value != "float64"]
    if out is None and lost:
        raise InputError(f"{' and '.join(lost)}: for kernels that go to a folder. Add --out G.zarr.")
