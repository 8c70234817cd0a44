"""`notsodeep kernel`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.cli import options
from notsodeep.cli.common import app, console, data_record, print_json, say, say_notes
from notsodeep.errors import InputError
from notsodeep.files import new_path

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data

_LARGE = "Large kernels"


@app.command()
@options.takes_data(required=True)
def kernel(
    data: Data,
    save: Annotated[
        Path, typer.Option(metavar="FILE", help="File to write the kernel to: .npy, .npz or .csv.")
    ] = Path("kernel.npy"),
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    kernel: options.KernelName = "ck",
    kind: options.ModelKind = "rows",
    readout: options.Readout = None,
    filter_size: options.FilterSize = None,
    depth: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of layers; infinite by default.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", rich_help_panel=_LARGE, show_default=False,
            help="Folder (G.zarr) to write the kernel to, block by block, instead of --save. Repeat an interrupted "
            "command to continue. With --scale none, rows of .npy and .zarr files are not loaded into memory.",
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", rich_help_panel=_LARGE, show_default=False,
            help="Memory of the process, such as 4GB; by default half of what is free.",
        ),
    ] = None,
    storage: Annotated[
        str, typer.Option(metavar="TYPE", rich_help_panel=_LARGE, help="float64 or float32.")
    ] = "float64",
    workers: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, rich_help_panel=_LARGE, show_default=False,
            help="Number of processes on this machine.",
        ),
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="URL", rich_help_panel=_LARGE, show_default=False,
            help="Address of a dask scheduler, such as tcp://host:8786.",
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:  # fmt: skip
    """Compute the exact kernel of a DEQ on your data and write it to a file.

    Example: notsodeep kernel X.csv --label-column species --save K.npy

    Example: notsodeep kernel digits --kernel ntk --save relu-ntk.npy

    Example: notsodeep kernel mnist --out mnist.zarr --storage float32

    Example: notsodeep kernel cifar10 --n 200 --model conv --kernel ntk
    """
    from notsodeep.data.table_files import WRITTEN, check_extension, write_table
    from notsodeep.kernel_names import as_kernel
    from notsodeep.models import as_model
    from notsodeep.progress import progress_bar
    from notsodeep.scale.compute import ComputeOptions, compute_kernels
    from notsodeep.scale.store import remove_store
    from notsodeep.validation import one_of

    conv = one_of(kind, ("rows", "conv"), "--model") == "conv"
    model = options.chosen_model(conv, activation, sigma_a2, readout=readout, filter_size=filter_size)
    name = as_kernel(kernel)
    if workers is not None and scheduler is not None:
        raise InputError("--workers starts processes here, --scheduler uses a cluster: give one of them.")
    if out is None:
        check_extension(new_path(save, overwrite), WRITTEN)
    start = time.perf_counter()
    rows, record = _samples(data, conv, streamed=out is not None, quiet=as_json)
    if overwrite and out is not None and out.exists():
        remove_store(out)
    with progress_bar(f"{rows.shape[0]} × {rows.shape[0]} kernel") as report:
        how = ComputeOptions(out, scheduler or workers, max_memory, storage, progress=report)
        (matrix,), info = compute_kernels(as_model(model, depth), rows, None, (name,), how)
    if out is None:
        write_table(save, matrix)
    facts = {
        "model": str(model), "kernel": str(name), "depth": depth, "shape": list(matrix.shape),
        "seconds": round(time.perf_counter() - start, 3), "iterations": info.iterations,
        "error_bound": info.error_bound, "file": str(save if out is None else out), "data": record,
    }  # fmt: skip
    if out is not None:
        facts |= {"storage": storage, "repaired": [list(cell) for cell in matrix.repaired]}
    if as_json:
        print_json(facts)
        return
    if facts.get("repaired"):
        say(f"{len(matrix.repaired)} blocks were missing or damaged and have been computed again.")
    size = " × ".join(map(str, matrix.shape))
    console.print(
        f"{name.upper()} of {model}: {size} in {facts['seconds']:.2f} s, error below {info.error_bound:.0e}, written "
        f"to [bold]{facts['file']}[/]",
        highlight=False,
    )


def _samples(data: Data, conv: bool, *, streamed: bool, quiet: bool) -> tuple[Any, dict[str, Any]]:
    """Read the samples and their record; unscaled ones stay in their .npy or .zarr file if the kernel is streamed."""
    in_file = Path(data.source).suffix in (".npy", ".zarr") and data.n is None and data.label_column is None
    if streamed and in_file and data.scale == "none":
        from notsodeep.scale.sample_sources import open_rows

        rows = open_rows(data.source)
        return rows, {"source": data.source, "n": rows.shape[0], "scale": "none"}
    samples = data.images() if conv else data.samples()
    if not quiet:
        say_notes(data, samples)
    return samples.rows, data_record(data, samples)
