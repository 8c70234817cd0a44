"""Whether a cell that was read from a torch module moves states as the module itself does, at its given weights.

The second moments of a few steps of the module are compared with those of networks of the read cell, of the module's
width, whose weights are drawn afresh: their mean is the prediction, their scatter the noise at this width. At small
widths that noise hides what sums and products of the weights themselves show at once; these are looked at first.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, prod, sqrt

import torch
from torch import Tensor, nn

from notsodeep.cells.expressions import Input, nodes_of
from notsodeep.errors import InputError
from notsodeep.models.cell_models import Equilibrium
from notsodeep.nets.cell_net import CellNet

# Networks that are drawn; states that all of them and the module are given; largest width of the networks; steps.
_NETWORKS, _STATES, _WIDTH, _STEPS = 32, 128, 512, ("one step", "two steps", "three steps", "four steps")
# How states start, and the factors of drawn states and inputs. A small input shows what the weights of the state do.
_STARTS = {
    "random states": (1.0, 1.0), "random states with a small input": (1.0, 0.1), "zero": (0.0, 1.0),
}  # fmt: skip
# Far from the seeds of modules: equal numbers in weights and states are not independent.
_SEED = 10**12
# Refused are mean deviations, and unequal ones, of more standard errors than these that are also larger than this share
# of the second moment. A scatter has long tails: its deviations may have few directions.
_MEAN_ERRORS, _SCATTER_ERRORS, _SHARE = 5.0, 9.0, 0.05
_INSTEAD = "Give independent weights of mean zero, or measure the module itself."


def check_read_cell(
    module: nn.Module, model: Equilibrium, z: Tensor, x: Tensor, axis: int, narrowest: int, signed: bool
) -> None:
    """Refuse a cell whose second moments after a few steps are not those of the module.

    Args:
        module: a copy of the module, in evaluation mode, which this function may change.
        model: the cell that was read.
        z: an example of the state; states are drawn in its shape.
        x: an example of the input, which also gives the size of the drawn ones.
        axis: axis of the features.
        narrowest: size of the smallest vector of the module, which determines the noise.
        signed: draw all inputs with both signs: the input is added to the state, so that its signs matter.
    """
    probes = _Probes(z, x, axis, signed)
    width = min(z.shape[axis], _WIDTH)
    reads_input = any(isinstance(node, Input) for node in nodes_of(model.step))
    drawn: dict[str, list[dict[str, Tensor]]] = {words: [] for words in _STARTS}
    for seed in range(_NETWORKS):
        net = _network(model, probes, width, seed, reads_input)
        for words, scales in _STARTS.items():
            drawn[words].append(_moments(_steps_of_network(net, probes, seed, *scales)))
    for words, scales in _STARTS.items():
        unit = 0.0
        for name, values in _moments(_steps_of_module(module, probes, *scales)).items():
            references = torch.stack([moments[name] for moments in drawn[words]])
            if name.endswith("second moments"):
                unit = float(references.mean())
            problem = _deviation(values, references, unit, width / narrowest)
            if problem:
                raise InputError(
                    f"from_torch read the cell {model.step}, but the module does something else: from {words}, {name} "
                    f"{problem}. Its weights are shared, structured or not of mean zero, or its forward does what "
                    f"its operations do not show (hooks, changes in place, an eps that is not small). {_INSTEAD}"
                )


def check_weights(weights: Sequence[Tensor], biases: Sequence[Tensor]) -> None:
    """Refuse filters with unequal taps, weights whose rows add up to too little, and biases that follow something else.

    Args:
        weights: (outputs, inputs, taps …) of each vector that weights read.
        biases: one number for each feature.
    """
    sums: list[Tensor] = []
    for values in weights:
        flat = values.flatten(2) if values.ndim > 2 else values[:, :, None]
        outputs, inputs, taps = flat.shape
        square = max(float(flat.square().mean()), 1e-300)
        gram = torch.einsum("oit,oiu->tu", flat, flat) / (outputs * inputs * square)
        off = float((gram - torch.eye(taps, dtype=gram.dtype)).abs().max())
        if taps > 1 and off > max(_MEAN_ERRORS * sqrt(2.0 / (outputs * inputs)), _SHARE):
            _refuse("the taps of a filter have unequal mean squares, or follow each other")
        sums.append(flat.sum((1, 2)))
        # The cube root of a mean of squares is nearly Gaussian.
        ratio, noise = float(sums[-1].square().mean() / (inputs * taps * square)), 2.0 / (9.0 * outputs)
        if ratio ** (1 / 3) < 1.0 - noise - _MEAN_ERRORS * sqrt(noise):
            _refuse("the rows of a matrix add up to nearly zero, which shows on vectors with a mean")
    for number, bias in enumerate(biases):
        for other in (*biases[:number], *sums):
            size = float(bias.norm() * other.norm())
            if other.shape == bias.shape and abs(float(bias @ other)) * sqrt(len(bias)) > _MEAN_ERRORS * size:
                _refuse("a bias follows another bias, or the sums of rows of weights")


def _refuse(reason: str) -> None:
    raise InputError(f"from_torch: the weights are not independent draws: {reason}. {_INSTEAD}")


class _Probes:
    """Inputs, and states of any width: Gaussian, those of places 2k and 2k + 1 correlated by 1/2, of unequal sizes.

    Values have the shape (rows, features, positions); rows of a state are all its axes before the features.
    """

    def __init__(self, z: Tensor, x: Tensor, axis: int, signed: bool) -> None:
        self.z, self.x, self.axis = z, x, axis
        self.batch, self.positions = prod(z.shape[:axis]), prod(z.shape[axis + 1 :])
        self.rows = max(4, 2 * ceil(_STATES / self.positions / 2))
        self.calls = ceil(self.rows / self.batch)
        self._sizes = 0.5 + torch.rand(
            self.calls * self.batch, 1, self.positions, generator=_generator(0), dtype=torch.float64
        )
        size = float(x.detach().double().square().mean().sqrt()) if x.is_floating_point() else 1.0
        features = x.shape[axis] if x.ndim > axis else 1
        self.inputs = (size or 1.0) * self._gaussian(features, 1)
        if not signed:
            # Weights with a mean show on inputs with a mean.
            self.inputs[::4], self.inputs[1::4] = self.inputs[::4].abs(), self.inputs[1::4].abs()

    def states(self, width: int, seed: int) -> Tensor:
        """Draw states of a width."""
        return self._gaussian(width, 2 + seed)

    def _gaussian(self, features: int, seed: int) -> Tensor:
        shape = len(self._sizes), features, self.positions
        values = torch.randn(shape, generator=_generator(seed), dtype=torch.float64)
        values[1::2] = 0.5 * values[:-1:2][: len(values[1::2])] + sqrt(0.75) * values[1::2]
        return self._sizes * values


def _steps_of_module(module: nn.Module, probes: _Probes, state: float, size: float) -> list[Tensor]:
    """The states before the first step and after each, (rows, features, positions)."""
    width = probes.z.shape[probes.axis]
    start, inputs = state * probes.states(width, _NETWORKS), size * probes.inputs
    batches: list[list[Tensor]] = []
    pairs = zip(torch.split(start, probes.batch), torch.split(inputs, probes.batch), strict=True)
    for values, given in pairs:
        z, x = _like(values, probes.z, probes.axis), probes.x.clone()
        if given.numel() == x.numel():
            x = _like(given, x, probes.axis)
        steps = [values]
        for _ in _STEPS:
            # A copy of the state, as a solver keeps it; the input is that of all steps.
            z = module(z.clone(), x).clone()
            steps.append(z.reshape(values.shape).double().cpu())
        batches.append(steps)
    return [torch.cat(parts)[: probes.rows] for parts in zip(*batches, strict=True)]


def _steps_of_network(net: CellNet, probes: _Probes, seed: int, state: float, size: float) -> list[Tensor]:
    """The same of a network."""
    inputs = size * probes.inputs[: probes.rows, : net.sample_shape[0]].reshape(-1, *net.sample_shape)
    states = [state * probes.states(net.units, seed)[: probes.rows]]
    for _ in _STEPS:
        states.append(net.cell(states[-1].flatten(1), inputs).reshape(states[0].shape))
    return states


def _network(model: Equilibrium, probes: _Probes, width: int, seed: int, reads_input: bool) -> CellNet:
    """A network of the cell whose weights have exactly the mean squares that were read."""
    features = probes.inputs.shape[1] if reads_input else 1
    shape = features, *probes.z.shape[probes.axis + 1 :]
    net = CellNet(model, shape, width, 1, seed=_SEED - 1 - seed, dtype=torch.float64, scaling="ntk")
    for weights in net.stored_weights():
        weights.div_(weights.square().mean().sqrt())
    return net


def _moments(steps: list[Tensor]) -> dict[str, Tensor]:
    """Second moments of the states after each step, by name; others of a step follow its first."""
    found: dict[str, Tensor] = {}
    for number, state in enumerate(steps[1:]):
        name = f"after {_STEPS[number]}"
        found[f"{name} the second moments"] = _product(state, state)
        found[f"{name} the inner products of correlated states"] = _product(state[::2], state[1::2])
        found[f"{name} the inner products of independent states"] = _product(
            state[::2], state[1::2].roll(1, 0)
        )
        found[f"{name} the inner products of neighbouring positions"] = _product(
            state[:, :, 1:], state[:, :, :-1]
        )
        found[f"{name} the inner products with the start"] = _product(state, steps[0])
    found["after two steps the inner products with the first step"] = _product(steps[2], steps[1])
    return {name: values for name, values in found.items() if values.numel()}


def _product(one: Tensor, other: Tensor) -> Tensor:
    return (one * other).mean(1)


def _deviation(values: Tensor, references: Tensor, unit: float, narrowing: float) -> str:
    """How second moments differ from those of drawn networks, in words; "" within their noise.

    The mean of the deviations is compared with the standard deviation of the networks' means, their scatter among
    states and positions with the scatter of the networks'. The variance of a second moment falls as 1/width: that of
    the networks is multiplied by `narrowing`, their width over that of the narrowest vector of the module.
    """
    if not bool(torch.isfinite(values).all()):
        return "are not finite"
    count, drawn = len(references), references.flatten(1)
    mean = drawn.mean(0)
    deviations, variance = values.flatten() - mean, narrowing * (1.0 + 1.0 / count)
    shift, noise = float(deviations.mean()), sqrt(variance * float(drawn.mean(1).var()))
    if abs(shift) > max(_MEAN_ERRORS * noise, _SHARE * unit):
        expected = float(mean.mean())
        share = float(values.mean()) / expected if abs(expected) > _SHARE * unit else 0.0
        ratio = f"{share:.3g} times as large, " if share else ""
        return (
            f"are {float(values.mean()):.3g} instead of {expected:.3g} ({ratio}with a standard error of {noise:.1g} at "
            "its width)"
        )
    # How unequal the deviations are, their mean apart.
    scatter = deviations.std()
    scatters = sqrt(variance / (1.0 - 1.0 / count)) * (drawn - mean).std(1)
    excess = float((scatter.square() - scatters.mean().square()).clamp_min(0.0).sqrt())
    if float(scatter) > float(scatters.mean() + _SCATTER_ERRORS * scatters.std()) and excess > _SHARE * unit:
        times = float(scatter / scatters.mean())
        return f"scatter {times:.3g} times as much around those of the cell as its width explains"
    return ""


def _like(values: Tensor, example: Tensor, axis: int) -> Tensor:
    """Values (rows, features, positions) in the shape and precision of an example."""
    return (
        values.reshape(*example.shape[:axis], *values.shape[1:]).reshape(example.shape).to(example, copy=True)
    )


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(_SEED + seed)


__all__ = ["check_read_cell", "check_weights"]
