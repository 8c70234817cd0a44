"""A run that is killed or interrupted from outside continues later and ends with the same rows."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from toy_experiment import TROUBLE, Toy, ToySpec, expected_rows, without_seconds

from notsodeep.files import LOCK
from notsodeep_lab.papers.results_folder import PROVENANCE, ROWS, SPEC
from notsodeep_lab.papers.runner import read_outcome, reproduce

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc"),
]

TESTS = Path(__file__).parents[2]
# Lines of 100 kB: long enough for a kill to hit while one is being written.
SETTINGS = ToySpec(sizes=tuple(range(1, 13)), seeds=2, pause=0.01, length=5000)
RUN = f"""
import sys
from toy_experiment import Toy, ToySpec
from notsodeep_lab.papers.runner import reproduce
outcome = reproduce(Toy(), spec={SETTINGS!r}, root=sys.argv[1], jobs=int(sys.argv[2]))
sys.exit(0 if outcome.finished else 130)
"""


def start(root: Path, jobs: int = 1) -> subprocess.Popen[str]:
    """A run in a process group of its own, for Ctrl-C."""
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(root), str(jobs)],
        env=os.environ | {"PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def rows_file(root: Path) -> Path:
    return root / "toy" / SETTINGS.hash() / ROWS


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    """Wait for a condition, or for the end of the process."""
    limit = time.monotonic() + 60.0
    while not condition() and (process is None or process.poll() is None):
        assert time.monotonic() < limit, "nothing happened for a minute"
        time.sleep(0.001)


def assert_the_rest_gives_the_same_rows(root: Path) -> None:
    """Run to the end in this process, and compare with rows computed directly."""
    outcome = reproduce(Toy(), spec=SETTINGS, root=root)
    assert outcome.finished
    assert without_seconds(outcome.rows) == expected_rows(SETTINGS)
    assert without_seconds(read_outcome(Toy(), outcome.folder).rows) == expected_rows(SETTINGS)
    kept = {path.name for path in outcome.folder.iterdir() if ".damaged-" not in path.name}
    assert kept == {LOCK, PROVENANCE, ROWS, SPEC}


def children(process: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == process:
            found.append(int(stat.parent.name))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_workers_ignore_ctrl_c_and_die_with_their_parent(tmp_path: Path) -> None:
    process = start(tmp_path, jobs=2)
    wait_until(lambda: size(rows_file(tmp_path)) > 100_000, process)
    workers = children(process.pid)
    assert len(workers) >= 2
    for worker in workers:
        os.kill(worker, signal.SIGINT)
    before = size(rows_file(tmp_path))
    wait_until(lambda: size(rows_file(tmp_path)) > before, process)
    assert process.poll() is None
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not any(alive(worker) for worker in workers))
    assert_the_rest_gives_the_same_rows(tmp_path)


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_with_the_finished_tasks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    # The third task would take ten minutes.
    monkeypatch.setenv(TROUBLE, "size=2 seed=0:asleep")
    process = start(tmp_path, jobs)
    wait_until(lambda: size(rows_file(tmp_path)) > 200_000, process)
    # To the whole group, as a terminal does.
    os.killpg(process.pid, signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    monkeypatch.delenv(TROUBLE)
    part = read_outcome(Toy(), rows_file(tmp_path).parent)
    assert 2 <= part.done < part.total
    outcome = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert outcome.notes == ()  # nothing needed repair
    assert outcome.reused == part.done
    assert_the_rest_gives_the_same_rows(tmp_path)
