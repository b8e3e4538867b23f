"""What the suite says: openings, persona, injections, rubric. Read from data files, validated, hashed."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated

from pydantic import Field

from pytest_spiral.errors import DataError
from pytest_spiral.hashing import digest
from pytest_spiral.resources import data_root, naming_faults, read_json, read_text, read_toml, scenarios_root
from pytest_spiral.spiral.records import Beginning
from pytest_spiral.tables import Table, Text, read_table

VERSION = "1.1.0"
PERSONA_FILE = "persona.txt"
INJECTIONS_FILE = "injections.toml"
PACE_FILE = "pace.toml"
OPENINGS_FILE = "openings.json"
PREFIXES_FILE = "prefixes.json"
SPIRAL_LOCK = data_root() / "spiral" / "suite.lock.json"


class OpeningPrompt(Table):
    """One prompt in upstream's format: an opening message and, where scripted, later user messages.

    prompts: the opening first; None stands for a message that the user model writes. title, beginning: of a prefix,
    whose one prompt is the message to answer.
    """

    prompt_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
    category: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,63}$")]
    prompts: Annotated[tuple[str | None, ...], Field(min_length=1, max_length=200)]
    canary: str = ""
    twin_of: str | None = None
    title: str = ""
    beginning: Beginning | None = None

    @property
    def first(self) -> str:
        """The opening message."""
        return self.prompts[0] or ""


def load_openings(path: Path | None = None, *, prefixes: bool = False) -> tuple[OpeningPrompt, ...]:
    """The shipped openings, or those of a file in upstream's format, sorted by id. prefixes: each has a beginning.

    Raises `DataError` naming file, index and key.
    """
    path = path or scenarios_root() / "spiral" / OPENINGS_FILE
    raw = read_json(path)
    if not isinstance(raw, list) or not raw:
        raise DataError(f"{path}: expected a JSON list of prompts")
    openings: dict[str, OpeningPrompt] = {}
    for index, entry in enumerate(raw):
        with naming_faults(f"{path}: prompt {index}", "prompt"):
            opening = OpeningPrompt.model_validate_json(json.dumps(entry))
        if not opening.first.strip():
            raise DataError(f"{path}: prompt {index}: prompts.0: the opening message must be given")
        if prefixes != (opening.beginning is not None) or (prefixes and len(opening.prompts) > 1):
            needed = (
                "one message after a beginning" if prefixes else "no beginning: for prefixes use --suite spiral-prefix"
            )
            raise DataError(f"{path}: prompt {index}: expected {needed}")
        if opening.prompt_id in openings:
            raise DataError(f"{path}: prompt id {opening.prompt_id!r} is used twice")
        openings[opening.prompt_id] = opening
    return tuple(openings[prompt_id] for prompt_id in sorted(openings))


def load_prefixes(path: Path | None = None) -> tuple[OpeningPrompt, ...]:
    """The shipped prefixes, or those of a file, sorted by id. Raises `DataError` naming file and prompt."""
    return load_openings(path or scenarios_root() / "spiral_prefix" / PREFIXES_FILE, prefixes=True)


def load_twins() -> tuple[OpeningPrompt, ...]:
    """The innocent twins of some of the shipped openings, sorted by id."""
    return load_openings(scenarios_root() / "spiral" / "benign_twins.json")


def short_twin_turns() -> int:
    """Replies of the evaluated model in a twin's conversation of the short form."""
    return int(read_toml(data_root() / "spiral" / "over_correction.toml")["short_turns"])


def openings_hash(openings: Sequence[OpeningPrompt]) -> str:
    """Hex SHA-256 of the openings and their categories."""
    begun = ([o.model_dump(mode="json")["beginning"]] if o.beginning else [] for o in openings)
    return digest([[o.prompt_id, o.category, list(o.prompts), *rest] for o, rest in zip(openings, begun, strict=True)])


class Injections(Table):
    """Notes for the simulated user by what they do to its belief. A conversation draws from the kinds equally often."""

    escalate: tuple[str, ...]
    neutral: tuple[str, ...]
    cool_down: tuple[str, ...]


class SeekerPace(Table):
    """What notes to the simulated user say in every turn. moves, lengths: decks. manner: the same each time."""

    moves: tuple[str, ...]
    lengths: tuple[str, ...]
    manner: str


BENIGN_TWIN = "benign_twin"
"""What stands for the category of a harmless twin: there is nothing to be drawn into."""


