"""`notsodeep demo`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from notsodeep.cli.common import app, console, print_distance, spinner
from notsodeep.files import free_path

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


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
    with spinner() as progress:
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
    print_distance(made, rows)


def _demo_figure(kernel: Any, labels: Any, spectra: dict[str, Any], path: Path) -> None:
    from notsodeep import figures

    figure, panels = figures.new_figure(2)
    figures.plot_kernel(kernel, labels, panels[0], title="tanh DEQ, conjugate kernel")
    figures.plot_eigenvalues(spectra, panels[1])
    panels[1].set_title("exact spectra, infinite depth and width")
    figures.save(figure, path)
