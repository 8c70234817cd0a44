"""What is shown as something to type: a Python script, and commands, with every number of the choice in them."""

from __future__ import annotations

import shlex
from textwrap import dedent

from notsodeep.interfaces.app.choice import FORMULA, Choice, Data
from notsodeep.interfaces.app.compute import error_sizes, samples_of

_TANGENT = {"ntk": "network", "ntk_paper": "paper"}


def as_python(choice: Choice) -> str:
    """A script that computes design, spectrum and errors of this choice; it runs as it stands."""
    return "\n\n".join(
        [_head(choice), _samples(choice.data), _network(choice), _spectrum(choice), _errors(choice)]
    )


def _head(choice: Choice) -> str:
    imports = "import numpy as np\n\nimport notsodeep as nsd"
    if choice.data.source == "digits":
        return f"{imports}\nfrom notsodeep.data import Preprocessing, load"
    return imports


def _samples(data: Data) -> str:
    """The rows X and the norm tau0 of a typical one."""
    if data.source == "mixture":
        return dedent(f"""\
            {_mixture(data.p, data)}
            X, y = mixture.sample({data.n}, seed={data.seed})
            tau0 = nsd.MixtureStatistics.of(mixture, X, y).tau0  # the norm of a typical sample""")
    if data.source == "sphere":
        return dedent(f"""\
            sphere = nsd.UnitSphere({data.p})
            X = sphere.sample({data.n}, seed={data.seed})
            tau0 = 1.0  # the norm of a sample""")
    norm = "tau0 = float(np.sqrt(np.mean(np.einsum('ij,ij->i', X, X))))  # the norm of a typical sample"
    if data.source == "digits":
        n = len(samples_of(data).rows)
        return dedent(f"""\
            digits = load("digits", n={n}, seed={data.seed})
            X = Preprocessing.fit(digits.X).apply(digits.X)
            {norm}""")
    return f"{_file(data)}\n{norm}"


def _mixture(p: int | str, data: Data) -> str:
    return f"mixture = nsd.GaussianMixture.paper({p}, mean={data.mean!r}, gap={data.gap!r})"


def _file(data: Data) -> str:
    name = data.upload.name if data.upload is not None else "rows.csv"
    if name.lower().endswith(".npy"):
        return f"X = np.load({name!r}, allow_pickle=False)[:{data.n}].astype(float)"
    return f"X = np.loadtxt({name!r}, delimiter=',', ndmin=2, encoding='utf-8-sig')[:{data.n}]"


def _network(choice: Choice) -> str:
    return dedent(f"""\
        phi = {_activation(choice)}
        deq = nsd.DEQ(phi, sigma_a2={choice.sigma_a2!r}).centred(tau0)
        twin = nsd.design(deq, tau0, kernel={choice.kernel!r}, family={choice.family!r})
        print(twin)
        print(twin.explain())""")


def _activation(choice: Choice) -> str:
    if choice.activation == FORMULA:
        return f"nsd.activation({FORMULA!r}, expression={choice.expression!r})"
    parameters = "".join(f", {name}={value!r}" for name, value in choice.parameters)
    return f"nsd.activation({choice.activation!r}{parameters})"


def _spectrum(choice: Choice) -> str:
    kernel = choice.shown_kernel
    exact = f"K = {_exact(kernel)}  # exact, infinitely wide\neigenvalues = np.linalg.eigvalsh(K)"
    data = choice.data
    if samples_of(data).law is not None:
        law = "mixture" if data.source == "mixture" else "sphere"
        predicted = (
            f"predicted = nsd.limiting_density(deq, {law}, len(X), kernel={kernel!r}, form='refined')\n"
            "print(predicted.describe())"
        )
    else:
        predicted = (
            f"equivalent = nsd.equivalent(deq, X, kernel={kernel!r}, form='refined', square='sketch')\n"
            "predicted = equivalent.eigvalsh()"
        )
    return f"{exact}\n{predicted}\nprint(eigenvalues[-5:])"


