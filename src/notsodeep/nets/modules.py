"""The base of all networks: features, a linear readout, weights in two scalings, and the network that a model has.

In theory weights have entries of variance 1, multiplied by factors (σ_a, σ_b, 1/√m). A matrix (or filter) is stored
with variance 1 ("ntk"), or divided by √fan_in, the size of torch's own weights ("standard"). The function is the same;
the effect of an optimiser's step is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import singledispatch
from math import prod, sqrt
from typing import Any

import torch
from torch import Tensor, nn

from notsodeep.errors import InputError
from notsodeep.models import Model
from notsodeep.nets.connections import Connection
from notsodeep.nets.fixed_point_solvers import SolveReport
from notsodeep.nets.weight_groups import TiedGroup, WeightGroup
from notsodeep.validation import as_count, as_number, one_of

TRAIN = ("all", "readout")
SCALINGS = ("standard", "ntk")


class Net(nn.Module):
    """The base of all networks: features, a linear readout, and the choice of trained parameters.

    Args:
        sample_shape: shape of one sample: (features,) for rows, (channels, height, width) for images.
        connection: action of the weights on a layer: matrices or filters.
        units: m, of every layer; of images channels.
        out_features: number of outputs.
        train: "all", or "readout" for fixed hidden weights.
        scaling: "standard" or "ntk": how trained weights are stored. The function is the same.
        dtype: float32 if not given.
        device: device of the parameters.
        output_scale: factor of the outputs; 1/(γ√m) for the mean-field scaling of `adaptive_kernel`.

    Attributes:
        spec: the model it realises.
        scaling: "standard": matrices are stored with variance 1/fan_in, for ordinary optimisers at ordinary rates;
            "ntk": with variance 1, so that gradient descent with one rate for all follows the tangent kernel.
        fan_in: by name of a weight, what "standard" divides its variance by; 1 for a bias, and for "ntk".
        factors: by name of a weight, what its stored value is multiplied by to give the weight of the theory: the root
            of fan_in; of the readout times `output_scale`.
        train_mode: "all", or "readout": the hidden weights are buffers, and features never change.
        in_features: number of entries of a sample.
        width: number of features.
        layer_size: number of entries of a hidden layer for one sample; more than the width where features are averages.
        hidden_fan_in: number of weights of a unit of a hidden layer.
        readout: (out_features, width).
        readout_bias: added to the outputs; None unless the network was built from weights that have one.
        last_solve: how the equilibrium of the last forward pass was solved; None for an explicit network.
        last_adjoint: how the adjoint equation of the last backward pass was solved; None for an explicit network.
    """

    spec: Model
    readout: Tensor
    readout_bias: Tensor | None
    last_solve: SolveReport | None = None
    last_adjoint: SolveReport | None = None
    fan_in: dict[str, int]
    factors: dict[str, float]

    def __init__(
        self,
        sample_shape: Sequence[int],
        connection: Connection,
        units: int,
        out_features: int,
        *,
        train: str = "all",
        scaling: str = "standard",
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
        output_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.output_scale = as_number(output_scale, "output_scale", positive=True)
        self._place: dict[str, Any] = {"dtype": _floating(dtype), "device": device}
        self.scaling = one_of(scaling, SCALINGS, "scaling")
        self.fan_in, self.factors = {"readout": 1}, {"readout": 1.0}
        self.train_mode = one_of(train, TRAIN, "train")
        self.sample_shape = tuple(as_count(size, "in_features") for size in sample_shape)
        self.in_features = prod(self.sample_shape)
        self.connection, self.units = connection, as_count(units, "width")
        self.width = connection.features_of(self.units)
        self.out_features = as_count(out_features, "out_features")
        self.layer_size, self.hidden_fan_in = self.units * connection.count, self.units * connection.taps
        self.register_buffer("readout_bias", None)

    def _add(self, name: str, values: Tensor) -> None:
        """Hold weights of variance 1 as a parameter in its scaling if they are trained, as a buffer otherwise."""
        self.fan_in[name] = prod(values.shape[1:]) if self.scaling == "standard" else 1
        root = sqrt(self.fan_in[name])
        self.factors[name] = root * self.output_scale if name == "readout" else root
        # In the precision of the draws, so that a seed means one network in every precision.
        values = (values / root).to(**self._place)
        if name == "readout" or self.train_mode == "all":
            self.register_parameter(name, nn.Parameter(values))
        else:
            self.register_buffer(name, values)

    def unit_weight(self, name: str) -> Tensor:
        """The weight of the theory, of variance 1 when it was drawn, however it is stored."""
        weights: Tensor = self.factors[name] * getattr(self, name)
        return weights

    def parameter_groups(self, lr: float) -> list[dict[str, Any]]:
        """Groups for an optimiser without a scale of its own (SGD, momentum): the step follows the tangent kernel.

        In either scaling gradient descent on these groups moves the network as gradient descent with rate `lr` on
        weights of variance 1 does: a weight that is stored divided by √fan_in has the rate lr/fan_in.

            torch.optim.SGD(net.parameter_groups(1.0), lr=1.0)
        """
        as_number(lr, "lr", positive=True)
        return [
            {"params": [weights], "lr": lr / self.fan_in.get(name, 1), "kernel_lr": lr, "name": name}
            for name, weights in self.named_parameters()
            if weights.requires_grad
        ]

    @property
    def shared_options(self) -> dict[str, Any]:
        """Training mode, scalings, precision and device, as the constructors of networks take them."""
        place = {"dtype": self.readout.dtype, "device": self.readout.device}
        scalings = {"scaling": self.scaling, "output_scale": self.output_scale}
        return {"train": self.train_mode, **scalings, **place}

    def features(self, X: Tensor) -> Tensor:
        """The last hidden layer, (rows, width)."""
        raise NotImplementedError

    def outputs(self, features: Tensor) -> Tensor:
        """The readout of given features, (rows, out_features)."""
        outputs, factor = features @ self.readout.mT, self.factors["readout"]
        outputs = outputs if factor == 1.0 else factor * outputs
        return outputs if self.readout_bias is None else outputs + self.readout_bias

    def weight_groups(self, X: Tensor) -> Iterator[WeightGroup | TiedGroup]:
        """All groups of weights with the factors of their gradients, the readout last."""
        raise NotImplementedError

    def clear_cache(self) -> None:
        """Drop cached intermediate results, so that later results do not depend on earlier calls."""

    def contraction(self) -> float | None:
        """The Lipschitz constant of the equilibrium map, or a bound on it; None for a network without one."""
        return None

    def project(self) -> float | None:
        """Called after every optimiser step: enforce the bound on `contraction`, and return it."""
        return None

    def refuse_unsolved(self) -> None:
        """Raise an error if the last forward pass only warned of samples that did not converge."""

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, out_features)."""
        return self.outputs(self.features(X))

    def check_shape(self, shape: Sequence[int], name: str = "X") -> None:
        """Raise an error unless samples have the shape (n, *sample_shape)."""
        given, expected = tuple(shape), self.sample_shape
        if given[1:] == expected and given:
            return
        if not self.takes_images:
            flat = " Images go in flattened: X.reshape(len(X), -1)." if len(given) > 2 else ""
            raise InputError(
                f"{name} must have {expected[0]} columns, samples in rows, (rows, {expected[0]}); got {given}.{flat}"
            )
        what = "images" if len(expected) == 3 else "sequences"
        form = ", ".join(map(str, expected))
        raise InputError(f"{name} must be {what} (n, {form}); got {given}.{_image_hint(given, expected)}")

    @property
    def coupled_samples(self) -> bool:
        """Whether samples depend on each other, as the nodes of a graph do: all of them go in at once."""
        return False

    @property
    def takes_images(self) -> bool:
        """Whether samples have positions: images or sequences rather than rows."""
        return len(self.sample_shape) > 1

    def _rows(self, X: Tensor) -> Tensor:
        """Check samples and flatten each into a row."""
        if not isinstance(X, Tensor):
            raise InputError(
                f"X must be a torch tensor, not {type(X).__name__}: torch.as_tensor(X, dtype=torch.float32)."
            )
        self.check_shape(X.shape)
        if torch.is_autocast_enabled(X.device.type):
            X = X.to(self.readout.dtype)
        if X.dtype != self.readout.dtype:
            raise InputError(
                f"X is {X.dtype} and the network {self.readout.dtype}: "
                f"use X.to({self.readout.dtype}), or net.to({X.dtype})."
            )
        return X.flatten(1)

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        sizes = f"in_features={self.in_features}, width={self.width}"
        if self.takes_images:
            size = "×".join(map(str, self.sample_shape[1:]))
            sizes = f"in_channels={self.sample_shape[0]}, channels={self.units}, image_size={size}"
        how = f"train={self.train_mode!r}, scaling={self.scaling!r}"
        return f"{self.spec}, {sizes}, out_features={self.out_features}, {how}"


@singledispatch
def network_of(
    spec: Model,
    sample_shape: Sequence[int],
    width: int,
    out_features: int,
    **options: Any,
) -> Net:
    """Build a network of finite width with random weights for a model.

    Args:
        spec: the model.
        sample_shape: shape of one sample: (features,) for rows, (channels, height, width) for images.
        width: units of a layer; for images channels.
        out_features: number of outputs.
        options: keyword arguments of the network; those about equilibria are ignored for explicit models.
    """
    raise InputError(f"There is no network of finite width for {type(spec).__name__}.")


def gaussian_draws(seed: int | None) -> Callable[..., Tensor]:
    """A function that draws weights of variance 1, in float64 on the CPU: a seed is one network on every device."""
    # None is torch's global generator.
    generator = None if seed is None else torch.Generator().manual_seed(as_count(seed, "seed", least=0))
    return lambda *shape: torch.randn(shape, generator=generator, dtype=torch.float64)


def _floating(dtype: Any) -> torch.dtype:
    kind = torch.float32 if dtype is None else dtype
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise InputError(
            f"dtype must be a floating-point type of torch, such as torch.float64; got {dtype!r}."
        )
    return kind


def _image_hint(given: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """How to correct images of the wrong shape, where that can be guessed."""
    channels, size = expected[0], expected[1:]
    if given == expected:
        return " For one sample pass X[None]."
    if len(given) == 2 and given[1] == prod(expected):
        return f" They are flattened: X.reshape(-1, {', '.join(map(str, expected))})."
    if channels == 1 and given[1:] == size:
        return " The channel axis is missing: X[:, None]."
    if given[1:] == (*size, channels):
        return " Channels come first: X.movedim(-1, 1), in NumPy np.moveaxis(X, -1, 1)."
    return " Resize the images, or build the network with other in_channels and image_size."
