"""What an experiment is: settings → tasks → rows → what the paper states beside what came out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

from notsodeep.fingerprint import digest, fingerprint
from notsodeep.models import DEQ, Model
from notsodeep.records import chosen
from notsodeep_lab.papers.experiment_settings import DEQSpec, Spec

# Keys are strings; values are scalars, or lists and dictionaries of them. NaN and infinity are not JSON: None.
Row = dict[str, Any]
Size = Literal["quick", "full"]
S = TypeVar("S", bound=Spec)

# Two are drawn, the digits are scikit-learn's.
EMBEDDED = ("mixture", "sphere", "digits")


@dataclass(frozen=True)
class Task:
    """A unit of work that is done or not done, small enough that losing one costs little.

    Attributes:
        key: unique in its experiment and stable over versions: "n=1000 tanh seed=2".
        parameters: what `run` needs beyond the specification: booleans, numbers, strings. Rows of a task whose
            parameters have changed are not used again.
        cost: relative time, for the remaining time that the progress bar shows.
    """

    key: str
    parameters: Mapping[str, Any]
    cost: float = 1.0

    @classmethod
    def named(cls, key: str, cost: float = 1.0, **parameters: Any) -> Task:
        """A task whose key is a template: `Task.named("n={n} seed={seed}", n=1000, seed=2)`."""
        return cls(key.format(**parameters), parameters, cost)

    def __getitem__(self, name: str) -> Any:
        """The parameter of this name."""
        return self.parameters[name]


def grid(key: str, cost: Callable[..., float], **axes: Iterable[Any]) -> list[Task]:
    """A task for every combination of parameters, the last one changing fastest.

    Args:
        key: a template, "n={n} seed={seed}".
        cost: called with the parameters by name.
        **axes: the values of each parameter.
    """
    return [Task.named(key, cost(**values), **values) for values in _combinations(axes)]


def _combinations(axes: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


@dataclass(frozen=True)
class Expectation:
    """What a paper states or claims, beside what came out.

    Attributes:
        what: "‖G − Ḡ‖ (Figure 1 left)".
        paper: the number or the claim of the paper; None where it has none.
        ours: the number that came out.
        verdict: whether the claim holds; None where a number is only shown beside ours.
        remark: which kernel, which normalisation, why it differs.
    """

    what: str
    paper: float | str | None
    ours: float | str | None
    verdict: bool | None = None
    remark: str = ""


def claims_by(
    claims: Callable[..., Iterable[Expectation]], rows: Sequence[Row], **axes: Iterable[Any]
) -> list[Expectation]:
    """What `claims` says of the rows of each combination of fields, the last one changing fastest.

    Args:
        claims: called with the rows and, by name, their common values of the fields.
        rows: all rows; combinations without any are left out.
        **axes: the values of each field.
    """
    parts = [(chosen(rows, **values), values) for values in _combinations(axes)]
    return [claim for part, values in parts if part for claim in claims(part, **values)]


class Experiment(ABC, Generic[S]):
    """One figure or table as a specification that can be run again.

    Write one as

        class IcmlError(Experiment[IcmlErrorSpec]):
            name = "icml-error"
            …

    at the top level of a module (other processes find it by name) and add it to `papers.EXPERIMENTS`.

    Attributes:
        name: what `notsodeep reproduce` calls it, and its folder.
        paper: "ICML 2024, Figure 1", or "ours".
        summary: one line for `notsodeep reproduce --list`.
        minutes: expected on two cores, by size.
        cut: what the full size leaves out against the paper, and why; "" if nothing.
        quick: settings for a look in minutes, with the data that come with the package.
        full: the paper's settings, as far as two cores allow.
        timed: whether rows contain times, so that no two tasks may run at once.
    """

    name: str
    paper: str
    summary: str
    minutes: ClassVar[Mapping[Size, float]]
    cut: str = ""
    quick: S
    full: S
    timed: bool = False

    @property
    def spec_type(self) -> type[S]:
        """The type of its settings."""
        return type(self.quick)

    @property
    def needs(self) -> tuple[str, ...]:
        """The data sets that the full size needs."""
        return self.data_needed(self.spec("full"))

    def spec(self, size: Size, seeds: int | None = None) -> S:
        """The settings at a size; `seeds` replaces the number of repetitions."""
        chosen = self.quick if size == "quick" else self.full
        return chosen if seeds is None else replace(cast(Any, chosen), seeds=seeds)

    def data_needed(self, spec: S) -> tuple[str, ...]:
        """The data sets, named by the settings `data` and `real`, that do not come with the package."""
        named = [getattr(spec, field, ()) for field in ("data", "real")]
        names = [name for value in named for name in ((value,) if isinstance(value, str) else value)]
        return tuple(name for name in names if name not in EMBEDDED)

    def models(self, spec: S) -> list[Model]:
        """The models that the rows are about, or that those are made from; by default a DEQ for each activation."""
        return [DEQ(name, spec.sigma_a2) for name in spec.activations] if isinstance(spec, DEQSpec) else []

    def fingerprint(self, spec: S) -> str:
        """A hash of the models: rows are not used again when what the settings name has become another model."""
        return digest([fingerprint(model) for model in self.models(spec)])

    @abstractmethod
    def tasks(self, spec: S) -> Sequence[Task]:
        """The tasks in the order in which their rows are wanted."""

    @abstractmethod
    def run(self, spec: S, task: Task, data_dir: Path | None) -> list[Row]:
        """The rows of one task; the same for the same arguments, except fields that end in `seconds`."""

    @abstractmethod
    def expectations(self, spec: S, rows: Sequence[Row]) -> list[Expectation]:
        """What the paper states beside what came out."""
