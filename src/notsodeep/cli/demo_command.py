"""`notsodeep demo`: kernels, equivalents, twins and training on handwritten digits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from notsodeep.cli import options
from notsodeep.cli.common import app, console, errors, save_figure, say
from notsodeep.errors import MissingExtraError
from notsodeep.extras import needed
from notsodeep.files import new_path
from notsodeep.progress import progress_bar

_WIDTH, _EPOCHS = 512, 10
# Ridge of the kernel classifiers; the diagonal of the kernels is about 0.4.
_RIDGE = 0.004


@app.command()
def demo(
    n: Annotated[
        int, options.option("N", "Number of digits to take kernels of.", "--n", min=20, max=1437)
    ] = 1437,
    sigma_a2: options.Variance = 0.2,
    train: Annotated[bool, typer.Option(help="Train a DEQ, its twin and a plain network.")] = True,
    figure: Annotated[Path, options.option("FILE", "File of the figure (png, svg or pdf).")] = Path(
        "notsodeep-demo.png"
    ),
    overwrite: options.Overwrite = False,
) -> None:
    """Show what notsodeep does, on scikit-learn's digits, in half a minute.

    A deep equilibrium model, its explicit twin with nearly the same kernel, and
    plain networks: as kernel classifiers with exact kernels, and as trained
    networks, with accuracy and speed.

    Example: notsodeep demo --n 200 --no-train
    """
    from notsodeep.data import Preprocessing, load
    from notsodeep.designs import design
    from notsodeep.models import DEQ
    from notsodeep.validation import root_mean_square_norm

    path = new_path(figure, overwrite)
    digits, test = load("digits", n=n), load("digits", split="test")
    scaling = Preprocessing.fit(digits.X)
    parts: list[Any] = [scaling.apply(one.X) for one in (digits, test)]
    rows, test_rows = parts
    say(
        f"{n} digits of {rows.shape[1]} pixels; the ReLU DEQ z = φ(σ_a A z + σ_b B x)/√m, σ_a² = {sigma_a2:g}, "
        f"σ_b² = {1 - sigma_a2:g}"
    )
    tau0 = root_mean_square_norm(rows)
    with progress_bar("the twin"):
        model = DEQ("relu", sigma_a2).centred(tau0)
        twin = design(model, tau0, X=rows)
    _show_twin(twin, (rows, digits.y), (test_rows, test.y))
    if train:
        _show_training(twin, (rows, digits.y), (test_rows, test.y))
    save_figure(lambda axes: _plot(twin, axes, rows), path)
    say("Your own data: notsodeep verdict X.csv --label-column NAME")


def _plot(*arguments: Any) -> None:
    from notsodeep.figures import plot_design

    plot_design(*arguments)


def _show_twin(twin: Any, training: tuple[Any, Any], test: tuple[Any, Any]) -> None:
    """Print kernel errors of the twin and of plain networks, and the accuracy of kernel classifiers."""
    from notsodeep.designs import twin_distances
    from notsodeep.designs.families import plain_layers
    from notsodeep.estimators import DEQKernelClassifier

    def classes_of(network: Any) -> Any:
        machine = DEQKernelClassifier(model=network, kernel="ck", alpha=_RIDGE, scale="none")
        return machine.fit(*training).predict(test[0])

    table = Table("kernel of", "kernel error", "up to a factor", "accuracy", "other class")
    with progress_bar("the twin, and plain networks"):
        distances, own = twin_distances(twin, training[0]), classes_of(twin.model)
        table.add_row("deq", "", "", f"{(own == test[1]).mean():.1%}", "")
        plain = [
            (f"plain, {depth} layer{'s' * (depth > 1)}", plain_layers(twin.model, depth, twin.tau0), distance)
            for depth, distance in distances.plain.items()
        ]
        compared = [(f"twin, {len(twin.network.layers)} layers", twin.network, distances.twin), *plain]
        for name, network, distance in compared:
            classes = classes_of(network)
            errors = [f"{100 * error:.2g}%" for error in (distance.relative, distance.up_to_factor)]
            right, other = (
                f"{(classes == test[1]).mean():.1%}",
                f"{int((classes != own).sum())} of {len(own)}",
            )
            table.add_row(name, *errors, right, other)
    say(f"Explicit twin: {twin.network}")
    console.print(table)
    say(str(distances))


def _show_training(twin: Any, training: tuple[Any, Any], test: tuple[Any, Any]) -> None:
    """Train readouts of a DEQ, its twin and a plain network alike, and print accuracy, agreement and time."""
    try:
        torch = needed("torch", "Training")
    except MissingExtraError as error:
        errors.print(f"No training. {error}", highlight=False, markup=False, soft_wrap=True)
        return
    from notsodeep.designs.families import plain_layers
    from notsodeep.nets import fit, network
    from notsodeep.nets.measure import inference_seconds, one_thread

    X = torch.as_tensor(test[0], dtype=torch.float32)
    plain = plain_layers(twin.model, len(twin.network.layers), twin.tau0)
    models = {"deq": twin.model, "deq, another seed": twin.model, "twin": twin.network, "plain": plain}
    table = Table("model", "test accuracy", "agrees with the DEQ", "1000 samples")
    own, seconds, lr = None, {}, None
    # Several threads that wait for each other on a busy machine would give meaningless times.
    with progress_bar("training"), one_thread():
        for seed, (name, spec) in enumerate(models.items()):
            net = network(spec, X.shape[1], _WIDTH, 10, train="readout", seed=seed)
            lr = fit(net, training, optimizer="sgd", lr=lr, epochs=_EPOCHS, progress=False).lr
            with torch.no_grad():
                classes = net(X).argmax(dim=1).numpy()
            own = classes if own is None else own
            seconds[name] = inference_seconds(net, X)
            shares = (f"{share.mean():.1%}" for share in (classes == test[1], classes == own))
            table.add_row(name, *shares, f"{1e3 * seconds[name]:.3g} ms")
    console.print(table)
    say(
        f"Networks of width {_WIDTH}, readout trained for {_EPOCHS} epochs. The twin is "
        f"{seconds['deq'] / seconds['twin']:.2g} times as fast as the DEQ."
    )