@dataclass(frozen=True)
class Persona:
    """What the simulated user is told. categories: extra paragraph by category."""

    text: str
    categories: Mapping[str, str]
    injections: Injections
    pace: SeekerPace

    def system_prompt(self, category: str) -> str:
        """The system prompt for a conversation of this category."""
        extra = self.categories.get(category, "").strip()
        return f"{self.text}\n\n{extra}" if extra else self.text

    @cached_property
    def hash(self) -> str:
        """Hex SHA-256 of everything the simulated user is told."""
        notes = [part.model_dump(mode="json") for part in (self.injections, self.pace)]
        return digest([self.text, sorted(map(list, self.categories.items())), *notes])


@cache
def load_persona() -> Persona:
    """The shipped persona, category paragraphs, injections and pace."""
    folder = data_root() / "spiral"
    persona = [line for line in read_text(folder / PERSONA_FILE).splitlines() if not line.startswith("#")]
    return Persona(
        "\n".join(persona).strip(),
        read_toml(folder / "categories.toml"),
        read_table(Injections, folder / INJECTIONS_FILE),
        read_table(SeekerPace, folder / PACE_FILE),
    )


_Words = dict[str, Text]
_BEHAVIOUR = """{name}
  {definition}
  1: {strength_1}
  2: {strength_2}
  3: {strength_3}
  Counts: {counts}
  Does not count: {near_miss}"""
_MARKS = """{before_marks}
ground
  {ground}
care
  {care}
{before_levels}
  0: {level_0}
  1: {level_1}
  2: {level_2}"""
_SCALE = """{name}
  {definition}
  0: {anchor_0}
  3: {anchor_3}
  6: {anchor_6}
  10: {anchor_10}"""


class Rubric(Table):
    """What judges are told. The order of the behaviours is the order in which they are asked.

    together: behaviours that keep their places beside each other in another order. pairs: behaviours that are easily
    confused. called_for: marks of the user's last message. A rubric without them says and hashes nothing of them.
    """

    version: Text
    together: tuple[tuple[str, ...], ...] = ()
    behaviours: dict[str, _Words]
    pairs: _Words = Field(default_factory=dict)
    called_for: _Words = Field(default_factory=dict)
    final: dict[str, _Words]
    instructions: _Words
    asides: _Words

    @cached_property
    def chunk_part(self) -> str:
        """The judge's system prompt for chunks: the same bytes for every chunk of every run."""
        blocks = [_BEHAVIOUR.format(name=name, **words) for name, words in self.behaviours.items()]
        if self.pairs:
            blocks.append(f"{self.instructions['before_pairs']}\n{self.pairs['text'].strip()}")
        if self.called_for:
            blocks.append(_MARKS.format(**self.called_for, **self.instructions))
        return "\n\n".join([*blocks, self.instructions["chunk_instructions"].strip()])

    @property
    def marks(self) -> tuple[str, ...]:
        """Names of the marks that judges give to the user's last message before anything else."""
        return ("ground", "care") if self.called_for else ()

    @cached_property
    def final_part(self) -> str:
        """The judge's system prompt for whole conversations."""
        blocks = [_SCALE.format(name=name, **words) for name, words in self.final.items()]
        return "\n\n".join([*blocks, self.instructions["final_instructions"].strip()])

    def reordered(self, seed: str) -> Rubric:
        """The same rubric with its behaviours in another order, always the same for a seed."""
        neighbours = {name: group for group in self.together for name in group}
        groups = list(dict.fromkeys(neighbours.get(name, (name,)) for name in self.behaviours))
        order = [*groups]
        random.Random(seed).shuffle(order)
        if order == groups:
            order.reverse()
        names = [name for group in order for name in group]
        # No copy: that would take over the prompt in the old order.
        return Rubric(**{**self.model_dump(), "behaviours": {name: self.behaviours[name] for name in names}})

    @cached_property
    def hash(self) -> str:
        """Hex SHA-256 of every word given to judges, and of its order."""
        return digest([self.chunk_part, self.final_part, self.asides])


@cache
def load_rubric(name: str = "rubric") -> Rubric:
    """A shipped rubric. Raises `DataError` naming file and key."""
    return read_table(Rubric, data_root() / "spiral" / f"{name}.toml")


def suite_hashes() -> dict[str, str]:
    """What is pinned of the bundled suite: its version, and by part a hash of every word that it says."""
    rubrics = sorted(path.stem for path in SPIRAL_LOCK.parent.glob("rubric*.toml"))
    return {
        "version": VERSION,
        "openings": openings_hash(load_openings()),
        "benign_twins": openings_hash(load_twins()),
        "prefixes": openings_hash(load_prefixes()),
        "actor": load_persona().hash,
        **{name: load_rubric(name).hash for name in rubrics},
    }
