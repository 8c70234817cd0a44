"""`notsodeep kernel`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from notsodeep.cli.common import app, console, read_rows, spinner
from notsodeep.files import free_path, written_whole


@app.command()
def kernel(
    data: Annotated[
        str, typer.Argument(help="A .npy or .csv file with samples in rows, or a name: digits, mnist:6,8, …")
    ],
    save: Annotated[Path, typer.Option(help="Where the kernel goes (.npy).")] = Path("kernel.npy"),
    activation: Annotated[str, typer.Option(help="tanh, relu, swish, gelu, …")] = "tanh",
    sigma_a2: Annotated[float, typer.Option("--sigma-a2", help="Variance of the recurrent weights.")] = 0.2,
    tangent: Annotated[
        bool, typer.Option("--ntk", help="The neural tangent kernel instead of the conjugate one.")
    ] = False,
    depth: Annotated[
        int | None, typer.Option(help="Cut after this many layers; infinite if not given.")
    ] = None,
    samples: Annotated[int | None, typer.Option(help="Use only so many rows.")] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data sets (or NOTSODEEP_DATA).")
    ] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace the file if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the evidence as JSON.")] = False,
) -> None:
    """The exact kernel of a DEQ on your data, written to a file.

    Example: notsodeep kernel digits --activation relu --ntk --save relu-ntk.npy
    """
    import json

    import numpy as np

    from notsodeep.kernels import conjugate_kernel, tangent_kernel
    from notsodeep.models import DEQ

    model = DEQ(activation, sigma_a2)
    rows = read_rows(data, samples, data_dir)
    target = free_path(save if save.suffix == ".npy" else save.with_suffix(".npy"), overwrite)
    start = time.perf_counter()
    with spinner() as progress:
        progress.add_task(f"{len(rows)} × {len(rows)} pairs")
        compute = tangent_kernel if tangent else conjugate_kernel
        matrix, info = compute(model, rows, depth=depth, return_info=True)
    seconds = time.perf_counter() - start
    with written_whole(target) as temporary:
        np.save(temporary, matrix, allow_pickle=False)
    facts = {
        "model": str(model), "kernel": "ntk" if tangent else "ck", "depth": depth, "shape": list(matrix.shape),
        "seconds": round(seconds, 3), "iterations": info.iterations, "error_bound": info.error_bound,
        "file": str(target),
    }  # fmt: skip
    if as_json:
        sys.stdout.write(json.dumps(facts) + "\n")
    else:
        console.print(
            f"{facts['kernel'].upper()} of {model}: {len(rows)} × {len(rows)} in {seconds:.2f} s, error below "  # type: ignore[union-attr]
            f"{info.error_bound:.0e}, written to [bold]{target}[/]",
            highlight=False,
        )
