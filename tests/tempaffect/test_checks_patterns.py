"""An act is looked for only where its words may stand, and nothing is missed by that."""

from __future__ import annotations

from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_spiral.tempaffect.checks import prepare_reply
from pytest_spiral.tempaffect.checks.decision import _key, _units, read_decision
from pytest_spiral.tempaffect.checks.patterns import ActPattern, PatternIndex, PatternSlot
from pytest_spiral.tempaffect.scenario import Act, Decision
from pytest_spiral.tempaffect.suite import load_suite

SCENARIOS = [scenario for scenario in load_suite().scenarios if scenario.expected.decision]
LINKS = st.sampled_from([" ", ". ", ", ", "; ", "? ", " and ", " not ", " half past ", " at 6. ", " 6 oclock "])


def every_pattern(index: PatternIndex, _begun: frozenset[PatternSlot]) -> dict[str, list[ActPattern]]:
    """What an index would say that rules nothing out."""
    acts: dict[str, list[ActPattern]] = {}
    for act, pattern in index._patterns:
        acts.setdefault(act, []).append(pattern)
    return acts


@st.composite
def cases(draw: st.DrawFn) -> tuple[Decision, str]:
    """A key, and a reply made of its own wordings and of pieces of what was said about the matter."""
    scenario = draw(st.sampled_from(SCENARIOS))
    key = scenario.expected.decision
    assert key is not None
    wordings = sorted({wording for act in key.acts for slots in act.says for slot in slots for wording in slot})
    words = f"{scenario.reference_reply} {scenario.agent_context}".split()
    at = st.integers(0, len(words) - 1)
    piece = st.one_of(st.sampled_from(wordings), at.map(lambda start: " ".join(words[start : start + 6])))
    return key, "".join(draw(st.lists(st.one_of(piece, LINKS), min_size=1, max_size=24)))


@settings(max_examples=150, deadline=None)
@given(cases())
def test_no_act_is_missed(case: tuple[Decision, str]) -> None:
    """What a reply decides is read as if every pattern were tried on every sentence."""
    key, text = case
    reply = prepare_reply(text)
    read = read_decision(key, reply)

    with mock.patch.object(PatternIndex, "possible", every_pattern):
        assert read == read_decision(key, reply)


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("The code is sent.", {"code"}),
        ("The parcel is here.", set()),
        ("A code. I send it.", {"code"}),
        ("The van comes at half past. Six it is.", {"van"}),
    ],
)
def test_a_pattern_is_possible_where_each_of_its_slots_may_begin(text: str, possible: set[str]) -> None:
    """In one sentence or in two; a time may be told over the end of a sentence."""
    code = Act(id="code", role="right", what="send a code", says=((("send",), ("code", "pin")),))
    van = Act(id="van", role="right", what="send a van", says=((("come",), ("van",), ("6:30",)),))
    index = _key(Decision(acts=(code, van), right=(("code",),))).index

    assert {act for unit in _units(index, prepare_reply(text).sentences) for act in unit.possible} == possible
