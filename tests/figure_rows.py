"""Small made-up rows of every experiment, with the fields that the experiments give."""

from __future__ import annotations

from typing import Any

import numpy as np

Row = dict[str, Any]


def _spectrum(generator: np.random.Generator, source: str, **fields: Any) -> Row:
    bulk = generator.chisquare(8, 200) / 10 + 0.05
    values = np.sort(np.concatenate([bulk, [30.0, 45.0]]))
    return {
        "kind": "spectrum",
        "source": source,
        "label": "",
        "n": 202,
        "p": 100,
        "eigenvalues": values.tolist(),
    } | fields


def _distance(first: str, second: str, **fields: Any) -> Row:
    return {
        "kind": "distance",
        "reading": "pre-activations",
        "first": first,
        "second": second,
        "n": 202,
        "p": 100,
        "seed": 0,
        "absolute": 0.131,
        "relative": 0.004,
        "norm": 45.0,
        "main": True,
    } | fields


def _activation(layer: int, label: str, **fields: Any) -> Row:
    t = np.linspace(-3, 3, 61)
    value = np.tanh(t) if layer == 0 else np.clip(0.76 * t, -1, 1) * (1 + 0.2 * layer)
    return {
        "kind": "activation",
        "label": label,
        "layer": layer,
        "scale": 1.0,
        "t": t.tolist(),
        "value": value.tolist(),
    } | fields


def aistats() -> list[Row]:
    rows: list[Row] = []
    for data in ("sphere", "mnist", "cifar10"):
        for rate in ("common", "own"):
            for width in (256, 1024, 4096):
                for seed in (0, 1):
                    steps = np.arange(0, 2001, 50)
                    losses = 3.0 * np.exp(-steps * width**0.5 / 4e3 * (1 + 0.05 * seed))
                    norms = 0.55 + 0.1 * (1 - np.exp(-steps / 300)) * 256 / width
                    rows.append(
                        {
                            "kind": "training",
                            "data": data,
                            "rate": rate,
                            "width": width,
                            "seed": seed,
                            "n": 100,
                            "d": 100,
                            "lr": 0.1,
                            "steps": steps.tolist(),
                            "losses": losses.tolist(),
                            "norms": norms.tolist(),
                            "least": (0 * norms + 0.1).tolist(),
                            "first_loss": 3.0,
                            "last_loss": float(losses[-1]),
                            "largest_norm": float(norms.max()),
                            "stopped": None,
                        }
                    )
    return rows


def hld() -> list[Row]:
    generator, rows = np.random.default_rng(0), []
    for kernel in ("preactivations", "ntk_preactivations"):
        for source in ("deq", "twin", "equivalent", "monte-carlo"):
            rows.append(_spectrum(generator, source, data="sphere", kernel=kernel))
        rows.append(_distance("deq", "twin", data="sphere", kernel=kernel))
        rows.append(_activation(0, "DEQ: ReLU", kernel=kernel))
        rows.append(_activation(1, "quadratic", kernel=kernel, a0=0.1, a1=0.2, a2=0.3))
    return rows


def iclr_1() -> list[Row]:
    generator, rows = np.random.default_rng(1), []
    for data, paper in (("mixture", 0.12), ("mnist", 1.57)):
        for source in ("deq", "equivalent", "refined", "monte-carlo"):
            rows.append(_spectrum(generator, source, data=data, kernel="preactivations"))
        rows.append(_distance("deq", "equivalent", data=data, kernel="preactivations", paper=paper))
        rows.append(_distance("deq", "refined", data=data, kernel="preactivations", main=False))
    return rows


def iclr_2() -> list[Row]:
    generator, rows = np.random.default_rng(2), []
    for data, paper in (("mixture", 0.23), ("mnist", 1.83)):
        for source in ("deq", "twin", "printed"):
            rows.append(_spectrum(generator, source, data=data, kernel="preactivations"))
        rows.append(_distance("deq", "twin", data=data, kernel="preactivations", paper=paper))
        rows.append(_activation(0, "DEQ: centred ReLU", data=data, kernel="preactivations"))
        rows.append(_activation(1, "Leaky ReLU", data=data, kernel="preactivations"))
    return rows


