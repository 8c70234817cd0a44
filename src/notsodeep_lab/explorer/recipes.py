"""The Python script and the commands that reproduce what the page shows."""

from __future__ import annotations

import shlex
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from notsodeep.cli.scenario import command_after_verdict
from notsodeep_lab.explorer.choice import FORMULA, MODES, VERDICT_KERNELS, Choice, PageData
from notsodeep_lab.explorer.computations import (
    IMAGES_TO_FIT,
    ROWS_TO_FIT,
    fits_rows,
    samples_of,
)
from notsodeep_lab.explorer.images import SIDE

_EXACT = {
    "ck": "nsd.conjugate_kernel(deq, X)",
    "ntk": "nsd.tangent_kernel(deq, X, of='network')",
    "ntk_paper": "nsd.tangent_kernel(deq, X, of='paper')",
}

# Characters of a line that a phone can show.
_LONGEST_LINE = 34


@cache
def _script() -> Template:
    # Not escaped: this is Python, and user input is inserted by its repr.
    loader = PackageLoader("notsodeep_lab.explorer")
    environment = Environment(loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = repr
    return environment.get_template("recipe.txt")


def as_python(choice: Choice) -> str:
    """Return a Python script that computes the design and the spectrum of this choice."""
    data, samples = choice.data, samples_of(choice.data)
    parameters = (
        {"expression": choice.expression} if choice.activation == FORMULA else dict(choice.parameters)
    )
    named = [f"{name}={value!r}" for name, value in parameters.items()]
    if choice.images:
        return _image_script(choice, ", ".join([repr(choice.activation), *named]))
    text = _script().render(
        choice=choice,
        data=data,
        file=_file_name(data),
        n=len(samples.rows),
        arguments=", ".join([repr(choice.activation), *named]),
        exact=_EXACT[choice.shown_kernel],
        rows_to_fit=ROWS_TO_FIT if fits_rows(choice) else 0,
    )
    return text.strip() + "\n"


def _image_script(choice: Choice, arguments: str) -> str:
    """Return a script for the verdict of a convolutional network on the downscaled images."""
    data = choice.data
    if data.source == "digits":
        rows = [
            f"digits = load('digits', n={len(samples_of(data).rows)}, seed={data.seed})",
            "X, y = as_images('digits', Preprocessing.fit(digits.X).apply(digits.X)), digits.y",
        ]
    else:
        shape = ", ".join(map(str, data.upload.image_shape or ())) if data.upload else ""
        rows = [
            f"table = open_table({_file_name(data)!r}, {data.n})",
            f"X = Preprocessing.named({data.scale!r}, table.rows).apply(table.rows).reshape(-1, {shape})",
            "y = None",
        ]
    lines = [
        "import numpy as np",
        "",
        "import notsodeep as nsd",
        "from notsodeep.data import Preprocessing, as_images, load, open_table",
        "from notsodeep_lab.explorer.images import shrunk",
        "",
        *rows,
        f"X = shrunk(X, {SIDE})",
        "X = X / np.sqrt(np.mean(np.sum(X**2, axis=1)))  # |x(s)|² = 1 on average over positions",
        f"phi = nsd.activation({arguments})",
        f"deq = nsd.ConvDEQ(phi, sigma_a2={choice.sigma_a2!r}, readout='flatten')",
        f"twin = nsd.design(deq, 1.0, kernel={choice.kernel!r}, X=X[:{IMAGES_TO_FIT}])",
        "print(twin.explain())",
        f"verdict = nsd.verdict(deq, X, y, kernel={VERDICT_KERNELS[choice.kernel]!r})",
        "print(verdict)",
    ]
    return "\n".join(lines) + "\n"


def _file_name(data: PageData) -> str:
    return "rows.csv" if data.upload is None else data.upload.name


def as_commands(choice: Choice) -> str:
    """Return shell commands for the design and the spectrum; for images, for the verdict."""
    if choice.images:
        return shlex.join(verdict_words(choice))
    return "\n".join(shlex.join(words) for words in command_words(choice))


def command_words(choice: Choice) -> list[list[str]]:
    """Return the commands as lists of arguments."""
    model = ["--activation", choice.activation_text, "--sigma-a2", repr(choice.sigma_a2)]
    design = ["notsodeep", "design", "--kernel", choice.kernel, "--family", choice.family]
    tau0 = ["--tau0", repr(samples_of(choice.data).tau0)]
    spectrum = ["notsodeep", "spectrum", "--kernel", choice.shown_kernel]
    data = _data_words(choice.data)
    # With data, the command fits the design to them.
    seen = data if fits_rows(choice) or choice.activation != FORMULA else []
    return [[*design, *tau0, *model, *seen], [*spectrum, *model, *data]]


def verdict_words(choice: Choice) -> list[str]:
    """Return the command of the verdict, which uses more samples than the page, as a list of arguments."""
    kernel = ["--kernel", VERDICT_KERNELS[choice.kernel]]
    return ["notsodeep", "verdict", *_model_words(choice), *kernel, *_data_words(choice.data)]


def next_command(choice: Choice, answer: str) -> str:
    """Return the next command after a verdict."""
    name = command_after_verdict(answer, samples_of(choice.data).labels, images=choice.images)
    if name == "design":
        return shlex.join(command_words(choice)[0])
    if name == "verdict":
        return shlex.join(verdict_words(choice))
    words = _network_words(choice) if name == "train" else [*_model_words(choice), *_data_words(choice.data)]
    return shlex.join(["notsodeep", name, *words])


def on_short_lines(commands: str) -> str:
    """Break commands before options; a browser would break lines after any hyphen."""
    return "\n".join(_on_short_lines(shlex.split(line)) for line in commands.splitlines())


def _on_short_lines(words: list[str]) -> str:
    lines = [""]
    for start, word in enumerate(words):
        # An option stays with its value.
        following = words[start + 1 : start + 2] if word.startswith("--") else []
        value = [one for one in following if not one.startswith("--")]
        if word.startswith("--") and len(shlex.join([lines[-1].strip(), word, *value])) > _LONGEST_LINE:
            lines.append("  ")
        lines[-1] += ("" if not lines[-1].strip() else " ") + shlex.quote(word)
    return " \\\n".join(lines)


def _model_words(choice: Choice) -> list[str]:
    conv = ["--model", "conv", "--readout", "flatten"] if choice.images else []
    return [*conv, "--activation", choice.activation_text, "--sigma-a2", repr(choice.sigma_a2)]


def _network_words(choice: Choice) -> list[str]:
    """Options of the model, its networks and the data, as train takes them."""
    networks = ["--width", str(choice.units), "--train", MODES[choice.kernel]]
    return [*_model_words(choice), *networks, *_data_words(choice.data)]


def _data_words(data: PageData) -> list[str]:
    n = ["--n", str(len(samples_of(data).rows))]
    if data.source == "file":
        label = None if data.upload is None else data.upload.label_column
        column = [] if label is None else ["--label-column", label]
        return ["--data", _file_name(data), *n, "--scale", data.scale, *column]
    words = ["--data", data.source, *n, "--seed", str(data.seed)]
    if data.is_drawn:
        words += ["--p", str(data.p)]
    if data.source == "mixture":
        words += ["--mean", repr(data.mean), "--gap", repr(data.gap)]
    return words
