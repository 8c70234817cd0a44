"""Settings come back from TOML unchanged, equal settings have equal hashes, and mistakes are refused."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from notsodeep.errors import InputError
from notsodeep_lab.papers import Spec


@dataclass(frozen=True)
class Settings(Spec):
    name: str
    flag: bool
    count: int
    ratio: float
    words: tuple[str, ...]
    grid: tuple[tuple[int, float], ...]
    limit: int | None = None
    shape: tuple[float, float] = (1.0, 2.0)


# One of another class with the same name and fields: what a new version of a module would hold.
def next_version() -> type[Settings]:
    @dataclass(frozen=True)
    class Settings_(Settings):
        version = 2

    Settings_.__name__ = "Settings"
    return Settings_


finite = st.floats(allow_nan=False, allow_infinity=False)
settings = st.builds(
    Settings,
    name=st.text(),
    flag=st.booleans(),
    count=st.integers(),
    ratio=finite,
    words=st.lists(st.text(), max_size=3).map(tuple),
    grid=st.lists(st.tuples(st.integers(), finite), max_size=3).map(tuple),
    limit=st.none() | st.integers(),
    shape=st.tuples(finite, finite),
)
PLAIN = Settings("a", True, 1, 0.5, ("x",), ((1, 2.0),))


@pytest.mark.slow
@given(settings)
def test_toml_and_back(spec: Settings) -> None:
    text = spec.to_toml()
    back = Settings.from_toml(text.encode().decode())
    # repr distinguishes -0.0 from 0.0 and 1 from 1.0 and True, which == does not.
    assert repr(back) == repr(spec)
    assert back.hash() == spec.hash()
    assert (spec.hash() == PLAIN.hash()) == (repr(spec) == repr(PLAIN))
    content = tomllib.loads(text)
    assert (content["type"], content["version"]) == ("Settings", 1)
    assert content["settings"]["name"] == spec.name


def test_a_new_version_has_another_hash_and_refuses_the_old_file() -> None:
    newer = next_version()(**PLAIN.values())
    assert newer.values() == PLAIN.values()
    assert newer.hash() != PLAIN.hash()
    with pytest.raises(InputError, match="version = 1; expected 2"):
        type(newer).from_toml(PLAIN.to_toml())


@dataclass(frozen=True)
class A(Spec):
    s: str = "µ"
    x: tuple[float, ...] = (0.1, 2)


def test_the_hash_depends_on_the_content_alone() -> None:
    # sha256 of ["A",1,{"s":"\u00b5","x":[0.1,2.0]}]: results folders would lose their names if it changed.
    assert A().hash() == "9566a2c5c774"
    assert A(x=[0.1, 2.0]).hash() == "9566a2c5c774"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"count": 1.0}, r"Settings\.count=1\.0 is invalid\. Expected `int`, got `float`"),
        ({"ratio": float("nan")}, "ratio must be finite"),
        ({"words": "xyz"}, "words='xyz' is invalid. Expected `array`"),
        ({"grid": ((1, 2.0, 3),)}, r"grid=.* Expected `array` of length 2, got 3 - at `\$\[0\]`"),
        ({"limit": "none"}, "limit='none' is invalid. Expected `int | null`"),
    ],
)
def test_values_of_another_type_are_refused(change: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        replace(PLAIN, **change)


def test_a_field_that_toml_cannot_hold_is_refused() -> None:
    @dataclass(frozen=True)
    class Odd(Spec):
        path: Path = Path()

    with pytest.raises(InputError, match=r"Odd\.path is declared as"):
        Odd()


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('name = "a"\n', "", "lacks the settings name"),
        ("count = 1\n", "count = 1\ncolour = 3\n", "unknown settings: colour"),
        ('type = "Settings"', 'type = "Other"', "type = 'Other'"),
        ("version = 1\n", "version = 1\nextra = 1\n", "unknown keys: extra"),
        ("ratio = 0.5", "ratio = ", "is not valid TOML"),
        ("ratio = 0.5", 'ratio = "half"', "ratio='half' is invalid. Expected `float`"),
    ],
)
def test_files_with_mistakes_are_refused(before: str, after: str, words: str) -> None:
    text = PLAIN.to_toml()
    assert before in text
    with pytest.raises(InputError, match=words):
        Settings.from_toml(text.replace(before, after), where="here.toml")


def test_settings_left_out_of_a_file_have_their_defaults() -> None:
    shorter = PLAIN.to_toml().replace("shape = [1.0, 2.0]\n", "")
    assert "shape" not in shorter
    assert Settings.from_toml(shorter) == PLAIN
