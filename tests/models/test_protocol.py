"""Models are open: one that the package does not know goes wherever a DEQ goes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tolerances import Oracle, assert_close

import notsodeep as nsd
from notsodeep.estimators import DEQKernelClassifier, DEQKernelRidge
from notsodeep.kernel_names import Kernel
from notsodeep.models import Model, RowModel, Samples, as_model
from notsodeep.models.programs import EntrywiseTile, RowProgram


@dataclass(frozen=True)
class PowerNetwork(RowModel):
    """A toy model: features with the kernel (1 + ⟨x, y⟩)^degree, tangent kernel degree times as large."""

    degree: int

    def prepare(self, left: Samples, right: Samples | None, kernels: tuple[Kernel, ...]) -> PowerProgram:
        return PowerProgram(left, right, self.degree)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "power_network", "degree": self.degree}


class PowerProgram(RowProgram):
    def __init__(self, left: Samples, right: Samples | None, degree: int) -> None:
        super().__init__(left, right)
        self.degree = degree

    def tile(self, start: np.ndarray, rows: slice, columns: slice, *, diagonal: bool) -> EntrywiseTile:
        ck = (1.0 + start) ** self.degree
        return EntrywiseTile({Kernel.CK: ck, Kernel.NTK: self.degree * ck})


@pytest.fixture
def rows() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((300, 7)) / np.sqrt(7)


def expected(X: np.ndarray, Y: np.ndarray, degree: int = 3) -> np.ndarray:
    return (1.0 + X @ Y.T) ** degree


def test_what_has_the_methods_is_a_model():
    assert isinstance(PowerNetwork(3), Model)
    assert isinstance(nsd.DEQ("tanh", 0.2), Model)
    assert isinstance(nsd.Explicit(["relu"]), Model)
    with pytest.raises(nsd.InputError, match="not str"):
        as_model("tanh")


def test_in_memory(rows):
    model = PowerNetwork(3)
    assert_close(nsd.conjugate_kernel(model, rows), expected(rows, rows), Oracle.IDENTITY)
    assert_close(nsd.tangent_kernel(model, rows, rows[:9]), 3 * expected(rows, rows[:9]), Oracle.IDENTITY)
    ck, ntk = nsd.both_kernels(model, rows)
    assert_close(3 * ck, ntk, Oracle.IDENTITY)


def test_a_kernel_in_the_store_belongs_to_its_model(rows, tmp_path: Path):
    out = tmp_path / "K.zarr"
    stored = nsd.conjugate_kernel(PowerNetwork(3), rows, out=out, block=128)
    assert_close(np.asarray(stored), expected(rows, rows), Oracle.IDENTITY)
    with pytest.raises(nsd.InputError, match="another model"):
        nsd.conjugate_kernel(PowerNetwork(2), rows, out=out)


def test_in_estimators(rows):
    labels = np.where(rows[:, 0] > 0, "up", "down")
    machine = DEQKernelClassifier(
        model=PowerNetwork(2), kernel="ck", scale="none", fit_intercept=False, alpha=1e-2
    )
    machine.fit(rows, labels)
    signs = np.where(labels == "up", 1.0, -1.0)
    dual = np.linalg.solve(expected(rows, rows, 2) + 1e-2 * np.eye(300), signs)
    assert_close(machine.decision_function(rows), expected(rows, rows, 2) @ dual, Oracle.QUADRATURE)
    assert machine.score(rows, labels) > 0.95
    assert (
        DEQKernelRidge(model=PowerNetwork(1), kernel="ntk").fit(rows, rows[:, 1]).score(rows, rows[:, 1])
        > 0.9
    )


def test_depth_is_for_models_that_can_be_cut(rows):
    with pytest.raises(nsd.InputError, match="depth of its own"):
        nsd.conjugate_kernel(PowerNetwork(3), rows, depth=2)


def test_what_the_theory_does_not_cover_is_said(rows):
    with pytest.raises(nsd.InputError, match="PowerNetwork"):
        nsd.coefficients(PowerNetwork(3), 1.0)
    with pytest.raises(nsd.InputError, match="PowerNetwork"):
        nsd.equivalent(PowerNetwork(3), rows, form="refined")


def test_a_class_is_no_model() -> None:
    with pytest.raises(nsd.InputError, match="model must be a network specification"):
        nsd.tangent_kernel(nsd.DEQ, np.ones((2, 3)))
