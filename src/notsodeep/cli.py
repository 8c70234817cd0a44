"""The command line: `notsodeep demo`, `kernel`, `spectrum`, `design`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.files import free_path, written_whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

app = typer.Typer(
    name="notsodeep",
    help="Deep equilibrium models and the shallow networks that share their kernels. Start with: notsodeep demo",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
)
console = Console()
errors = Console(stderr=True)


def main() -> None:
    """Run the command line; a foreseeable error is a sentence and exit code 2, not a stack trace."""
    try:
        app()
    except (InputError, ConvergenceError) as error:
        errors.print(f"[bold red]error:[/] {error}", highlight=False)
        sys.exit(2)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)


@app.callback()
def _top(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from notsodeep import __version__

        console.print(f"notsodeep {__version__}")
        raise typer.Exit


def _progress() -> Progress:
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    return Progress(*columns, console=errors, transient=True)


@app.command()
def demo(
    output: Annotated[Path, typer.Option(help="Where the figure goes (png, svg or pdf).")] = Path(
        "notsodeep-demo.png"
    ),
    samples: Annotated[int, typer.Option(min=20, help="How many digits to use, 1437 at most.")] = 1000,
    sigma_a2: Annotated[float, typer.Option("--sigma-a2", help="Variance of the recurrent weights.")] = 0.2,
    overwrite: Annotated[bool, typer.Option(help="Replace the figure if it is there.")] = False,
) -> None:
    """Exact kernels of an infinitely deep network on handwritten digits, in under a minute.

    Computes the conjugate kernel (CK: inner products of the features) and the neural tangent kernel (NTK: what
    gradient descent sees) of deep equilibrium models of infinite width on scikit-learn's digits, prints how they were
    obtained, and draws their spectra.
    """
    from notsodeep.data import Preprocessing, load

    data = load("digits", n=samples)
    rows = Preprocessing.fit(data.X).apply(data.X)
    console.print(
        f"[bold]{len(rows)} digits[/] of {rows.shape[1]} pixels; models z = φ(σ_a A z + σ_b B x)/√m, m → ∞, "
        f"σ_a² = {sigma_a2:g}, σ_b² = {1 - sigma_a2:g}"
    )
    table = Table(
        "φ", "CK", "NTK", "Newton steps", "error below", "largest CK eigenvalue", "rank for 99 % of CK"
    )
    spectra: dict[str, NDArray[np.float64]] = {}
    first: Any = None
    with _progress() as progress:
        for name in ("tanh", "relu", "swish"):
            progress.add_task(f"kernels of the {name} DEQ")
            row, values, kernel = _demo_row(name, sigma_a2, rows)
            table.add_row(*row)
            spectra |= values
            first = kernel if first is None else first
    console.print(table)
    _demo_equivalents(sigma_a2, rows, data.y)
    path = free_path(output, overwrite)
    _demo_figure(first, data.y, spectra, path)
    console.print(
        f"Figure: [bold]{path}[/]  (kernel matrix by digit, and spectra of CK and NTK)", highlight=False
    )
    console.print("Your own data:  notsodeep kernel --help", highlight=False)


def _demo_row(name: str, sigma_a2: float, rows: Any) -> tuple[list[str], dict[str, Any], Any]:
    import numpy as np

    from notsodeep.kernels import both_kernels, conjugate_kernel
    from notsodeep.models import DEQ

    model = DEQ(name, sigma_a2)
    conjugate_kernel(model, rows[:8])  # compiles, or loads what an earlier run compiled
    start = time.perf_counter()
    conjugate_kernel(model, rows)
    middle = time.perf_counter()
    ck, ntk, info = both_kernels(model, rows, return_info=True)
    end = time.perf_counter()
    values = {f"{name} CK": np.linalg.eigvalsh(ck), f"{name} NTK": np.linalg.eigvalsh(ntk)}
    share = np.cumsum(values[f"{name} CK"][::-1]) / np.trace(ck)
    times = [f"{1e3 * (middle - start):.0f} ms", f"{1e3 * (end - middle):.0f} ms"]
    evidence = [str(info.iterations) if info.iterations else "closed form", f"{info.error_bound:.0e}"]
    summary = [f"{values[f'{name} CK'][-1]:.1f}", str(int(np.searchsorted(share, 0.99)) + 1)]
    return [name, *times, *evidence, *summary], values, ck


def _demo_equivalents(sigma_a2: float, rows: Any, labels: Any) -> None:
    """How far four scalars, or the refined form, or a one-layer network go on these digits."""
    import numpy as np

    from notsodeep.data import MixtureStatistics
    from notsodeep.designs import design as make_design
    from notsodeep.equivalents import equivalence_error
    from notsodeep.models import DEQ

    model = DEQ("tanh", sigma_a2)
    stats = MixtureStatistics.estimate(rows, labels)
    asymptotic = equivalence_error(model, rows, stats)
    refined = equivalence_error(model, rows, form="refined", order=3, square="sketch")
    console.print(
        f"Without the n × n matrix (tanh CK): four scalars leave {float(asymptotic):.1%}, the refined equivalent "
        f"{float(refined):.2%} of its norm.",
        highlight=False,
    )
    made = make_design(model, float(np.sqrt(np.mean(np.einsum("ij,ij->i", rows, rows)))))
    console.print(f"Its explicit twin: {made.network}", highlight=False, markup=False)
    _print_distance(made, rows)


def _demo_figure(kernel: Any, labels: Any, spectra: dict[str, Any], path: Path) -> None:
    from notsodeep import figures

    figure, panels = figures.new_figure(2)
    figures.plot_kernel(kernel, labels, panels[0], title="tanh DEQ, conjugate kernel")
    figures.plot_eigenvalues(spectra, panels[1])
    panels[1].set_title("exact spectra, infinite depth and width")
    figures.save(figure, path)


@app.command()
def design(
    activation: Annotated[str, typer.Option(help="The DEQ's activation: tanh, relu, swish, …")] = "tanh",
    sigma_a2: Annotated[float, typer.Option("--sigma-a2", help="Variance of the recurrent weights.")] = 0.2,
    tau0: Annotated[
        float | None, typer.Option(help="Norm of a typical input; 1, or that of the data if given.")
    ] = None,
    kernel: Annotated[str, typer.Option(help="What to match: ck, ntk, ntk_paper or both.")] = "ck",
    family: Annotated[
        str, typer.Option(help="auto, hard_tanh, leaky_relu, piecewise_linear, smooth, cubic or quadratic.")
    ] = "auto",
    data: Annotated[
        str | None, typer.Option(help="Measure the kernel distance on: file.npy, digits, mnist:6,8, …")
    ] = None,
    samples: Annotated[int, typer.Option(min=20, help="Rows of the data to use.")] = 1000,
    data_dir: Annotated[
        Path | None, typer.Option(help="Folder of the data sets (or NOTSODEEP_DATA).")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the design as JSON.")] = None,
    figure: Annotated[Path | None, typer.Option(help="Draw the activations (png, svg or pdf).")] = None,
    overwrite: Annotated[bool, typer.Option(help="Replace files that are there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the design as JSON.")] = False,
) -> None:
    """The shallow explicit network with the same kernel as a DEQ, or an honest no.

    Example: notsodeep design --activation relu --sigma-a2 0.2 --data digits

    Exit code 0: the scalars match; 3: this family cannot match and the closest network is given.
    """
    import numpy as np

    from notsodeep.designs import design as make_design
    from notsodeep.models import DEQ

    rows = None if data is None else _read_rows(data, samples, data_dir)
    if tau0 is None:
        tau0 = 1.0 if rows is None else float(np.sqrt(np.mean(np.einsum("ij,ij->i", rows, rows))))
    made = make_design(DEQ(activation, sigma_a2), tau0, kernel, family)
    if as_json:
        sys.stdout.write(made.to_json() + "\n")
    else:
        console.print(str(made), highlight=False, markup=False)
        console.print(made.explain(), highlight=False, markup=False)
        if rows is not None:
            _print_distance(made, rows)
    if save is not None:
        target = free_path(save, overwrite)
        with written_whole(target) as temporary:
            temporary.write_text(made.to_json())
        errors.print(f"design written to {target}", highlight=False)
    if figure is not None:
        from notsodeep import figures

        drawing, panels = figures.new_figure()
        figures.plot_design(made, panels[0])
        errors.print(f"figure: {figures.save(drawing, free_path(figure, overwrite))}", highlight=False)
    if not made.exact:
        raise typer.Exit(3)


def _print_distance(made: Any, rows: Any) -> None:
    """Exact kernels of the DEQ, its twin and the undesigned network (its own activation in one layer)."""
    from scipy.sparse.linalg import aslinearoperator

    from notsodeep.designs import tangent_kernel_with_multipliers
    from notsodeep.equivalents.error import exact_kernel, operator_norm
    from notsodeep.models import Explicit

    def norm(matrix: Any) -> float:
        return operator_norm(aslinearoperator(matrix))

    plain = Explicit([made.model.activation]).centred(made.tau0)
    for kernel in ("ck", "ntk") if made.kernel == "both" else (made.kernel,):
        target = exact_kernel(made.model, rows, kernel=kernel)
        twin = exact_kernel(made.network, rows, kernel=kernel)
        if kernel == "ntk" and made.multipliers is not None:
            twin = tangent_kernel_with_multipliers(made.network, rows, made.multipliers)
        other = exact_kernel(plain, rows, kernel=kernel)
        near, far = (norm(matrix - target) / norm(target) for matrix in (twin, other))
        console.print(
            f"Exact {kernel} on {len(rows)} rows: the designed network is {near:.2g} away from the DEQ, "
            f"its own activation in one plain layer {far:.2g}",
            highlight=False,
        )


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

    from notsodeep import figures
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
        with _progress() as progress:
            progress.add_task(f"exact {kernel} of {n} samples and its eigenvalues")
            rows, _ = mixture.sample(n, seed=0)
            exact = np.asarray(np.linalg.eigvalsh(exact_kernel(model, rows, kernel=kernel)), dtype=np.float64)
        steps = np.arange(n + 1) / n
        share = predicted.cdf(exact)
        distance = float(np.maximum(np.abs(share - steps[1:]), np.abs(share - steps[:-1])).max())
        console.print(
            f"Kolmogorov distance to the exact eigenvalues of one sample: {distance:.3f}", highlight=False
        )
    drawing, panels = figures.new_figure()
    figures.plot_spectrum(predicted, exact, panels[0])
    panels[0].set_title(f"{activation} DEQ, {kernel}, n = {n}, p = {p}")
    console.print(f"Figure: [bold]{figures.save(drawing, free_path(output, overwrite))}[/]", highlight=False)


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
    rows = _read_rows(data, samples, data_dir)
    target = free_path(save if save.suffix == ".npy" else save.with_suffix(".npy"), overwrite)
    start = time.perf_counter()
    with _progress() as progress:
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


def _read_rows(data: str, samples: int | None, data_dir: Path | None) -> Any:
    import numpy as np

    path = Path(data)
    if path.suffix in (".npy", ".csv"):
        if not path.exists():
            raise InputError(f"There is no file {data}.")
        try:
            rows = (
                np.load(path, allow_pickle=False)
                if path.suffix == ".npy"
                else np.loadtxt(path, delimiter=",", ndmin=2)
            )
        except ValueError as error:
            raise InputError(f"{data} cannot be read as a matrix of numbers: {error}.") from None
        return rows if samples is None else rows[:samples]
    from notsodeep.data import Preprocessing, load, parse_spec

    name, classes = parse_spec(data)
    loaded = load(name, classes=classes, n=samples, data_dir=data_dir)
    return Preprocessing.fit(loaded.X).apply(loaded.X)


if __name__ == "__main__":
    main()
