"""The script of the page computes the numbers that it shows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from explorer_choices import CHOICES

from notsodeep_lab.explorer.choice import Choice
from notsodeep_lab.explorer.computations import depths_of, forecast_of, twin_of
from notsodeep_lab.explorer.recipes import as_python


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with the uploaded files in it, as the reader has them."""
    monkeypatch.chdir(tmp_path)
    table = CHOICES["csv"].data.upload.table
    np.save(tmp_path / "rows.npy", table.rows)
    lines = [
        ",".join([*map(str, row), label])
        for row, label in zip(table.rows.tolist(), table.labels, strict=True)
    ]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("choice", CHOICES.values(), ids=list(CHOICES))
def test_the_script_computes_what_is_shown(choice: Choice, folder, capsys):
    session: dict = {}
    exec(compile(as_python(choice), "copied.py", "exec"), session)
    depths, has_labels = depths_of(choice), choice.data.samples.labels is not None
    assert capsys.readouterr().out
    assert np.allclose(session["forecast"].rate, forecast_of(choice).rate)
    assert np.allclose(session["curve"].accuracy, depths.curve.accuracy)
    assert ("plain" in session) == has_labels
    assert list(session.get("plain", {}).values()) == pytest.approx(
        [one.score for one in depths.plain.values()]
    )
    if choice.network.kind == "deq":
        assert str(session["twin"].network) == str(twin_of(choice).design.network)


def test_a_hostile_file_name_stays_a_string(folder):
    choice = CHOICES["csv"]
    name = "x'); print('run' \"#.csv"
    data = replace(choice.data, upload=replace(choice.data.upload, name=name))
    script = as_python(replace(choice, data=data))
    compile(script, "copied.py", "exec")
    assert repr(name) in script
