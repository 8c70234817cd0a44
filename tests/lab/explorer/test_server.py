"""The explorer's server as a process: whatever comes, no socket leaves this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from socket_recorder import asked_for, foreign, recorded

pytest.importorskip("streamlit")

from notsodeep_lab.commands.explore_command import streamlit_command
from notsodeep_lab.explorer import server

pytestmark = pytest.mark.slow

PATIENCE = 90.0  # seconds that a busy machine may take


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def explorer(tmp_path_factory) -> Iterator[tuple[int, Path]]:
    """Port and folder of a running server that records the addresses it asks for."""
    port, folder = free_port(), tmp_path_factory.mktemp("explorer")
    command = streamlit_command("localhost", port, browser=False, max_upload=1)
    process = subprocess.Popen(command, env=recorded(folder), stdout=subprocess.DEVNULL)
    try:
        limit = time.monotonic() + PATIENCE
        while answer_to(port, f"http://localhost:{port}") != 101:
            assert process.poll() is None
            assert time.monotonic() < limit, "the server did not start in time"
            time.sleep(0.2)
        yield port, folder
    finally:
        process.terminate()
        process.wait(timeout=30)


def answer_to(port: int, origin: str) -> int:
    """The status of a request for a websocket by a page of some origin; 0 while nobody listens."""
    request = (
        f"GET /_stcore/stream HTTP/1.1\r\nHost: localhost:{port}\r\nOrigin: {origin}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=30) as line:
            line.sendall(request.encode())
            return int(line.recv(1024).split()[1])
    except (ConnectionError, IndexError):
        return 0


def test_only_pages_of_the_explorer_itself_are_accepted(explorer):
    port, folder = explorer
    for origin in ("http://example.org", "https://127.0.0.1.example.org", "null", "http://192.0.2.7:8501"):
        assert answer_to(port, origin) == 403, origin
    assert answer_to(port, f"http://localhost:{port}") == 101
    assert answer_to(port, f"http://127.0.0.1:{port}") == 101
    assert foreign(folder) == []


def test_the_recorder_sees_what_would_leave(tmp_path):
    """Without this, the tests above could not fail."""
    code = (
        "import socket\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('192.0.2.1', 9))\n"
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).connect(('127.0.0.1', 9))\n"
        "try: socket.getaddrinfo('example.invalid', 80)\n"
        "except OSError: pass\n"
    )
    subprocess.run([sys.executable, "-c", code], env=recorded(tmp_path), check=True)
    assert len(asked_for(tmp_path)) >= 3
    assert foreign(tmp_path) == ["socket.connect 192.0.2.1", "socket.getaddrinfo example.invalid"]


def test_a_streamlit_that_asks_by_other_means_is_refused(monkeypatch):
    from streamlit import net_util

    monkeypatch.setattr(net_util, "get_internal_ip", net_util.get_internal_ip)
    monkeypatch.delattr(net_util, "get_external_ip")
    with pytest.raises(RuntimeError, match="other machines"):
        server.keep_to_this_machine()
