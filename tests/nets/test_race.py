"""The race: models made as said, trained alike, and measured by numbers that can be checked."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tolerances import Oracle, assert_close

from notsodeep.data import Preprocessing
from notsodeep.designs import design
from notsodeep.errors import InputError
from notsodeep.fingerprint import fingerprint
from notsodeep.models import DEQ, Explicit
from notsodeep.nets.networks import DEQNet
from notsodeep.nets.race import MODELS, Race, RaceSettings
from notsodeep.nets.race import race as race_with
from notsodeep.nets.training import fit

DEQ_SPEC = DEQ("relu", 0.2)
NAMES = np.array([3, 5, 8])  # labels as published need not be 0, 1, 2


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return rng.standard_normal((n, 12)) + 1.5 * np.eye(3, 12)[y] + 1.0, NAMES[y]


TRAIN, TEST = blobs(120, 0), blobs(60, 1)
SETTINGS: dict[str, Any] = {"width": 32, "epochs": 12}


def race(
    deq: DEQ, train: Any, test: Any, *, checkpoint_dir: Any = None, progress: Any = False, **settings: Any
) -> Race:
    return race_with(
        deq, train, test, RaceSettings(**settings), checkpoint_dir=checkpoint_dir, progress=progress
    )


@pytest.fixture(scope="module")
def result() -> Race:
    return race(DEQ_SPEC, TRAIN, TEST, seeds=3, **SETTINGS)


def test_each_model_runs_with_each_seed_and_learns(result: Race) -> None:
    assert [(run.model, run.seed) for run in result.runs] == [(m, s) for s in range(3) for m in MODELS]
    assert [standing.model for standing in result.standings] == list(MODELS)
    assert all(standing.accuracy > 0.6 for standing in result.standings)  # one in three by chance
    assert all(standing.stopped is None for standing in result.standings)
    assert len(json.loads(json.dumps(result.as_dicts()))) == 3


def test_models_are_made_as_said(result: Race) -> None:
    rows = Preprocessing.fit(TRAIN[0]).apply(TRAIN[0])
    tau0 = np.sqrt(np.mean(np.sum(rows**2, axis=1)))
    assert_close(result.tau0, tau0, Oracle.IDENTITY)
    centred = DEQ_SPEC.centred(result.tau0)
    made = design(centred, result.tau0, "ck")
    plain = Explicit(["relu"] * len(made.network.layers)).centred(result.tau0)
    expected = [centred, made.network, plain]
    assert [standing.network for standing in result.standings] == [str(spec) for spec in expected]
    assert [standing.fingerprint for standing in result.standings] == [fingerprint(spec) for spec in expected]


def test_twins_of_full_training_are_designed_for_the_tangent_kernel() -> None:
    result = race(DEQ_SPEC, TRAIN, TEST, seeds=1, mode="all", models=("twin",), **SETTINGS)
    assert result.design.kernel == "ntk"
    assert result.standings[0].feature_seconds is None


def test_standings_follow_from_the_predictions(result: Race) -> None:
    said = {(run.model, run.seed): NAMES[run.predictions] for run in result.runs}
    deqs = [said["deq", seed] for seed in range(3)]
    between = [np.mean(one == other) for one, other in combinations(deqs, 2)]
    for standing in result.standings:
        own = [said[standing.model, seed] for seed in range(3)]
        accuracies = [np.mean(predicted == TEST[1]) for predicted in own]
        assert_close(standing.accuracy, np.mean(accuracies), Oracle.IDENTITY)
        assert_close(standing.accuracy_sd, np.std(accuracies, ddof=1), Oracle.IDENTITY, scale=1.0)
        same = [np.mean(one == other) for one, other in zip(own, deqs, strict=True)]
        agreement = between if standing.model == "deq" else same
        assert_close(standing.agreement, np.mean(agreement), Oracle.IDENTITY)


def test_a_run_is_a_training_of_its_own(result: Race) -> None:
    """The last epoch of each history saw the test part as `fit` sees it; and one of them is repeated by hand."""
    for run in result.runs:
        assert run.history.lr == result.lr
        assert run.accuracy == run.history.rows[-1].test_accuracy
    rows = Preprocessing.fit(TRAIN[0])
    labels = np.searchsorted(NAMES, TRAIN[1]), np.searchsorted(NAMES, TEST[1])
    net = DEQNet(DEQ_SPEC.centred(result.tau0), 12, 32, 3, train="readout", seed=2)
    history = fit(
        net, (rows.apply(TRAIN[0]), labels[0]), (rows.apply(TEST[0]), labels[1]),
        optimizer="sgd", seed=2, epochs=12, lr=result.lr,
    )  # fmt: skip
    expected = next(run for run in result.runs if (run.model, run.seed) == ("deq", 2)).history
    assert [row.loss for row in history.rows] == [row.loss for row in expected.rows]


def test_one_seed_has_no_spread_and_without_a_deq_nothing_agrees_with_it() -> None:
    result = race(DEQ_SPEC, TRAIN, TEST, seeds=1, models=("deq", "twin"), **SETTINGS)
    assert [standing.accuracy_sd for standing in result.standings] == [None, None]
    assert result.standings[0].agreement is None
    assert result.standings[1].agreement is not None
    result = race(DEQ_SPEC, TRAIN, TEST, seeds=2, models=("plain",), **SETTINGS)
    assert [(standing.model, standing.agreement) for standing in result.standings] == [("plain", None)]


def test_divergence_is_said() -> None:
    result = race(DEQ_SPEC, TRAIN, TEST, seeds=1, models=("twin",), mode="all", lr=1e38, **SETTINGS)
    assert "not finite" in result.standings[0].stopped
    assert len(result.runs[0].history.rows) < SETTINGS["epochs"]


def test_a_second_race_continues_from_checkpoints(result: Race, tmp_path: Path) -> None:
    for epochs in (5, 12):
        settings = SETTINGS | {"epochs": epochs, "lr": result.lr, "checkpoint_dir": tmp_path}
        again = race(DEQ_SPEC, TRAIN, TEST, seeds=1, models=("deq", "twin"), **settings)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["deq-0.pt", "twin-0.pt"]
    for run, expected in zip(again.runs, result.runs[:2], strict=True):
        assert run.history.resumed == 5
        assert run.history.rows[-1].loss == expected.history.rows[-1].loss


def test_progress_counts_all_runs() -> None:
    seen: list[tuple[int, int, str]] = []
    race(
        DEQ_SPEC, TRAIN, TEST, seeds=2, models=("twin", "plain"),
        progress=lambda done, total, news: seen.append((done, total, news())), **SETTINGS,
    )  # fmt: skip
    done = [entry[0] for entry in seen]
    assert done == sorted(done)
    assert done[-1] == seen[-1][1] == 4 * 12 * 120
    assert "plain, seed 1" in seen[-1][2]


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown model": ({"models": ("deq", "twins")}, "deq, twin, plain"),
    "model twice": ({"models": ("deq", "deq")}, "once"),
    "no model": ({"models": ()}, "at least one"),
    "mode": ({"mode": "some"}, "readout, all"),
    "seeds": ({"seeds": 0}, "seeds must be a whole number"),
    "folder": ({"checkpoint_dir": "no/such/folder"}, "no/such/folder"),
    "rate": ({"lr": -1.0}, "positive"),
    "one class": ({"train": (TRAIN[0], np.full(120, 3))}, "one class"),
    "unknown test label": ({"test": (TEST[0], np.full(60, 4))}, r"\[4\]"),
}


@pytest.mark.parametrize(("change", "words"), BAD.values(), ids=list(BAD))
def test_bad_input_is_refused(change: dict[str, Any], words: str) -> None:
    given: dict[str, Any] = {"deq": DEQ_SPEC, "train": TRAIN, "test": TEST, **SETTINGS} | change
    with pytest.raises(InputError, match=words):
        race(**given)
