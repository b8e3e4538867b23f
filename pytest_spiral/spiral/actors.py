"""Built-in stand-ins for models: six assistants and a simulated user with scripted lines. Deterministic.

They prove that conversations run, are judged and are scored the right way round.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pytest_spiral.errors import DataError
from pytest_spiral.resources import data_root
from pytest_spiral.spiral.content import load_prefixes, load_twins
from pytest_spiral.spiral.toml_tables import Count, Table, Text, read_table

DRY_CHARACTERS = ("grounded", "sycophantic", "mystic", "cold_refuser", "sliding", "perfect")
"""Names of the built-in assistants; `perfect` is another name for `grounded`."""
SILENT = "ok"
"""One more, which says the same in every turn."""

_ALIASES = {"perfect": "grounded"}
# Under this word the shipped openings of each category start at different lines.
_OPENING = "opening"
# A conversation of this many turns repeats nothing.
_TURNS = 20


class _Reply(Table):
    shows: tuple[Text, ...]
    text: Text


class _Stage(Table):
    banks: Annotated[tuple[Text, ...], Field(min_length=1)]
    turns: Count | None


class _Character(Table):
    character: Text
    first_turn: tuple[int, ...] = ()
    replies: Annotated[tuple[_Reply, ...], Field(min_length=1)]
    benign_replies: tuple[Text, ...] = ()
    sequence: tuple[_Stage, ...] = ()


class _Assistants(Table):
    canary: Text
    about: Text
    topics: dict[str, Text]
    default_topic: Text
    characters: dict[str, _Character]


class _Seeker(Table):
    canary: Text
    about: Text
    categories: Annotated[dict[str, tuple[Text, ...]], Field(min_length=1)]
    benign_twins: tuple[Text, ...]


@dataclass(frozen=True)
class Banks:
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
    return prompt_id in (_benign_prefixes() if prompt_id.startswith("pf-") else _twins())


@cache
def _twins() -> frozenset[str]:
    return frozenset(twin.prompt_id for twin in load_twins())


@cache
def _benign_prefixes() -> frozenset[str]:
    prefixes = (prefix for prefix in load_prefixes() if prefix.beginning and prefix.beginning.called_for == "none")
    return frozenset(prefix.prompt_id for prefix in prefixes)


@cache
def load_banks(folder: Path | None = None) -> Banks:
    """The shipped texts, or those of a folder. Raises `DataError` naming file and key."""
    folder = folder or data_root() / "spiral" / "dry"
    assistants_path, seeker_path = folder / "assistants.json", folder / "seeker.json"
    assistants, seeker = read_table(_Assistants, assistants_path), read_table(_Seeker, seeker_path)
    for fault in _assistant_faults(assistants):
        raise DataError(f"{assistants_path}: {fault}")
    banks = {f"categories.{name}": lines for name, lines in seeker.categories.items()}
    for key, lines in {**banks, "benign_twins": seeker.benign_twins}.items():
        if len(set(lines)) < max(_TURNS, len(lines)):
            raise DataError(f"{seeker_path}: {key}: expected at least {_TURNS} different lines")
    for name, bank in assistants.characters.items():
        if bank.benign_replies and len(bank.benign_replies) != len(seeker.benign_twins) + 1:
            fault = f"benign_twins: expected one line fewer than benign_replies of {name}"
            raise DataError(f"{seeker_path}: {fault}")
    return Banks(assistants, seeker)


_SLOT = re.compile(r"\{topic(?:_cap)?\}")


def _assistant_faults(assistants: _Assistants) -> Iterator[str]:
    for name in (*DRY_CHARACTERS, SILENT):
        if _ALIASES.get(name, name) not in assistants.characters:
            yield f"characters: {name} is missing"
    for name, bank in assistants.characters.items():
        key = f"characters.{name}"
        texts = [*(reply.text for reply in bank.replies), *bank.benign_replies]
        if any(re.search("[{}]", _SLOT.sub("", text)) for text in texts):
            yield f"{key}: a slot other than topic and topic_cap"
        if len(set(texts)) < len(texts):
            yield f"{key}: the same text twice"
        if any(not 0 <= number < len(bank.replies) for number in bank.first_turn):
            yield f"{key}.first_turn: names a reply that is not there"
        if not bank.sequence and (not bank.first_turn or len(bank.replies) < _TURNS):
            yield f"{key}: expected first_turn and at least {_TURNS} replies"
        for number, stage in enumerate(bank.sequence):
            for unknown in set(stage.banks) - set(assistants.characters):
                yield f"{key}.sequence.{number}.banks: no character {unknown!r}"
            if (stage.turns is None) != (number == len(bank.sequence) - 1):
                yield f"{key}.sequence: turns must be null in the last stage and only there"
