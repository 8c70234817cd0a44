"""What is published beside the code: version, citation, dependencies, templates, and commands that documents name."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import notsodeep

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def text(*parts: str) -> str:
    return ROOT.joinpath(*parts).read_text(encoding="utf-8")


def citation() -> dict[str, Any]:
    return yaml.safe_load(text("CITATION.cff"))


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found is not None
    return found[0].lower()


# --- version -----------------------------------------------------------------------------------------
def test_the_version_is_written_in_the_package_alone() -> None:
    assert "version" in PROJECT["project"]["dynamic"]
    assert "version" not in PROJECT["project"]
    source = text(PROJECT["tool"]["hatch"]["version"]["path"])
    assert re.findall(r'^__version__ = "(.+)"$', source, flags=re.MULTILINE) == [notsodeep.__version__]
    assert str(citation()["version"]) == notsodeep.__version__


def test_the_changelog_has_the_released_versions_once_each() -> None:
    headings = re.findall(r"^## \[(.+?)\]", text("CHANGELOG.md"), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert len(headings) == len(set(headings))


# --- citation ----------------------------------------------------------------------------------------
def test_the_citation_has_what_its_format_requires() -> None:
    cited = citation()
    assert cited["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type", "license"} <= cited.keys()
    assert cited["license"] == PROJECT["project"]["license"]
    assert [author["name"] for author in cited["authors"]] == [
        author["name"] for author in PROJECT["project"]["authors"]
    ]
    assert cited["keywords"] == PROJECT["project"]["keywords"]
    for reference in cited["references"]:
        assert {"type", "title", "authors"} <= reference.keys()


# --- dependencies ------------------------------------------------------------------------------------
def test_every_dependency_of_users_has_its_reason() -> None:
    table = text("docs", "contributing.md").split("## Dependencies, and why")[1].split("\n## ")[0]
    optional = PROJECT["project"]["optional-dependencies"]
    for extra in ("torch", "plot", "scale", "lab", "all", "dev"):
        assert f"xtra `{extra}`" in table or f"`{extra}` is" in table, f"the extra {extra} is not explained"
    for requirement in [
        *PROJECT["project"]["dependencies"],
        *(each for extra in ("torch", "plot", "scale", "lab") for each in optional[extra]),
    ]:
        name = name_of(requirement)
        assert name == "notsodeep" or re.search(rf"^\|[^|]*\b{name}\b", table, re.MULTILINE), requirement


def test_every_dependency_has_a_lower_bound_and_a_tested_version_above_it() -> None:
    pinned = dict(re.findall(r"^([A-Za-z0-9._-]+)==([\w.]+)$", text("constraints.txt"), re.MULTILINE))
    tested = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    groups = PROJECT["project"]["optional-dependencies"]
    for requirement in [
        *PROJECT["project"]["dependencies"],
        *(each for group in groups.values() for each in group),
    ]:
        name = name_of(requirement)
        if name == "notsodeep":
            continue
        bound = re.search(r">=([\d.]+)$", requirement)
        assert bound is not None, f"{requirement} has no lower bound"
        assert numbers(bound[1]) <= numbers(tested[name]), f"{requirement} asks for more than {tested[name]}"


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def test_the_workflow_runs_targets_that_exist_on_every_version_from_the_lowest() -> None:
    jobs = yaml.safe_load(text(".github", "workflows", "checks.yml"))["jobs"]
    named = {word for job in jobs.values() for step in job["steps"] for word in _make_targets(step)}
    assert (
        {"lint", "test", "docs"} <= named <= set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    )
    versions = jobs["test"]["strategy"]["matrix"]["python"]
    assert f">={versions[0]}" == PROJECT["project"]["requires-python"]


def _make_targets(step: dict[str, str]) -> list[str]:
    return re.findall(r"make ([a-z-]+)", step.get("run", ""))


# --- what documents tell one to type -----------------------------------------------------------------
@pytest.mark.parametrize("document", ["docs/contributing.md", "CONTRIBUTING.md", "README.md"])
def test_every_make_target_that_is_named_exists(document: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", text("Makefile"), re.MULTILINE))
    named = set(re.findall(r"(?:^|`|\$ )make ([a-z-]+)", text(document), re.MULTILINE))
    assert named
    assert named <= targets


def test_every_file_that_the_page_on_contributing_names_exists() -> None:
    page = text("docs", "contributing.md").replace("`notsodeep/", "`src/notsodeep/")
    named = re.findall(r"`((?:[\w.-]+/)*[\w-]+\.(?:md|py|cff|toml|txt))`", page)
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []
