"""Every control of the page, with a word on what it does; together they make a `Choice`.

Where samples come from is asked above the answers, where it is seen on a phone too; the rest is on the left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from notsodeep.data import SCALES, Preprocessing
from notsodeep_lab.explorer.choice import (
    ACTIVATIONS,
    FAMILY_NAMES,
    FORMULA,
    IMAGE_KERNELS,
    PARAMETERS,
    WIDTHS,
    Choice,
    Data,
)
from notsodeep_lab.explorer.uploads import MEGABYTE, Upload, read_upload

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

_START = Choice()
_FIRST_FORMULA = "x * sigmoid(x)"
_KERNELS = {
    "ck": "CK: conjugate kernel",
    "ntk": "NTK: tangent kernel",
    "both": "both kernels",
    "ntk_paper": "the papers' NTK",
}
_SOURCES = {
    "digits": "handwritten digits",
    "mixture": "two Gaussian classes",
    "sphere": "a sphere",
    "file": "my own file",
}
_FAMILIES = {
    "auto": "auto: the simplest that works",
    "hard_tanh": "hard tanh",
    "leaky_relu": "leaky ReLU",
    "polynomial": "polynomial",
    "quadratic": "quadratic",
    "injected": "own activation, input again in every layer",
}


def choose(above: DeltaGenerator) -> Choice:
    """Draw the controls and read them.

    Args:
        above: where the source of the samples is asked for.

    Raises:
        InputError: for a formula or a file that cannot be used.
    """
    with above:
        source = _source()
    with st.sidebar:
        st.subheader("The deep network", anchor=False)
        network = _network()
        st.subheader("Its shallow twin", anchor=False)
        twin = _twin(network["images"])
        st.subheader("The data", anchor=False)
        sizes = _sizes(source["source"])
    # Read when all controls are there: a file that cannot be used must not take them away.
    if "upload" in source:
        source["upload"] = _read(*source["upload"])
    return Choice(**network, **twin, data=Data(**source, **sizes))


def _network() -> dict[str, Any]:
    images = st.radio(
        "Network",
        (False, True),
        format_func=lambda one: "convolutional, on images" if one else "dense, on rows",
        key="images",
        help="A convolutional DEQ needs images: the digits, or a NPY file of images. They are made small, so that the "
        "page answers at once.",
    )
    name = st.selectbox(
        "Activation",
        ACTIVATIONS if images else (*ACTIVATIONS, FORMULA),
        format_func=lambda one: "a formula of mine…" if one == FORMULA else one,
        key="activation",
        help="What each neuron of the DEQ does to its input. For a dense network a formula of your own can be typed.",
    )
    found: dict[str, Any] = {"images": images, "activation": name}
    if name == FORMULA:
        found["expression"] = st.text_input(
            "Formula in x",
            _FIRST_FORMULA,
            key="expression",
            help="For example x * sigmoid(x), or max(x, 0.1*x), or tanh(x) + 0.1*x**2. It is read, never run as code.",
        )
    found["parameters"] = tuple(
        (
            parameter,
            float(
                st.number_input(
                    f"Parameter {parameter}",
                    value=start,
                    step=0.1,
                    key=f"parameter_{name}_{parameter}",
                    help=_parameter_help(name, parameter),
                )
            ),
        )
        for parameter, start in PARAMETERS.get(name, {}).items()
    )
    found["sigma_a2"] = st.slider(
        "Strength of the feedback, σ_a²",
        0.01,
        0.99,
        _START.sigma_a2,
        0.01,
        key="sigma_a2",
        help="Variance of the recurrent weights. Near 0 the DEQ is one layer; towards 1 it remembers itself more and "
        "more, like an ever deeper network. The input weights have the rest, 1 − σ_a².",
    )
    found["width"] = st.select_slider(
        "Width of the networks", WIDTHS, _START.width, key="width",
        help="Units of each hidden layer of the networks that are judged, timed and trained; of convolutional ones "
        "channels, a sixteenth as many. The theory is for wide ones.",
    )  # fmt: skip
    return found


def _parameter_help(name: str, parameter: str) -> str:
    words = {
        ("leaky_relu", "a"): "Slope for positive inputs: max(a x, b x).",
        ("leaky_relu", "b"): "Slope for negative inputs: max(a x, b x).",
        ("hard_tanh", "a"): "Slope between the two corners: a · clip(x, −c, c).",
        ("hard_tanh", "c"): "Where it stops growing: a · clip(x, −c, c).",
        ("elu", "alpha"): "How far below zero it goes for negative inputs.",
    }
    return words.get((name, parameter), "A number of the activation.")


def _twin(images: bool) -> dict[str, Any]:
    kernel = st.selectbox(
        "Kernel to match",
        IMAGE_KERNELS if images else tuple(_KERNELS),
        format_func=_KERNELS.__getitem__,
        key="kernel",
        help="The kernel says which inputs look alike to a wide network. CK: while only the last layer is trained. "
        "NTK: while all layers are. Both: one network with both.",
    )
    if images:
        return {"kernel": kernel}
    family = st.selectbox(
        "Layers of the twin",
        FAMILY_NAMES,
        format_func=lambda one: _FAMILIES.get(one, one),
        key="family",
        help="Which activations the designed layers may have. Some families cannot match, and the page then says why.",
    )
    return {"kernel": kernel, "family": family}


def _source() -> dict[str, Any]:
    source = st.radio(
        "An example, or my own data",
        tuple(_SOURCES),
        format_func=_SOURCES.__getitem__,
        key="source",
        horizontal=True,
        help="Everything is computed on these. Gaussian classes are what the theory is made for; digits and your own "
        "file show how far it carries.",
    )
    found: dict[str, Any] = {"source": source}
    if source == "file":
        file, labels, scale = st.columns([6, 5, 7])
        found["upload"] = _upload(file, labels)
        found["scale"] = scale.selectbox(
            "Scaling of the rows",
            SCALES,
            format_func=lambda how: f"{how}: {Preprocessing.words(how)}",
            key="scale",
            help="The theory is about centred rows whose norm is near 1.",
        )
    return found


def _sizes(source: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if source == "mixture":
        found["mean"] = st.slider(
            "Separation of the classes",
            0.0, 16.0, _START.data.mean, 0.5, key="mean",
            help="Length of the class means. At 0 the classes differ in their spread alone.",
        )  # fmt: skip
        found["gap"] = st.slider(
            "Covariance gap",
            0.0, 16.0, _START.data.gap, 0.5, key="gap",
            help="How much wider the second class is: its covariance is (1 + gap/√p) times the identity.",
        )  # fmt: skip
    found["n"] = st.slider(
        "Number of samples n", 100, 2000, _START.data.n, 50, key="n",
        help="More samples give smoother histograms and take longer.",
    )  # fmt: skip
    if source in ("mixture", "sphere"):
        found["p"] = st.slider(
            "Dimension p", 50, 2000, _START.data.p, 50, key="p",
            help="Features of each sample. The theory is for n and p large and of similar size.",
        )  # fmt: skip
    if source != "file":
        found["seed"] = int(
            st.number_input(
                "Seed", 0, 9999, _START.data.seed, 1, key="seed", help="Another number draws other samples."
            )
        )
    return found


def _upload(left: DeltaGenerator, right: DeltaGenerator) -> tuple[Any, str]:
    limit = st.get_option("server.maxUploadSize")
    file = left.file_uploader(
        "CSV or NPY file",
        type=["csv", "npy"],
        key="upload",
        help=f"One sample in each row, at most {limit} MB; a header is fine. The file stays on this machine.",
    )
    label = right.text_input(
        "Column with labels, if there is one",
        key="label_column",
        placeholder="found by itself if it holds words",
        help="Its name in the header, or its number counted from 1; -1 is the last one. It is not part of the rows. A "
        "single column of words is taken for labels if none is named.",
    )
    return file, label.strip()


def _read(file: Any, label: str) -> Upload | None:
    if file is None:
        return None
    limit = st.get_option("server.maxUploadSize")
    # One byte more than allowed is enough to refuse it.
    content = file.read(limit * MEGABYTE + 1)
    file.seek(0)
    return read_upload(file.name, content, megabytes=limit, label_column=label or None)