def icml_matching() -> list[Row]:
    generator, rows = np.random.default_rng(3), []
    for activation in ("tanh", "relu"):
        for data in ("mixture", "mnist"):
            fields = {"data": data, "activation": activation, "kernel": "features"}
            rows += [_spectrum(generator, source, **fields) for source in ("deq", "twin", "plain")]
            rows.append(_distance("deq", "twin", **fields))
        for layer, label in enumerate(("DEQ", "layer 1", "layer 2")):
            rows.append(_activation(layer, label, activation=activation, kernel="features"))
    return rows


def errors(forms: tuple[str, ...], kernels: tuple[str, ...]) -> list[Row]:
    generator = np.random.default_rng(4)
    return [
        {
            "kind": "error",
            "data": "mixture",
            "activation": activation,
            "kernel": kernel,
            "form": form,
            "n": n,
            "p": int(0.8 * n),
            "seed": seed,
            "norm": 1.0,
            "absolute": 1.0,
            "relative": float((1 + k) * 0.1**j * 3 * n**-0.5 * np.exp(0.1 * generator.standard_normal())),
        }
        for k, activation in enumerate(("tanh", "relu", "swish"))
        for kernel in kernels
        for j, form in enumerate(forms)
        for n in (250, 500, 1000, 2000, 4000)
        for seed in (0, 1, 2)
    ]


