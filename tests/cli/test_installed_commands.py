"""Commands of other packages: entry points of the group `notsodeep.commands`."""

from __future__ import annotations

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from notsodeep.cli import entry

ROOT = Path(__file__).parents[2]


def test_the_commands_of_the_laboratory_are_those_that_the_package_declares() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = project["entry-points"][entry.COMMANDS]
    installed = {one.name: one.value for one in importlib.metadata.entry_points(group=entry.COMMANDS)}
    assert declared.keys() == {"reproduce"}
    assert declared.items() <= installed.items(), "install the package anew: its entry points have changed"


def test_a_package_adds_a_command_and_one_that_cannot_be_loaded_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = typer.Typer()
    app.command("other")(lambda: None)
    points = [
        importlib.metadata.EntryPoint("json", "notsodeep.cli.common:say", entry.COMMANDS),
        importlib.metadata.EntryPoint("broken", "no_such_package:command", entry.COMMANDS),
    ]
    monkeypatch.setattr(entry, "app", app)
    monkeypatch.setattr(entry, "entry_points", lambda group: points if group == entry.COMMANDS else [])
    entry.add_installed_commands()
    assert [command.name for command in app.registered_commands] == ["other", "json"]
    assert "broken (no_such_package:command) cannot be loaded" in " ".join(capsys.readouterr().err.split())


def test_help_lists_them_all() -> None:
    shown = CliRunner().invoke(entry.app, ["--help"], env={"COLUMNS": "100"}).output
    for name in ("demo", "kernel", "verdict", "reproduce"):
        assert f" {name} " in shown
    commands = shown.partition("Commands")[2]
    places = [commands.index(f" {name} ") for name in ("demo", "forecast", "verdict", "kernel", "reproduce")]
    assert places == sorted(places), "the order of use: demo first, the laboratory last"
