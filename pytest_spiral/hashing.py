"""Canonical JSON and its hash, which shows whether two runs used the same suite, protocol or prompts."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_spiral.errors import DataError


def canonical(value: Any) -> bytes:
    """Canonical JSON: NFC strings, sorted ASCII keys, no floats; equals RFC 8785 (JCS) on this subset.

    Raises `DataError` for a float, or a key that is not ASCII.
    """
    text = json.dumps(_normalised(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8", "surrogatepass")


def _normalised(value: Any) -> Any:
    # Most of a large suite are strings in ASCII, which stay as they are.
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if isinstance(value, (list, tuple)):
        return [item if isinstance(item, str) and item.isascii() else _normalised(item) for item in value]
    if isinstance(value, (dict, Mapping)):
        for key in value:
            if not key.isascii():
                raise DataError(f"key {key!r} is not ASCII and cannot be hashed")
        return {key: _normalised(item) for key, item in value.items()}
    if isinstance(value, float):
        raise DataError(f"{value!r} is a float and cannot be hashed; use per-mille integers")
    return value


def digest(value: Any) -> str:
    """Hex SHA-256 of the canonical form."""
    return hashlib.sha256(canonical(value)).hexdigest()


def digest_of_all(values: Iterable[Any]) -> str:
    """The `digest` of a list, of which one entry at a time is in memory."""
    hashed = hashlib.sha256(b"[")
    for place, value in enumerate(values):
        hashed.update((b"," if place else b"") + canonical(value))
    hashed.update(b"]")
    return hashed.hexdigest()
