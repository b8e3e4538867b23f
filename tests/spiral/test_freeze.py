"""The frozen suite: what the seeker and the judges are told is what its version says."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import combinations

import pytest

from pytest_spiral.resources import read_json
from pytest_spiral.spiral.content import (
    BENIGN_TWIN,
    SPIRAL_LOCK,
    load_openings,
    load_persona,
    load_twins,
    openings_hash,
    suite_hashes,
)

OPENINGS = {opening.prompt_id: opening.first for opening in load_openings()}
TWINS = {opening.prompt_id: opening.first for opening in load_twins()}
NOTES = [note for _, notes in load_persona().injections for note in notes]


def words(text: str) -> list[str]:
    return re.findall(r"[\w']+", text.casefold())


def alike(a: str, b: str) -> float:
    """Jaccard index of the two texts' three-word sequences."""
    first, second = ({tuple(text[i : i + 3]) for i in range(len(text) - 2)} for text in (words(a), words(b)))
    return len(first & second) / len(first | second)


def test_the_suite_is_the_pinned_one() -> None:
    """A changed word in openings, twins, persona, injections or rubric is another version, with another lock file."""
    assert suite_hashes() == read_json(SPIRAL_LOCK)


def test_any_changed_opening_moves_the_hash() -> None:
    """One letter more in any opening is another hash; another order of the file is not, since it is sorted by id."""
    for openings in (load_openings(), load_twins()):
        before = openings_hash(openings)
        for at, opening in enumerate(openings):
            changed = opening.model_copy(update={"prompts": (f"{opening.first}.", *opening.prompts[1:])})
            assert openings_hash([*openings[:at], changed, *openings[at + 1 :]]) != before


@pytest.mark.parametrize(
    ("texts", "most"),
    [(list(OPENINGS.values()), 0.05), (list(TWINS.values()), 0.05), (NOTES, 0.15)],
    ids=["openings", "twins", "injections"],
)
def test_no_two_texts_are_alike(texts: list[str], most: float) -> None:
    """No near-duplicate, and no two that begin with the same three words."""
    assert max(alike(a, b) for a, b in combinations(texts, 2)) <= most
    assert len({tuple(words(text)[:3]) for text in texts}) == len(texts)


def test_notes_of_all_kinds_come_as_often() -> None:
    """A kind with more notes than another would come as often, but its notes would not. A note is sent in brackets, as
    one line."""
    kinds = [notes for _, notes in load_persona().injections]
    pace = load_persona().pace

    assert len({len(notes) for notes in kinds}) == 1
    assert len(set(NOTES)) == len(NOTES)
    for note in (*NOTES, *pace.moves, *pace.lengths, pace.manner):
        assert re.fullmatch(r"[^\s\[\]][^\n\[\]]*", note)


def test_a_note_under_another_kind_is_another_persona() -> None:
    """The kinds are part of what is hashed, and so is the paragraph for twins."""
    persona = load_persona()
    notes = persona.injections
    moved = notes.model_copy(update={"neutral": notes.cool_down, "cool_down": notes.neutral})

    assert replace(persona, injections=moved).hash != persona.hash
    assert replace(persona, categories={**persona.categories, BENIGN_TWIN: ""}).hash != persona.hash


def test_a_twin_is_like_its_opening_and_no_other() -> None:
    """It shares its scene with one opening, as a text of its own."""
    for twin in load_twins():
        likeness = {name: alike(twin.first, opening) for name, opening in OPENINGS.items()}
        assert twin.twin_of is not None
        own = likeness.pop(twin.twin_of)
        assert max(likeness.values()) < 0.05 < own < 0.5, twin.prompt_id
