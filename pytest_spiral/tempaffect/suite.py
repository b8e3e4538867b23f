"""The suite: scenario files read and validated, the prompts, and the hashes that say which suite it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from pathlib import Path

from pydantic import JsonValue, ValidationError

from pytest_spiral.chat import Message
from pytest_spiral.errors import DataError
from pytest_spiral.hashing import digest, digest_of_all
from pytest_spiral.resources import data_root, naming_faults, read_json, read_text, read_toml, scenarios_root
from pytest_spiral.tables import Table, read_table
from pytest_spiral.tempaffect.contract import output_schema
from pytest_spiral.tempaffect.scenario import Scenario

VERSION = "1.2.0"
CANARY = "tempaffect-canary-7c1e0a52-93d4-4b8f-a6d1-5e2f8c40b917"

# What can change a score. The authoring rules in lint.toml cannot.
_PARAMS = ("params.toml", "scoring.toml")
# Fields whose order carries no meaning: sorted before hashing, so that an editor's reordering is no new suite.
_SETS = {"any", "action_targets", "action_forms", "prohibited_acts", "traits", "detected_emotion"}


@dataclass(frozen=True, eq=False)
class Suite:
    """Scenarios and the hashes of everything that can change a score. A suite equals only itself.

    Attributes:
        scenarios: Sorted by id.
    """

    scenarios: tuple[Scenario, ...]

    @cached_property
    def components(self) -> Mapping[str, str]:
        """Hashes by component: scenarios, lexicons, params, output_schema and the prompts."""
        dumped = (scenario.model_dump(mode="json", by_alias=True) for scenario in self.scenarios)
        return {
            "scenarios": digest_of_all(map(_sorted_sets, dumped)),
            "lexicons": digest(_lexicons()),
            "params": digest([read_toml(data_root() / "tempaffect" / name) for name in _PARAMS]),
            "output_schema": digest(output_schema()),
            # Both modes share one text today; they are hashed apart because each card is bound to its own.
            "prompts.schema_assisted": digest(list(prompt_texts())),
            "prompts.raw_json": digest(list(prompt_texts())),
        }

    @cached_property
    def suite_hash(self) -> str:
        """Hash of the components."""
        return digest({"name": "tempaffect", "version": VERSION, "n": len(self.scenarios), **self.components})

    @cached_property
    def by_id(self) -> Mapping[str, Scenario]:
        """Scenarios by id."""
        return {scenario.id: scenario for scenario in self.scenarios}

    @cached_property
    def positions(self) -> Mapping[str, int]:
        """Place of each scenario in id order."""
        return {scenario.id: index for index, scenario in enumerate(self.scenarios)}

    def __getitem__(self, scenario_id: str) -> Scenario:
        return self.by_id[scenario_id]


def load_suite(paths: Iterable[Path] | None = None) -> Suite:
    """A suite from scenario files; the bundled one without any.

    Raises:
        DataError: Names file, index and key of the first fault.
    """
    if paths is None:
        return _bundled()
    return _suite([scenario for path in paths for scenario in read_scenarios(path)])


@cache
def _bundled() -> Suite:
    folder = scenarios_root() / "tempaffect"
    return _suite([scenario for path in sorted(folder.glob("*.json")) for scenario in read_scenarios(path)])


def read_scenarios(path: Path) -> list[Scenario]:
    """All scenarios of one file: a JSON list of scenario objects, or one object.

    Raises:
        DataError: Names file, index and key of the first fault.
    """
    raw = read_json(path, make=_scenario)
    entries = raw if isinstance(raw, list) else [raw]
    if not entries:
        raise DataError(f"{path}: no scenario found; write at least one")
    found: dict[str, Scenario] = {}
    for index, entry in enumerate(entries):
        with naming_faults(f"{path}: scenario {_label(entry, index)}", "object"):
            scenario = entry if isinstance(entry, Scenario) else Scenario.model_validate(entry)
        if scenario.id in found:
            label = f"{index} ({scenario.id})"
            raise DataError(f"{path}: scenario {label}: id: used twice; every scenario needs its own")
        found[scenario.id] = scenario
    return list(found.values())


def _scenario(value: dict[str, object]) -> object:
    """A JSON object as soon as it is read. A parser that keeps a large file leaves three times what scenarios take."""
    with suppress(ValidationError):
        # Of others, and of faulty ones, the object, in which the fault is named.
        return Scenario.model_validate(value) if "user_message" in value else value
    return value


def _label(entry: object, index: int) -> str:
    name = entry.get("id") if isinstance(entry, dict) else None
    return f"{index} ({name})" if isinstance(name, str) else str(index)


def _suite(scenarios: Sequence[Scenario]) -> Suite:
    ordered = sorted(scenarios, key=lambda scenario: scenario.id)
    for first, second in pairwise(ordered):
        if first.id == second.id:
            raise DataError(f"scenario id {first.id!r} is used twice; ids must be unique over all files")
    if not ordered:
        raise DataError("no scenario found; a suite needs at least one scenario file with one scenario")
    return Suite(tuple(ordered))


def _lexicons() -> dict[str, JsonValue]:
    root = data_root()
    files = [*(root / "tempaffect" / "lexicons").glob("*.toml"), *(root / "text").glob("*.toml")]
    return {path.relative_to(root).as_posix(): _pairs(read_toml(path)) for path in sorted(files)}


def _pairs(value: JsonValue) -> JsonValue:
    """Tables as sorted lists of pairs: their keys may be letters of any script, which canonical keys may not."""
    if isinstance(value, dict):
        return [[key, _pairs(item)] for key, item in sorted(value.items())]
    return [_pairs(item) for item in value] if isinstance(value, list) else value


def _sorted_sets(value: JsonValue, key: str = "") -> JsonValue:
    if isinstance(value, dict):
        # An absent decision key leaves the hash of a suite what it was before there were such keys.
        present = {name: item for name, item in value.items() if (name, item) != ("decision", None)}
        # Decision keys are most of a suite, and every order in them has a meaning.
        return {name: item if name == "decision" else _sorted_sets(item, name) for name, item in present.items()}
    if isinstance(value, list):
        items = [item if isinstance(item, str) else _sorted_sets(item) for item in value]
        return sorted(items, key=str) if key in _SETS else items
    return value


@cache
def prompt_texts() -> tuple[str, str]:
    """The shipped system prompt and the template of the user message."""
    folder = data_root() / "tempaffect" / "prompts"
    return read_text(folder / "system.txt").rstrip("\n"), read_text(folder / "scenario.txt").rstrip("\n")


def build_messages(scenario: Scenario, system: str | None = None) -> tuple[Message, ...]:
    """System and user message. Anchors, targets and labels of the key never enter a prompt.

    The text is the same in both modes, so that their difference isolates enforcement.
    """
    low, high = scenario.expected.reply.word_range
    asked = {name: getattr(scenario, name) for name in ("agent_role", "agent_context", "user_message")}
    return messages_for({**asked, "min_words": low, "max_words": high}, system)


def messages_for(situation: Mapping[str, object], system: str | None = None) -> tuple[Message, ...]:
    """System and user message of a situation.

    Args:
        situation: agent_role, agent_context, user_message, min_words and max_words.
        system: The user's own system prompt. It comes first in the same message: many models take only one.
    """
    shipped, template = prompt_texts()
    return (
        Message("system", shipped if system is None else f"{system}\n\n{shipped}"),
        Message("user", template.format(**situation)),
    )


LOCK_FILE = data_root() / "tempaffect" / "suite.lock.json"


class Lock(Table):
    """What is pinned: hashes of the bundled suite and its scorer as published."""

    suite_hash: str
    components: dict[str, str]
    scorer_fingerprint: str


def lock() -> Lock:
    """The pinned hashes."""
    return read_table(Lock, LOCK_FILE)
