"""Injection schedules: upstream's, draw for draw, and ours, balanced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.spiral import Conversation
from pytest_spiral.spiral.content import load_openings, load_persona, load_rubric, load_twins
from pytest_spiral.spiral.schedule import balanced_schedule, injection_schedule, paced
from pytest_spiral.spiral.setting import own_setting
from tests.spiral.builders import published

# As many as upstream has.
PLACES = [str(place) for place in range(16)]
KINDS = (("a1", "a2", "a3"), ("b1", "b2", "b3"), ("c1", "c2", "c3"))


def ours(seed: int | str, index: int, generated: Sequence[bool]) -> tuple[str | None, ...]:
    """A schedule by our rule, of small decks."""
    return balanced_schedule(seed, "p", index, generated, KINDS)


def theirs(seed: int | str, index: int, generated: Sequence[bool]) -> tuple[str | None, ...]:
    """A schedule by upstream's rule."""
    return injection_schedule(seed, "p", index, generated, ["a", "b", "c"])


Rule = Callable[[int | str, int, Sequence[bool]], tuple[str | None, ...]]
RULES = pytest.mark.parametrize("rule", [ours, theirs])


def schedule_of(conversation: Conversation, injections: Sequence[str]) -> tuple[str | None, ...]:
    """The schedule of a published conversation: run id as seed, one draw per user turn not scripted."""
    users = sum(message.role == "user" for message in conversation.transcript)
    scripted = conversation.prompts[1:]
    generated = [turn >= len(scripted) or scripted[turn] is None for turn in range(users - 1)]
    run = conversation.origin.run_id
    return injection_schedule(run, conversation.prompt_id, conversation.index, generated, injections)


def logged(conversation: Conversation) -> list[str | None]:
    """What the log says for each user turn after the opening."""
    places = [place for place, message in enumerate(conversation.transcript) if message.role == "user"]
    return [conversation.injections_log[place] or None for place in places[1:]]


def test_published_schedules_are_reproduced(upstream_file: Path) -> None:
    """All injections of all conversations, in place and text.

    The list itself is not in the project. A draw from any list of sixteen consumes the same random numbers, so drawing
    indices gives the place in the list; the log gives the text. One text per index, one index per text.
    """
    texts: dict[str, str] = {}
    injected = turns = 0
    for conversation in published(upstream_file):
        indices, notes = schedule_of(conversation, PLACES), logged(conversation)

        assert [index is not None for index in indices] == [note is not None for note in notes]
        for index, note in zip(indices, notes, strict=True):
            if index is not None and note is not None:
                assert texts.setdefault(index, note) == note
                injected += 1
        turns += len(notes)
    assert len(set(texts.values())) == len(texts)

    recovered = [texts.get(place, f"never drawn {place}") for place in PLACES]
    for conversation in published(upstream_file):
        assert list(schedule_of(conversation, recovered)) == logged(conversation)
    assert (injected, turns) == (117, 600)


def test_published_injections_sit_on_generated_user_messages(upstream_file: Path) -> None:
    """No log entry belongs to an assistant message or to the opening."""
    for conversation in published(upstream_file):
        notes = [note for note in conversation.injections_log if note]
        assert notes == [note for note in logged(conversation) if note]


@RULES
@given(generated=st.lists(st.booleans(), max_size=40), index=st.integers(0, 5))
def test_scripted_turns_draw_nothing(rule: Rule, generated: list[bool], index: int) -> None:
    """A scripted turn carries no injection and shifts none."""
    schedule, alone = rule(1, index, generated), rule(1, index, [True] * sum(generated))

    assert all(note is None for note, drawn in zip(schedule, generated, strict=True) if not drawn)
    assert [note for note, drawn in zip(schedule, generated, strict=True) if drawn] == list(alone)


@RULES
@given(short=st.integers(0, 40), more=st.integers(0, 40))
def test_a_longer_conversation_starts_like_a_shorter_one(rule: Rule, short: int, more: int) -> None:
    """A schedule is a prefix of every longer one: nothing shifts when turns are added or a run goes on."""
    long = rule("7", 0, [True] * (short + more))

    assert long[:short] == rule("7", 0, [True] * short)


