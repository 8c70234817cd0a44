"""The controls of the page, which together form a `Choice`.

The data source is chosen at the top of the page, where it is visible on a phone too; the rest is in the sidebar.
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
    PageData,
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
    "injected": "the DEQ's activation, input fed to every layer",
}


def choose(above: DeltaGenerator) -> Choice:
    """Draw the controls and read their values.

    Args:
        above: container for the choice of the data source.

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
    # Read the file after drawing all controls: an error must not hide them.
    if "upload" in source:
        source["upload"] = _read(*source["upload"])
    return Choice(**network, **twin, data=PageData(**source, **sizes))


def _network() -> dict[str, Any]:
    images = st.radio(
        "Network",
        (False, True),
        format_func=lambda one: "convolutional, on images" if one else "dense, on rows",
        key="images",
        help="A convolutional DEQ needs images: the digits, or a NPY file of images. They are downscaled to keep the "
        "page fast.",
    )
    name = st.selectbox(
        "Activation",
        ACTIVATIONS if images else (*ACTIVATIONS, FORMULA),
        format_func=lambda one: "custom formula…" if one == FORMULA else one,
        key="activation",
        help="The activation of the DEQ. Dense networks accept a formula of your own.",
    )
    network: dict[str, Any] = {"images": images, "activation": name}
    if name == FORMULA:
        network["expression"] = st.text_input(
            "Formula in x",
            _FIRST_FORMULA,
            key="expression",
            help="For example x * sigmoid(x), max(x, 0.1*x) or tanh(x) + 0.1*x**2. It is parsed, never run as code.",
        )
    network["parameters"] = tuple(
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
    network["sigma_a2"] = st.slider(
        "Strength of the feedback, σ_a²",
        0.01,
        0.99,
        _START.sigma_a2,
        0.01,
        key="sigma_a2",
        help="Variance of the recurrent weights. Near 0 the DEQ acts like one layer, near 1 like a very deep network. "
        "The input weights have the variance 1 − σ_a².",
    )
    network["width"] = st.select_slider(
        "Width of the networks", WIDTHS, _START.width, key="width",
        help="Units of each hidden layer of the networks that are compared, timed and trained; convolutional networks "
        "have a sixteenth as many channels. The theory assumes wide networks.",
    )  # fmt: skip
    return network


def _parameter_help(name: str, parameter: str) -> str:
    words = {
        ("leaky_relu", "a"): "Slope for positive inputs: max(a x, b x).",
        ("leaky_relu", "b"): "Slope for negative inputs: max(a x, b x).",
        ("hard_tanh", "a"): "Slope between the two kinks: a · clip(x, −c, c).",
        ("hard_tanh", "c"): "Position of the kinks: a · clip(x, −c, c).",
        ("elu", "alpha"): "Limit for large negative inputs: −alpha.",
    }
    return words.get((name, parameter), "A parameter of the activation.")


def _twin(images: bool) -> dict[str, Any]:
    kernel = st.selectbox(
        "Kernel to match",
        IMAGE_KERNELS if images else tuple(_KERNELS),
        format_func=_KERNELS.__getitem__,
        key="kernel",
        help="The kernel measures how similar two inputs are to a wide network. CK: only the readout is trained. NTK: "
        "all weights are trained. Both: one network matches both.",
    )
    if images:
        return {"kernel": kernel}
    family = st.selectbox(
        "Layers of the twin",
        FAMILY_NAMES,
        format_func=lambda one: _FAMILIES.get(one, one),
        key="family",
        help="Family of activations of the designed layers. If a family cannot match, the page says why.",
    )
    return {"kernel": kernel, "family": family}


def _source() -> dict[str, Any]:
    source = st.radio(
        "Data",
        tuple(_SOURCES),
        format_func=_SOURCES.__getitem__,
        key="source",
        horizontal=True,
        help="All results are computed on these samples. The theory assumes Gaussian classes; digits and your own file "
        "show how well it applies to real data.",
    )
    chosen: dict[str, Any] = {"source": source}
    if source == "file":
        file, labels, scale = st.columns([6, 5, 7])
        chosen["upload"] = _upload(file, labels)
        chosen["scale"] = scale.selectbox(
            "Scaling of the rows",
            SCALES,
            format_func=lambda how: f"{how}: {Preprocessing.words(how)}",
            key="scale",
            help="The theory assumes centred rows with norms near 1.",
        )
    return chosen


def _sizes(source: str) -> dict[str, Any]:
    sizes: dict[str, Any] = {}
    if source == "mixture":
        sizes["mean"] = st.slider(
            "Separation of the classes",
            0.0, 16.0, _START.data.mean, 0.5, key="mean",
            help="Norm of the class means. At 0 the classes differ in their covariances only.",
        )  # fmt: skip
        sizes["gap"] = st.slider(
            "Covariance gap",
            0.0, 16.0, _START.data.gap, 0.5, key="gap",
            help="The covariance of the second class is (1 + gap/√p) times the identity.",
        )  # fmt: skip
    sizes["n"] = st.slider(
        "Number of samples n", 100, 2000, _START.data.n, 50, key="n",
        help="More samples give smoother histograms and take longer.",
    )  # fmt: skip
    if source in ("mixture", "sphere"):
        sizes["p"] = st.slider(
            "Dimension p", 50, 2000, _START.data.p, 50, key="p",
            help="Number of features. The theory assumes that n and p are large and of similar size.",
        )  # fmt: skip
    if source != "file":
        sizes["seed"] = int(
            st.number_input(
                "Seed", 0, 9999, _START.data.seed, 1, key="seed", help="Random seed of the samples."
            )
        )
    return sizes


def _upload(left: DeltaGenerator, right: DeltaGenerator) -> tuple[Any, str]:
    limit = st.get_option("server.maxUploadSize")
    file = left.file_uploader(
        "CSV or NPY file",
        type=["csv", "npy"],
        key="upload",
        help=f"One sample per row, at most {limit} MB; a header is allowed. The file stays on this machine.",
    )
    label = right.text_input(
        "Label column (optional)",
        key="label_column",
        placeholder="detected if it contains words",
        help="Name in the header, or number counted from 1; -1 is the last column. By default a single column of words "
        "is used.",
    )
    return file, label.strip()


def _read(file: Any, label: str) -> Upload | None:
    if file is None:
        return None
    limit = st.get_option("server.maxUploadSize")
    # One byte more than allowed suffices to detect a file that is too large.
    content = file.read(limit * MEGABYTE + 1)
    file.seek(0)
    return read_upload(file.name, content, megabytes=limit, label_column=label or None)
