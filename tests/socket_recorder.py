"""Every address that a process and its children ask for or connect to, in a file: by Python's audit events.

`recorded(folder)` is the environment that starts a process with the recorder; `foreign(folder)` is what it found that
is not this machine.
"""

from __future__ import annotations

import ipaddress
import os
from pathlib import Path

FILE = "addresses.txt"
# Python imports a module of this name when it starts; an audit hook sees calls below any library.
_RECORDER = f"""
import os, sys

def record(event, arguments):
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = arguments[1]
    elif event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"):
        address = arguments[0]
    else:
        return
    host = address[0] if isinstance(address, tuple) else address
    with open(os.path.join({{folder!r}}, {FILE!r}), "a", encoding="utf-8") as file:
        file.write(f"{{{{event}}}} {{{{host}}}}\\n")

sys.addaudithook(record)
"""


def recorded(folder: Path) -> dict[str, str]:
    (folder / "sitecustomize.py").write_text(_RECORDER.format(folder=str(folder)), encoding="utf-8")
    paths = [str(folder), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)}


def asked_for(folder: Path) -> list[str]:
    file = folder / FILE
    return file.read_text(encoding="utf-8").splitlines() if file.exists() else []


def foreign(folder: Path) -> list[str]:
    return [line for line in asked_for(folder) if not _is_here(line.partition(" ")[2])]


def _is_here(host: str) -> bool:
    # Sockets of the file system have a path, or nothing, for an address.
    if host in ("None", "", "localhost") or host.startswith(("/", "b'", "\0")):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
