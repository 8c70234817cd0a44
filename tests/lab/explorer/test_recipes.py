"""The script and the commands of the page give the numbers that it shows."""

from __future__ import annotations

import json
import shlex

import numpy as np
import pytest
from explorer_choices import CHOICES
from typer.testing import CliRunner

from notsodeep.cli.entry import app
from notsodeep.designs import Design
from notsodeep_lab.explorer import computations
from notsodeep_lab.explorer.choice import Choice, PageData
from notsodeep_lab.explorer.recipes import as_commands, as_python, command_words, on_short_lines

# Each kind of data, kernel and activation by at least one route.
IN_PYTHON = ("mixture", "tangent kernel", "sphere", "digits", "npy", "parameters")
AS_COMMANDS = ("both kernels", "papers' tangent kernel", "digits", "csv", "even")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the uploaded files in it, as the reader has them."""
    monkeypatch.chdir(tmp_path)
    rows = CHOICES["csv"].data.upload.rows
    np.save(tmp_path / "rows.npy", rows)
    (tmp_path / "rows.csv").write_text("\n".join(",".join(repr(float(cell)) for cell in row) for row in rows))
    return tmp_path


def same_design(one: Design, other: Design) -> bool:
    return (
        [str(layer) for layer in one.network.layers] == [str(layer) for layer in other.network.layers]
        and one.target.as_array() == pytest.approx(other.target.as_array(), rel=1e-10)
        and one.exact == other.exact
    )


@pytest.mark.slow
@pytest.mark.parametrize("choice", [CHOICES[name] for name in IN_PYTHON], ids=IN_PYTHON)
def test_the_python_computes_what_is_shown(choice: Choice, folder, capsys):
    session: dict = {}
    exec(compile(as_python(choice), "copied.py", "exec"), session)
    assert capsys.readouterr().out
    assert same_design(session["twin"], computations.design_of(choice))
    found = computations.spectrum_of(choice)
    assert np.allclose(session["eigenvalues"], found.exact, rtol=1e-9, atol=1e-12 * found.exact[-1])
    if found.limit is not None:
        assert np.allclose(session["predicted"].isolated, found.limit.isolated, rtol=1e-9)
        assert np.allclose(session["predicted"].edges, found.limit.edges, rtol=1e-9)
    else:
        assert np.allclose(np.sort(session["predicted"]), found.equivalent, atol=1e-9 * found.exact[-1])


@pytest.mark.slow
@pytest.mark.parametrize("choice", [CHOICES[name] for name in AS_COMMANDS], ids=AS_COMMANDS)
def test_the_commands_print_what_is_shown(choice: Choice, folder):
    design_words, spectrum_words = command_words(choice)
    assert shlex.split(as_commands(choice)) == [*design_words, *spectrum_words]
    made = computations.design_of(choice)
    ran = CliRunner().invoke(app, [*design_words[1:], "--json"])
    close = made.misfit is not None and made.misfit <= 0.01
    assert ran.exit_code == (0 if made.exact or close else 3), ran.output
    printed = json.loads(ran.stdout)
    # Without data, as for a typed formula, the design stands alone.
    assert same_design(Design.from_json(json.dumps(printed.get("design", printed))), made)
    ran = CliRunner().invoke(app, [*spectrum_words[1:], "--json"])
    assert ran.exit_code == 0, ran.output
    record, found = json.loads(ran.stdout), computations.spectrum_of(choice)
    assert np.allclose(record["exact"], found.exact, rtol=1e-9, atol=1e-12 * found.exact[-1])
    assert record["distance"] == pytest.approx(found.distance, abs=1e-8)
    if found.limit is not None:
        assert np.allclose(record["predicted"]["isolated"], found.limit.isolated, rtol=1e-9)
    assert (folder / "notsodeep-spectrum.png").exists()


def test_a_hostile_name_stays_one_word():
    choice = Choice(activation="formula", expression="x; rm -rf ~ $(id) `id` '\"")
    words = command_words(choice)[0]
    assert shlex.split(as_commands(choice))[: len(words)] == words
    compile(as_python(choice), "copied.py", "exec")
    assert repr(choice.expression) in as_python(choice)


def test_commands_on_short_lines_have_the_same_words():
    commands = as_commands(Choice("formula", expression="x * sigmoid(x)", data=PageData(n=100, p=80)))
    shown = on_short_lines(commands)
    assert [shlex.split(line) for line in shown.replace("\\\n", "").splitlines()] == [
        shlex.split(line) for line in commands.splitlines()
    ]
    assert max(map(len, shown.splitlines())) <= 44
    assert not any(line.rstrip(" \\").endswith("-") for line in shown.splitlines())
