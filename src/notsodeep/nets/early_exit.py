"""Two students in one: a shallow one for rows on which it is sure of the class, a deeper one for the others.

docs/theory.md (12.6).  Most rows are easy: their largest output leads by much more than a cheap student is wrong by.
Only the others need more steps.  There is no loop and no solver: a row passes one network or two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from notsodeep.nets.doubt import Doubt, chances_of_rows, level_of
from notsodeep.nets.fidelity import relative_error
from notsodeep.nets.student_fit import in_batches
from notsodeep.nets.students import StepsNet
from notsodeep.nets.teacher_answers import Split

# Shares of the rows that go on to the deeper student, of which the best are candidates.
_SHARES = (0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
# What is expected to differ beside all that costs less, so that a pair is worth a place among the candidates.
_BETTER = 0.9
# What both together may cost beside the deeper student alone, so that the second way is worth having.
_WORTH = 0.8
# Telling rows apart and multiplying few of them at once takes as long as so many multiplications of each row (measured:
# 20 000 to 70 000, the fewer the smaller the network).
_OVERHEAD = 40_000


class EarlyExit(nn.Module):
    """The outputs of a shallow student; where its two largest are close, those of a deeper one, (12.6).

    What a row costs depends on the row, on average `operations`. For classes only.

    Args:
        shallow: asked for every row.
        deep: asked for rows on which the shallow one is not sure.
        gap: the difference of the two largest outputs below which it is not.
        share: of the rows on which it is not, where `gap` was found.

    Attributes:
        shallow, deep, share: as given.
        gap: as given, a buffer.
        sample_shape: the shape of one sample.
        out_features: number of outputs.
        steps: of the deeper student.
        units: of the deeper student.
    """

    gap: Tensor

    def __init__(self, shallow: StepsNet, deep: StepsNet, gap: float, share: float) -> None:
        super().__init__()
        self.shallow, self.deep, self.share = shallow, deep, share
        self.register_buffer("gap", shallow.readout.new_tensor(gap))
        self.sample_shape, self.out_features = deep.sample_shape, deep.out_features
        self.steps, self.units = deep.steps, deep.units

    def goes_on(self, outputs: Tensor) -> Tensor:
        """Whether the deeper student is asked, for each row of outputs of the shallow one."""
        largest = outputs.topk(2, dim=1).values
        return largest[:, 0] - largest[:, 1] < self.gap

    def forward(self, X: Tensor) -> Tensor:
        """The outputs, (rows, out_features)."""
        outputs: Tensor = self.shallow(X)
        places = self.goes_on(outputs).nonzero().squeeze(1)
        if not torch.compiler.is_compiling() and not len(places):
            return outputs
        return outputs.index_copy(0, places, self.deep(X[places]))

    @property
    def operations(self) -> int:
        """Multiplications with weights for one sample, on average over samples like those of the distillation.

        Telling samples apart is counted as 40 000 of them.
        """
        return self.shallow.operations + round(self.share * self.deep.operations) + _OVERHEAD

    def extra_repr(self) -> str:
        """What `print(net)` shows."""
        return f"gap={float(self.gap):.3g}, share={self.share:.3g}"


@dataclass(frozen=True)
class _Known:
    """A student, its outputs on the rows that stop fits, and for each of these the chance of another class."""

    name: str
    network: StepsNet
    outputs: Tensor
    chances: Tensor

    @property
    def expected(self) -> float:
        return float(self.chances.mean())


def expected_disagreement(network: nn.Module, data: Split, batch: int) -> float:
    """The share of rows with another class than the teacher's, smoothed: few rows that differ say little."""
    X, Y = data.stop
    if not isinstance(network, EarlyExit):
        return float(chances_of_rows(in_batches(network, X, batch), Y).mean())
    first, second = (_known("", student, data, batch) for student in (network.shallow, network.deep))
    return _joined(first, second, network.goes_on(first.outputs))


