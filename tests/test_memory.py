"""Amounts of memory, and the limits of containers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

import notsodeep as nsd
from notsodeep import memory
from notsodeep.memory import as_bytes, available_bytes, budget, in_words, resident_bytes

GB = 10**9


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GB", 4e9),
        ("4 GiB", 2**32),
        ("500mb", 5e8),
        ("1.5 g", 1.5e9),
        (1234, 1234),
        ("12", 12),
        ("2TB", 2e12),
    ],
)
def test_amounts_of_memory(text: str | int, size: float) -> None:
    assert as_bytes(text) == size


@pytest.mark.parametrize("text", ["", "GB", "-1GB", "0", 0, -5, True, 1.5, "4 gigs", None])
def test_what_is_no_amount_of_memory(text: object) -> None:
    with pytest.raises(nsd.InputError, match="4GB"):
        as_bytes(text)  # type: ignore[arg-type]


def test_what_the_machine_has() -> None:
    assert 10e6 < resident_bytes() < 100e9
    assert 0 < budget(None) < available_bytes()
    assert in_words(7.2e9) == "7.2 GB"
    assert in_words(12) == "12 bytes"


# A machine with 64 GB free: the files of the control group, the bytes left.
FREE = 64 * GB
GROUPS: dict[str, tuple[dict[str, object], int]] = {
    "a container": ({"max": 8 * GB, "current": 3 * GB}, 5 * GB),
    "files read long ago": ({"max": 8 * GB, "current": 7 * GB, "stat": f"anon 5\ninactive_file {4 * GB}"}, 5 * GB),
    "no limit": ({"max": "max", "current": 3 * GB}, FREE),
    "more than there is": ({"max": 900 * GB, "current": 3 * GB}, FREE),
    "used up": ({"max": 8 * GB, "current": 9 * GB}, 0),
    "none": ({}, FREE),
}  # fmt: skip


@pytest.mark.parametrize(("files", "free"), GROUPS.values(), ids=list(GROUPS))
def test_the_limit_of_a_container_is_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, object], free: int
) -> None:
    monkeypatch.setattr(memory.psutil, "virtual_memory", lambda: SimpleNamespace(available=FREE))
    monkeypatch.setattr(memory, "_GROUP", tmp_path)
    for name, content in ({"stat": "inactive_file 0"} | files).items():
        (tmp_path / f"memory.{name}").write_text(f"{content}\n")
    assert available_bytes() == free
    assert budget(None) == int(0.5 * free) - memory.RESERVE
