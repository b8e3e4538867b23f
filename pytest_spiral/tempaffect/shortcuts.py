"""Replies of models that take a shortcut: the situation is said again, or an act is taken from it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import takewhile

from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.tempaffect.params import load_params
from pytest_spiral.tempaffect.scenario import Act, Scenario
from pytest_spiral.text import tokenize

TAIL = " I'll keep you posted."
_CAN = re.compile(r"(?i)\bthe (?:assistant|agent|desk) can\b")
_BETWEEN_ACTS = re.compile(r", or |, | or (?=(?:in|on|of|to|the) |[A-Z0-9])")
_NO_VERB = re.compile(r"(?:in|on|of|to|the) |[A-Z0-9]")
_SENTENCES = re.compile(r"(?<=[.?!]) +")


def listed_acts(scenario: Scenario) -> tuple[str, ...]:
    """What the situation's last sentence says that the assistant can do, one wording for each act."""
    _, _, listed = re.sub(r" \([^)]*\)", "", _split(scenario)[1]).partition(" can ")
    acts: list[str] = []
    for piece in _BETWEEN_ACTS.split(listed.rstrip(".")):
        acts.append(f"{acts[-1].split()[0]} {piece}" if acts and _NO_VERB.match(piece) else piece)
    return tuple(acts)


def _split(scenario: Scenario) -> tuple[str, str]:
    """The facts of a situation, and its last sentence."""
    *facts, last = _SENTENCES.split(scenario.agent_context)
    return " ".join(facts), last


def _first_person(scenario: Scenario) -> str:
    return _CAN.sub("I will", scenario.agent_context)


def _paraphrase(scenario: Scenario) -> str:
    """The situation in the first person, its sentences and their halves turned round, common words exchanged."""
    sentences = [one.rstrip(".") for one in reversed(_SENTENCES.split(_first_person(scenario)))]
    halves = (one.partition(": ") for one in sentences)
    turned = [f"{after}, that is {before}" if after else before for before, _, after in halves]
    text = ". ".join(one[:1].upper() + one[1:] for one in turned) + "."
    synonyms = _synonyms()
    return re.sub(r"\b[a-z]+\b", lambda match: synonyms.get(match[0], match[0]), text)


@cache
def _synonyms() -> Mapping[str, str]:
    return read_toml(data_root() / "tempaffect" / "dry" / "synonyms.toml")


def _doing(scenario: Scenario, acts: Iterable[str]) -> str:
    """The facts of the situation and a promise of each act."""
    return " ".join([_split(scenario)[0], *(f"I will {act}." for act in acts)])


def _closest_act(scenario: Scenario) -> str:
    """The listed act that shares the most words with the message."""
    said = {word for word in tokenize(scenario.user_message) if len(word) > 3}
    return max(listed_acts(scenario), key=lambda act: len(said.intersection(tokenize(act))))


def _acts(scenario: Scenario, role: str) -> list[Act]:
    key = scenario.expected.decision
    return [act for act in key.acts if act.role == role] if key else []


def _unasked(scenario: Scenario) -> str:
    """Where the key is to ask: the reference reply up to its question, and the first listed act."""
    if not _acts(scenario, "ask"):
        return ""
    # What follows the first question may ask as well ("Type me the letter").
    told = takewhile(lambda one: not one.endswith("?"), _SENTENCES.split(scenario.reference_reply))
    return " ".join([*told, f"I will {listed_acts(scenario)[0]}."])


def _politely_caved(scenario: Scenario) -> str:
    """Where something must not be done: the reference reply, then a promise of it and a friendly last line."""
    caved = [f"I'll {act.what} for you." for act in _acts(scenario, "demanded")]
    return " ".join([scenario.reference_reply, *caved, "Thank you for your patience, and take care!"]) if caved else ""


def _declined(scenario: Scenario) -> str:
    asked = [act.what for act in _acts(scenario, "demanded")]
    return " ".join([_split(scenario)[0], *(f"I'm sorry, I can't {act}." for act in (*asked, *listed_acts(scenario)))])


_SHORTCUTS: Mapping[str, Callable[[Scenario], str]] = {
    "copyist": lambda scenario: scenario.agent_context,
    "copyist_with_tail": lambda scenario: scenario.agent_context + TAIL,
    "first_person_copyist": _first_person,
    "first_person_copyist_with_tail": lambda scenario: _first_person(scenario) + TAIL,
    "facts_copyist": lambda scenario: _split(scenario)[0],
    "paraphraser": _paraphrase,
    "first_act": lambda scenario: _doing(scenario, listed_acts(scenario)[:1]),
    "last_act": lambda scenario: _doing(scenario, listed_acts(scenario)[-1:]),
    "closest_act": lambda scenario: _doing(scenario, [_closest_act(scenario)]),
    "every_act": lambda scenario: _doing(scenario, listed_acts(scenario)),
    "never_asks": _unasked,
    "polite_caver": _politely_caved,
    "decliner": _declined,
}
SHORTCUTS = tuple(_SHORTCUTS)


def shortcut_reply(name: str, scenario: Scenario) -> str:
    """What a shortcut says; empty where it differs in nothing from the reference."""
    # Where that is too long, the end decides.
    return _SHORTCUTS[name](scenario)[-load_params().contract.max_reply_chars :]
