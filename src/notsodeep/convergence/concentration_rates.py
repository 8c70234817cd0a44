"""How fast Zᵀ Z/m approaches its limit K: the parts of docs/theory.md (8.22), measured and compared with the theory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import linalg, stats

from notsodeep.convergence.assumptions import as_sigma_w2, as_sphere
from notsodeep.convergence.network import PaperNetwork, paper_model
from notsodeep.convergence.population import PopulationGram, gram_of_model
from notsodeep.convergence.verified import norm_estimate
from notsodeep.errors import InputError
from notsodeep.validation import Array, as_count

# Differences below this part of ||K||_F are rounding and say nothing about a rate.
_ROUNDING = 1e-13


@dataclass(frozen=True)
class Split:
    """The three parts of docs/theory.md (8.22) at one depth l, Frobenius norms.

    Attributes:
        depth: l.
        tied: ||G - G^(l)||/m, infinite against finite depth with tied weights (Theorem 4).
        width: ||G^(l)/m - K^(l)||, finite against infinite width (Theorem 5).
        untied: ||K^(l) - K||, infinite against finite depth with untied weights (Theorem 3).
        tied_bound: what `tied` cannot exceed for this network, docs/theory.md (8.26), with ||W||₂ estimated to 1e-6.
        untied_bound: what `untied` cannot exceed, docs/theory.md (8.25).
    """

    depth: int
    tied: float
    width: float
    untied: float
    tied_bound: float
    untied_bound: float


@dataclass(frozen=True)
class Deviation:
    """The distance of one random network from K.

    Attributes:
        width: m.
        seed: of the network.
        frobenius: ||G/m - K||_F.
        operator: ||G/m - K||₂.
        least: λ_0/m.
        recurrent_norm: ||W||₂.
        splits: the three parts at each depth.
    """

    width: int
    seed: int
    frobenius: float
    operator: float
    least: float
    recurrent_norm: float
    splits: tuple[Split, ...]


@dataclass(frozen=True)
class Fit:
    """A slope with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Concentration:
    """Random networks of several widths compared with their limit.

    Attributes:
        gram: K.
        deviations: one record for each width and seed.
        sigma_w2: σ_w².
    """

    gram: PopulationGram
    deviations: tuple[Deviation, ...]
    sigma_w2: float

    def exponent(self, norm: str = "frobenius") -> Fit:
        """α in ||G/m - K|| ~ m^α, least squares over widths and seeds; the theory says -1/2.

        Args:
            norm: "frobenius" or "operator".
        """
        x = np.log([d.width for d in self.deviations])
        y = np.log([d.frobenius if norm == "frobenius" else d.operator for d in self.deviations])
        if len(set(x)) < 2 or len(x) < 3:
            raise InputError(
                "An exponent needs at least two widths and three networks: give several widths and seeds."
            )
        line = stats.linregress(x, y)
        reach = float(stats.t.ppf(0.975, len(x) - 2) * line.stderr)
        return Fit(float(line.slope), float(line.slope) - reach, float(line.slope) + reach)

    def tied_rate(self) -> float:
        """Observed factor per layer of the tied part, over all networks; Theorem 4 has 2√2 σ_w."""
        return float(np.median([self._rate([s.tied for s in d.splits], d) for d in self.deviations]))

    def untied_rate(self) -> float:
        """Observed factor per layer of ||K^(l) - K||_F; Theorem 3 has σ_w, docs/theory.md (8.25) σ_w²."""
        first = self.deviations[0]
        return self._rate([s.untied for s in first.splits], first)

    @property
    def proved_tied_rate(self) -> float:
        """The rate 2√2 σ_w per layer that the paper proves for tied weights."""
        return float(np.sqrt(8.0 * self.sigma_w2))

    @property
    def proved_untied_rate(self) -> float:
        """σ_w², docs/theory.md (8.25)."""
        return self.sigma_w2

    def _rate(self, parts: list[float], deviation: Deviation) -> float:
        floor = _ROUNDING * float(np.linalg.norm(self.gram.matrix))
        usable = [(s.depth, part) for s, part in zip(deviation.splits, parts, strict=True) if part > floor]
        if len(usable) < 2:
            return float("nan")
        # The deepest two: shallow layers have not settled to a rate.
        (shallow, before), (deep, after) = usable[-2:]
        return float((after / before) ** (1.0 / (deep - shallow)))


def concentration(
    X: ArrayLike,
    width: int | Sequence[int],
    sigma_w2: float,
    *,
    depths: Sequence[int] = (1, 2, 3, 4, 6, 8),
    seeds: Sequence[int] = (0,),
    normalise: bool = False,
) -> Concentration:
    """||Zᵀ Z/m - K|| for random networks, split as in docs/theory.md (8.22), with the rates of its parts.

    Args:
        X: samples in rows (n, d), of norm √d and no two parallel.
        width: m, or a sequence of widths.
        sigma_w2: σ_w² < 1/8.
        depths: the depths l at which the distance is split into parts.
        seeds: one network for each seed and width.
        normalise: scale the rows of X to norm √d.
    """
    rows, sigma_w2 = as_sphere(X, normalise=normalise), as_sigma_w2(sigma_w2)
    widths = [as_count(m, "width") for m in (width if isinstance(width, Sequence) else (width,))]
    if not widths or not seeds or not depths or min(depths) < 1:
        raise InputError("At least one width, one seed and one depth (from 1 on) are needed.")
    model = paper_model(sigma_w2)
    limit = gram_of_model(model, rows)
    layers = {depth: gram_of_model(model, rows, depth).matrix for depth in sorted(depths)}
    found = [_deviation(rows, m, sigma_w2, seed, limit.matrix, layers) for m in widths for seed in seeds]
    return Concentration(limit, tuple(found), sigma_w2)


def _deviation(
    rows: Array, width: int, sigma_w2: float, seed: int, limit: Array, layers: dict[int, Array]
) -> Deviation:
    network = PaperNetwork.draw(width, rows.shape[1], sigma_w2, seed=seed)
    X = torch.from_numpy(rows)
    Z = network.features(X).numpy()
    gram = Z @ Z.T / width
    tied = [layer.numpy() for layer in network.layers(X, max(layers))]
    norm = norm_estimate(network.recurrent.numpy())
    size = float(np.linalg.norm(Z)) ** 2 / width
    splits = []
    for depth, population in layers.items():
        part = tied[depth - 1] @ tied[depth - 1].T / width
        splits.append(
            Split(
                depth=depth,
                tied=float(np.linalg.norm(gram - part)),
                width=float(np.linalg.norm(part - population)),
                untied=float(np.linalg.norm(population - limit)),
                tied_bound=norm**depth * (2.0 + norm**depth) * size,
                untied_bound=len(rows) * sigma_w2**depth / (1.0 - sigma_w2),
            )
        )
    return Deviation(
        width=width,
        seed=seed,
        frobenius=float(np.linalg.norm(gram - limit)),
        operator=float(np.abs(linalg.eigvalsh(gram - limit)).max()),
        least=float(linalg.eigvalsh(gram)[0]),
        recurrent_norm=norm,
        splits=tuple(splits),
    )
