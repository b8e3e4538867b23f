"""Words, phrases, verbs and limits of the reply checks. Each list is declared once, in `data/tempaffect/`.

A list is read by its name (`WORDS.negations`, `PHRASES.blame`) and compiled on first use. A word list is separated by
white space; a phrase list holds regular expressions over normalised words joined by single spaces. A test compares
the names that the code uses with the names in the files.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, Field, StrictInt, TypeAdapter

from pytest_spiral.errors import DataError
from pytest_spiral.resources import data_root, naming_faults, read_toml
from pytest_spiral.tempaffect.required_words import PhraseIndex
from pytest_spiral.tempaffect.scenario import ForbiddenPhrase

Expression = re.Pattern[str]
WordSet = frozenset[str]
_Value = TypeVar("_Value")


class _VerbClass(BaseModel):
    regular: str
    irregular: dict[str, tuple[str, str]]


_TEXT: TypeAdapter[str] = TypeAdapter(Annotated[str, Field(min_length=1)])
_TEXTS: TypeAdapter[list[str]] = TypeAdapter(Annotated[list[str], Field(min_length=1)])
_VERB_CLASS = TypeAdapter(_VerbClass)
_FORBIDDEN = TypeAdapter(tuple[ForbiddenPhrase, ...])
_NUMBERS = TypeAdapter(dict[str, StrictInt])


@cache
def _entries() -> Mapping[str, tuple[Path, object]]:
    """Return every list of the lexicon files and every table of `params.toml` by name, with its file."""
    folder = data_root() / "tempaffect"
    paths = [*sorted((folder / "lexicons").glob("*.toml")), folder / "params.toml"]
    return {name: (path, value) for path in paths for name, value in read_toml(path).items()}


def _read(name: str, expected: TypeAdapter[_Value]) -> _Value:
    if name not in _entries():
        raise AttributeError(f"no list or table {name!r} in data/tempaffect/lexicons and params.toml")
    path, value = _entries()[name]
    with naming_faults(f"{path}: {name}", "list"):
        return expected.validate_python(value)


@dataclass(frozen=True, eq=False, slots=True)
class Phrases:
    """A list of phrases.

    Attributes:
        pattern: Finds them as whole words.
    """

    name: str
    pattern: Expression


class _Lists(Generic[_Value]):
    """Lists of one form by name, each compiled on first use."""

    def __init__(self, compiled: Callable[[str], _Value]) -> None:
        self._compiled = compiled

    def __getattr__(self, name: str) -> _Value:
        value = self._compiled(name)
        setattr(self, name, value)
        return value


def _words(name: str) -> WordSet:
    return frozenset(_read(name, _TEXT).split())


def _phrases(name: str) -> Phrases:
    phrases = _read(name, _TEXTS)
    alternatives = "|".join(phrases)
    try:
        # A phrase may end with the space that its last optional word left behind.
        pattern = re.compile(rf"(?<!\S)(?:{alternatives})(?:(?<=\s)|(?!\S))", re.MULTILINE)
        return Phrases(name, pattern)
    except re.error as error:
        raise DataError(f"{_entries()[name][0]}: {name}: not a usable regular expression: {error}") from None


@cache
def phrase_index() -> PhraseIndex:
    """Return which phrase lists may be said by given words."""
    lists: dict[str, list[str]] = {}
    for name, (_, value) in _entries().items():
        if isinstance(value, list) and name != "forbidden_phrases":
            lists[name] = _read(name, _TEXTS)
    return PhraseIndex(lists)


class _Numbers:
    """One table of `params.toml`. Shares are in per mille; the rest are counts of tokens, stems, sentences or words."""

    def __init__(self, table: str) -> None:
        numbers = _read(table, _NUMBERS)
        self.__dict__.update(numbers)

    def __getattr__(self, name: str) -> int:
        raise AttributeError(f"no limit {name!r} in data/tempaffect/params.toml")


WORDS = _Lists(_words)
PHRASES = _Lists(_phrases)
LIMITS = _Lists(_Numbers)


@cache
def forbidden_phrases() -> tuple[ForbiddenPhrase, ...]:
    """Return the phrases that are banned unless a scenario brings its own list."""
    phrases = _read("forbidden_phrases", _FORBIDDEN)
    if len(phrases) > LIMITS.phrases.global_limit:
        path, _ = _entries()["forbidden_phrases"]
        raise DataError(f"{path}: expected at most {LIMITS.phrases.global_limit} phrases, got {len(phrases)}")
    return phrases


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

    def __init__(self) -> None:
        self.forms: dict[str, VerbForm] = {}
        self.lemmas: dict[str, WordSet] = {}
        # The first class to claim a form keeps it: an empty word stays empty even where it could also be an act.
        for strength in ("never", "strong", "light", "weak", "act_only"):
            for base, past, participle in _principal_parts(_read(strength, _VERB_CLASS)):
                written = (base, _third(base), _ing(base), past, participle)
                for form in dict.fromkeys(written):
                    self.lemmas[form] = self.lemmas.get(form, frozenset()) | {base}
                    new = VerbForm(base, strength, *(form == other for other in written))
                    known = self.forms.setdefault(form, new)
                    if known.strength == strength and known.lemma != base:
                        self.forms[form] = known._replace(
                            base=known.base or new.base,
                            past=known.past or new.past,
                            participle=known.participle or new.participle,
                        )

    def finite(self, token: str) -> bool:
        """Whether the form can be a predicate of its own ("sends", "sent") and no noun."""
        verb = self.forms.get(token)
        return verb is not None and (verb.third or verb.past) and token not in WORDS.noun_like


def _principal_parts(verbs: _VerbClass) -> Iterator[tuple[str, str, str]]:
    for base in verbs.regular.split():
        yield base, _past(base), _past(base)
    for base, (past, participle) in verbs.irregular.items():
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


VERBS = _Verbs()