def early_exits(students: Mapping[str, StepsNet], data: Split, batch: int) -> Iterator[tuple[str, EarlyExit]]:
    """Pairs of students, by name, that are expected to be clearly more faithful than all that costs less.

    Which are tried is decided on the rows that stop fits, and so is the gap.

    Args:
        students: fitted students, by name.
        data: the rows.
        batch: rows at a time.
    """
    X, Y = data.stop
    known = [
        _known(name, network, data, batch)
        for name, network in students.items()
        if relative_error(in_batches(network, X, batch), Y) < 1.0
    ]
    found: list[tuple[int, float, str, EarlyExit | None]] = [
        (one.network.operations, one.expected, one.name, None) for one in known
    ]
    for first in known:
        for second in known:
            found += list(_pairs(first, second))
    found.sort(key=lambda one: one[:2])
    least = float("inf")
    for _, expected, name, pair in found:
        if pair is not None and expected < _BETTER * least:
            yield name, pair
        elif pair is not None:
            continue
        least = min(least, expected)


def _known(name: str, network: StepsNet, data: Split, batch: int) -> _Known:
    outputs = in_batches(network, data.stop[0], batch)
    return _Known(name, network, outputs, chances_of_rows(outputs, data.stop[1]))


def _pairs(first: _Known, second: _Known) -> Iterator[tuple[int, float, str, EarlyExit]]:
    largest = first.outputs.topk(2, dim=1).values
    gaps = largest[:, 0] - largest[:, 1]
    for share in _SHARES:
        pair = EarlyExit(first.network, second.network, float(gaps.quantile(share)), share)
        if pair.operations > _WORTH * second.network.operations:
            return
        name = f"{first.name}; on {share:.0%} of the rows {second.name.replace(' of its own', '')}"
        yield pair.operations, _joined(first, second, pair.goes_on(first.outputs)), name, pair


def _joined(first: _Known, second: _Known, goes_on: Tensor) -> float:
    return float(torch.where(goes_on, second.chances, first.chances).mean())


@dataclass(frozen=True)
class ExitDoubt:
    """An estimate, for each row, of the chance that a pair of students differs from the teacher.

    Attributes:
        shallow: of the shallow student, found on rows for which it answers.
        deep: of the deeper one, found on rows that go on to it.
        seen: the doubts on the rows that both were found from, in ascending order.
    """

    shallow: Doubt
    deep: Doubt
    seen: Tensor

    @classmethod
    @torch.no_grad()
    def of(
        cls,
        network: EarlyExit,
        rows: tuple[Tensor, Tensor],
        estimate: Callable[[StepsNet, tuple[Tensor, Tensor]], Doubt],
        batch: int,
    ) -> ExitDoubt:
        """The estimate, from rows that no student was fitted to.

        Args:
            network: both students.
            rows: samples and what the teacher says of them.
            estimate: finds the doubt of a student from such rows.
            batch: samples at a time.
        """
        X, Y = rows
        goes_on = network.goes_on(in_batches(network.shallow, X, batch))
        parts = []
        for student, kept in ((network.shallow, ~goes_on), (network.deep, goes_on)):
            chosen = kept if bool(kept.any()) else torch.ones_like(kept)
            parts.append((estimate(student, (X[chosen], Y[chosen])), bool(kept.any())))
        seen = [doubt.seen for doubt, used in parts if used and doubt.seen is not None]
        return cls(parts[0][0], parts[1][0], torch.cat(seen).sort().values)

    def level(self, share: float) -> float:
        """The doubt that this share of the rows exceeds."""
        return level_of(self.seen, share)

    def answer(self, network: EarlyExit, X: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs of the pair, and for each row the estimated chance of another class."""
        outputs, doubts = self.shallow.answer(network.shallow, X)
        places = network.goes_on(outputs).nonzero().squeeze(1)
        if len(places):
            deeper, others = self.deep.answer(network.deep, X[places])
            outputs, doubts = outputs.index_copy(0, places, deeper), doubts.index_copy(0, places, others)
        return outputs, doubts


__all__ = ["EarlyExit", "ExitDoubt", "early_exits", "expected_disagreement"]
