"""Cells of torch for tests of the reader: honest ones, and hostile ones that are not what their operations say."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations

P = 24


class Cell(nn.Module):
    """A cell with these layers, whose forward is a function of itself, z and x."""

    def __init__(self, function: Callable[..., Tensor], **layers: Any) -> None:
        super().__init__()
        self.function = function
        for name, layer in layers.items():
            setattr(self, name, layer)

    def forward(self, z: Tensor, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.function(self, z, x) if scale == 1.0 else scale * z


def simple(self: Any, z: Tensor, x: Tensor) -> Tensor:
    return torch.tanh(self.W(z) + self.U(x))


def two_layers(self: Any, z: Tensor, x: Tensor) -> Tensor:
    return torch.tanh(self.V(torch.relu(self.W(z))) + self.U(x))


def layer(size: int, out: int, gain: float = 1.2, bias: bool = False) -> nn.Linear:
    """A Linear with Gaussian weights of variance gain²/size."""
    made = nn.Linear(size, out, bias=bias)
    nn.init.normal_(made.weight, std=gain / sqrt(size))
    return made


def cell(function: Callable[..., Tensor] = simple, m: int = 64, *, bias: bool = False, **layers: Any) -> Cell:
    """W and V read the state or hidden vectors, U the input."""
    own = {"W": layer(m, m, bias=bias), "V": layer(m, m), "U": layer(P, m)}
    return Cell(function, **{**own, **layers})


def with_weights(change: Callable[[Tensor], Tensor], name: str = "W", function: Any = simple) -> Any:
    """A cell one of whose matrices is made from a Gaussian one."""

    def build(m: int) -> Cell:
        made = cell(function, m)
        weight = getattr(made, name).weight
        with torch.no_grad():
            changed = change(weight.clone())
            weight.copy_(changed * weight.square().mean().sqrt() / changed.square().mean().sqrt())
        return made

    return build


def with_bias(change: Callable[[Tensor], Tensor], function: Any = simple) -> Any:
    """A cell whose bias is made from a Gaussian vector."""

    def build(m: int) -> Cell:
        made = cell(function, m, bias=True)
        with torch.no_grad():
            made.W.bias.copy_(change(torch.randn(m)))
        return made

    return build


def of(function: Callable[..., Tensor], **extra: Callable[[int], Any]) -> Any:
    """A cell with a forward of its own and further layers, made for a width."""
    return lambda m: cell(function, m, **{name: make(m) for name, make in extra.items()})


def _tied(m: int) -> Cell:
    made = cell(two_layers, m)
    made.V.weight = made.W.weight
    return made


def _tied_values(change: Callable[[Tensor], Tensor], function: Any = two_layers) -> Any:
    def build(m: int) -> Cell:
        made = cell(function, m)
        with torch.no_grad():
            made.V.weight.copy_(change(made.W.weight))
        return made

    return build


def _hooked(register: str, name: str, hook: Callable[..., Any]) -> Any:
    def build(m: int) -> Cell:
        made = cell(simple, m)
        getattr(made.get_submodule(name), register)(hook)
        return made

    return build


class _Counting(nn.Module):
    """Another step at each call."""

    def __init__(self, m: int) -> None:
        super().__init__()
        self.W, self.U, self.calls = layer(m, m), layer(P, m), 0

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        self.calls += 1
        return torch.tanh((1.0 if self.calls % 2 else 0.2) * self.W(z) + self.U(x))


class _Caching(_Counting):
    """The input of the first call."""

    def forward(self, z: Tensor, x: Tensor) -> Tensor:
        if self.calls == 0:
            self.calls, self.injected = 1, self.U(x)
        return torch.tanh(self.W(z) + self.injected)


def _alias(s: Any, z: Tensor, x: Tensor) -> Tensor:
    h = s.W(z)
    before = h
    h += s.U(x)
    return torch.tanh(before)


def _state_in_place(s: Any, z: Tensor, x: Tensor) -> Tensor:
    h = z
    h *= 0.3
    return torch.tanh(s.W(z) + s.U(x))


def _relu_module(s: Any, z: Tensor, x: Tensor) -> Tensor:
    h = s.W(z) + s.U(x)
    return s.V(s.phi(h)) + 0.5 * h


def _written_to(s: Any, z: Tensor, x: Tensor) -> Tensor:
    h = s.W(z) + s.U(x)
    y = torch.mul(h, 0.5, out=h)
    return 0.5 * y + s.V(torch.tanh(h))


def _written_norm(s: Any, z: Tensor, x: Tensor) -> Tensor:
    h = 0.1 * (z + s.U(x))
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-2)


def _same_gate(s: Any, z: Tensor, x: Tensor) -> Tensor:
    gate, value = F.linear(z, s.W.weight), F.linear(z, s.W.weight.clone())
    return torch.sigmoid(gate) * torch.tanh(value) + s.U(x)


def _eye(w: Tensor) -> Tensor:
    return torch.eye(len(w))


def _relu(s: Any, z: Tensor, x: Tensor) -> Tensor:
    return torch.relu(s.W(z) + s.U(x))


def _biased_by(name: str, factor: float) -> Any:
    """A bias that is a multiple of the sums of rows of a matrix."""

    def build(m: int) -> Cell:
        made = cell(_relu, m, bias=True)
        with torch.no_grad():
            made.W.bias.copy_(factor * getattr(made, name).weight.sum(1))
        return made

    return build


def _normal_bias(m: int) -> nn.Linear:
    made = nn.Linear(1, m)
    nn.init.normal_(made.bias)
    return made


def _cycle(length: int) -> Callable[[Tensor], Tensor]:
    """A rotation to random directions of a permutation whose power of this length is the identity."""

    def change(w: Tensor) -> Tensor:
        places = torch.arange(len(w))
        whole = len(w) // length * length
        places[:whole] = places[:whole].reshape(-1, length).roll(1, 1).flatten()
        Q = torch.linalg.qr(w)[0]
        return Q @ _eye(w)[places] @ Q.T

    return change


def normed(norm: Callable[[int], nn.Module]) -> Any:
    """A residual step with a norm."""
    return of(lambda s, z, x: s.norm(z + s.V(torch.relu(s.W(z))) + s.U(x)), norm=norm)


def small_normed(s: Any, z: Tensor, x: Tensor) -> Tensor:
    return z * 0.5 + s.V(torch.tanh(s.W(s.norm(1e-3 * (z + s.U(x))))))


def filters(change: Callable[[Tensor], Tensor] | None = None, kind: type = nn.Conv2d, **options: Any) -> Any:
    """A cell of images or sequences; W may be changed to other filters of the same mean square."""

    def build(m: int) -> Cell:
        W = kind(m, m, 3, padding="same", **options)
        nn.init.normal_(W.weight, std=1.0 / sqrt(3.0 ** (W.weight.ndim - 2) * m))
        if change is not None:
            with torch.no_grad():
                changed = change(W.weight.clone())
                W.weight.copy_(changed * W.weight.square().mean().sqrt() / changed.square().mean().sqrt())
        return Cell(simple, W=W, U=kind(P, m, 3, padding="same", bias=False))

    return build


def _centre(w: Tensor) -> Tensor:
    other = torch.zeros_like(w)
    other[:, :, 1, 1] = w[:, :, 1, 1]
    return other


def examples(module: nn.Module, m: int) -> tuple[Tensor, Tensor]:
    """A state and an input for a cell of this width."""
    kinds = {nn.Conv2d: (5, 5), nn.Conv1d: (9,)}
    shape = next((kinds[type(part)] for part in module.modules() if type(part) in kinds), ())
    features = m if isinstance(getattr(module, "U", None), nn.Identity) else P
    return torch.zeros(4, m, *shape), torch.randn(4, features, *shape)


# The builders take a width. Some of these are read rightly after all: the tests compare with re-drawn modules.
HOSTILE: dict[str, Callable[[int], nn.Module]] = {
    "bias of row sums": _biased_by("W", 0.7),
    "bias of the input's row sums": _biased_by("U", 0.7),
    "bias before and after relu": of(
        lambda s, z, x: torch.relu(s.W(z) + s.U(x) + s.shift.bias) + 0.5 * s.shift.bias,
        shift=lambda m: _normal_bias(m),
    ),
    "cycle of three": with_weights(_cycle(3)),
    "cycle of four": with_weights(_cycle(4)),
    "columns of both signs": with_weights(lambda w: torch.cat([w[:, ::2], -w[:, ::2]], 1), function=_relu),
    "rows that add up to zero": with_weights(lambda w: w - w.mean(1, keepdim=True), function=_relu),
    "horizontal filters": filters(
        lambda w: w * torch.tensor([0.0, 1.0, 0.0])[:, None], padding_mode="circular", bias=False
    ),
    "tied layers": _tied,
    "tied values": _tied_values(lambda w: w.clone()),
    "transposed values": _tied_values(lambda w: w.T.clone()),
    "same gate": of(_same_gate),
    "symmetric": with_weights(lambda w: w + w.T),
    "positive definite": with_weights(lambda w: w @ w.T),
    "identity": with_weights(_eye),
    "permutation": with_weights(lambda w: _eye(w).roll(1, 0)),
    "rank one": with_weights(lambda w: w[:, :1] @ w[:1]),
    "positive": with_weights(torch.abs),
    "mean": with_weights(lambda w: w + w.std()),
    "mean after relu": with_weights(lambda w: w + 0.3 * w.std(), "V", two_layers),
    "half of the columns": with_weights(lambda w: w * (torch.arange(len(w)) < len(w) // 2)),
    "input positive": with_weights(torch.abs, "U"),
    "input one column": with_weights(lambda w: w * (torch.arange(w.shape[1]) == 0), "U"),
    "bias of ones": with_bias(torch.ones_like),
    "bias of one unit": with_bias(lambda b: 8.0 * (torch.arange(len(b)) == 0)),
    "gate bias": with_bias(
        lambda b: 0 * b + 3.0, lambda s, z, x: torch.sigmoid(s.W(z)) * torch.tanh(s.V(z)) + s.U(x)
    ),
    "layer norm eps": normed(lambda m: nn.LayerNorm(m, eps=2.0)),
    "norm of small vectors": of(small_normed, norm=lambda m: nn.LayerNorm(m)),
    "written norm eps": of(_written_norm),
    "layer norm bias": of(lambda s, z, x: s.norm(z + s.U(x)), norm=lambda m: _shifted_norm(m)),
    "alias": of(_alias),
    "state in place": of(_state_in_place),
    "relu in place": of(_relu_module, phi=lambda m: nn.ReLU(inplace=True)),
    "out": of(_written_to),
    "filters of the centre": filters(_centre, padding_mode="circular", bias=False),
    "filters with a mean": filters(lambda w: w + w.std(), bias=False),
    "symmetric filters": filters(lambda w: w + w.transpose(0, 1).flip(2), nn.Conv1d, bias=False),
    "hook": _hooked("register_forward_hook", "W", lambda module, given, out: 0.3 * out),
    "pre-hook": _hooked("register_forward_pre_hook", "W", lambda module, given: (given[0].abs(),)),
    "hook of the cell": _hooked("register_forward_hook", "", lambda module, given, out: out + 0.5 * given[0]),
    "counting": _Counting,
    "caching": _Caching,
    "noise": of(lambda s, z, x: 0.9 * s.W(z) + s.U(x) + torch.randn(z.shape[-1])),
    "max over neighbours": of(lambda s, z, x: s.phi(s.W(z) + s.U(x)), phi=lambda m: nn.MaxPool1d(3, 1, 1)),
}


def _shifted_norm(m: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(m)
    nn.init.constant_(norm.bias, 1.0)
    return norm


def initialised(change: Callable[..., Any], function: Any = simple) -> Any:
    """A cell whose matrices an initialisation of torch fills."""

    @torch.no_grad()
    def build(m: int) -> Cell:
        made = cell(function, m)
        for part in made.modules():
            if isinstance(part, nn.Linear):
                change(part.weight)
        return made

    return build


def default(function: Any = simple) -> Any:
    """A cell as torch initialises it."""
    return lambda m: Cell(function, W=nn.Linear(m, m), V=nn.Linear(m, m), U=nn.Linear(P, m))


def _gated(s: Any, z: Tensor, x: Tensor) -> Tensor:
    gate, value = s.both(s.norm(z + s.U(x))).chunk(2, dim=-1)
    return s.last(z + s.V(F.silu(gate) * value))


def _wrapped(wrap: Callable[[nn.Module], nn.Module]) -> Any:
    def build(m: int) -> Cell:
        made = cell(simple, m)
        made.W = wrap(made.W)
        return made

    return build


HONEST: dict[str, Callable[[int], nn.Module]] = {
    "gaussian": of(simple),
    "default": default(),
    "default gelu": default(lambda s, z, x: F.gelu(s.W(z) + s.U(x))),
    "default two layers": default(two_layers),
    "orthogonal": initialised(nn.init.orthogonal_),
    "xavier": initialised(nn.init.xavier_uniform_),
    "kaiming": initialised(nn.init.kaiming_normal_, two_layers),
    "signs": initialised(lambda w: w.normal_().sign_().mul_(0.1)),
    "layer norm": normed(lambda m: nn.LayerNorm(m)),
    "rms norm": normed(lambda m: nn.RMSNorm(m)),
    "gated": of(_gated, both=lambda m: layer(m, 2 * m), norm=nn.RMSNorm, last=nn.RMSNorm),
    "wide": of(
        lambda s, z, x: 0.5 * z + s.down(F.gelu(s.up(z))) + s.U(x),
        up=lambda m: layer(m, 4 * m),
        down=lambda m: layer(4 * m, m),
    ),
    "narrow": of(
        lambda s, z, x: torch.tanh(s.up(torch.relu(s.down(z))) + s.U(x)),
        down=lambda m: layer(m, m // 8),
        up=lambda m: layer(m // 8, m),
    ),
    "input added": lambda m: cell(lambda s, z, x: torch.tanh(s.W(z) + s.U(x)), m, U=nn.Identity()),
    "gaussian bias": with_bias(lambda b: 0.5 * b),
    "relu bias": with_bias(lambda b: b, lambda s, z, x: torch.relu(0.7 * s.W(z) + s.U(x))),
    "images": filters(),
    "circular images": filters(padding_mode="circular", bias=False),
    "sequences": filters(kind=nn.Conv1d),
    "weight norm": _wrapped(parametrizations.weight_norm),
    "spectral norm": _wrapped(parametrizations.spectral_norm),
    "dropout": of(lambda s, z, x: s.drop(torch.tanh(s.W(z) + s.U(x))), drop=lambda m: nn.Dropout(0.3)),
    "concatenated": of(
        lambda s, z, x: torch.tanh(s.adapter(torch.cat([z, x], -1))), adapter=lambda m: nn.Linear(m + P, m)
    ),
}
