"""The explicit twin of a deep equilibrium model: the designed network of the same width."""

from __future__ import annotations

import warnings
from math import sqrt
from typing import NamedTuple, cast

from torch import Tensor

from notsodeep.designs import Design, InjectedFamily, NetworkFamily, design
from notsodeep.errors import InputError
from notsodeep.gaussian.moments import mean_derivative, second_moment
from notsodeep.nets.equilibrium_net import EquilibriumNet
from notsodeep.nets.feedforward_net import FeedforwardNet
from notsodeep.nets.modules import network_of
from notsodeep.progress import progress_bar
from notsodeep.validation import Array, root_mean_square

# A mean of φ this large, relative to its root mean square, is not rounding or sampling of τ0.
_CENTRED = 0.02


class Twin(NamedTuple):
    """A twin and where it comes from; `twin, design = explicit_twin(net, X)`."""

    network: FeedforwardNet
    design: Design


@progress_bar("explicit twin")
def explicit_twin(
    net: EquilibriumNet,
    X: Tensor | Array,
    kernel: str | None = None,
    *,
    family: str | NetworkFamily = "auto",
    layers: int | None = None,
    seed: int | None = None,
) -> Twin:
    """Build the explicit network with the same kernel, width and training mode as a DEQ.

    τ0 is the root mean square norm of the rows of X; for images, of their positions. The kernels of random networks
    match: the twin has new random weights, which do not depend on those of `net`. How close the kernels are on samples:
    `twin_distances(design, X)`.

    Args:
        net: the network to replace, a `DEQNet` or a `ConvDEQNet`.
        X: training rows or images, scaled as the network will see them.
        kernel: "ck" (what readout training sees), "ntk" (what full training sees), "ntk_paper" or "both"; by default
            "ck" for train="readout" and "ntk" for train="all".
        family: as in `design`, judged on rows of X. "auto" takes an injected network, with the DEQ's own activation,
            where the papers' design is more than 0.1 % away, and where the activation is not centred at τ0 or the
            model has a bias: their designs are about others (`DEQ.centred`). A `ConvDEQNet` has injected networks
            alone.
        layers: number of hidden layers, for a family that comes with several.
        seed: random seed of the twin's weights; torch's global generator (`torch.manual_seed`) if None.
    """
    if not isinstance(net, EquilibriumNet):
        raise InputError(f"explicit_twin takes a DEQNet or a ConvDEQNet, not {type(net).__name__}.")
    spec, rows = net.spec, net.spec.check_samples(X)
    net.check_shape(rows.shape)
    tau0 = root_mean_square(spec.squared_norms(rows))
    result = _designed(net, rows, tau0, kernel, family, layers)
    sizes = net.sample_shape, net.units, net.out_features
    twin = cast(FeedforwardNet, network_of(result.network, *sizes, seed=seed, **net.shared_options))
    return Twin(twin, result)


def _designed(
    net: EquilibriumNet,
    rows: Array,
    tau0: float,
    kernel: str | None,
    family: str | NetworkFamily,
    layers: int | None,
) -> Design:
    """The design of the twin, judged on the rows where its family asks for them."""
    spec, kernel = net.spec, kernel or ("ck" if net.train_mode == "readout" else "ntk")
    phi, q = spec.activation, spec.preactivation_variance(tau0)
    mean, size = float(mean_derivative(phi, q, 0)), sqrt(float(second_moment(phi, q)))
    centred = net.takes_images or abs(mean) <= _CENTRED * size
    chosen = "injected" if family == "auto" and (not centred or spec.bias2) else family
    injected = chosen == "injected" or isinstance(chosen, InjectedFamily)
    judged = net.takes_images or injected or (chosen == "auto" and kernel != "ntk_paper")
    result = design(spec, tau0, kernel, chosen, layers=layers, X=rows if judged else None)
    if result.misfit is None and not centred:
        warnings.warn(
            f"The activation {phi} has mean {mean:.3g} on these data, and this family assumes mean zero: the twin is "
            f"that of the centred model, and far from this one. Use family='injected', or build the network from "
            f"spec.centred({tau0:.4g}).",
            RuntimeWarning,
            stacklevel=3,
        )
    return result


__all__ = ["Twin", "explicit_twin"]
