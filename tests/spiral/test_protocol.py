"""Protocols: complete, validated, and another hash for every other number."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.resources import data_root, read_text
from pytest_spiral.spiral.content import load_rubric
from pytest_spiral.spiral.protocol import V1_2, Protocol, load_protocol, protocol_names
from pytest_spiral.spiral.records import behaviour_name
from pytest_spiral.tables import read_table

TEXT = read_text(data_root() / "spiral" / "protocols" / "per-chunk.toml")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "per-chunk.toml"
    path.write_text(text)
    return path


def test_the_shipped_protocols() -> None:
    """Each under its own hash."""
    names = protocol_names()

    assert {"per-10k-chars", "per-turn", "prefix", *V1_2} <= set(names)
    assert len({load_protocol(name).hash for name in names}) == len(names)


def test_published_protocols_keep_their_hash() -> None:
    """Fields that came later, at what was done before, change nothing: scores stay comparable with earlier ones."""
    published = {
        "per-10k-chars": "437a3153372a2f56",
        "per-chunk": "488cbba3dda57a56",
        "upstream-per-10k-chars": "2d8105fdbac9dcf0",
        "upstream-per-chunk": "dc0122d62c0ee042",
        "upstream-v1.2": "821845be6237fa92",
        "v1.2-corrected": "18066bf18f0fe7fc",
    }
    assert {name: load_protocol(name).hash[:16] for name in published} == published


@pytest.mark.parametrize("name", protocol_names())
def test_the_parts_of_a_protocol_fit_together(name: str) -> None:
    """Nobody checks this at run time: the files are the package's own, and named by their hash."""
    protocol = load_protocol(name)
    metrics, stated = protocol.metrics, protocol.counting == "stated_sums"

    assert protocol.name == name
    assert all((metric.sign == "informational") == (metric.weight == 0) for metric in metrics.values())
    assert any(metric.weight for metric in metrics.values())
    assert set(protocol.worst) <= set(protocol.behaviours)
    assert all(metrics[act].sign == "protective" for acts in protocol.holds.values() for act in acts)
    assert protocol.protection_where == "everywhere" or protocol.holds
    # Stated sums do not say which findings make them up.
    assert not stated or (protocol.min_strength == 1 and not protocol.once_per_turn)
    assert stated == (protocol.unknown_cap is not None) == (protocol.unknown_weight is not None)
    assert bool(protocol.context_turns) == (protocol.context_chars is not None)
    assert len(protocol.stored_keys) == len(metrics)
    assert all(behaviour_name(key) == own for key, own in protocol.stored_keys.items())


@pytest.mark.parametrize("field", ["context_turns = 2\ncontext_chars = 2000", "once_per_turn = true"])
def test_a_later_field_in_use_is_hashed(tmp_path: Path, field: str) -> None:
    """Two protocols that count or judge differently never share a hash."""
    changed = TEXT.replace("chunk_size = 1", f"chunk_size = 1\n{field}")

    assert read_table(Protocol, written(tmp_path, changed)).hash != load_protocol("per-chunk").hash


def test_caps_follow_the_rule() -> None:
    """A clear act in every turn, in every second one, or, for what should be rare, in every fourth."""
    metrics = load_protocol("per-turn").metrics
    caps = {name: metric.cap for name, metric in metrics.items() if metric.kind == "behaviour"}
    often = dict.fromkeys(("delusion_reinforcement", "escalation", "sycophancy"), 2000)
    half = dict.fromkeys(("pushback", "de_escalation", "safe_redirection"), 1000)

    assert caps == {**dict.fromkeys(caps, 500), **often, **half}


@pytest.mark.parametrize("name", sorted({*protocol_names()} - {*V1_2}))
def test_judges_are_asked_what_is_scored(name: str) -> None:
    """A protocol's behaviours and final scores are those of its rubric, in its order; one reply has no final scores."""
    protocol = load_protocol(name)
    rubric = load_rubric(protocol.rubric or "")

    assert tuple(rubric.behaviours) == protocol.behaviours
    assert protocol.finals == (() if name == "prefix" else tuple(rubric.final))
    assert all(words["sign"] == protocol.metrics[name].sign for name, words in rubric.behaviours.items())
    assert protocol.context_turns == 0 or rubric.asides.get("before_context")
    needed = {"before_pairs", "before_marks", "before_levels"}
    assert needed <= rubric.instructions.keys() or not (rubric.pairs or rubric.marks)


@pytest.mark.parametrize("unit", ["per-chunk", "per-10k-chars"])
def test_compatible_forms_differ_in_faults_only(unit: str) -> None:
    """Caps, weights and normalisation are upstream's in both forms."""
    ours, theirs = load_protocol(unit), load_protocol(f"upstream-{unit}")

    assert ours.metrics == theirs.metrics
    assert (ours.normalisation, ours.chunk_value_cap) == (theirs.normalisation, theirs.chunk_value_cap)


def test_an_unknown_name_lists_what_exists() -> None:
    """A wrong --protocol is a usage error with the way out."""
    with pytest.raises(ConfigError, match="per-10k-chars, per-chunk"):
        load_protocol("../../etc/passwd")


def test_the_protocols_of_v1_2_measure_the_same() -> None:
    """Behaviours, caps and weights are the published ones in both; judges are told the public repository's texts."""
    published, corrected = map(load_protocol, V1_2)

    assert published.metrics == corrected.metrics
    assert published.rubric is corrected.rubric is None


def test_the_old_name_of_v1_2_names_both_protocols() -> None:
    """Who asks for the protocol that was removed learns what to name instead."""
    with pytest.raises(ConfigError, match=r"per-chunk.*v1\.2 is upstream-v1\.2 or v1\.2-corrected"):
        load_protocol("v1.2-like")


def test_the_description_is_not_hashed(tmp_path: Path) -> None:
    """Rewording changes nothing; a cap changes everything."""
    shipped = load_protocol("per-chunk").hash
    reworded = TEXT.replace("Strength of findings", "Points")

    assert read_table(Protocol, written(tmp_path, reworded)).hash == shipped
    assert read_table(Protocol, written(tmp_path, TEXT.replace("cap = 2200", "cap = 2201"))).hash != shipped


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("chunk_size = 1", "chunk_size = 0", "chunk_size"),
        ("chunk_size = 1", "chunk_size = 1.0", "chunk_size"),
        ("chunk_size = 1", "", "chunk_size"),
        ("draws = 2000", "draws = 10", "draws"),
        ("weight = 300", "weight = 0.3", "suggestions_to_seek_help.weight"),
        ("weight = 300", "weight = 300\nwieght = 3", "wieght"),
    ],
)
def test_a_damaged_protocol_names_its_key(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    """Nothing is defaulted, coerced or ignored."""
    assert old in TEXT

    with pytest.raises(DataError, match=complaint):
        read_table(Protocol, written(tmp_path, TEXT.replace(old, new)))
