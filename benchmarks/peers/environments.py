"""The environment of each peer: its location and its installation.

python benchmarks/peers/environments.py      make those that are not there yet (4 GB, some minutes)

neural-tangents and TorchDEQ want versions of other packages that are not ours, so each lives in a .venv of its own
beside its requirements.txt. To use environments made elsewhere, set NOTSODEEP_PEERS to a folder that has
neural_tangents/.venv and torchdeq/.venv in it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PEERS = {"neural_tangents": "3 GB, some minutes", "torchdeq": "1 GB, a minute or more"}
#: Every library that asks has to be told; jax looks at the processors it is held to instead.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)


class Missing(RuntimeError):
    """There is no environment for a peer."""


def folder_of(peer: str) -> Path:
    return Path(os.environ.get("NOTSODEEP_PEERS") or HERE) / peer / ".venv"


def python_of(peer: str) -> Path:
    """The Python of an environment that is ready.

    Raises:
        Missing: if it is not.
    """
    folder = folder_of(peer)
    if not (folder / "ready").exists():
        raise Missing(f"no environment for {peer}; `python benchmarks/peers/environments.py` makes it")
    return folder / "bin" / "python"


def environment(peer: str) -> Path:
    """The peer's Python; the environment is created on first use."""
    folder = folder_of(peer)
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        print(f"Building the environment of {peer} (once; {PEERS[peer]}) …", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, "-r", str(HERE / peer / "requirements.txt")], check=True)
        (folder / "ready").touch()  # an interrupted installation is started again, not trusted
    return python


def hold_to_processors(count: int) -> int:
    """Keep this process and its children on `count` processors, with as many threads in every library."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:count])
        count = len(os.sched_getaffinity(0))
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, str(count)))  # for the children
    from threadpoolctl import threadpool_limits

    threadpool_limits(count)  # for what is loaded here already
    return count


def main() -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    failed = []
    for peer in PEERS:
        try:
            print(f"{peer}: {environment(peer)}", flush=True)
        except (OSError, subprocess.CalledProcessError) as error:
            failed.append(peer)
            print(f"{peer}: could not be installed and will not be measured. {error}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
