"""`notsodeep explore` as it is typed, without its page."""

from __future__ import annotations

import importlib.util
import socket

import pytest
from typer.testing import CliRunner

from notsodeep.cli.entry import app
from notsodeep.errors import InputError
from notsodeep_lab.commands import explore_command as explore


@pytest.fixture
def started(monkeypatch) -> list[list[str]]:
    """The commands that would have been run."""
    commands: list[list[str]] = []
    monkeypatch.setattr(explore, "_run_server", lambda command: commands.append(command) or 0)
    return commands


def run(*arguments: str):
    return CliRunner().invoke(app, ["explore", *arguments])


def test_it_starts_on_this_machine_and_sends_nothing(started):
    assert run("--no-browser", "--max-upload", "7").exit_code == 0
    (words,) = started
    assert "--server.address=localhost" in words
    assert "--server.headless=true" in words
    assert "--server.maxUploadSize=7" in words
    assert "--browser.gatherUsageStats=false" in words
    assert "--server.showEmailPrompt=false" in words
    assert "--client.showErrorDetails=none" in words


def test_other_addresses_are_warned_of(started):
    found = run("--address", "0.0.0.0")
    assert found.exit_code == 0
    assert "warning" in found.stderr
    assert "There is no password" in " ".join(found.stderr.split())
    assert not explore.is_local("example.org")
    assert all(explore.is_local(address) for address in ("localhost", "127.0.0.1", "::1"))
    assert "warning" not in run().stderr
    assert "--server.headless=false" in started[-1]


def test_a_taken_port_is_said_and_avoided_when_none_is_named(started):
    with socket.socket() as holder:
        holder.bind(("localhost", 0))
        holder.listen()
        port = holder.getsockname()[1]
        found = run("--port", str(port))
        assert isinstance(found.exception, InputError)
        assert "is in use" in str(found.exception)
        assert explore._free_port("localhost", None) != port
    assert started == []


def test_an_address_that_is_none_is_said(started):
    found = run("--address", "no.such.address.invalid")
    assert isinstance(found.exception, InputError)
    assert "no address" in str(found.exception)


def test_without_streamlit_it_says_what_to_install(started, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "streamlit" else find(name))
    found = run()
    assert isinstance(found.exception, InputError)
    assert "pip install '.[lab]'" in str(found.exception)


def test_the_exit_code_of_the_server_is_kept(monkeypatch):
    monkeypatch.setattr(explore, "_run_server", lambda command: 3)
    assert run("--no-browser").exit_code == 3


def test_the_threads_of_the_reader_are_kept(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    found = explore.server_environment()
    assert (found["OMP_NUM_THREADS"], found["OPENBLAS_NUM_THREADS"]) == ("5", "1")