def _exact(kernel: str) -> str:
    if kernel == "ck":
        return "nsd.conjugate_kernel(deq, X)"
    return f"nsd.tangent_kernel(deq, X, of={_TANGENT[kernel]!r})"


def _errors(choice: Choice) -> str:
    """The error of the equivalents against n, as (form, n, error)."""
    data, kernel = choice.data, choice.shown_kernel
    sizes = error_sizes(data)
    settings = f"kernel={kernel!r}, form=form, square={samples_of(data).square!r}"
    start = "errors = []  # of the formulas that stand for the kernel: (form, n, relative error)"
    model = f"model = nsd.DEQ(phi, sigma_a2={choice.sigma_a2!r}).centred"
    if samples_of(data).law is None:
        return _errors_of_rows(choice, start, model, settings, [one.n for one in sizes])
    pairs = ", ".join(f"({one.n}, {one.p})" for one in sizes)
    if data.source == "mixture":
        draw = f"{_mixture('p', data)}\n    rows, labels = mixture.sample(n, seed={data.seed})"
    else:
        draw = (
            "mixture = nsd.GaussianMixture(np.zeros((1, p)), 1.0)  # a sphere is nearly this\n"
            f"    rows, labels = nsd.UnitSphere(p).sample(n, seed={data.seed}), np.zeros(n, dtype=int)"
        )
    tau0 = "stats.tau0" if data.source == "mixture" else "tau0"
    return f"""\
{start}
for n, p in [{pairs}]:
    {draw}
    stats = nsd.MixtureStatistics.of(mixture, rows, labels)
    {model}({tau0})
    for form in ("asymptotic", "refined"):
        distance = nsd.equivalence_error(model, rows, stats, {settings})
        errors.append((form, n, distance.relative))
print(errors)
"""


def _errors_of_rows(choice: Choice, start: str, model: str, settings: str, sizes: list[int]) -> str:
    if choice.data.source == "digits":
        rows = f"""digits = load("digits", n=n, seed={choice.data.seed})
    rows = Preprocessing.fit(digits.X).apply(digits.X)"""
    else:
        rows = "rows = X[:n]"
    return f"""\
{start}
for n in {sizes}:
    {rows}
    {model}(float(np.sqrt(np.mean(np.einsum("ij,ij->i", rows, rows)))))
    for form in ("refined",):
        distance = nsd.equivalence_error(model, rows, {settings})
        errors.append((form, n, distance.relative))
print(errors)
"""


def as_commands(choice: Choice) -> str:
    """The same from the shell: the design and its distance, the spectrum and the errors."""
    return "\n".join(shlex.join(words) for words in command_words(choice))


def command_words(choice: Choice) -> list[list[str]]:
    """The commands as lists of words, as they would be run without a shell."""
    shared = [
        "--activation",
        choice.activation_text,
        "--sigma-a2",
        repr(choice.sigma_a2),
        *_data_words(choice.data),
    ]
    design = ["notsodeep", "design", "--kernel", choice.kernel, "--family", choice.family]
    tau0 = ["--tau0", repr(samples_of(choice.data).tau0)]
    spectrum = ["notsodeep", "spectrum", "--kernel", choice.shown_kernel, "--errors"]
    return [[*design, *tau0, *shared], [*spectrum, *shared]]


def _data_words(data: Data) -> list[str]:
    n = ["--n", str(len(samples_of(data).rows))]
    if data.source == "file":
        name = data.upload.name if data.upload is not None else "rows.csv"
        return ["--data", name, *n]
    words = ["--data", data.source, *n, "--seed", str(data.seed)]
    if data.source in ("mixture", "sphere"):
        words += ["--p", str(data.p)]
    if data.source == "mixture":
        words += ["--mean", repr(data.mean), "--gap", repr(data.gap)]
    return words


__all__ = ["as_commands", "as_python", "command_words"]
