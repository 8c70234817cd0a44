"""`notsodeep kernel` and `design`: a kernel, and a shallow network that matches it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.cli import options
from notsodeep.cli.common import (
    app,
    check_outputs,
    console,
    data_record,
    errors,
    print_json,
    save_figure,
    say,
    say_notes,
)
from notsodeep.errors import InputError
from notsodeep.files import atomic_write, new_path
from notsodeep.progress import progress_bar
from notsodeep.validation import one_of

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data

_LARGE = "Large kernels"
# Kernel error up to which an injected network counts as a match.
_CLOSE = 0.01


@app.command()
@options.takes_data(required=True)
def kernel(
    data: Data,
    save: Annotated[Path, options.option("FILE", "File to write the kernel to: .npy, .npz or .csv.")] = Path(
        "kernel.npy"
    ),
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    kernel: options.KernelName = "ck",
    kind: options.ModelKind = "rows",
    readout: options.Readout = None,
    filter_size: options.FilterSize = None,
    depth: Annotated[int | None, options.optional("N", "Number of layers; infinite by default.")] = None,
    out: Annotated[
        Path | None,
        options.optional(
            "DIR",
            "Folder (G.zarr) to write the kernel to, block by block, instead of --save. Repeat an interrupted "
            "command to continue. With --scale none, rows of .npy and .zarr files are not loaded into memory.",
            rich_help_panel=_LARGE,
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        options.optional(
            "SIZE",
            "Memory of the process, such as 4GB; by default half of what is free.",
            rich_help_panel=_LARGE,
        ),
    ] = None,
    storage: Annotated[
        str, options.option("TYPE", "float64 or float32.", rich_help_panel=_LARGE)
    ] = "float64",
    workers: Annotated[
        int | None,
        options.optional("N", "Number of processes on this machine.", min=1, rich_help_panel=_LARGE),
    ] = None,
    scheduler: Annotated[
        str | None,
        options.optional(
            "URL", "Address of a dask scheduler, such as tcp://host:8786.", rich_help_panel=_LARGE
        ),
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Compute the exact kernel of a DEQ on your data and write it to a file.

    Example: notsodeep kernel X.csv --label-column species --save K.npy

    Example: notsodeep kernel digits --kernel ntk --save relu-ntk.npy

    Example: notsodeep kernel mnist --out mnist.zarr --storage float32

    Example: notsodeep kernel cifar10 --n 200 --model conv --kernel ntk
    """
    from notsodeep.data.table_files import WRITTEN, check_extension, write_table
    from notsodeep.kernel_names import as_kernel
    from notsodeep.models import as_model
    from notsodeep.scale import open_rows
    from notsodeep.scale.compute import ComputeOptions, compute_kernels
    from notsodeep.scale.store import remove_store

    conv = one_of(kind, ("rows", "conv"), "--model") == "conv"
    model = options.chosen_model(conv, activation, sigma_a2, readout=readout, filter_size=filter_size)
    name = as_kernel(kernel)
    if workers is not None and scheduler is not None:
        raise InputError("--workers starts processes here, --scheduler uses a cluster: give one of them.")
    if out is None:
        check_extension(new_path(save, overwrite), WRITTEN)
    start = time.perf_counter()
    in_file = Path(data.source).suffix in (".npy", ".zarr") and data.n is None and data.label_column is None
    if out is not None and in_file and data.scale == "none":
        # Blocks are computed from rows that stay in their file.
        rows: Any = open_rows(data.source)
        record: dict[str, Any] = {"source": data.source, "n": rows.shape[0], "scale": "none"}
    else:
        samples = data.images() if conv else data.samples()
        rows, record = samples.X, data_record(data, samples)
        if not as_json:
            say_notes(data, samples)
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


@app.command()
@options.takes_data()
def design(
    data: Data | None,
    activation: options.Activation = options.ACTIVATION,
    sigma_a2: options.Variance = 0.2,
    tau0: Annotated[
        float | None, options.optional("NUMBER", "Norm of a typical input; 1, or that of the data.")
    ] = None,
    kernel: Annotated[str, options.option("NAME", "Kernel to match: ck, ntk, ntk_paper or both.")] = "ck",
    family: Annotated[
        str, options.option("NAME", "auto, papers, hard_tanh, leaky_relu, polynomial, quadratic or injected.")
    ] = "auto",
    save: Annotated[Path | None, options.optional("FILE", "Write the design as JSON.")] = None,
    figure: options.Figure = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Design the shallow explicit network with the kernel of a DEQ, or say why none exists.

    Without data, the design matches the four numbers that determine the kernel in
    high dimension. With data, the kernel error is measured on them, next to plain
    networks with the DEQ's own activation; auto then also tries injected networks
    (two or three layers of the DEQ's activation that see the input again), fitted
    to the data, and uses one if it is closer.

    Example: notsodeep design --activation relu --data digits

    Example: notsodeep design --data X.csv --label-column diagnosis

    Exit code 0: the four numbers agree, or the kernel error of an injected network
    is below 1 %; 3: this family has no match, and the closest network is printed.
    """
    check_outputs(overwrite, save, figure=figure)
    from notsodeep.cli.scenario import read_model
    from notsodeep.designs import INJECTED_IN_WORDS, twin_distances
    from notsodeep.designs import design as find_design

    model = read_model(activation, sigma_a2)
    with progress_bar("designing the network"):
        samples = None if data is None else data.dense_samples()
        if tau0 is None:
            tau0 = 1.0 if samples is None else samples.tau0
        # What a network is fitted to says nothing about how close it is: every other sample is held out.
        fitted = samples is not None and family in ("auto", "injected") and kernel != "ntk_paper"
        rows = samples.X[::2] if samples is not None and fitted else None
        result = find_design(model, tau0, kernel, family, X=rows)
        kernels, distances = ("ck", "ntk") if kernel == "both" else (kernel,), []
        if samples is not None:
            others = samples.X[1::2] if result.fitted_to else samples.X
            distances = [twin_distances(result, others, one) for one in kernels]
    if as_json:
        content = json.loads(result.to_json())
        if data is not None and samples is not None:
            content = {"design": content, "data": data_record(data, samples)}
            content["measured"] = [one.to_dict() for one in distances]
        print_json(content, indent=2)
    else:
        if data is not None and samples is not None:
            say_notes(data, samples)
        say(str(result))
        if not (distances and result.exact):  # the errors on the data say more
            say(result.explain())
        for one in distances:
            say(str(one))
        if result.misfit is not None:
            say(INJECTED_IN_WORDS)
    if save is not None:
        with atomic_write(save) as temporary:
            temporary.write_text(result.to_json(), encoding="utf-8")
        say(f"Design: {save}", errors)
    if figure is not None:
        from notsodeep.figures import plot_design

        drawn = None if samples is None else samples.X
        save_figure(lambda axes: plot_design(result, axes, drawn), figure)
    if not result.exact and (result.misfit is None or result.misfit > _CLOSE):
        raise typer.Exit(3)
