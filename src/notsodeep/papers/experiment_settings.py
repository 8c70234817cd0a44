"""Settings of an experiment as one frozen value: hashed into the name of its folder, and as TOML for people.

A specification is a frozen dataclass of booleans, integers, floats, strings, and tuples of them. An optional setting
(`int | None`) that is None is left out of the file: TOML has no word for nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
import types
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, Self, Union, get_args, get_origin, get_type_hints

from notsodeep.errors import InputError

HASH_DIGITS = 12

_HEADER = (
    "# The settings the rows in this folder were computed with. Their hash is the name of the folder:\n"
    "# change a copy, not this file, and run it with --spec.\n"
)
# TOML's short escapes; every other control character goes by number.
_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}


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
        for name, value in self.values().items():
            object.__setattr__(self, name, value)

    def values(self) -> dict[str, Any]:
        """The settings by name, in the order of the declaration."""
        hints, kind = _hints(type(self)), type(self).__name__
        return {
            f.name: _conform(getattr(self, f.name), hints[f.name], f"{kind}.{f.name}") for f in fields(self)
        }

    def hash(self) -> str:
        """Twelve hexadecimal digits that name these settings: SHA-256 of type, version and values."""
        content = [type(self).__name__, self.version, self.values()]
        return hashlib.sha256(canonical_json(content).encode()).hexdigest()[:HASH_DIGITS]

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
        _refuse_unknown(where, "settings", settings, {f.name for f in fields(cls)})
        missing = [f.name for f in fields(cls) if f.name not in settings and not _has_default(f)]
        optional = {name: None for name in missing if _is_optional(_hints(cls)[name])}
        required = [name for name in missing if name not in optional]
        if required:
            raise InputError(f"{where} lacks the settings {', '.join(required)}.")
        return cls(**settings, **optional)


def canonical_json(content: Any) -> str:
    """The one text for a JSON value: sorted keys, no spaces, no NaN; what checksums are taken of."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def _hints(kind: type[Spec]) -> dict[str, Any]:
    return get_type_hints(kind)


def _has_default(field: Any) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _refuse_unknown(where: str, what: str, found: dict[str, Any], known: set[str]) -> None:
    unknown = sorted(set(found) - known)
    if unknown:
        raise InputError(
            f"{where} has the {what} {', '.join(unknown)}; known are {', '.join(sorted(known))}."
        )


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType) and type(None) in get_args(hint)


def _conform(value: Any, hint: Any, where: str) -> Any:
    """The value as its declared type, or an error that says what came and what is declared."""
    if _is_optional(hint):
        inner = [member for member in get_args(hint) if member is not type(None)]
        return None if value is None else _conform(value, inner[0], where)
    if get_origin(hint) is tuple:
        return _conform_tuple(value, get_args(hint), where)
    # A bool is an int to Python, not to a reader.
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise InputError(f"{where} must be finite; it came as {value!r}.")
        return float(value)
    if hint in (bool, int, str) and type(value) is hint:
        return value
    if hint not in (bool, int, float, str):
        raise InputError(
            f"{where} is declared as {hint}; a specification holds numbers, strings and tuples of them."
        )
    raise InputError(f"{where} must be of type {hint.__name__}; it came as {value!r}.")


def _conform_tuple(value: Any, members: tuple[Any, ...], where: str) -> tuple[Any, ...]:
    if not isinstance(value, list | tuple):
        raise InputError(f"{where} must be a list of values; it came as {value!r}.")
    if len(members) == 2 and members[1] is Ellipsis:
        members = (members[0],) * len(value)
    if len(value) != len(members):
        raise InputError(f"{where} must have {len(members)} values; it came as {value!r}.")
    pairs = zip(value, members, strict=True)
    return tuple(_conform(item, member, f"{where}[{k}]") for k, (item, member) in enumerate(pairs))


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(map(_escaped, value)) + '"'
    return repr(value)


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x20 or code == 0x7F else character
