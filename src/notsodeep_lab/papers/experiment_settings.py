"""The settings of an experiment: frozen dataclasses that are stored as TOML and hashed into a folder name.

A specification has fields of booleans, integers, floats, strings, and tuples of them. An optional setting
(`int | None`) that is None is omitted from the file, because TOML has no null.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self, get_args, get_type_hints

import msgspec

from notsodeep.errors import InputError
from notsodeep.fingerprint import digest

HASH_DIGITS = 12

_HEADER = (
    "# The settings of the rows in this folder. Their hash is the name of the folder:\n"
    "# to change them, edit a copy of this file and run it with --spec.\n"
)


@dataclass(frozen=True)
class Spec:
    """Base class of the settings: `@dataclass(frozen=True) class IcmlErrorSpec(Spec): …`.

    Values are converted to their declared types (1 becomes 1.0 where a float is declared, lists become tuples),
    so that equal settings have equal hashes.

    Attributes:
        version: increase it when the same settings define another computation: old rows are then not reused.
    """

    version: ClassVar[int] = 1

    def __post_init__(self) -> None:
        hints = get_type_hints(type(self))
        for name, value in self.values().items():
            converted = _as_declared(value, hints[name], f"{type(self).__name__}.{name}")
            object.__setattr__(self, name, converted)

    def values(self) -> dict[str, Any]:
        """Return the settings by name, in the order of their declaration."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def hash(self) -> str:
        """Return twelve hexadecimal digits that identify the settings: SHA-256 of type, version and values."""
        return digest([type(self).__name__, self.version, self.values()])[:HASH_DIGITS]

    def to_toml(self) -> str:
        """Write the settings as TOML, which `from_toml` reads back."""
        head = [f"type = {_toml(type(self).__name__)}", f"version = {self.version}", "", "[settings]"]
        lines = [f"{name} = {_toml(value)}" for name, value in self.values().items() if value is not None]
        return _HEADER + "\n".join([*head, *lines]) + "\n"

    @classmethod
    def from_toml(cls, text: str, where: str = "The specification") -> Self:
        """Read settings from TOML; missing settings have their defaults.

        Args:
            text: the content of the file.
            where: the name of the file in error messages.
        """
        try:
            content = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise InputError(f"{where} is not valid TOML: {error}.") from None
        expected = {"type": cls.__name__, "version": cls.version}
        for key, value in expected.items():
            if content.get(key) != value:
                raise InputError(f"{where} has {key} = {content.get(key)!r}; expected {value!r}.")
        settings = content.get("settings", {})
        _refuse_unknown(where, "keys", content, {*expected, "settings"})
        if not isinstance(settings, dict):
            raise InputError(f"{where} has settings = {settings!r}; expected a table [settings].")
        _refuse_unknown(where, "settings", settings, {field.name for field in fields(cls)})
        hints = get_type_hints(cls)
        missing = [f.name for f in fields(cls) if f.name not in settings and f.default is MISSING]
        required = [name for name in missing if type(None) not in get_args(hints[name])]
        if required:
            raise InputError(f"{where} lacks the settings {', '.join(required)}.")
        return cls(**settings, **dict.fromkeys(missing))


@dataclass(frozen=True)
class DEQSpec(Spec):
    """Settings that most experiments share."""

    sigma_a2: float  # width times the variance of a recurrent weight
    activations: tuple[str, ...]  # names of their activations
    seeds: int  # number of repetitions: draws of the mixture, or of weights and shuffling


def _refuse_unknown(where: str, what: str, names: Iterable[str], known: set[str]) -> None:
    unknown = sorted(set(names) - known)
    if unknown:
        raise InputError(
            f"{where} has unknown {what}: {', '.join(unknown)}. Known {what}: {', '.join(sorted(known))}."
        )


def _as_declared(value: Any, declared: Any, where: str) -> Any:
    """Convert a value to its declared type, or raise an error that shows both."""
    try:
        converted = msgspec.convert(value, declared)
        json.dumps(converted, allow_nan=False)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}={value!r} is invalid. {error}.") from None
    except ValueError:
        raise InputError(f"{where} must be finite; got {value!r}.") from None
    except TypeError:
        raise InputError(
            f"{where} is declared as {declared}; settings are booleans, numbers, strings and tuples of them."
        ) from None
    return converted


def _toml(value: Any) -> str:
    """Write a value as TOML, which equals JSON here but for one character that must be escaped."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
