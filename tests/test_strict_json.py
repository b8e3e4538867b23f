"""Strict JSON: what `json` writes is read back, and what it would let pass is not."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from pytest_spiral.strict_json import JsonFault, StrictJson

RULES = StrictJson(max_nesting=3, max_digits=4, fractions=False)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


def depth(value: JsonValue) -> int:
    """How deep lists and objects are nested in a value."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else 1 + max(map(depth, inner), default=0)


@given(VALUES, st.text())
def test_what_json_writes_is_read_back(value: JsonValue, rest: str) -> None:
    """Without limits nothing is refused that says one thing; what follows a value is left to the caller."""
    text = json.dumps([value])

    assert StrictJson().loads(text) == [value]
    assert StrictJson().raw_decode(text + rest) == ([value], len(text))


@given(VALUES, st.booleans())
def test_depth_is_that_of_the_value(value: JsonValue, ascii_only: bool) -> None:
    """Brackets in strings do not count, however they are escaped."""
    text, deep = json.dumps(value, ensure_ascii=ascii_only), depth(value)

    assert StrictJson(max_nesting=deep).loads(text) == value
    if deep:
        with pytest.raises(JsonFault, match=f"^nested more than {deep - 1} deep$"):
            StrictJson(max_nesting=deep - 1).loads(text)


@pytest.mark.parametrize(
    ("text", "kind", "subject", "message"),
    [
        ("[[[[1]]]]", "too_deep", "3", "nested more than 3 deep"),
        ("[" * 100_000, "too_deep", "3", "nested more than 3 deep"),
        ('{"a": 1, "b": 2, "b": 3, "a": 4}', "duplicate_key", "b", "key 'b' occurs twice in one object"),
        ('[{"a": {"b": 1, "b": 1}}]', "duplicate_key", "b", "key 'b' occurs twice in one object"),
        ('["NaN", NaN]', "constant", "NaN", "NaN is not JSON"),
        ("[-Infinity]", "constant", "-Infinity", "-Infinity is not JSON"),
        ("[12345]", "digits", "12345", "a number of 5 digits"),
        ("[" + "9" * 5_000 + "]", "digits", "9" * 5_000, "a number of 5000 digits"),
        ("[1.0]", "fraction", "1.0", "1.0 is not a whole number"),
        ("[1e9]", "fraction", "1e9", "1e9 is not a whole number"),
    ],
    ids=lambda value: str(value)[:20],
)
@pytest.mark.parametrize("read", [RULES.loads, RULES.raw_decode], ids=["loads", "raw_decode"])
def test_what_the_rules_refuse(read: Callable[[str], object], text: str, kind: str, subject: str, message: str) -> None:
    """Each by its kind, with what it is about."""
    with pytest.raises(JsonFault) as caught:
        read(text)

    assert (caught.value.kind, caught.value.found, str(caught.value)) == (kind, subject, message)


def test_limits_themselves_are_within() -> None:
    """At the limit is not past it."""
    assert RULES.loads('{"a": [[1234, -123]]}') == {"a": [[1234, -123]]}


@pytest.mark.parametrize("text", ["", "{", "[1,]", "[1] 2", "\ufeff[]", "'a'"])
def test_no_json_is_told_as_by_json_itself(text: str) -> None:
    """Message and place come from the standard library."""
    with pytest.raises(json.JSONDecodeError) as own:
        json.loads(text)
    with pytest.raises(json.JSONDecodeError) as strict:
        RULES.loads(text)

    assert str(strict.value) == str(own.value)
