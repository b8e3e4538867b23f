"""Built-in stand-ins for models: six assistants and a simulated user with scripted lines. Deterministic.

They prove that conversations run, are judged and are scored the right way round.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import NamedTuple

from pytest_spiral.resources import data_root
from pytest_spiral.spiral.content import load_prefixes, load_twins
from pytest_spiral.tables import Table, read_table

DRY_CHARACTERS = ("grounded", "sycophantic", "mystic", "cold_refuser", "sliding", "perfect")
"""Names of the built-in assistants; `perfect` is another name for `grounded`."""
SILENT = "ok"
"""One more, which says the same in every turn."""

_ALIASES = {"perfect": "grounded"}
# Under this word the shipped openings of each category start at different lines.
_OPENING = "opening"


class _Reply(Table):
    shows: tuple[str, ...]
    text: str


class _Stage(Table):
    banks: tuple[str, ...]
    turns: int | None


class _Character(Table):
    character: str
    first_turn: tuple[int, ...] = ()
    replies: tuple[_Reply, ...]
    benign_replies: tuple[str, ...] = ()
    sequence: tuple[_Stage, ...] = ()


class _Assistants(Table):
    canary: str
    about: str
    topics: dict[str, str]
    default_topic: str
    characters: dict[str, _Character]


class _Seeker(Table):
    canary: str
    about: str
    categories: dict[str, tuple[str, ...]]
    benign_twins: tuple[str, ...]


class Banks(NamedTuple):
    """Lines of the built-in assistants and the built-in simulated user."""

    assistants: _Assistants
    seeker: _Seeker


def assistant_reply(character: str, prompt_id: str, index: int, turn: int) -> str:
    """What a built-in assistant answers at a turn, counted from 0, of conversation `index` on a prompt.

    On a benign twin, replies from the grounded bank are those that answer the benign user. A bank's replies come in
    their order from a start that prompt and index decide; within 20 turns none comes twice. Whatever the user says is
    of no consequence. Raises KeyError for an unknown character.
    """
    assistants = load_banks().assistants
    name, place = _bank_at(assistants, _ALIASES.get(character, character), turn)
    bank = assistants.characters[name]
    start = _start(name, prompt_id, index)
    if bank.benign_replies and _is_benign(prompt_id):
        # Reply 0 answers the opening; the others answer one message of the benign user each.
        opening, *answers = bank.benign_replies
        text = answers[(_start(_OPENING, prompt_id, index) + turn - 1) % len(answers)] if turn else opening
    elif not bank.first_turn:  # replies that build on each other
        text = bank.replies[place % len(bank.replies)].text
    else:
        first = bank.first_turn[start % len(bank.first_turn)]
        others = [reply for number, reply in enumerate(bank.replies) if number != first]
        text = (others[(start + place) % len(others)] if turn else bank.replies[first]).text
    topic = assistants.topics.get(prompt_id, assistants.default_topic)
    return text.replace("{topic_cap}", topic[0].upper() + topic[1:]).replace("{topic}", topic)


def _bank_at(assistants: _Assistants, name: str, turn: int) -> tuple[str, int]:
    """The bank that speaks at a turn, and how often it has spoken in this stage."""
    begin = 0
    for stage in assistants.characters[name].sequence:
        if stage.turns is None or turn < begin + stage.turns:
            step = turn - begin
            return stage.banks[step % len(stage.banks)], step // len(stage.banks)
        begin += stage.turns
    return name, turn


def seeker_message(prompt_id: str, category: str, index: int, turn: int) -> str:
    """What the built-in simulated user says after the reply of a turn, counted from 0.

    The lines of a category come in their order from a start that prompt and index decide; a category without lines gets
    those of the first. On a benign twin the lines are the benign ones.
    """
    seeker = load_banks().seeker
    lines = seeker.categories.get(category) or next(iter(seeker.categories.values()))
    if _is_benign(prompt_id):
        lines = seeker.benign_twins
    return lines[(_start(_OPENING, prompt_id, index) + turn) % len(lines)]


def _start(bank: str, prompt_id: str, index: int) -> int:
    """A number that is the same in every process and differs between conversations.

    Conversations on one prompt start seven lines apart: no bank has a multiple of seven.
    """
    return int.from_bytes(hashlib.sha256(f"{bank}-{prompt_id}".encode()).digest()[:6], "big") + 7 * index


def _is_benign(prompt_id: str) -> bool:
    return prompt_id in _benign(prefixes=prompt_id.startswith("pf-"))


@cache
def _benign(*, prefixes: bool) -> frozenset[str]:
    # Prefixes are a large file, which most runs do without.
    prompts = load_prefixes() if prefixes else load_twins()
    return frozenset(p.prompt_id for p in prompts if p.beginning is None or p.beginning.called_for == "none")


@cache
def load_banks() -> Banks:
    """The shipped texts."""
    folder = data_root() / "spiral" / "dry"
    return Banks(read_table(_Assistants, folder / "assistants.json"), read_table(_Seeker, folder / "seeker.json"))
