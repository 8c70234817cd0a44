"""`notsodeep kernel`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from notsodeep.errors import InputError
from notsodeep.files import atomic_write, free_path
from notsodeep.interfaces.cli import options
from notsodeep.interfaces.cli.common import app, console, print_json, say


@app.command()
def kernel(
    data: Annotated[
        str,
        typer.Argument(
            help="A .npy, .csv or .zarr file with samples in rows, or a name: digits, mnist, mnist:6,8, …"
        ),
    ],
    save: Annotated[Path, typer.Option(help="Where the kernel goes (.npy).")] = Path("kernel.npy"),
    activation: options.Activation = "tanh",
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
    readout: Annotated[
        str | None, typer.Option(help="With --model conv: flatten (the default) or pool, over all positions.")
    ] = None,
    filter_size: Annotated[
        int | None, typer.Option(help="With --model conv: taps of a filter along each axis; 3 if not given.")
    ] = None,
    depth: Annotated[
        int | None, typer.Option(help="Cut after this many layers; infinite if not given.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Use only so many rows.")] = None,
    data_dir: options.DataDir = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A folder (G.zarr) that the kernel goes to block by block, instead of --save: for kernels larger "
            "than memory. The same command goes on where it was stopped."
        ),
    ] = None,
    max_memory: Annotated[
        str | None,
        typer.Option(help="With --out: what the process may hold, 4GB. Half of what is free if not given."),
    ] = None,
    storage: Annotated[str, typer.Option(help="With --out: float64 or float32.")] = "float64",
    workers: Annotated[
        int | None, typer.Option(min=1, help="With --out: so many processes of this machine.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="With --out: the address of a dask scheduler, tcp://host:8786.")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace the file (or start the folder anew).")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the evidence as JSON.")] = False,
) -> None:
    """The exact kernel of a DEQ on your data, written to a file.

    Example: notsodeep kernel digits --activation relu --ntk --save relu-ntk.npy

    Example: notsodeep kernel mnist --out mnist.zarr --storage float32 --max-memory 4GB

    Example: notsodeep kernel cifar10 --samples 200 --model conv --activation relu --ntk
    """
    model = _model(kind, activation, sigma_a2, {"readout": readout, "filter_size": filter_size})
    _check_options(out, workers, scheduler, {"--max-memory": max_memory, "--storage": storage})
    start = time.perf_counter()
    rows = (_rows if kind == "rows" else _images)(data, samples, data_dir, whole=out is None)
    if out is None:
        target = free_path(save if save.suffix == ".npy" else save.with_suffix(".npy"), overwrite)
        matrix, info = _in_memory(model, rows, tangent, depth, target)
    else:
        target, client = out, workers if scheduler is None else scheduler
        how = {"out": out, "client": client, "max_memory": max_memory, "storage": storage}
        matrix, info = _on_disk(model, rows, tangent, depth, overwrite, how)
    facts = {
        "model": str(model), "kernel": "ntk" if tangent else "ck", "depth": depth, "shape": list(matrix.shape),
        "seconds": round(time.perf_counter() - start, 3), "iterations": info.iterations,
        "error_bound": info.error_bound, "file": str(target),
    }  # fmt: skip
    if out is not None:
        facts |= {"storage": storage, "repaired": [list(cell) for cell in matrix.repaired]}
    if as_json:
        print_json(facts)
    else:
        _print_facts(facts)


def _model(kind: str, activation: str, sigma_a2: float, geometry: dict[str, Any]) -> Any:
    from notsodeep.interfaces.scenario import read_activation
    from notsodeep.models import DEQ, ConvDEQ
    from notsodeep.validation import one_of

    given = {name: value for name, value in geometry.items() if value is not None}
    if one_of(kind, ("rows", "conv"), "--model") == "conv":
        return ConvDEQ(read_activation(activation), sigma_a2, **given)
    if given:
        options_given = " and ".join("--" + name.replace("_", "-") for name in given)
        raise InputError(f"{options_given}: for convolutional models. Add --model conv.")
    return DEQ(read_activation(activation), sigma_a2)


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
    import numpy as np

    from notsodeep.kernels import conjugate_kernel, tangent_kernel
    from notsodeep.progress import progress_bar

    compute = tangent_kernel if tangent else conjugate_kernel
    with progress_bar(f"{len(rows)} × {len(rows)} pairs") as report:
        matrix, info = compute(model, rows, depth=depth, return_info=True, progress=report)
    with atomic_write(target) as temporary:
        np.save(temporary, matrix, allow_pickle=False)
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


def _rows(data: str, samples: int | None, data_dir: Path | None, *, whole: bool) -> Any:
    """Rows of a file or a data set; unless they are wanted whole, in their file where that allows it."""
    from notsodeep.interfaces.scenario import read_rows

    suffix = Path(data).suffix
    if suffix != ".zarr" and (suffix != ".npy" or whole or samples is not None):
        return read_rows(data, samples, data_dir)
    from notsodeep.scale.sample_sources import open_rows

    rows = open_rows(data)
    return rows.read(slice(0, samples)) if whole or samples is not None else rows


def _images(data: str, samples: int | None, data_dir: Path | None, *, whole: bool) -> Any:
    """Images of a file as they are, or of a data set by name, centred and scaled to |x(s)|² = 1 on average."""
    if Path(data).suffix in (".npy", ".zarr"):
        from notsodeep.scale.sample_sources import open_rows

        rows = open_rows(data)
        return rows.read(slice(0, samples)) if whole or samples is not None else rows
    from notsodeep.data.datasets import as_images, parse_spec
    from notsodeep.interfaces.scenario import read_rows

    images = as_images(parse_spec(data)[0], read_rows(data, samples, data_dir))
    return images * (images.shape[2] * images.shape[3]) ** 0.5


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
