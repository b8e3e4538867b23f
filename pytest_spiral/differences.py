"""In what two configurations differ, for messages: the differing parts alone."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple, TypeGuard

# Characters of a value, and differences, that one message shows.
_SHOWN = 60
_MOST = 8
# Characters before the first difference of two texts.
_COMMON = 10


class Difference(NamedTuple):
    """A part that two configurations do not share. one, other: as a message shows them."""

    name: str
    one: str
    other: str


def differences(one: object, other: object, name: str = "") -> Iterator[Difference]:
    """The parts of two JSON values that differ. What is missing equals null.

    >>> list(differences({"model": [{"spec": "m", "seed": 1}]}, {"model": [{"spec": "m", "seed": 2}]}))
    [Difference(name='model[0].seed', one='1', other='2')]
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in sorted({*one, *other}):
            yield from differences(one.get(key), other.get(key), f"{name}.{key}" if name else key)
    elif _are_tables(one) and _are_tables(other):
        pairs: Iterable[tuple[object, object]] = zip_longest(one, other, fillvalue={})
        for index, (first, second) in enumerate(pairs):
            yield from differences(first, second, f"{name}[{index}]")
    elif one != other:
        if isinstance(one, str) and isinstance(other, str) and max(len(one), len(other)) > _SHOWN:
            common = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), 0)
            start = max(common - _COMMON, 0)
            one, other = (f"{'...' if start else ''}{text[start:]}" for text in (one, other))
        yield Difference(name, _shown(one), _shown(other))


def _are_tables(value: object) -> TypeGuard[list[Mapping[str, object]]]:
    return isinstance(value, list | tuple) and all(isinstance(item, Mapping) for item in value)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def listed(found: Iterable[Difference], form: str) -> str:
    """The first few differences on one line. form: of one of them, such as "{name} (was {one}, now {other})"."""
    all_found = list(found)
    shown = "; ".join(form.format(**each._asdict()) for each in all_found[:_MOST])
    return f"{shown} and {len(all_found) - _MOST} more" if len(all_found) > _MOST else shown
