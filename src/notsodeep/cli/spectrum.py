"""`notsodeep spectrum`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from notsodeep.cli.common import app, console, figures_if_installed, spinner
from notsodeep.files import free_path


@app.command()
def spectrum(
    activation: Annotated[str, typer.Option(help="tanh, relu, swish, …")] = "tanh",
    sigma_a2: Annotated[float, typer.Option("--sigma-a2", help="Variance of the recurrent weights.")] = 0.2,
    kernel: Annotated[str, typer.Option(help="ck, ntk or ntk_paper.")] = "ck",
    n: Annotated[int, typer.Option(min=10, help="Number of samples.")] = 1000,
    p: Annotated[int, typer.Option(min=2, help="Dimension.")] = 800,
    classes: Annotated[int, typer.Option(min=1, help="Classes of the papers' Gaussian mixture.")] = 2,
    mean: Annotated[float, typer.Option(help="Length of the class means.")] = 8.0,
    gap: Annotated[float, typer.Option(help="Covariance gap: class a has C = (1 + gap a/√p) I.")] = 8.0,
    form: Annotated[
        str, typer.Option(help="refined (with what is known of finite n) or asymptotic.")
    ] = "refined",
    check: Annotated[bool, typer.Option(help="Draw a sample and compare with its exact eigenvalues.")] = True,
    output: Annotated[Path, typer.Option(help="Where the figure goes.")] = Path("notsodeep-spectrum.png"),
    overwrite: Annotated[bool, typer.Option(help="Replace the figure if it is there.")] = False,
) -> None:
    """Predict the eigenvalues of a DEQ's kernel with no data at all, and check them on a sample.

    Example: notsodeep spectrum --activation relu --kernel ntk --n 2000 --p 1600
    """
    import numpy as np

    from notsodeep.data import ClassStatistics, GaussianMixture
    from notsodeep.equivalents.error import exact_kernel
    from notsodeep.equivalents.spectrum import limiting_density
    from notsodeep.models import DEQ

    mixture = GaussianMixture.paper(p, classes=classes, mean=mean, gap=gap)
    sizes = mixture.class_sizes(n)
    model = DEQ(activation, sigma_a2).centred(ClassStatistics.of_mixture(mixture, sizes).tau0)
    predicted = limiting_density(model, mixture, n, kernel, form=form)
    console.print(predicted.describe(), highlight=False, markup=False)
    exact = None
    if check:
        with spinner() as progress:
            progress.add_task(f"exact {kernel} of {n} samples and its eigenvalues")
            rows, _ = mixture.sample(n, seed=0)
            exact = np.asarray(np.linalg.eigvalsh(exact_kernel(model, rows, kernel=kernel)), dtype=np.float64)
        steps = np.arange(n + 1) / n
        share = predicted.cdf(exact)
        distance = float(np.maximum(np.abs(share - steps[1:]), np.abs(share - steps[:-1])).max())
        console.print(
            f"Kolmogorov distance to the exact eigenvalues of one sample: {distance:.3f}", highlight=False
        )
    figures = figures_if_installed()
    if figures is None:
        return
    drawing, panels = figures.new_figure()
    title = f"{activation} DEQ, {kernel}, n = {n}, p = {p}"
    figures.plot_spectrum(predicted, exact, panels[0], title=title)
    console.print(f"Figure: [bold]{figures.save(drawing, free_path(output, overwrite))}[/]", highlight=False)
