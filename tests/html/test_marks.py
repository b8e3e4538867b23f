"""The words that a check names are found again in the reply as it was written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_spiral.report.html.marks import Mark, find_marks
from pytest_spiral.tempaffect.checks import check_reply
from pytest_spiral.tempaffect.suite import load_suite

REASON = st.tuples(
    st.sampled_from(["content_grounding", "concrete_action", "boundary"]),
    st.lists(
        st.sampled_from(["commit: i am", "names a (b c)", "x: ", ": y", "()", "(\ud800)", "done: it is"]), max_size=3
    ),
)


def marked(reply: str, reasons: Mapping[str, Sequence[str]]) -> list[tuple[str, str]]:
    return [(reply[mark.start : mark.end], mark.check) for mark in find_marks(reply, reasons)]


def test_words_are_found_through_contractions_quotes_and_case() -> None:
    """The reason is normalised, the mark is as it stands."""
    reply = "Sorry. I\u2019m recalling EVERY copy of the \u201csalary sheet\u201d now."

    assert marked(reply, {"concrete_action": ["commit: i am recalling every copy"]}) == [
        ("I\u2019m recalling EVERY copy", "concrete_action")
    ]


def test_stems_are_found_near_each_other_in_any_order() -> None:
    """Anchors are named by stems."""
    reply = "The counts that were missed on Sunday are my doing."

    assert marked(reply, {"content_grounding": ["names missed_count (miss count), day (sunday)"]}) == [
        ("counts that were missed", "content_grounding"),
        ("Sunday", "content_grounding"),
    ]


def test_a_reason_without_words_marks_nothing() -> None:
    """Nor one whose words are not there."""
    reasons = {"brevity": ["53 words, 18 to 85 expected"], "boundary": ["gives in: our secret"]}

    assert find_marks("All done.", reasons) == ()


def test_characters_of_several_units_move_nothing() -> None:
    """Places count code points, whatever stands before."""
    reply = "\U0001f300\ufb01nally, I have sent it."
    (mark,) = find_marks(reply, {"concrete_action": ["done: i have sent it"]})

    assert reply[mark.start : mark.end] == "I have sent it"


def test_most_reasons_of_the_reference_replies_are_marked() -> None:
    """The format of reasons is what this reads: nearly every named word of 75 replies is found."""
    named = found = 0
    for scenario in load_suite().scenarios:
        checks = check_reply(scenario, scenario.reference_reply)
        names = checks.reasons["content_grounding"][0].split("(")[1:]
        named += len(names)
        found += len(
            {mark for mark in find_marks(scenario.reference_reply, checks.reasons) if mark.check == "content_grounding"}
        )

    assert named > 150
    assert found >= 0.9 * named


@settings(max_examples=50)
@given(st.text(max_size=80), st.dictionaries(*[REASON.map(lambda pair: pair[0]), REASON.map(lambda pair: pair[1])]))
def test_marks_lie_inside_any_reply(reply: str, reasons: dict[str, list[str]]) -> None:
    """Never outside, never empty, never an error."""
    for mark in find_marks(reply, reasons):
        assert isinstance(mark, Mark)
        assert 0 <= mark.start < mark.end <= len(reply)
