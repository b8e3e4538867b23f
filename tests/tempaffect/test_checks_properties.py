"""What must hold for the reply checks on any text."""

from __future__ import annotations

import re
from dataclasses import replace

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
    """The checks without their explanations and evidence, which quote the text."""
    return replace(checks, reasons={}, decision=None)


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
# A character class, the head of a group, its end, a repetition with or without an upper bound, or one character.
TOKENS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\((?:\?(?:<?[=!]|P?<\w+>|[a-zA-Z-]*:|>))?|\)|[*+]|\{\d*,\}|\{\d+(?:,\d+)?\}|.",
    re.S,
)


def nested_repetitions(pattern: str) -> int:
    """How often an unbounded repetition is applied to a group that holds one."""
    nested, holds, group_holds = 0, [False], False
    for token in TOKENS.findall(pattern):
        unbounded = token in ("*", "+") or (token.startswith("{") and token.endswith(",}"))
        if token.startswith("("):
            holds.append(False)
        elif token == ")":
            group_holds = holds.pop()
            holds[-1] |= group_holds
            continue
        elif unbounded:
            nested += group_holds
            holds[-1] = True
        group_holds = False
    return nested


def test_no_phrase_repeats_a_repetition() -> None:
    """An unbounded repetition inside another one would take exponential time on some reply."""
    assert {name: n for name in PHRASE_LISTS if (n := nested_repetitions(getattr(PHRASES, name).pattern.pattern))} == {}


@pytest.mark.parametrize(
    ("pattern", "n"),
    [(r"(?:a|(?:\w+ )+)*", 2), (r"((a+)b){2,}", 1), (r"(a{2,3}b)*", 0), (r"([*+(]\(\+)+", 0), (r"(?=a+)b+c*", 0)],
)
def test_a_nested_repetition_is_seen(pattern: str, n: int) -> None:
    """The test above would see one, and takes no escaped or listed sign for one."""
    assert nested_repetitions(pattern) == n


@given(st.sampled_from(["The weather is mild today.", "Thank you for writing to us about this."]), STUFFING)
def test_stuffing_grounds_nothing(plain: str, stuffed: list[str]) -> None:
    """Adding a keyword list to an ungrounded reply leaves it ungrounded."""
    for glue in (" ", ", ", " and the "):
        assert not check_reply(BASE, f"{plain} {glue.join(stuffed).capitalize()}.").content_grounding


@given(ANY)
def test_usefulness_needs_its_parts(text: str) -> None:
    """No reply is useful without being grounded, concrete and free of defence, dismissal and prohibited acts."""
    for reply in (text, f"{GOOD} {text}", f"{HELD} {text}"):
        result = check_reply(GUARDED, reply)
        if result.useful_bounded:
            assert result.decision is not None
            parts = (result.content_grounding, result.concrete_action, result.non_defensive, result.boundary_held)
            assert result.decision.right
            spoilt = (result.dismissive, result.overvalidated, result.prohibited_act, result.meta_leak)

            assert (all(parts), any(spoilt)) == (True, False)
