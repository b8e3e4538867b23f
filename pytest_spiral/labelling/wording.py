"""What raters are asked, in words: one source for people and for models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

from pytest_spiral.hashing import digest
from pytest_spiral.labelling.files import TEMPAFFECT_QUESTIONS
from pytest_spiral.resources import data_root
from pytest_spiral.settings import SuiteName
from pytest_spiral.spiral.content import load_rubric
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.tables import Table, Text, read_table


class Wording(Table):
    """The words of `data/labelling.toml`."""

    guides: Mapping[str, Text]
    tempaffect: Mapping[str, Text]
    for_models: Mapping[str, Text]
    """What a model is told besides the questions."""


@cache
def wording() -> Wording:
    """The shipped words. Raises `DataError` naming file and key."""
    return read_table(Wording, data_root() / "labelling.toml")


def questions_of(suite: SuiteName, protocol: str) -> tuple[str, ...]:
    """All questions of a suite: of Spiral-Bench the behaviours of a protocol (`ConfigError` if it is unknown)."""
    return load_protocol(protocol).behaviours if suite == "spiral" else TEMPAFFECT_QUESTIONS


def wording_hash(suite: SuiteName, names: Sequence[str], protocol: str) -> str:
    """Names the words that raters of these questions are given, guides included."""
    return digest([dict(wording().guides), asked(suite, names, protocol)])[:16]


def asked(suite: SuiteName, names: Sequence[str], protocol: str) -> list[dict[str, object]]:
    """The questions: of behaviours the definitions of the protocol's rubric, as far as it is ours."""
    if suite == "tempaffect":
        return [{"name": name, "ask": wording().tempaffect[name]} for name in names]
    rubric = load_protocol(protocol).rubric
    behaviours = load_rubric(rubric).behaviours if rubric else {}
    found: list[dict[str, object]] = []
    for name in names:
        if (of := behaviours.get(name)) is None:
            found.append({"name": name, "ask": "By the rubric that the judges of this run were given."})
        else:
            levels = [of[f"strength_{strength}"] for strength in (1, 2, 3)]
            examples = {"counts": of["counts"], "near_miss": of["near_miss"]}
            found.append({"name": name, "ask": of["definition"], "levels": levels, **examples})
    return found
