"""Running: the rows of an experiment in the order of its tasks, however often and by however many it is run."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from toy_experiment import (
    TROUBLE,
    Hungry,
    Modest,
    Places,
    Timed,
    Toy,
    ToySpec,
    expected_rows,
    rows_of,
    without_seconds,
)

from notsodeep.data.datasets import DATA_VARIABLE
from notsodeep.errors import ConvergenceError, InputError
from notsodeep.gaussian.activations import custom_activation
from notsodeep.models import DEQ, Model
from notsodeep.progress import Message
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


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_rows_are_those_of_the_experiment(tmp_path: Path, jobs: int) -> None:
    outcome = reproduce(Toy(), spec=SETTINGS, root=tmp_path, jobs=jobs)
    assert outcome.finished
    assert (outcome.done, outcome.total, outcome.reused) == (6, 6, 0)
    assert without_seconds(outcome.rows) == expected_rows(SETTINGS)
    assert outcome.folder == tmp_path / "toy" / SETTINGS.hash()
    assert [(e.what, e.ours, e.verdict) for e in outcome.expectations] == [
        ("means", 6, True),
        ("largest size", 3, None),
    ]


def test_size_and_seeds_choose_the_settings(tmp_path: Path) -> None:
    quick = reproduce(Toy(), root=tmp_path)
    full = reproduce(Toy(), "full", root=tmp_path, seeds=1)
    assert quick.spec == ToySpec(sizes=(1, 2, 3), seeds=2)
    assert full.spec == ToySpec(seeds=1)
    assert quick.folder != full.folder
    assert without_seconds(full.rows) == expected_rows(ToySpec(seeds=1))


def test_rows_come_in_the_order_of_tasks_not_of_their_ends(tmp_path: Path) -> None:
    folder = tmp_path / "toy" / SETTINGS.hash()
    with open_store(folder, SETTINGS, TASKS) as store:
        for task in reversed(TASKS[1:]):
            size, seed = int(str(task.parameters["size"])), int(str(task.parameters["seed"]))
            store.append(task, rows_of(SETTINGS, size, seed), seconds=1.0, session=1)
    outcome = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert outcome.reused == 5
    assert without_seconds(outcome.rows) == expected_rows(SETTINGS)
    assert read_outcome(Toy(), outcome.folder).rows == outcome.rows


def test_a_second_run_has_nothing_to_do_and_changes_nothing(tmp_path: Path) -> None:
    first = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    before = {path.name: path.read_bytes() for path in first.folder.iterdir() if path.name != ".lock"}
    second = reproduce(Toy(), spec=SETTINGS, root=tmp_path, jobs=2)
    assert second.rows == first.rows
    assert second.reused == 6
    assert {path.name: path.read_bytes() for path in first.folder.iterdir() if path.name != ".lock"} == before


def test_fresh_runs_all_again(tmp_path: Path) -> None:
    first = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    second = reproduce(Toy(), spec=SETTINGS, root=tmp_path, resume=False)
    assert second.reused == 0
    assert second.rows != first.rows  # their times
    assert without_seconds(second.rows) == without_seconds(first.rows)
    assert len(provenance(second)["sessions"]) == 1


def test_a_changed_setting_never_mixes_with_old_rows(tmp_path: Path) -> None:
    first = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    other = replace(SETTINGS, length=4)
    second = reproduce(Toy(), spec=other, root=tmp_path)
    assert second.folder != first.folder
    assert second.reused == 0
    assert without_seconds(second.rows) == expected_rows(other)
    assert read_outcome(Toy(), first.folder).rows == first.rows


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
    assert read_outcome(toy(0.2), first.folder).done == 0
    other = reproduce(toy(0.2), spec=SETTINGS, root=tmp_path)
    assert other.folder == first.folder
    assert (other.reused, other.done) == (0, 6)
    assert "models" in other.notes[0]


def test_rows_without_a_fingerprint_are_those_of_an_earlier_version(tmp_path: Path) -> None:
    outcome = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    models = Toy().fingerprint(SETTINGS)
    records = read_rows(outcome.folder / ROWS, SETTINGS.hash(), TASKS, models).records
    assert {record.models for record in records.values()} == {models}
    earlier = b"".join(replace(record, models="").encoded() for record in records.values())
    (outcome.folder / ROWS).write_bytes(earlier)
    assert reproduce(Toy(), spec=SETTINGS, root=tmp_path).reused == 6


# --- interrupted -------------------------------------------------------------------------------------
@pytest.mark.parametrize("stopped", [0, 3, 5])
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
@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize(
    ("kind", "error", "words"),
    [
        ("input", InputError, "size=2 seed=1.*The input is odd"),
        ("convergence", ConvergenceError, "size=2 seed=1.*It diverged. Take smaller steps"),
        ("bug", RuntimeError, "size=2 seed=1(.|\n)*toy_experiment.py(.|\n)*ZeroDivisionError: a bug"),
        ("torch", InputError, r"size=2 seed=1.*pip install \"notsodeep\[torch\]\""),
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


@pytest.mark.slow
def test_a_process_that_is_killed_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TROUBLE, "size=3 seed=1:killed")
    with pytest.raises(InputError, match=r"memory.*fewer --jobs"):
        reproduce(Toy(), spec=SETTINGS, root=tmp_path, jobs=2)
    monkeypatch.delenv(TROUBLE)
    whole = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert without_seconds(whole.rows) == expected_rows(SETTINGS)


# --- where tasks run ---------------------------------------------------------------------------------
@pytest.mark.slow
def test_several_jobs_are_other_processes_of_one_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("NUMBA_NUM_THREADS", raising=False)
    rows = reproduce(Places(), spec=SETTINGS, root=tmp_path, jobs=2).rows
    assert os.getpid() not in {row["process"] for row in rows}
    assert len({row["process"] for row in rows}) <= 2
    assert all(row["threads"] == ["1", "1"] for row in rows)
    # Ours is as it was.
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
def features(folder: Path) -> None:
    place = folder / "cifar10_vgg19"
    place.mkdir(parents=True)
    np.savez(place / "features.npz", x_train=np.zeros((20, 4)), y_train=np.arange(20) % 10)


def test_absent_data_stop_the_run_before_a_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    with pytest.raises(InputError, match="hungry cannot run: it needs cifar10_vgg19"):
        reproduce(Hungry(), spec=SETTINGS, root=tmp_path / "results")
    with pytest.raises(InputError, match=r"features\.npz is missing"):
        reproduce(Hungry(), spec=SETTINGS, root=tmp_path / "results", data_dir=tmp_path)
    assert not (tmp_path / "results").exists()


def test_data_that_are_there_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    data = tmp_path / "data"
    features(data)
    assert reproduce(Hungry(), spec=SETTINGS, root=tmp_path, data_dir=data).finished
    # What is finished needs no data any more.
    assert reproduce(Hungry(), spec=SETTINGS, root=tmp_path).finished
    monkeypatch.setenv(DATA_VARIABLE, str(data))
    assert absent_data(Hungry(), SETTINGS, None, fetch=False) is None


def test_settings_decide_what_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(DATA_VARIABLE, raising=False)
    assert absent_data(Modest(), replace(SETTINGS, seeds=1), None, fetch=False) is None
    assert "no folder is named" in str(absent_data(Modest(), SETTINGS, None, fetch=False))


# --- what is told ------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_names_the_task_and_ends_at_the_end(tmp_path: Path, jobs: int) -> None:
    told: list[tuple[int, int, str]] = []

    def listen(done: int, total: int, news: Message) -> None:
        told.append((done, total, news()))

    reproduce(Toy(), spec=SETTINGS, root=tmp_path, jobs=jobs, report=listen)
    assert [done for done, _, _ in told] == list(range(7))
    assert {total for _, total, _ in told} == {6}
    assert told[0][2].startswith("size=1 seed=0")
    assert all("left" in news for _, _, news in told[1:-1])
    assert told[-1][2] == ""


def test_remaining_time_goes_by_cost() -> None:
    tasks = [Task("a", {}, cost=1.0), Task("b", {}, cost=9.0)]
    assert remaining(tasks, tasks, 5.0) == ""
    assert remaining(tasks, tasks[1:], 5.0) == ", about 45 s left"
    assert remaining(tasks, tasks[1:], 60.0) == ", about 9 min left"
    assert remaining(tasks, [], 60.0) == ""


def test_provenance_says_where_rows_come_from(tmp_path: Path) -> None:
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
    # No folder of this machine is told.
    assert str(tmp_path) not in json.dumps(record)


# --- mistakes ----------------------------------------------------------------------------------------
class OtherSpec(Spec):
    """Of another experiment."""


@pytest.mark.parametrize(
    ("wishes", "words"),
    [
        ({"size": "medium"}, "size='medium' is not known. Choose one of: quick, full"),
        ({"seeds": 0}, "seeds must be a whole number of at least 1; got 0"),
        ({"jobs": 0}, "jobs must be a whole number of at least 1; got 0"),
        ({"spec": OtherSpec()}, "takes a ToySpec"),
        ({"spec": SETTINGS, "seeds": 3}, "leave seeds out"),
        ({"spec": ToySpec(sizes=(1, 1))}, "two tasks of one key"),
    ],
)
def test_mistakes_are_said_before_anything_is_written(
    tmp_path: Path, wishes: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        reproduce(Toy(), root=tmp_path / "results", **wishes)
    assert not (tmp_path / "results").exists()


def test_reading_a_folder_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a folder of results"):
        read_outcome(Toy(), tmp_path)


def test_rows_that_are_not_json_name_their_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy()
    monkeypatch.setattr(toy, "run", lambda spec, task, data_dir: [{"x": float("nan")}])
    with pytest.raises(InputError, match=r"size=1 seed=0.*finite"):
        reproduce(toy, spec=SETTINGS, root=tmp_path)
    assert not (tmp_path / "toy" / SETTINGS.hash() / ROWS).exists()


@pytest.mark.slow
def test_ctrl_c_while_a_result_is_handled_ends_the_run(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    told: list[int] = []

    def interrupt(done: int, total: int, news: Message) -> None:
        told.append(done)
        if done > 0:
            # Here, in the midst of other work, an exception could end up anywhere.
            os.kill(os.getpid(), signal.SIGINT)

    # Sixteen tasks of a tenth of a second: most of them are not done when the first one is reported.
    settings = replace(SETTINGS, sizes=tuple(range(1, 9)), pause=0.1)
    others = set(multiprocessing.active_children())
    outcome = reproduce(Toy(), spec=settings, root=tmp_path, jobs=2, report=interrupt)
    assert not outcome.finished
    assert outcome.done == max(told)
    assert signal.getsignal(signal.SIGINT) is before
    assert set(multiprocessing.active_children()) == others
    assert without_seconds(reproduce(Toy(), spec=settings, root=tmp_path).rows) == expected_rows(settings)
