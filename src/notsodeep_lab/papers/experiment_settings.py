"""Settings of an experiment as one frozen value: hashed into the name of its folder, and as TOML for people.

A specification is a frozen dataclass of booleans, integers, floats, strings, and tuples of them. An optional setting
(`int | None`) that is None is left out of the file: TOML has no word for nothing.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self, get_args, get_type_hints

import msgspec

from notsodeep.errors import InputError
from notsodeep.fingerprint import digest

HASH_DIGITS = 12

_HEADER = (
    "# The settings the rows in this folder were computed with. Their hash is the name of the folder:\n"
    "# change a copy, not this file, and run it with --spec.\n"
)


@dataclass(frozen=True)
class Spec:
    """Base of the specifications: `@dataclass(frozen=True) class IcmlErrorSpec(Spec): …`.

    Values are brought to their declared types when made (1 becomes 1.0 where a float is declared, lists become
    tuples), so that equal settings have equal hashes however they were written.

    Attributes:
        version: raise it when the same settings come to mean another computation: old rows are then left alone.
    """

    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for name, value in self.values().items():
            found = _as_declared(value, hints[name], f"{type(self).__name__}.{name}")
            object.__setattr__(self, name, found)

    def values(self) -> dict[str, Any]:
        """The settings by name, in the order of the declaration."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def hash(self) -> str:
        """Twelve hexadecimal digits that name these settings: SHA-256 of type, version and values."""
        return digest([type(self).__name__, self.version, self.values()])[:HASH_DIGITS]

    def to_toml(self) -> str:
        """The settings as a file that `from_toml` reads back to an equal specification."""
        head = [f"type = {_toml(type(self).__name__)}", f"version = {self.version}", "", "[settings]"]
        lines = [f"{name} = {_toml(value)}" for name, value in self.values().items() if value is not None]
        return _HEADER + "\n".join([*head, *lines]) + "\n"

    @classmethod
    def from_toml(cls, text: str, where: str = "The specification") -> Self:
        """Read what `to_toml` wrote; settings left out have their defaults.

        Args:
            text: the content of the file.
            where: what to call it in an error.
        """
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{where} is not TOML: {error}.") from None
        expected = {"type": cls.__name__, "version": cls.version}
        for key, wanted in expected.items():
            if content.get(key) != wanted:
                raise InputError(f"{where} has {key} = {content.get(key)!r}; needed is {wanted!r}.")
        settings = content.get("settings", {})
        _refuse_unknown(where, "keys", content, {*expected, "settings"})
        if not isinstance(settings, dict):
            raise InputError(f"{where} has settings = {settings!r}; needed is a table [settings].")
        _refuse_unknown(where, "settings", settings, {field.name for field in fields(cls)})
        hints = get_type_hints(cls)
        held_out = [f.name for f in fields(cls) if f.name not in settings and f.default is MISSING]
        required = [name for name in held_out if type(None) not in get_args(hints[name])]
        if required:
            raise InputError(f"{where} lacks the settings {', '.join(required)}.")
        return cls(**settings, **dict.fromkeys(held_out))


@dataclass(frozen=True)
class DEQSpec(Spec):
    """What most experiments set."""

    sigma_a2: float  # variance of the recurrent weights of the DEQs
    activations: tuple[str, ...]  # their activations, by name
    seeds: int  # number of repetitions: draws of the mixture, or of weights and shuffling


def _refuse_unknown(where: str, what: str, found: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(found) - known)
    if unknown:
        raise InputError(
            f"{where} has the {what} {', '.join(unknown)}; known are {', '.join(sorted(known))}."
        )


def _as_declared(value: Any, declared: Any, where: str) -> Any:
    """The value as its declared type, or an error that says what came and what is declared."""
    try:
        found = msgspec.convert(value, declared)
        json.dumps(found, allow_nan=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{where} came as {value!r}. {error}.") from None
    except ValueError:
        raise InputError(f"{where} must be finite; it came as {value!r}.") from None
    except TypeError:
        raise InputError(
            f"{where} is declared as {declared}; a specification holds numbers, strings and tuples of them."
        ) from None
    return found


def _toml(value: Any) -> str:
    """A value in TOML, which writes these as JSON does, but for one character that must be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