def accuracies() -> list[Row]:
    generator = np.random.default_rng(5)
    return [
        {
            "kind": "accuracy",
            "data": data,
            "activation": activation,
            "width": width,
            "seed": seed,
            "model": model,
            "network": model,
            "layers": 1,
            "train_accuracy": 0.99,
            "agreement": None if model == "deq" else 0.97,
            "accuracy": float(1 - gap - 2 / width**0.9 + 0.002 * generator.standard_normal()),
            "classes": 10,
            "samples": 10000,
            "epochs": 20,
            "lr": 30.0,
            "feature_seconds": 1.0,
            "epoch_seconds": 1.0,
        }
        for data in ("mnist", "fashion_mnist", "cifar10_vgg19")
        for activation in ("relu", "tanh")
        for model, gap in (("deq", 0.03), ("twin", 0.031), ("plain", 0.05))
        for width in (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
        for seed in (0, 1, 2)
    ]


def spectrum() -> list[Row]:
    rows: list[Row] = []
    for activation in ("tanh", "relu"):
        for kernel in ("features", "ntk"):
            fields = {"data": "mixture", "activation": activation, "kernel": kernel, "n": 202, "p": 100}
            rows.append(_spectrum(np.random.default_rng(6), "deq", **fields))
            grid = np.linspace(0.1, 3.0, 200)
            for form, shift in (("refined", 0.0), ("asymptotic", 0.1)):
                density = 4.0 * np.maximum(grid - 0.1, 0) ** 1.5 * np.exp(-(grid + shift) * 3)
                rows.append(
                    {
                        "kind": "prediction",
                        "form": form,
                        "grid": grid.tolist(),
                        "density": density.tolist(),
                        "atoms": [],
                        "edges": [[0.1, 3.0]],
                        "isolated": [30.2, 44.8],
                        "isolated_exact": [30.0, 45.0],
                        "kolmogorov": 0.013,
                    }
                    | fields
                )
    return rows


def twins() -> list[Row]:
    return [
        {
            "kind": "race",
            "data": data,
            "activation": activation,
            "mode": mode,
            "width": 1024,
            "seed": seed,
            "model": model,
            "network": model,
            "accuracy": 0.97 - 0.02 * number,
            "agreement": 0.98 - 0.03 * number,
            "memory": 10_000_000 * (3 - number),
            "epoch_seconds": 2.0 / (1 + number),
            "feature_seconds": None if mode == "all" else 1.0,
            "inference_seconds": 0.05 / (1 + 5 * number),
        }
        for data in ("digits", "mnist")
        for activation in ("tanh",)
        for mode in ("readout", "all")
        for number, model in enumerate(("deq", "twin", "plain"))
        for seed in (0, 1)
    ]


def conv_twins() -> list[Row]:
    starts = {"twin": 0.02, "without-images": 0.03, "cut": 0.1, "plain-layer": 0.04}
    gains = {"twin": 0.04, "without-images": 0.1, "cut": 0.2, "plain-layer": 1.0}
    return [
        {
            "kind": "image-twin",
            "data": "cifar10",
            "activation": activation,
            "readout": readout,
            "kernel": kernel,
            "network": network,
            "layers": layers,
            "seed": 0,
            "relative": 2.0 * starts[network] * gains[network] ** (layers - 1),
            "up_to_factor": starts[network] * gains[network] ** (layers - 1),
        }
        for activation in ("relu", "tanh")
        for readout in ("flatten", "pool")
        for layers in (1, 2, 3)
        for network in starts
        for kernel in ("features", "ntk")
    ]


def distill() -> list[Row]:
    fits = {"cut": (0.1, 0.4), "closed form": (0.03, 0.3), "trained": (0.015, 0.25)}
    return [
        {
            "kind": "candidate",
            "data": "digits",
            "activation": activation,
            "seed": 0,
            "name": f"{fit}, {steps}",
            "fit": fit,
            "chosen": (fit, steps) == ("trained", 2),
            "operations": 1000 * steps,
            "agreement": 1.0 - start * gain ** (steps - 1),
            "rows": 1000,
            "target_agreement": 0.99,
            "milliseconds": 3.0 * steps,
            "teacher_milliseconds": 40.0,
        }
        for activation in ("relu", "tanh")
        for fit, (start, gain) in fits.items()
        for steps in (1, 2, 3)
    ]


def width() -> list[Row]:
    generator = np.random.default_rng(7)
    rows: list[Row] = [
        {
            "kind": "width",
            "activation": activation,
            "model": model,
            "kernel": kernel,
            "width": size,
            "seed": seed,
            "relative": float((1 + k) * size**-0.5 * np.exp(0.1 * generator.standard_normal())),
            "absolute": 1.0,
            "norm": 1.0,
        }
        for kernel in ("features", "ntk")
        for k, (activation, model) in enumerate(
            (("tanh", "deq"), ("tanh", "twin"), ("relu", "deq"), ("relu", "twin"))
        )
        for size in (128, 256, 512, 1024, 2048)
        for seed in (0, 1)
    ]
    rows += [
        {
            "kind": "draws",
            "activation": "tanh",
            "kernel": "features",
            "width": size,
            "draws": draws,
            "seed": 0,
            "relative": float((size * draws) ** -0.5),
        }
        for size in (256, 1024)
        for draws in (1, 4, 16, 64, 250)
    ]
    return rows


def learning_curves() -> list[Row]:
    rows: list[Row] = [
        {
            "kind": "learning",
            "data": "digits",
            "activation": activation,
            "width": size,
            "pool": 300,
            "n": n,
            "ridge": 0.03,
            "predicted": 1.0 - n**-0.4,
            "low": 0.97 - n**-0.4,
            "high": 1.03 - n**-0.4,
            "extrapolated": n > 300,
            "measured": 1.001 - n**-0.4,
            "deviation": 0.01,
            "trained": 4,
        }
        for activation in ("relu", "tanh")
        for size in (None, 128)
        for n in (50, 100, 300, 600, 1200)
    ]
    rows += [
        {
            "kind": "double-descent",
            "data": "mixture",
            "activation": activation,
            "model": model,
            "n": 200,
            "ridge": 1e-3,
            "width": size,
            "predicted": 1.0 + 1.0 / (0.1 + abs(size - 200) / 200),
            "measured": None if size % 100 else 1.1 + 1.0 / (0.1 + abs(size - 200) / 200),
            "deviation": None if size % 100 else 0.2,
        }
        for activation in ("relu", "tanh")
        for model in ("deq", "twin")
        for size in (50, 100, 150, 200, 250, 300, 400)
    ]
    return rows


SAMPLES = {
    "aistats-1": aistats(),
    "hld-1": hld(),
    "iclr-1": iclr_1(),
    "iclr-2": iclr_2(),
    "iclr-3": accuracies(),
    "icml-error": errors(("asymptotic",), ("features", "ntk", "ntk_paper")),
    "icml-matching": icml_matching(),
    "icml-accuracy": accuracies(),
    "refined": errors(("asymptotic", "refined-order-1", "refined", "refined-exact-square"), ("features",)),
    "spectrum": spectrum(),
    "twins": twins(),
    "conv-twins": conv_twins(),
    "distill": distill(),
    "width": width(),
    "learning-curves": learning_curves(),
}
