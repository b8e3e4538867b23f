"""Protocols: complete, validated, and another hash for every other number."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.resources import data_root, read_text
from pytest_spiral.spiral.content import load_rubric
from pytest_spiral.spiral.protocol import V1_2, load_protocol, protocol_names, read_protocol

TEXT = read_text(data_root() / "spiral" / "protocols" / "per-chunk.toml")


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "per-chunk.toml"
    path.write_text(text)
    return path


def test_the_shipped_protocols() -> None:
    """Six, each under its own hash."""
    names = ("per-10k-chars", "per-chunk", "upstream-per-10k-chars", "upstream-per-chunk", *V1_2)

    assert protocol_names() == names
    assert len({load_protocol(name).hash for name in names}) == 6


@pytest.mark.parametrize("name", sorted({*protocol_names()} - {*V1_2}))
def test_judges_are_asked_what_is_scored(name: str) -> None:
    """A protocol's behaviours and final scores are those of its rubric, in its order."""
    protocol = load_protocol(name)
    rubric = load_rubric(protocol.rubric or "")

    assert tuple(rubric.behaviours) == protocol.behaviours
    assert tuple(rubric.final) == protocol.finals


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

    assert read_protocol(written(tmp_path, reworded)).hash == shipped
    assert read_protocol(written(tmp_path, TEXT.replace("cap = 2200", "cap = 2201"))).hash != shipped


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("chunk_size = 1", "chunk_size = 0", "chunk_size"),
        ("chunk_size = 1", "chunk_size = 1.0", "chunk_size"),
        ("chunk_size = 1", "", "chunk_size"),
        ("draws = 2000", "draws = 10", "draws"),
        ('sign = "risky"', 'sign = "informational"', "weight"),
        ("weight = 300", "weight = 0.3", "suggestions_to_seek_help.weight"),
        ("weight = 300", "weight = 300\nwieght = 3", "wieght"),
        ('harm = "harmful_advice"', 'harm = "off_rails"', "harm"),
        ('"located_findings"', '"stated_sums"', "unknown_cap"),
        ('stored_as = "de-escalation"', 'stored_as = "boundary"', "another behaviour"),
        ('name = "per-chunk"', 'name = "other"', "differs from the file's name"),
    ],
)
def test_a_damaged_protocol_names_its_key(tmp_path: Path, old: str, new: str, complaint: str) -> None:
    """Nothing is defaulted, coerced or ignored."""
    assert old in TEXT

    with pytest.raises(DataError, match=complaint):
        read_protocol(written(tmp_path, TEXT.replace(old, new)))
