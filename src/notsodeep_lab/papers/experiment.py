"""The base class of experiments: settings → tasks → rows → the paper's claims compared with the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar, cast

from notsodeep.fingerprint import digest, fingerprint
from notsodeep.models import DEQ, Model
from notsodeep_lab.papers.experiment_settings import DEQSpec, Spec
from notsodeep_lab.plots.row_selection import chosen

# Keys are strings; values are scalars, or lists and dictionaries of them. NaN and infinity are not JSON: None.
Row = dict[str, Any]
Size = Literal["quick", "full"]
S = TypeVar("S", bound=Spec)

# Data that need no files: two are simulated, the digits come with scikit-learn.
EMBEDDED = ("mixture", "sphere", "digits")


@dataclass(frozen=True)
class Task:
    """A unit of work of an experiment: an interrupted run continues with the unfinished tasks.

    Attributes:
        key: name that is unique in its experiment and stable across versions: "n=1000 tanh seed=2".
        parameters: what `run` needs beyond the settings: booleans, numbers, strings. Rows of a task whose
            parameters have changed are not reused.
        cost: relative running time, for the estimate of the remaining time.
    """

    key: str
    parameters: Mapping[str, Any]
    cost: float = 1.0

    @classmethod
    def named(cls, key: str, cost: float = 1.0, **parameters: Any) -> Task:
        """Create a task from a template of its key: `Task.named("n={n} seed={seed}", n=1000, seed=2)`."""
        return cls(key.format(**parameters), parameters, cost)

    def __getitem__(self, name: str) -> Any:
        """Return the parameter of this name."""
        return self.parameters[name]


def grid(key: str, cost: Callable[..., float], **axes: Iterable[Any]) -> list[Task]:
    """Create a task for every combination of parameters, the last one changing fastest.

    Args:
        key: template of the keys, "n={n} seed={seed}".
        cost: function of the parameters, called by keyword.
        **axes: the values of each parameter.
    """
    return [Task.named(key, cost(**values), **values) for values in _combinations(axes)]


def _combinations(axes: Mapping[str, Iterable[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


@dataclass(frozen=True)
class Expectation:
    """A number or claim of a paper compared with our result.

    Attributes:
        what: the quantity: "‖G − Ḡ‖ (Figure 1 left)".
        paper: the number or the claim of the paper; None where it has none.
        ours: our result.
        verdict: whether the claim holds; None where two numbers are compared without a verdict.
        remark: which kernel and normalisation, the criterion, why the numbers differ.
    """

    what: str
    paper: float | str | None
    ours: float | str | None
    verdict: bool | None = None
    remark: str = ""


def claims_by(
    claims: Callable[..., Iterable[Expectation]], rows: Sequence[Row], **axes: Iterable[Any]
) -> list[Expectation]:
    """Check claims for each combination of fields, the last one changing fastest.

    Args:
        claims: function of the rows of a combination and, by keyword, the values of its fields.
        rows: all rows; combinations without rows are skipped.
        **axes: the values of each field.
    """
    parts = [(chosen(rows, **values), values) for values in _combinations(axes)]
    return [claim for part, values in parts if part for claim in claims(part, **values)]


class Experiment(ABC, Generic[S]):
    """One figure or table of a paper, which `notsodeep reproduce` runs.

    Subclass it as

        class IcmlError(Experiment[IcmlErrorSpec]):
            name = "icml-error"
            …

    at the top level of a module (worker processes import it by name) and add it to `papers.EXPERIMENTS`.

    Attributes:
        name: name in `notsodeep reproduce`, and of its folder.
        paper: the paper and its figure: "ICML 2024, Figure 1", or "ours".
        summary: one line for `notsodeep reproduce --list`.
        minutes: expected running time on two cores, by size.
        cut: what the full size omits compared with the paper, and why; "" if nothing.
        quick: settings for a first look in minutes, with data that come with the package.
        full: the paper's settings, as far as two cores allow.
        timed: whether rows contain times, so that tasks must not run in parallel.
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
        """The class of the settings."""
        return type(self.quick)

    @property
    def needs(self) -> tuple[str, ...]:
        """The data sets that the full size needs."""
        return self.data_needed(self.spec("full"))

    def spec(self, size: Size, seeds: int | None = None) -> S:
        """Return the settings of a size; `seeds` replaces the number of repetitions, where there are any."""
        chosen: S = self.quick if size == "quick" else self.full
        if seeds is None or "seeds" not in chosen.values():
            return chosen
        return cast(S, replace(cast(Any, chosen), seeds=seeds))

    def data_needed(self, spec: S) -> tuple[str, ...]:
        """List the data sets in the settings `data` and `real` that do not come with the package."""
        named = [getattr(spec, field, ()) for field in ("data", "real")]
        names = [name for value in named for name in ((value,) if isinstance(value, str) else value)]
        return tuple(name for name in names if name not in EMBEDDED)

    def models(self, spec: S) -> list[Model]:
        """List the models that the rows depend on; by default a DEQ for each activation."""
        return [DEQ(name, spec.sigma_a2) for name in spec.activations] if isinstance(spec, DEQSpec) else []

    def fingerprint(self, spec: S) -> str:
        """Hash the models: rows are not reused when the same settings define another model."""
        return digest([fingerprint(model) for model in self.models(spec)])

    @abstractmethod
    def tasks(self, spec: S) -> Sequence[Task]:
        """List the tasks in the order of the rows."""

    @abstractmethod
    def run(self, spec: S, task: Task, data_dir: Path | None) -> list[Row]:
        """Run one task; equal arguments give equal rows, except for fields that end in `seconds`."""

    @abstractmethod
    def expectations(self, spec: S, rows: Sequence[Row]) -> list[Expectation]:
        """Compare the claims of the paper with the rows."""
