"""Strict reading of JSON: no duplicate keys, no NaN or infinity, bounded numbers and nesting. And writing it. Pure.

`json` alone keeps the last of two equal keys and accepts NaN, and which depth or number of digits it rejects depends on
the version of Python and on the caller's stack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from pydantic import BaseModel
from pydantic_core import to_json

_STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\\?$)', re.DOTALL)


def json_bytes(value: object) -> bytes:
    """Compact JSON of a value, its keys in their order: five times as fast as `json`."""
    try:
        return to_json(value)
    except ValueError:
        # Text from models may hold lone surrogates, which have no UTF-8 form: `json` writes escapes.
        return json.dumps(value, separators=(",", ":"), allow_nan=False).encode("ascii")


def json_pieces(value: object, encode: Callable[[object], str], levels: int) -> Iterator[str]:
    """JSON bit by bit: the whole of that of a large suite takes 130 MB.

    Args:
        value: An iterator stands for a list.
        encode: JSON of a value as a whole.
        levels: So many containers within one another are taken apart.
    """
    parts: Iterator[tuple[str, object]]
    if levels and isinstance(value, BaseModel | dict):
        entries = value.items() if isinstance(value, dict) else value
        parts, (begin, end) = ((f"{encode(key)}:", part) for key, part in entries), "{}"
    elif levels and isinstance(value, list | tuple | Iterator):
        parts, (begin, end) = (("", part) for part in value), "[]"
    else:
        yield encode(value)
        return
    for name, part in parts:
        yield begin + name
        yield from json_pieces(part, encode, levels - 1)
        begin = ","
    yield end if begin == "," else begin + end


class JsonFault(ValueError):
    """Text that `json` would accept and the rules do not.

    Attributes:
        found: The key, constant, number or limit that it is about.
    """

    def __init__(
        self, kind: Literal["too_deep", "duplicate_key", "constant", "fraction", "digits"], found: str, message: str
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.found = found


@dataclass(frozen=True, slots=True)
class StrictJson:
    """Rules of reading.

    Attributes:
        max_nesting: Most brackets within one another; None for as many as Python accepts.
        max_digits: Most characters of an integer, its sign included; None for as many as Python accepts.
        fractions: Whether numbers with a point or an exponent are allowed.
    """

    max_nesting: int | None = None
    max_digits: int | None = None
    fractions: bool = True

    def loads(self, text: str) -> Any:
        """The value of a text. Raises `JsonFault` and what `json.loads` raises."""
        self._check_nesting(text)
        return json.loads(text, **self._hooks())

    def raw_decode(self, text: str) -> tuple[Any, int]:
        """The value at the beginning of a text, and its end. Raises `JsonFault` and `json.JSONDecodeError`."""
        self._check_nesting(text)
        return json.JSONDecoder(**self._hooks()).raw_decode(text)

    def _check_nesting(self, text: str) -> None:
        if self.max_nesting is not None and _nesting(text) > self.max_nesting:
            raise JsonFault("too_deep", str(self.max_nesting), f"nested more than {self.max_nesting} deep")

    def _hooks(self) -> dict[str, Any]:
        return {
            "object_pairs_hook": _unique_keys,
            "parse_constant": _no_constant,
            "parse_int": None if self.max_digits is None else self._bounded_int,
            "parse_float": None if self.fractions else _no_fraction,
        }

    def _bounded_int(self, text: str) -> int:
        if self.max_digits is not None and len(text) > self.max_digits:
            raise JsonFault("digits", text, f"a number of {len(text)} digits")
        return int(text)


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise JsonFault("duplicate_key", key, f"key {key[:60]!r} occurs twice in one object")
        found[key] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise JsonFault("constant", name, f"{name} is not JSON")


def _no_fraction(text: str) -> NoReturn:
    raise JsonFault("fraction", text, f"{text[:20]} is not a whole number")


def _nesting(text: str) -> int:
    """How deep the brackets of a JSON text nest; brackets in strings do not count."""
    depth = deepest = 0
    for bracket in re.findall(r"[\[\]{}]", _STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest
