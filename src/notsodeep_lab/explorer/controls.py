"""The controls of the page, which together form a `Choice`.

Network and data are chosen at the top of the page, where they are visible on a phone too; the rest is in the sidebar.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from notsodeep.data import SCALES, Preprocessing
from notsodeep_lab.explorer.choice import MOST, MOST_SAMPLES, Choice, PageData
from notsodeep_lab.explorer.offered_networks import ACTIVATIONS, LARGEST_FEEDBACK, LARGEST_INPUT, Network
from notsodeep_lab.explorer.uploads import MEGABYTE, Upload, read_upload

if TYPE_CHECKING:
    from streamlit.delta_generator import DeltaGenerator

_START = Choice()
_KINDS = {
    "residual": "residual cell with RMSNorm",
    "gated": "gated cell",
    "swiglu": "two-sublayer SwiGLU block",
    "deq": "DEQ",
}
_SOURCES = {"mixture": "two Gaussian classes", "digits": "handwritten digits", "file": "my own file"}
_KERNELS = {"ck": "the readout", "ntk": "all weights"}


def choose(above: DeltaGenerator) -> Choice | None:
    """Draw the controls and read their values; None while a file is awaited.

    Args:
        above: container for the choice of network and data.

    Raises:
        InputError: for a file that cannot be used.
    """
    with above:
        kind = st.radio(
            "Network", tuple(_KINDS), format_func=_KINDS.__getitem__, key="kind", horizontal=True,
            help="A cell is applied again and again until its state settles. A DEQ has the simplest cell: one layer "
            "that reads its own output and the input.",
        )  # fmt: skip
        source = st.radio(
            "Data", tuple(_SOURCES), format_func=_SOURCES.__getitem__, key="source", horizontal=True,
            help="All results are computed on these samples.",
        )  # fmt: skip
        awaited = _file() if source == "file" else {}
    with st.sidebar:
        network, kernel = _network(kind)
        sizes = _sizes(source, MOST_SAMPLES[kind])
    # Read the file after drawing all controls: an error must not hide them.
    if source == "file":
        upload = _read(awaited.pop("file"), awaited.pop("label"))
        if upload is None:
            return None
        awaited["upload"] = upload
    return Choice(network, kernel, PageData(source, **awaited, **sizes))


def _network(kind: str) -> tuple[Network, str]:
    st.subheader("The network", anchor=False)
    activation = st.selectbox(
        "Activation", ACTIVATIONS, key="activation", help="The activation of the network and of the plain networks."
    )  # fmt: skip
    feedback = st.slider(
        "Strength of the feedback", 0.05, LARGEST_FEEDBACK, _START.network.feedback, 0.05, key="feedback",
        help="Variance of the weights that feed the state back; σ_a² of a DEQ. With strong feedback the state settles "
        "slowly or not at all.",
    )  # fmt: skip
    injection = st.slider(
        "Strength of the input", 0.1, LARGEST_INPUT, _START.network.injection, 0.1, key="injection",
        help="Variance of the weights that read the input; σ_b² of a DEQ.",
    )  # fmt: skip
    kernel = st.radio(
        "What will be trained?", tuple(_KERNELS), format_func=_KERNELS.__getitem__, key="kernel", horizontal=True,
        help="Accuracies are predicted with the kernel of a wide network: the conjugate kernel if only the readout is "
        "trained, the tangent kernel if all weights are.",
    )  # fmt: skip
    return Network(kind, activation, feedback, injection), kernel


def _sizes(source: str, most: int) -> dict[str, Any]:
    st.subheader("The data", anchor=False)
    start, sizes = _START.data, dict[str, Any]()
    n = st.slider(
        "Number of samples", 100, MOST, start.n, 50, key="n",
        help="More samples give surer answers. Cells use at most 300, the SwiGLU block 100, so that the page answers "
        "within two seconds.",
    )  # fmt: skip
    if n > most:
        st.caption(f"{most} are used: more would be too slow for this network.")
    sizes["n"] = min(n, most)
    if source == "mixture":
        sizes["mean"] = st.slider(
            "Distance of the class means", 0.0, 8.0, start.mean, 0.25, key="mean",
            help="Norm of the class means. At 0 the classes differ in their covariances only.",
        )  # fmt: skip
        sizes["gap"] = st.slider(
            "Covariance gap", 0.0, 16.0, start.gap, 0.5, key="gap",
            help="The covariance of the second class is (1 + gap/√p) times the identity.",
        )  # fmt: skip
        sizes["p"] = st.slider("Dimension", 10, 300, start.p, 10, key="p", help="Number of features, p.")
    sizes["seed"] = int(
        st.number_input(
            "Seed", 0, 9999, start.seed, 1, key="seed", help="Random seed of the choice of samples."
        )
    )
    return sizes


def _file() -> dict[str, Any]:
    limit = st.get_option("server.maxUploadSize")
    place, labels, scale = st.columns([6, 5, 7])
    file = place.file_uploader(
        "CSV or NPY file", type=["csv", "npy"], key="upload",
        help=f"One sample per row, at most {limit} MB; a header is allowed. The file stays on this machine.",
    )  # fmt: skip
    label = labels.text_input(
        "Label column (optional)", key="label_column", placeholder="detected if it contains words",
        help="Name in the header, or number counted from 1; -1 is the last column. By default a single column of words "
        "is used.",
    )  # fmt: skip
    chosen = scale.selectbox(
        "Scaling of the rows", SCALES, format_func=lambda how: f"{how}: {Preprocessing.words(how)}", key="scale",
        help="Rows with norms near 1 suit the default strengths of feedback and input.",
    )  # fmt: skip
    return {"file": file, "label": label.strip(), "scale": chosen}


def _read(file: Any, label: str) -> Upload | None:
    if file is None:
        return None
    limit = st.get_option("server.maxUploadSize")
    # One byte more than allowed suffices to detect a file that is too large.
    content = file.read(limit * MEGABYTE + 1)
    file.seek(0)
    return read_upload(file.name, content, megabytes=limit, label_column=label or None)
