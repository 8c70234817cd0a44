"""Published data files, checked as they are read: each error says which file, what is wrong and what to do."""

from __future__ import annotations

import gzip
import hashlib
import struct
import zipfile
import zlib
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from notsodeep.errors import InputError

_AGAIN = "Fetch the file again from where it is published."
_IDX_UNSIGNED_BYTES = 0x08
# np.load reports damage through any of these, depending on where it is; a lone .npy has no names to ask for.
_NPZ_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, AttributeError, TypeError)


def read_bytes(path: Path) -> bytes:
    """The content of a file that must be there."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise InputError(
            f"{path} is missing. Put it there, name the right folder (data_dir or NOTSODEEP_DATA), or name "
            "none, and the data set is fetched from OpenML if OpenML has it."
        ) from None
    except OSError as reason:
        raise InputError(f"{path} cannot be read: {reason}.") from reason


def md5(content: bytes) -> str:
    """The checksum under which the files are published; a guard against accidents, not against attackers."""
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def check_md5(path: Path, found: str, published: str) -> None:
    """Refuse a file that is not the published one."""
    if found != published:
        raise InputError(
            f"{path} is not the published file: its MD5 is {found}, published is {published}. {_AGAIN} "
            "If the difference is meant (a subset of your own), pass verify=False."
        )


def parse_idx(compressed: bytes, path: Path, *, axes: int) -> NDArray[np.uint8]:
    """The array in a gzipped IDX file: 0, 0, type, number of axes, then sizes and entries, all big-endian."""
    content = _gunzip(compressed, path)
    header = 4 + 4 * axes
    if len(content) < header or content[:4] != bytes([0, 0, _IDX_UNSIGNED_BYTES, axes]):
        raise InputError(
            f"{path} is not an IDX file of unsigned bytes with {axes} axes: it starts with "
            f"{content[:4].hex(' ')} where 00 00 08 {axes:02x} is needed. {_AGAIN}"
        )
    shape = struct.unpack(f">{axes}I", content[4:header])
    if len(content) - header != prod(shape):
        raise InputError(
            f"{path} announces {prod(shape)} entries (shape {shape}), has {len(content) - header}. {_AGAIN}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _gunzip(compressed: bytes, path: Path) -> bytes:
    try:
        return gzip.decompress(compressed)
    except EOFError as reason:
        raise InputError(
            f"{path} is cut short: the gzip stream ends after {len(compressed)} bytes. {_AGAIN}"
        ) from reason
    except (OSError, zlib.error) as reason:
        raise InputError(f"{path} is not a sound gzip file: {reason}. {_AGAIN}") from reason


def read_npz(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The named arrays of an npz file; pickled objects are refused."""
    if not path.is_file():
        read_bytes(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            missing = sorted(set(names) - set(archive.files))
            if missing:
                raise InputError(f"{path} holds {sorted(archive.files)}; needed and not there: {missing}.")
            return {name: archive[name] for name in names}
    except InputError:
        raise
    except _NPZ_DAMAGE as reason:
        raise InputError(f"{path} is not a sound npz file: {reason}. {_AGAIN}") from reason
