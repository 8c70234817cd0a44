"""`notsodeep distill`."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from notsodeep.cli import options
from notsodeep.cli.common import app, check_outputs, errors, print_json, save_figure, say, say_notes
from notsodeep.errors import InputError
from notsodeep.extras import needed
from notsodeep.files import atomic_write

if TYPE_CHECKING:
    from notsodeep.cli.scenario import Data

_NEEDED = ("W", "U", "readout")
# Names of the arrays in a file, and in the state of a module with parts W, U and readout: torch.save(net.state_dict()).
_OF_MODULES = {
    "W": ("W.weight",),
    "U": ("U.weight",),
    "b": ("U.bias", "W.bias"),
    "readout": ("readout.weight",),
    "readout_bias": ("readout.bias",),
}
# Keys under which checkpoints of a training keep the state of the module.
_INSIDE = ("state_dict", "model_state_dict", "model")


@app.command()
@options.takes_data("digits", after_weights=True)
def distill(
    data: Data,
    weights: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="Weights of the trained DEQ, .pt or .npz: W, U, b, readout, readout_bias."
        ),
    ],
    activation: options.Activation = options.ACTIVATION,
    target_agreement: Annotated[
        float, options.option("SHARE", "Share of samples that must get the same class.")
    ] = 0.99,
    epochs: Annotated[
        int, options.option("N", "Training epochs of each candidate; 0: closed forms only.", min=0)
    ] = 8,
    batch_size: Annotated[
        int, options.option("N", "Samples per forward pass at which times are measured.", min=1)
    ] = 256,
    seconds: Annotated[
        float | None, options.optional("S", "About how long it may take; fits are then shorter.")
    ] = None,
    save: Annotated[Path | None, options.optional("FILE", "Write the network's weights, .pt.")] = None,
    onnx: Annotated[Path | None, options.optional("FILE", "Write the network as ONNX.")] = None,
    figure: options.Figure = None,
    overwrite: options.Overwrite = False,
    as_json: options.Json = False,
) -> None:
    """Replace a trained DEQ by a fast explicit network that gives the same answers.

    FILE holds the weights of z = φ(W z + U x + b), outputs readout z +
    readout_bias: torch.save({"W": W, "U": U, "b": b, "readout": R}, "deq.pt"), or
    np.savez; or the state of a module with parts W, U and readout. Nothing in it
    is executed. Samples are used as they are, unless --scale says otherwise. Use
    held-out samples; no labels are needed.

    Example: notsodeep distill deq.pt X.csv --activation relu

    Example: notsodeep distill deq.npz --data X.npy --target-agreement 0.999

    Exit code 0: the network reaches the target with 95 % certainty; 3: none does,
    and the most faithful one is given. notsodeep verdict judges by the same result.
    """
    needed("torch", "distill")
    check_outputs(overwrite, save, onnx, figure=figure)
    if onnx is not None:
        needed("onnxruntime", "--onnx")
    import torch

    from notsodeep.distillation import distill as distil

    data = data.for_weights()
    teacher = trained_network(weights, activation)
    samples = data.samples()
    result = distil(
        teacher,
        samples.X,
        target_agreement=target_agreement,
        epochs=epochs,
        batch_size=batch_size,
        seed=data.seed,
        seconds=seconds,
        progress=True,
    )
    if as_json:
        rows = result.rows()
        chosen = next(row for row in rows if row["chosen"])
        print_json(
            {
                "chosen": chosen | {"certain": result.certain},
                "target_agreement": target_agreement,
                "unusable_share": result.unusable_share,
                "candidates": rows,
            },
            indent=2,
        )
    else:
        say_notes(data, samples)
        say(result.explain())
    if save is not None:
        # Written through memory: of a full disk torch would speak in words of its own.
        content = io.BytesIO()
        torch.save(result.network.state_dict(), content)
        with atomic_write(save) as temporary:
            temporary.write_bytes(content.getvalue())
        say(f"weights: {save}", errors)
    if onnx is not None:
        say(f"ONNX: {result.export(onnx, overwrite=overwrite)}", errors)
    if figure is not None:
        save_figure(result.plot, figure)
    if not result.certain:
        raise typer.Exit(3)


def trained_network(weights: Path | None, activation: str) -> Any:
    """Read the weights of a DEQ from a file."""
    if weights is None:
        raise InputError("Give the file of weights first, then the data: notsodeep distill deq.pt X.csv")
    from notsodeep.cli.scenario import read_activation
    from notsodeep.nets import DEQNet

    arrays = _read(weights)
    readout: Any = arrays["readout"]
    if "readout_bias" in arrays and readout.ndim == 2:
        readout = readout, arrays["readout_bias"]
    return DEQNet.from_weights(
        arrays["W"], arrays["U"], arrays.get("b"), read_activation(activation), readout
    )


def _read(path: Path) -> dict[str, Any]:
    """Read the arrays of a file as tensors, under our names; nothing in it is executed."""
    import numpy as np
    import torch

    arrays: Any
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as content:
                arrays = {name: torch.from_numpy(content[name]) for name in content.files}
        else:
            arrays = torch.load(path, map_location="cpu", weights_only=True)
    # Damage has no common type.
    except Exception as error:
        objects = "; it may hold Python objects, which are not read" if zipfile.is_zipfile(path) else ""
        raise InputError(
            f"{path} is not a .pt or .npz file of weights{objects}.\nWrite one with "
            "torch.save({'W': W, 'U': U, 'b': b, 'readout': R}, 'deq.pt') or numpy.savez."
        ) from error
    if not isinstance(arrays, dict):
        raise InputError(
            f"{path} holds a {type(arrays).__name__}; a dict of arrays W, U, b, readout is needed."
        )
    inside = next((arrays[key] for key in _INSIDE if isinstance(arrays.get(key), dict)), arrays)
    tensors = {str(key): value for key, value in inside.items() if isinstance(value, torch.Tensor)}
    return _named(tensors, path)


def _named(tensors: dict[str, Any], path: Path) -> dict[str, Any]:
    """Rename arrays: those that have our names, and those of module parts."""
    named = {}
    for ours, theirs in _OF_MODULES.items():
        present = [name for name in (ours, *theirs) if name in tensors]
        if len(present) > 1:
            raise InputError(
                f"{path} has {' and '.join(present)}. If both are added, save their sum as {ours}."
            )
        if present:
            named[ours] = tensors[present[0]]
    missing = [ours for ours in _NEEDED if ours not in named]
    unknown = [key for key, value in tensors.items() if not any(value is one for one in named.values())]
    if missing or unknown:
        shapes = [f"{key} {tuple(tensors[key].shape)}" for key in unknown]
        raise InputError(
            f"{path} must have the arrays W (units, units), U (units, inputs), readout (outputs, units) and, where "
            "there are any, b and readout_bias, of z = φ(W z + U x + b). "
            f"Missing: {', '.join(missing) or 'none'}; not used: {', '.join(shapes[:8]) or 'none'}. "
            "Save them under these names: torch.save({'W': …, 'U': …, 'readout': …}, 'deq.pt')."
        )
    return named
