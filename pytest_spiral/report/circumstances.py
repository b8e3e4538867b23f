"""What must be equal for two results to be comparable, as far as it is recorded; read from the data where it can be."""

from __future__ import annotations

import platform
import unicodedata
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version

from pytest_spiral.hashing import digest
from pytest_spiral.report.lines import turns_text
from pytest_spiral.report.model import Card, Report, Score
from pytest_spiral.spiral.content import VERSION as SPIRAL_VERSION
from pytest_spiral.spiral.records import Conversation
from pytest_spiral.tempaffect.suite import VERSION as TEMPAFFECT_VERSION

Circumstances = tuple[tuple[str, str], ...]
"""Values by name, in the order in which people read them."""
_NONE = "none"


def of_card(card: Card) -> Circumstances:
    """Of a TempAffect card, besides its mode."""
    return (
        ("suite hash", card.integrity.suite_hash),
        ("scorer fingerprint", card.integrity.scorer_fingerprint),
        ("system prompt", card.integrity.system_prompt_hash or _NONE),
    )


def of_score(report: Report, score: Score) -> Circumstances:
    """Of a Spiral-Bench score. A file from elsewhere names no hashes: its texts say what they were."""
    own = [one for one in report.spiral.recorded() if one.model == score.model and not one.twin_of]
    known = dict(report.integrity.spiral or text_hashes(own))
    hashes = {name: str(value or _NONE) for name, value in known.items() if name.endswith("_hash")}
    hashes["protocol_hash"] = score.protocol_hash
    runs = {one.origin.run_id for one in own} - {""}
    named = {
        "judges": {*score.judges.per_judge},
        "simulated user": {one.origin.user_model for one in own if one.transcript},
        # In the public format, the run's id is the seed of its injections.
        "seed": runs if report.integrity.spiral is None else {str(report.run.seed)},
    }
    return (
        *((name.replace("_", " "), hashes[name]) for name in sorted(hashes)),
        *((name, ", ".join(value or "not named" for value in sorted(of)) or "not named") for name, of in named.items()),
        ("turns", turns_text(score.turns or [report.run.config.num_turns or 0])),
    )


def text_hashes(conversations: Sequence[Conversation]) -> dict[str, str | None]:
    """Hashes of what conversations from elsewhere were made with, as far as they record it."""
    systems = sorted({text for one in conversations if (text := one.origin.evaluated_system_prompt)})
    return {
        "prompts_hash": digest(sorted({(one.prompt_id, *_openings(one)) for one in conversations})),
        "persona_hash": digest(sorted({(one.category, one.origin.user_system_prompt) for one in conversations})),
        "system_prompt_hash": digest(systems if len(systems) > 1 else systems[0]) if systems else None,
    }


def _openings(conversation: Conversation) -> Sequence[str]:
    """The scripted messages of the user, or the first one where a file has no script."""
    return [text or "" for text in conversation.prompts] or [one.content for one in conversation.transcript[:1]]


def differing_names(one: Circumstances, other: Circumstances) -> list[str]:
    """Names of what is not the same in both."""
    values = dict(one), dict(other)
    return [name for name in dict.fromkeys((*values[0], *values[1])) if values[0].get(name) != values[1].get(name)]


def versions() -> dict[str, str]:
    """The versions of everything that numbers can depend on."""
    packages = {}
    for name in ("pytest-spiral", "pytest", "openai", "nltk", "jsonschema", "pydantic"):
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            packages[name] = "not installed"
    return {
        "python": platform.python_version(),
        "unicode": unicodedata.unidata_version,
        "suite tempaffect": TEMPAFFECT_VERSION,
        "suite spiral": SPIRAL_VERSION,
        **packages,
    }
