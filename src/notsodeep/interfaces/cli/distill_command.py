"""`notsodeep distill`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.files import atomic_write, new_path
from notsodeep.interfaces.cli import options
from notsodeep.interfaces.cli.common import app, errors, print_json, say, say_notes

if TYPE_CHECKING:
    from notsodeep.interfaces.scenario import Data

# The names under which a file has its arrays; b and readout_bias may be missing.
_NAMES = ("W", "U", "b", "readout", "readout_bias")


@app.command()
@options.takes_data("digits", n=None, samples_help="How many rows, without labels; all if not given.")
def distill(
    data: Data,
    weights: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Weights of the trained DEQ, .pt or .npz: W, U, b, readout, readout_bias."
        ),
    ],
    activation: options.Activation = "tanh",
    until: Annotated[
        float, typer.Option(metavar="SHARE", help="Wanted share of rows with the same class.")
    ] = 0.99,
    width: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, help="Units of the student; the DEQ's if not given.", show_default=False
        ),
    ] = None,
    epochs: Annotated[
        int, typer.Option(metavar="N", min=0, help="Passes over the rows that fit all weights.")
    ] = 8,
    seed_of_fit: Annotated[
        int, typer.Option("--fit-seed", metavar="N", min=0, help="Of the split and the shuffling.")
    ] = 0,
    checkpoint: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="File from which an interrupted run goes on.", show_default=False),
    ] = None,
    save: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the student's weights, .pt.", show_default=False),
    ] = None,
    onnx: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the student as ONNX.", show_default=False)
    ] = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """A trained DEQ into a few explicit steps that give the same answers.

    FILE holds the weights of z = φ(W z + U x + b), outputs readout z +
    readout_bias: torch.save({"W": W, "U": U, "b": b, "readout": R}, "deq.pt"), or
    np.savez. Rows are given as the DEQ was trained on them: --scale none if it saw
    them as they are. No labels are needed.

    Example: notsodeep distill deq.pt --activation relu --data X.csv --scale none

    Exit code 0: the wanted share was reached; 3: it was not, and the most faithful
    student is given.
    """
    needed("torch", "distill")
    for path in (save, onnx):
        if path is not None:
            new_path(path, overwrite)
    if onnx is not None:
        needed("onnxruntime", "--onnx")
    import torch

    from notsodeep.nets import distill as distil

    teacher = trained_network(weights, activation)
    samples = data.samples()
    found = distil(
        teacher,
        samples.rows,
        width=width,
        until=until,
        epochs=epochs,
        seed=seed_of_fit,
        checkpoint=checkpoint,
        progress=True,
    )
    if as_json:
        print_json(_record(found), indent=2)
    else:
        say_notes(data, samples)
        say(found.explain())
    if save is not None:
        with atomic_write(save) as temporary:
            torch.save(found.network.state_dict(), temporary)
        say(f"weights of the student: {save}", errors)
    if onnx is not None:
        if overwrite:
            onnx.unlink(missing_ok=True)
        say(f"ONNX: {found.export(onnx)}", errors)
    if not found.reached:
        raise typer.Exit(3)


def trained_network(weights: Path, activation: str) -> Any:
    """The DEQ whose weights a file holds."""
    import torch

    from notsodeep.interfaces.scenario import read_activation
    from notsodeep.nets import DEQNet

    arrays = _read(weights)
    readout: Any = arrays["readout"]
    if "readout_bias" in arrays:
        linear = torch.nn.Linear(readout.shape[1], readout.shape[0]).to(readout)
        linear.weight.data, linear.bias.data = readout, arrays["readout_bias"].to(readout)
        readout = linear
    return DEQNet.from_weights(
        arrays["W"], arrays["U"], arrays.get("b"), read_activation(activation), readout
    )


def _read(path: Path) -> dict[str, Any]:
    """The arrays of a file as tensors; nothing in it is executed."""
    import numpy as np
    import torch

    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as content:
                arrays = {name: torch.from_numpy(content[name]) for name in content.files}
        else:
            arrays = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(f"{path} cannot be read as weights (.pt or .npz): {reason}") from error
    if not isinstance(arrays, dict):
        raise InputError(
            f"{path} holds a {type(arrays).__name__}; a dict of arrays W, U, b, readout is needed."
        )
    missing = [name for name in ("W", "U", "readout") if name not in arrays]
    unknown = [str(name) for name in arrays if name not in _NAMES]
    if missing or unknown:
        raise InputError(
            f"{path} must have the arrays W, U, readout and, where there are any, b and readout_bias, of "
            f"z = φ(W z + U x + b). Missing: {', '.join(missing) or 'none'}; "
            f"unknown: {', '.join(unknown[:5]) or 'none'}."
        )
    return arrays


def _record(found: Any) -> dict[str, Any]:
    """Everything that is printed, for JSON."""
    rows = [{"name": one.name, "kind": one.kind, **_numbers(one.fidelity)} for one in found.front]
    chosen = {"name": found.name, "reached": found.reached, "until": found.until, **_numbers(found.fidelity)}
    return {
        "student": chosen,
        "expected_disagreement": found.expected_disagreement,
        "left_out": found.left_out,
        "front": rows,
    }


def _numbers(fidelity: Any) -> dict[str, Any]:
    return {
        "rows": fidelity.rows,
        "agreement": fidelity.agreement,
        "interval": fidelity.interval,
        "relative_error": fidelity.relative_error,
        "milliseconds": fidelity.milliseconds,
        "teacher_milliseconds": fidelity.teacher_milliseconds,
    }