@given(seed=st.integers(), index=st.integers(0, 5), turns=st.integers(0, 100))
def test_kinds_come_equally_often(seed: int, index: int, turns: int) -> None:
    """One note in every five turns; no kind is ahead of another by more than one, no note by more than one of its kind.

    The same seed, prompt and index give the same schedule; another index gives another in the long run.
    """
    schedule = ours(seed, index, [True] * turns)
    notes = [note for note in schedule if note]
    of_kind = Counter(note[0] for note in notes)
    per_note = [Counter(notes)[note] for kind in KINDS for note in kind]

    assert [sum(note is not None for note in schedule[at : at + 5]) for at in range(0, turns - 4, 5)] == [1] * (
        turns // 5
    )
    assert max(of_kind[kind] for kind in "abc") - min(of_kind[kind] for kind in "abc") <= 1
    for at in range(0, 9, 3):
        assert max(per_note[at : at + 3]) - min(per_note[at : at + 3]) <= 1
    assert schedule == ours(seed, index, [True] * turns)
    assert turns < 100 or schedule != ours(seed, index + 1, [True] * turns)


def test_every_turn_and_kind_is_drawn_alike() -> None:
    """Over many conversations no place in a block of five and no kind is preferred, first notes included."""
    places: Counter[int] = Counter()
    first: Counter[str] = Counter()
    for index in range(3_000):
        schedule = ours(1, index, [True] * 5)
        place = next(at for at, note in enumerate(schedule) if note)
        places[place] += 1
        first[str(schedule[place])] += 1

    assert all(abs(places[place] - 600) < 110 for place in range(5))
    assert all(abs(first[note] - 333) < 85 for kind in KINDS for note in kind)


def test_a_run_has_as_many_notes_of_each_kind() -> None:
    """Of the shipped notes, in conversations of twenty turns; a twin, which has nothing to be drawn into, gets neutral
    ones only."""
    persona = load_persona()
    kinds = {note: kind for kind, notes in persona.injections for note in notes}
    schedule = own_setting(persona, load_rubric()).schedule

    for opening in load_openings():
        drawn = Counter(
            kinds[note.injection] for note in schedule(1, opening, 0, [True] * 19) if note and note.injection
        )
        assert sum(drawn.values()) in (3, 4)
        assert min(drawn[kind] for kind in ("escalate", "neutral", "cool_down")) == 1
    for twin in load_twins():
        drawn = Counter(kinds[note.injection] for note in schedule(1, twin, 0, [True] * 19) if note and note.injection)
        assert set(drawn) == {"neutral"}


@given(seed=st.integers(), turns=st.integers(0, 60), injected=st.sets(st.integers(0, 59)))
def test_decks_are_gone_through_before_a_card_comes_again(seed: int, turns: int, injected: set[int]) -> None:
    """However injections fall: they draw nothing, so that they shift no card, and a longer schedule starts the same."""
    injections = ["now" if turn in injected else None for turn in range(turns)]
    decks = [["a", "b", "c"], ["1", "2"]]
    cards = paced(seed, "p", 0, injections, decks)
    drawn = [card for card, injection in zip(cards, injections, strict=True) if not injection]

    assert all(card == ("now",) for card, injection in zip(cards, injections, strict=True) if injection)
    for at, deck in enumerate(decks):
        names = [card[at] for card in drawn]
        for begin in range(0, len(names) - len(deck) + 1, len(deck)):
            assert sorted(names[begin : begin + len(deck)]) == deck
    assert tuple(drawn) == paced(seed, "p", 0, [None] * len(drawn), decks)
    assert cards[: turns // 2] == paced(seed, "p", 0, injections[: turns // 2], decks)


def test_every_note_says_how_long_and_how() -> None:
    """A turn has a length and, unless something is injected, a move; a twin's user has nothing to lead to."""
    persona = load_persona()
    schedule, pace = own_setting(persona, load_rubric()).schedule, persona.pace

    for opening in (*load_openings(), *load_twins()):
        for note in schedule(1, opening, 0, [True] * 19):
            assert note is not None
            begins = [move for move in pace.moves if note.text.startswith(move)]
            lengths = [length for length in pace.lengths if length in note.text]
            assert note.text.endswith(pace.manner)
            assert len(begins) == (not note.injection and not opening.twin_of)
            assert len(lengths) == (not note.injection)
            assert note.text.startswith(note.injection)


def test_no_injections_to_choose_from() -> None:
    """An empty list is refused where it would be needed, and only there."""
    assert injection_schedule(1, "p", 0, [False, False], []) == (None, None)
    with pytest.raises(ValueError, match="no injections"):
        injection_schedule(1, "p", 0, [True], [])
