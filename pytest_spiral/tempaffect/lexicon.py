"""Words, phrases, verbs and limits of the reply checks. Each list is declared once, in `data/tempaffect/`.

A list is read by its name (`WORDS.negations`, `PHRASES.blame`) and compiled on first use. A word list is separated by
white space; a phrase list holds regular expressions over normalised words joined by single spaces. A test compares
the names that the code uses with the names in the files.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.tempaffect.scenario import ForbiddenPhrase

__all__ = ["LIMITS", "PHRASES", "VERBS", "WORDS", "Pattern", "VerbForm", "forbidden_phrases", "synonyms"]

Pattern = re.Pattern[str]
WordSet = frozenset[str]


@cache
def _entries() -> Mapping[str, tuple[Path, Any]]:
    """Return every list of the lexicon files by name, with its file."""
    paths = sorted((data_root() / "tempaffect" / "lexicons").glob("*.toml"))
    return {name: (path, value) for path in paths for name, value in read_toml(path).items()}


def _entry(name: str, expected: type) -> tuple[Path, Any]:
    if name not in _entries():
        raise AttributeError(f"no list {name!r} in data/tempaffect/lexicons")
    path, value = _entries()[name]
    if not isinstance(value, expected) or not value:
        raise DataError(f"{path}: {name}: expected a {expected.__name__} that is not empty, got {value!r}")
    return path, value


class _Words:
    """Word lists by name."""

    def __getattr__(self, name: str) -> WordSet:
        words = frozenset(_entry(name, str)[1].split())
        setattr(self, name, words)
        return words


class _Phrases:
    """Phrase lists by name, each one expression that finds whole words."""

    def __getattr__(self, name: str) -> Pattern:
        path, alternatives = _entry(name, list)
        try:
            # A phrase may end with the space that its last optional word left behind.
            found = re.compile(r"(?<!\S)(?:" + "|".join(alternatives) + r")(?:(?<=\s)|(?!\S))", re.MULTILINE)
        except (re.error, TypeError) as error:
            raise DataError(f"{path}: {name}: not a usable regular expression: {error}") from None
        setattr(self, name, found)
        return found


class _Numbers:
    """One table of `params.toml`. Shares are in per mille; the rest are counts of tokens, stems, sentences or words."""

    def __init__(self, table: str) -> None:
        path = data_root() / "tempaffect" / "params.toml"
        try:
            numbers = TypeAdapter(dict[str, int]).validate_python(read_toml(path).get(table), strict=True)
        except ValidationError as error:
            raise DataError(f"{path}: {table}: {first_fault(error)}") from None
        self.__dict__.update(numbers)

    def __getattr__(self, name: str) -> int:
        raise AttributeError(f"no limit {name!r} in data/tempaffect/params.toml")


class _Limits:
    """Tables of `params.toml` by name."""

    def __getattr__(self, table: str) -> _Numbers:
        numbers = _Numbers(table)
        setattr(self, table, numbers)
        return numbers


class VerbForm(NamedTuple):
    """What one written form of a verb can be.

    Attributes:
        lemma: Base form of the verb.
        strength: Class of the verb in `verbs.toml`: strong, light, weak, never or act_only.
        base, third, ing, past, participle: Whether the form can be used as such.
    """

    lemma: str
    strength: str
    base: bool
    third: bool
    ing: bool
    past: bool
    participle: bool


class _Verbs:
    """Written forms of the verbs of `verbs.toml`, and every verb that a form may belong to."""

    forms: Mapping[str, VerbForm]
    lemmas: Mapping[str, WordSet]

    def __getattr__(self, name: str) -> Mapping[str, Any]:
        if name not in ("forms", "lemmas"):
            raise AttributeError(name)
        self.forms, self.lemmas = _conjugate()
        return self.forms if name == "forms" else self.lemmas


WORDS = _Words()
PHRASES = _Phrases()
LIMITS = _Limits()
VERBS = _Verbs()


@cache
def forbidden_phrases() -> tuple[ForbiddenPhrase, ...]:
    """Return the phrases that are banned unless a scenario brings its own list."""
    path, entries = _entry("forbidden_phrases", list)
    try:
        phrases = TypeAdapter(tuple[ForbiddenPhrase, ...]).validate_python(entries)
    except ValidationError as error:
        raise DataError(f"{path}: forbidden_phrases: {first_fault(error)}") from None
    if len(phrases) > LIMITS.phrases.global_limit:
        raise DataError(f"{path}: expected at most {LIMITS.phrases.global_limit} phrases, got {len(phrases)}")
    return phrases


@cache
def synonyms(lemma: str) -> WordSet:
    """Return the verbs that do the same to a thing as `lemma`."""
    groups = [frozenset(group.split()) for group in _entry("same_acts", list)[1]]
    return frozenset[str]().union(*(group for group in groups if lemma in group))


def _conjugate() -> tuple[Mapping[str, VerbForm], Mapping[str, WordSet]]:
    forms: dict[str, VerbForm] = {}
    lemmas: dict[str, WordSet] = {}
    # The first class to claim a form keeps it: an empty word stays empty even where it could also be an act.
    for strength in ("never", "strong", "light", "weak", "act_only"):
        for base, past, participle in _principal_parts(_entry(strength, dict)[1]):
            written = (base, _third(base), _ing(base), past, participle)
            for form in dict.fromkeys(written):
                lemmas[form] = lemmas.get(form, frozenset()) | {base}
                new = VerbForm(base, strength, *(form == other for other in written))
                known = forms.setdefault(form, new)
                if known.strength == strength and known.lemma != base:
                    forms[form] = known._replace(
                        base=known.base or new.base,
                        past=known.past or new.past,
                        participle=known.participle or new.participle,
                    )
    return forms, lemmas


def _principal_parts(verbs: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for base in verbs["regular"].split():
        yield base, _past(base), _past(base)
    for base, (past, participle) in verbs["irregular"].items():
        yield base, past, participle


def _third(base: str) -> str:
    if base.endswith(("s", "x", "z", "ch", "sh", "o")):
        return base + "es"
    return base[:-1] + "ies" if _ends_in_consonant_y(base) else base + "s"


def _past(base: str) -> str:
    if base in WORDS.doubling:
        return base + base[-1] + "ed"
    if base.endswith("e"):
        return base + "d"
    return base[:-1] + "ied" if _ends_in_consonant_y(base) else base + "ed"


def _ing(base: str) -> str:
    if base in WORDS.doubling:
        return base + base[-1] + "ing"
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "oe", "ye")):
        return base[:-1] + "ing"
    return base + "ing"


def _ends_in_consonant_y(base: str) -> bool:
    return base.endswith("y") and base[-2] not in "aeiou"
