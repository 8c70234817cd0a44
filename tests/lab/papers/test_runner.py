"""Running an experiment: the rows in the order of its tasks, however often and in however many processes it runs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_experiment import (
    TROUBLE,
    Hungry,
    Places,
    Timed,
    Toy,
    ToySpec,
    expected_rows,
    rows_of,
    without_seconds,
)

from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import custom_activation
from notsodeep.models import DEQ, Model
from notsodeep.progress import Message
from notsodeep_lab.papers.data_files import DATA_VARIABLE
from notsodeep_lab.papers.experiment import Task
from notsodeep_lab.papers.experiment_settings import Spec
from notsodeep_lab.papers.results_folder import PROVENANCE, ROWS, open_store, read_rows
from notsodeep_lab.papers.runner import Outcome, absent_data, read_outcome, remaining, reproduce

SETTINGS = ToySpec(sizes=(1, 2, 3), seeds=2)
TASKS = list(Toy().tasks(SETTINGS))


def provenance(outcome: Outcome) -> dict[str, Any]:
    content = json.loads((outcome.folder / PROVENANCE).read_text())
    assert isinstance(content, dict)
    return content


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != ".lock"}


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_rows_are_those_of_the_experiment_and_progress_is_reported(tmp_path: Path, jobs: int) -> None:
    reported: list[tuple[int, int, str]] = []

    def report(done: int, total: int, message: Message) -> None:
        reported.append((done, total, message()))

    outcome = reproduce(Toy(), spec=SETTINGS, root=tmp_path, jobs=jobs, report=report)
    assert outcome.finished
    assert (outcome.done, outcome.total, outcome.reused) == (6, 6, 0)
    assert without_seconds(outcome.rows) == expected_rows(SETTINGS)
    assert outcome.folder == tmp_path / "toy" / SETTINGS.hash()
    expectations = [(e.what, e.ours, e.verdict) for e in outcome.expectations]
    assert expectations == [("means", 6, True), ("largest size", 3, None)]
    assert [(done, total) for done, total, _ in reported] == [(done, 6) for done in range(7)]
    assert reported[0][2].startswith("size=1 seed=0")
    assert all("left" in message for _, _, message in reported[1:-1])
    assert reported[-1][2] == ""


def test_rows_come_in_the_order_of_tasks_not_of_their_ends(tmp_path: Path) -> None:
    folder = tmp_path / "toy" / SETTINGS.hash()
    with open_store(folder, SETTINGS, TASKS, models=Toy().fingerprint(SETTINGS)) as store:
        for task in reversed(TASKS[1:]):
            size, seed = int(str(task.parameters["size"])), int(str(task.parameters["seed"]))
            store.append(task, rows_of(SETTINGS, size, seed), seconds=1.0, session=1)
    outcome = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert outcome.reused == 5
    assert without_seconds(outcome.rows) == expected_rows(SETTINGS)
    assert read_outcome(Toy(), outcome.folder).rows == outcome.rows


def test_a_second_run_reuses_everything_and_a_fresh_one_nothing(tmp_path: Path) -> None:
    first = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    before = files(first.folder)
    second = reproduce(Toy(), spec=SETTINGS, root=tmp_path, jobs=2)
    assert second.rows == first.rows
    assert second.reused == 6
    assert files(first.folder) == before
    other = replace(SETTINGS, length=4)
    assert reproduce(Toy(), root=tmp_path).folder == first.folder  # the quick size
    assert reproduce(Toy(), "full", root=tmp_path, seeds=1).spec == ToySpec(seeds=1)
    changed = reproduce(Toy(), spec=other, root=tmp_path)
    assert changed.folder != first.folder
    assert without_seconds(changed.rows) == expected_rows(other)
    assert read_outcome(Toy(), first.folder).rows == first.rows
    fresh = reproduce(Toy(), spec=SETTINGS, root=tmp_path, resume=False)
    assert fresh.reused == 0
    assert fresh.rows != first.rows  # the times
    assert without_seconds(fresh.rows) == without_seconds(first.rows)
    assert len(provenance(fresh)["sessions"]) == 1


def test_models_that_look_alike_do_not_share_results(tmp_path: Path) -> None:
    """Two callables of one name, in experiments with the same settings and tasks."""

    def toy(slope: float) -> Toy:
        def kinked(x: Any) -> Any:
            return np.where(x > 0.0, x, slope * x)

        class Modelled(Toy):
            def models(self, spec: ToySpec) -> list[Model]:
                return [DEQ(custom_activation(kinked, kinks=(0.0,)), 0.2)]

        return Modelled()

    assert str(toy(0.1).models(SETTINGS)) == str(toy(0.2).models(SETTINGS))
    first = reproduce(toy(0.1), spec=SETTINGS, root=tmp_path)
    assert reproduce(toy(0.1), spec=SETTINGS, root=tmp_path).reused == 6
    models = toy(0.1).fingerprint(SETTINGS)
    records = read_rows(first.folder / ROWS, SETTINGS.hash(), TASKS, models).records
    assert {record.models for record in records.values()} == {models}
    assert read_outcome(toy(0.2), first.folder).done == 0
    other = reproduce(toy(0.2), spec=SETTINGS, root=tmp_path)
    assert other.folder == first.folder
    assert (other.reused, other.done) == (0, 6)
    assert "models" in other.notes[0]


# --- interrupted -------------------------------------------------------------------------------------
@pytest.mark.parametrize("stopped", [0, 3])
def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: int) -> None:
    monkeypatch.setenv(TROUBLE, f"{TASKS[stopped].key}:interrupt")
    part = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert not part.finished
    assert part.done == stopped
    assert part.expectations == []
    assert without_seconds(part.rows) == expected_rows(SETTINGS)[: 2 * stopped]
    monkeypatch.delenv(TROUBLE)
    whole = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert whole.finished
    assert whole.reused == stopped
    assert without_seconds(whole.rows) == expected_rows(SETTINGS)
    assert whole.rows[: 2 * stopped] == part.rows
    record = provenance(whole)
    assert record["finished"]
    assert record["resumed"] == (stopped > 0)
    assert [session["ended"] is None for session in record["sessions"]] == [False, False]
    assert [task["session"] for task in record["tasks"]] == [1] * stopped + [2] * (6 - stopped)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("jobs", "kind", "error", "words"),
    [
        (1, "input", InputError, "size=2 seed=1.*The input is odd"),
        (2, "convergence", ConvergenceError, "size=2 seed=1.*It diverged. Take smaller steps"),
        (2, "bug", RuntimeError, "size=2 seed=1(.|\n)*toy_experiment.py(.|\n)*ZeroDivisionError: a bug"),
        (1, "torch", InputError, r"size=2 seed=1.*pip install '\.\[torch\]'"),
        (2, "killed", InputError, "memory.*fewer --jobs"),
    ],
)
def test_an_error_names_its_task_and_keeps_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int, kind: str, error: type[Exception], words: str
) -> None:
    monkeypatch.setenv(TROUBLE, f"size=2 seed=1:{kind}")
    with pytest.raises(error, match=words) as raised:
        reproduce(Toy(), spec=SETTINGS, root=tmp_path, jobs=jobs)
    if isinstance(raised.value, ConvergenceError):
        assert raised.value.remedy == "Take smaller steps."
    folder = tmp_path / "toy" / SETTINGS.hash()
    part = read_outcome(Toy(), folder)
    assert not part.finished
    if jobs == 1:
        assert part.done == 3
    assert not json.loads((folder / PROVENANCE).read_text())["finished"]
    monkeypatch.delenv(TROUBLE)
    whole = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert whole.reused == part.done
    assert without_seconds(whole.rows) == expected_rows(SETTINGS)


# --- processes ---------------------------------------------------------------------------------------
@pytest.mark.slow
def test_several_jobs_run_in_processes_of_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    rows = reproduce(Places(), spec=SETTINGS, root=tmp_path, jobs=2).rows
    assert os.getpid() not in {row["process"] for row in rows}
    assert len({row["process"] for row in rows}) <= 2
    assert all(row["threads"] == ["1", "1"] for row in rows)
    # The environment of this process is unchanged.
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "NUMBA_NUM_THREADS" not in os.environ


def test_one_job_and_timed_experiments_stay_in_this_process(tmp_path: Path) -> None:
    for outcome in (
        reproduce(Places(), spec=SETTINGS, root=tmp_path),
        reproduce(Timed(), spec=SETTINGS, root=tmp_path, jobs=2),
    ):
        assert {row["process"] for row in outcome.rows} == {os.getpid()}
        assert provenance(outcome)["sessions"][0]["jobs"] == 1


# --- data --------------------------------------------------------------------------------------------
def test_missing_data_stop_the_run_before_a_folder_is_created(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(InputError, match="hungry cannot run: it needs cifar10_vgg19"):
        reproduce(Hungry(), spec=SETTINGS, root=tmp_path / "results")
    with pytest.raises(InputError, match=r"cannot be read from .*features\.npz"):
        reproduce(Hungry(), spec=SETTINGS, root=tmp_path / "results", data_dir=tmp_path)
    assert not (tmp_path / "results").exists()
    assert "--data-dir" in str(absent_data(Hungry(), SETTINGS, None, fetch=False))


def test_a_finished_experiment_needs_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    place = tmp_path / "data" / "cifar10_vgg19"
    place.mkdir(parents=True)
    np.savez(place / "features.npz", x_train=np.zeros((20, 4)), y_train=np.arange(20) % 10)
    assert reproduce(Hungry(), spec=SETTINGS, root=tmp_path, data_dir=place.parent).finished
    assert reproduce(Hungry(), spec=SETTINGS, root=tmp_path).finished
    monkeypatch.setenv(DATA_VARIABLE, str(place.parent))
    assert absent_data(Hungry(), SETTINGS, None, fetch=False) is None


# --- reports -----------------------------------------------------------------------------------------
def test_remaining_time_is_proportional_to_cost() -> None:
    tasks = [Task("a", {}, cost=1.0), Task("b", {}, cost=9.0)]
    assert remaining(tasks, tasks, 5.0) == ""
    assert remaining(tasks, tasks[1:], 5.0) == ", about 45 s left"
    assert remaining(tasks, tasks[1:], 60.0) == ", about 9 min left"
    assert remaining(tasks, [], 60.0) == ""


def test_provenance_records_how_rows_were_computed(tmp_path: Path) -> None:
    record = provenance(reproduce(Toy(), spec=SETTINGS, root=tmp_path))
    assert record["experiment"] == "toy"
    assert record["spec"] == SETTINGS.hash()
    assert record["settings"]["seeds"] == 2
    assert [task["task"] for task in record["tasks"]] == [task.key for task in TASKS]
    assert record["task_seconds"] == pytest.approx(sum(task["seconds"] for task in record["tasks"]), abs=1e-3)
    session = record["sessions"][0]
    assert session["started"] <= session["ended"]
    assert session["versions"]["numpy"] == np.__version__
    assert session["machine"]["cores"] >= 1
    assert str(tmp_path) not in json.dumps(record)  # no path of this machine


# --- mistakes ----------------------------------------------------------------------------------------
class OtherSpec(Spec):
    """The settings of another experiment."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"size": "medium"}, "size='medium' is not known. Choose one of: quick, full"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1; got 0"),
        ({"jobs": 0}, "jobs must be a whole number of at least 1; got 0"),
        ({"spec": OtherSpec()}, "takes a ToySpec"),
        ({"spec": SETTINGS, "seeds": 3}, "not both"),
        ({"spec": ToySpec(sizes=(1, 1))}, "two tasks of the same key"),
    ],
)
def test_mistakes_are_refused_before_anything_is_written(
    tmp_path: Path, options: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        reproduce(Toy(), root=tmp_path / "results", **options)
    assert not (tmp_path / "results").exists()
