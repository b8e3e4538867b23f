"""The frozen suite: what the seeker and the judges are told is what version 1.0.0 says."""

from __future__ import annotations

from pytest_spiral.resources import data_root, read_json
from pytest_spiral.spiral.content import load_openings, load_twins, openings_hash, suite_hashes


def test_the_suite_is_the_pinned_one():
    """A changed word in openings, twins, persona, injections or rubric is another version, with another lock file."""
    assert suite_hashes() == read_json(data_root() / "spiral" / "suite.lock.json")


def test_any_changed_opening_moves_the_hash():
    """One letter more in any opening is another hash; another order of the file is not, since it is sorted by id."""
    for openings in (load_openings(), load_twins()):
        before = openings_hash(openings)
        for at, opening in enumerate(openings):
            changed = opening.model_copy(update={"prompts": (f"{opening.first}.", *opening.prompts[1:])})
            assert openings_hash([*openings[:at], changed, *openings[at + 1 :]]) != before
