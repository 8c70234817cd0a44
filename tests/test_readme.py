"""The README's Python runs as it stands, block after block in one session."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def python_blocks(path: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", path.read_text(), flags=re.DOTALL)


def test_every_block_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = python_blocks(ROOT / "README.md")
    assert len(blocks) == 3
    session: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), session)
    bound, asymptotic, refined = (float(line) for line in capsys.readouterr().out.splitlines())
    assert bound < 1e-12
    assert refined < 0.1 * asymptotic


@pytest.mark.parametrize("name", ["networks.md", "scale.md", "estimators.md", "explorer.md"])
def test_every_block_of_the_guides_runs(name: str) -> None:
    blocks = python_blocks(ROOT / "docs" / name)
    assert blocks
    session: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, name, "exec"), session)


def test_every_link_of_the_readme_leads_somewhere() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", (ROOT / "README.md").read_text())
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []
