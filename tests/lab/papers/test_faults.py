"""Whatever ends a run, the next one goes on and ends with the same rows."""

from __future__ import annotations

import os
import random
import resource
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

TESTS = Path(__file__).parents[2]
# Lines of 100 kB: long enough for a kill to fall into the writing of one.
SETTINGS = ToySpec(sizes=tuple(range(1, 13)), seeds=2, pause=0.01, length=5000)
RUN = f"""
import sys
from toy_experiment import TROUBLE, Toy, ToySpec
from notsodeep.errors import InputError
from notsodeep_lab.papers.runner import reproduce
settings = {SETTINGS!r}
try:
    outcome = reproduce(Toy(), spec=settings, root=sys.argv[1], jobs=int(sys.argv[2]))
except InputError as error:
    sys.exit(str(error))
sys.exit(0 if outcome.finished else 130)
"""


def start(root: Path, jobs: int = 1, prepare: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    """A run in a process of its own, and in a group of its own for Ctrl-C."""
    paths = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        [sys.executable, "-c", RUN, str(root), str(jobs)],
        env=os.environ | {"PYTHONPATH": paths},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=prepare,
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


def see_it_through(root: Path) -> None:
    """Run to the end in this process, and compare with the rows computed without the machinery."""
    outcome = reproduce(Toy(), spec=SETTINGS, root=root)
    assert outcome.finished
    assert without_seconds(outcome.rows) == expected_rows(SETTINGS)
    assert without_seconds(read_outcome(Toy(), outcome.folder).rows) == expected_rows(SETTINGS)
    kept = {path.name for path in outcome.folder.iterdir() if ".damaged-" not in path.name}
    assert kept == {LOCK, PROVENANCE, ROWS, SPEC}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0])
def test_kill_9_at_random_moments(tmp_path: Path, seed: int) -> None:
    moments = random.Random(seed)
    path = rows_file(tmp_path)
    killed = 0
    for _ in range(5):
        # At some byte of the next lines, and a moment later.
        mark = size(path) + moments.randrange(200_000)
        process = start(tmp_path)
        wait_until(lambda mark=mark: size(path) > mark, process)  # type: ignore[misc]
        time.sleep(moments.uniform(0.0, 0.02))
        process.kill()
        killed += process.wait() == -signal.SIGKILL
    assert killed >= 3
    assert read_outcome(Toy(), path.parent).done > 0
    see_it_through(tmp_path)


@pytest.mark.slow
def test_kill_9_before_the_first_row(tmp_path: Path) -> None:
    moments = random.Random(2)
    for _ in range(4):
        process = start(tmp_path)
        wait_until(lambda: (tmp_path / "toy").exists(), process)
        time.sleep(moments.uniform(0.0, 0.01))
        process.kill()
        process.wait()
    see_it_through(tmp_path)


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


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_kill_9_takes_the_other_processes_along(tmp_path: Path) -> None:
    process = start(tmp_path, jobs=2)
    wait_until(lambda: size(rows_file(tmp_path)) > 200_000, process)
    workers = children(process.pid)
    assert len(workers) >= 2
    process.kill()
    assert process.wait() == -signal.SIGKILL
    wait_until(lambda: not any(alive(worker) for worker in workers))
    see_it_through(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are looked up in /proc")
def test_ctrl_c_is_for_the_first_process_alone(tmp_path: Path) -> None:
    process = start(tmp_path, jobs=2)
    wait_until(lambda: size(rows_file(tmp_path)) > 200_000, process)
    for worker in children(process.pid):
        os.kill(worker, signal.SIGINT)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 0, errors
    assert "KeyboardInterrupt" not in errors
    see_it_through(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_ctrl_c_ends_with_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    # The third task would take ten minutes: nobody waits for it.
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
    # Nothing is left to repair.
    outcome = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert outcome.notes == ()
    assert outcome.reused == part.done
    see_it_through(tmp_path)


@pytest.mark.slow
def test_a_limit_on_the_size_of_files_is_said_and_loses_nothing(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (350_000, 350_000))

    process = start(tmp_path, prepare=limit)
    errors = process.communicate(timeout=60)[1]
    assert process.returncode == 1
    assert "File too large" in errors
    assert "kept" in errors
    assert "Traceback" not in errors
    part = read_outcome(Toy(), rows_file(tmp_path).parent)
    assert 1 <= part.done < part.total
    content = rows_file(tmp_path).read_bytes()
    assert content.endswith(b"\n")
    assert content.count(b"\n") == part.done
    see_it_through(tmp_path)


@pytest.mark.slow
def test_a_rows_file_cut_in_half_is_repaired(tmp_path: Path) -> None:
    outcome = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    path = outcome.folder / ROWS
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    again = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert 0 < again.reused < again.total
    assert "damaged" in again.notes[0]
    see_it_through(tmp_path)


@pytest.mark.slow
def test_two_runs_at_once(tmp_path: Path) -> None:
    first = start(tmp_path)
    wait_until(lambda: size(rows_file(tmp_path)) > 0, first)
    second = start(tmp_path)
    errors = second.communicate(timeout=60)[1]
    assert first.wait(timeout=60) == 0
    # The second came in time to be refused, or after the first had ended and had nothing to do.
    assert second.returncode == 0 or f"in use by process {first.pid}" in errors
    see_it_through(tmp_path)


@pytest.mark.slow
def test_many_runs_at_once_do_the_work_of_one(tmp_path: Path) -> None:
    crowd = [start(tmp_path) for _ in range(4)]
    errors = [process.communicate(timeout=120)[1] for process in crowd]
    codes = [process.returncode for process in crowd]
    assert 0 in codes
    assert all(code == 0 or "in use by" in words for code, words in zip(codes, errors, strict=True)), errors
    outcome = reproduce(Toy(), spec=SETTINGS, root=tmp_path)
    assert outcome.reused == outcome.total
    assert outcome.notes == ()
    see_it_through(tmp_path)
