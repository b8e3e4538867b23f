"""What must hold for the reply checks on any text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_spiral.tempaffect.checks import ReplyChecks, check_reply
from pytest_spiral.tempaffect.lexicon import PHRASES
from tests.tempaffect.test_checks_lexicon import entries
from tests.tempaffect.test_checks_rules import BASE, GOOD, GUARDED

HELD = "I can't open the parcel. I'm sending the owner a message about the rings and holding it until Friday."
REPLIES = st.sampled_from(
    [GOOD, HELD, "I'm sorry. Sorry. So sorry about the parcel code.", "Calm down, the parcel is fine."]
)
INVISIBLE = st.sampled_from(["\u200b", "\u200d", "\u2060", "\u00ad", "\u202a", "\u202e", "\u2066", "\ufeff"])
ANY = st.text(max_size=2000)
STUFFING = st.lists(
    st.sampled_from(["parcel", "rings", "locker", "code", "saturday", "pickup", "friday", "extension", "wedding"]),
    min_size=10,
    max_size=30,
)


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """The first check of a process loads stemmer and lexicon: a second that is no example's."""
    check_reply(BASE, GOOD)


def verdict(checks: ReplyChecks) -> ReplyChecks:
    """The checks without their explanations, which quote the text."""
    return replace(checks, reasons={})


@given(REPLIES, st.lists(st.tuples(st.integers(0, 120), INVISIBLE), max_size=12))
def test_invisible_characters_change_nothing(reply: str, signs: list[tuple[int, str]]) -> None:
    """Zero-width and direction signs anywhere leave every verdict as it is."""
    dressed = reply
    for place, sign in signs:
        at = min(place, len(dressed))
        dressed = dressed[:at] + sign + dressed[at:]

    for scenario in (BASE, GUARDED):
        assert verdict(check_reply(scenario, dressed)) == verdict(check_reply(scenario, reply))


@given(REPLIES)
def test_full_width_letters_change_nothing(reply: str) -> None:
    """Full-width letters read as letters."""
    wide = "".join(chr(ord(sign) + 0xFEE0) if sign.isascii() and sign.isalpha() else sign for sign in reply)

    assert verdict(check_reply(BASE, wide)) == verdict(check_reply(BASE, reply))


@given(REPLIES)
def test_curly_quotes_and_case_change_nothing(reply: str) -> None:
    """Typographic apostrophes and capitals read alike."""
    assert verdict(check_reply(GUARDED, reply.replace("'", "\u2019"))) == verdict(check_reply(GUARDED, reply))
    assert verdict(check_reply(BASE, reply.upper())) == verdict(check_reply(BASE, reply))


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(ANY)
def test_any_text_gets_a_verdict(text: str) -> None:
    """Any text is judged without an error, and twice alike."""
    assert check_reply(GUARDED, text) == check_reply(GUARDED, text)


PHRASE_LISTS = sorted(name for name, value in entries().items() if isinstance(value, list))
REPEATS = {parser.MAX_REPEAT, parser.MIN_REPEAT}


def repeats(parsed: Any, inside: bool = False) -> Iterator[bool]:
    """For every unbounded repetition of a parsed expression, whether it is inside another one."""
    for operation, arguments in parsed:
        unbounded = operation in REPEATS and arguments[1] is parser.MAXREPEAT
        if unbounded:
            yield inside
        for part in arguments if isinstance(arguments, tuple) else (arguments,):
            for branch in part if isinstance(part, list) else (part,):
                if isinstance(branch, parser.SubPattern):
                    yield from repeats(branch, inside or unbounded)


@pytest.mark.parametrize("name", PHRASE_LISTS)
def test_no_phrase_repeats_a_repetition(name: str) -> None:
    """An unbounded repetition inside another one would take exponential time on some reply."""
    nested = [word for word in repeats(parser.parse(getattr(PHRASES, name).pattern)) if word]

    assert nested == []


def test_a_nested_repetition_is_seen() -> None:
    """The test above would see one."""
    assert any(repeats(parser.parse(r"(?:a|(?:\w+ )+)*")))


@given(st.sampled_from(["The weather is mild today.", "Thank you for writing to us about this."]), STUFFING)
def test_stuffing_grounds_nothing(plain: str, stuffed: list[str]) -> None:
    """Adding a keyword list to an ungrounded reply leaves it ungrounded."""
    for glue in (" ", ", ", " and the "):
        assert not check_reply(BASE, f"{plain} {glue.join(stuffed).capitalize()}.").content_grounding


@given(ANY)
def test_usefulness_needs_its_parts(text: str) -> None:
    """No reply is useful without being grounded, concrete and free of defence, dismissal and prohibited acts."""
    for reply in (text, f"{GOOD} {text}", f"{HELD} {text}"):
        found = check_reply(GUARDED, reply)
        if found.useful_bounded:
            parts = (found.content_grounding, found.concrete_action, found.non_defensive, found.boundary_held)
            spoilt = (found.dismissive, found.overvalidated, found.prohibited_act, found.meta_leak)

            assert (all(parts), any(spoilt)) == (True, False)
