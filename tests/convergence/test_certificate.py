"""Certificates: a case that is certified, one that no width can certify, remedies that work, input that is refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from mpmath import mp

from notsodeep.convergence import PaperNetwork, certificate, population_gram
from notsodeep.convergence.certify import equilibrium_error, measure
from notsodeep.convergence.remedy import ExpectedStart, find_remedy, smallest_width
from notsodeep.errors import InputError

D = 20
ORTHOGONAL = np.sqrt(D) * np.eye(D)[:2]
LABELS = np.array([0.05, -0.05])


@pytest.mark.slow
def test_a_case_that_is_certified():
    found = certificate(ORTHOGONAL, LABELS, 800, 0.0025, readout_scale=0.0)
    assert found.certified
    assert found.failing == ()
    assert min(i.ratio for i in found.inequalities) > 1.0
    assert 0.0 < found.step < found.tangent.step
    assert 0.0 < found.rate < 1.0
    assert found.explain().startswith("Certified.")


@pytest.mark.slow
def test_a_readout_of_norm_one_is_refused_at_every_width():
    ratios, ceilings = [], []
    for width in (100, 400, 1600):
        found = certificate(ORTHOGONAL, LABELS, width, 0.0025, seed=1)
        assert not found.certified
        assert found.step == 0.0
        assert "8.19" in {i.number for i in found.failing}
        assert found.remedy.width is None
        assert "With this readout scale no width is enough" in found.explain()
        ratios.append(found.inequalities[2].ratio)
        ceilings.append(found.ceiling)
    # Sixteen times the width, and no nearer to 1 than the limit allows.
    assert max(ratios) < max(ceilings) < 0.25
    assert ratios[-1] < found.remedy.limit < 0.1


def problem(labels: float = 0.05, n: int = 2) -> ExpectedStart:
    gram = population_gram(np.sqrt(D) * np.eye(D)[:n], 0.0025)
    return ExpectedStart(gram, D, 0.0025, labels * np.sqrt(n))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_what_the_remedy_recommends_is_certified(seed):
    remedy = find_remedy(problem(), 2500, 1.0)
    assert remedy.smallest_width is not None
    assert remedy.readout_scale is not None
    at_zero = certificate(ORTHOGONAL, LABELS, remedy.smallest_width, 0.0025, seed=seed, readout_scale=0.0)
    assert at_zero.certified
    scaled = certificate(ORTHOGONAL, LABELS, 2500, 0.0025, seed=seed, readout_scale=remedy.readout_scale)
    assert scaled.certified


def test_expected_norms_by_hand():
    """The bounds of docs/theory.md (8.31) for m = 400, where t² = 2 log 400."""
    case, t = problem(), np.sqrt(2.0 * np.log(400.0))
    start = case.start(400, 0.5)
    assert start.recurrent == pytest.approx(np.sqrt(0.005) * (2.0 + t / 20.0))
    assert start.inputs == pytest.approx(np.sqrt(0.1) * (20.0 + np.sqrt(D) + t))
    assert start.readout == pytest.approx(0.5 * (1.0 + t / 20.0))
    assert start.data == pytest.approx(np.sqrt(2.0 * D))
    assert start.least == pytest.approx(200.0 * case.gram.least.lower)


@pytest.mark.slow
def test_thresholds_are_thresholds():
    case = problem()
    width = smallest_width(case, 0.002)
    assert width is not None
    assert case.satisfied(width, 0.002)
    assert not case.satisfied(width - 1, 0.002)
    remedy = find_remedy(case, width, 1.0)
    assert remedy.readout_scale == pytest.approx(0.002, rel=0.02)
    assert remedy.width is None


@pytest.mark.slow
def test_smaller_labels_where_the_width_is_given():
    remedy = find_remedy(problem(labels=1.0), 1000, 0.0)
    assert remedy.readout_scale is None
    assert remedy.label_factor is not None
    assert remedy.label_factor < 1.0
    small = certificate(
        ORTHOGONAL, remedy.label_factor * np.array([1.0, -1.0]), 1000, 0.0025, readout_scale=0.0
    )
    assert small.certified


def mp_equilibrium(network: PaperNetwork, X: np.ndarray) -> object:
    """Z by 200 iterations at 50 digits, samples in columns."""
    W, U, data = (mp.matrix(t.tolist()) for t in (network.recurrent, network.inputs, torch.from_numpy(X).T))
    drive = U * data
    Z = mp.zeros(drive.rows, drive.cols)
    for _ in range(200):
        Z = (W * Z + drive).apply(lambda v: max(v, mp.mpf(0)))
    return Z


@pytest.mark.parametrize("tolerance", [1e-15, 1e-3])
def test_measured_numbers_enclose_the_true_ones(tolerance, monkeypatch):
    # Also with an equilibrium that is far from solved: its error is part of every bound.
    from notsodeep.nets import SolverOptions

    rough = SolverOptions(tolerance=tolerance, max_steps=1000)
    features = PaperNetwork.features
    monkeypatch.setattr(PaperNetwork, "features", lambda self, X: features(self, X, rough))
    network = PaperNetwork.draw(9, 4, 0.05, seed=2)
    X = np.random.default_rng(0).standard_normal((3, 4))
    y = np.array([0.3, -1.0, 2.0])
    found = measure(network, X, y)
    with mp.workdps(50):
        Z = mp_equilibrium(network, X)
        least = min(mp.eigsy(Z.T * Z, eigvals_only=True))
        outputs = Z.T * mp.matrix(network.readout.tolist())
        residual = mp.norm(outputs - mp.matrix(y.tolist()))
        apart = mp.norm(Z - mp.matrix(features(network, torch.from_numpy(X), rough).T.tolist()))
    assert apart <= found.equilibrium_error
    assert found.equilibrium_error < 100 * max(tolerance, 1e-13)
    assert found.least.lower <= least <= found.least.upper
    assert found.residual.lower <= residual <= found.residual.upper


def test_without_contraction_there_is_no_bound():
    one = np.ones((1, 1))
    assert equilibrium_error(one, one, one, one, 1.0) == np.inf


def test_a_draw_that_does_not_contract_is_refused():
    # At width 3 the norm of W is far from its limit; this seed exceeds 1.
    with pytest.raises(InputError, match="not below 1"):
        certificate(ORTHOGONAL, LABELS, 2, 0.124, seed=norm_above_one())


def norm_above_one() -> int:
    for seed in range(200):
        network = PaperNetwork.draw(2, D, 0.124, seed=seed)
        if float(torch.linalg.matrix_norm(network.recurrent, 2)) > 1.0:
            return seed
    raise AssertionError("no seed found")


X_GOOD, Y_GOOD = ORTHOGONAL, LABELS
REFUSED = {
    "norms": ((2.0 * X_GOOD, Y_GOOD, 10, 0.01), {}, "normalise=True"),
    "zero row": ((np.vstack([X_GOOD[:1], np.zeros((1, D))]), Y_GOOD, 10, 0.01), {"normalise": True}, "zero"),
    "duplicates": ((X_GOOD[[0, 0]], Y_GOOD, 10, 0.01), {}, "parallel"),
    "variance": ((X_GOOD, Y_GOOD, 10, 0.125), {}, "below 1/8"),
    "labels": ((X_GOOD, np.ones(3), 10, 0.01), {}, "one number for each"),
    "nan": ((X_GOOD * np.nan, Y_GOOD, 10, 0.01), {}, "NaN"),
    "width": ((X_GOOD, Y_GOOD, 0, 0.01), {}, "width"),
    "readout": ((X_GOOD, Y_GOOD, 10, 0.01), {"readout_scale": -1.0}, "readout_scale"),
}


@pytest.mark.parametrize(("arguments", "options", "message"), REFUSED.values(), ids=list(REFUSED))
def test_input_that_cannot_be_used(arguments, options, message):
    with pytest.raises(InputError, match=message):
        certificate(*arguments, **options)
