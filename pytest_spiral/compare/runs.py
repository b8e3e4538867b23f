"""`pytest-spiral compare A B`: from two paths to a comparison as plain values. No network, no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pytest_spiral.compare.pairing import (
    Comparison,
    RecordedRun,
    check_comparable,
    compare_conversations,
    compare_items,
    comparison_json,
    counterpart,
)
from pytest_spiral.compare.recorded import load_run
from pytest_spiral.errors import DataError
from pytest_spiral.spiral.protocol import Protocol, load_protocol, protocol_names

__all__ = ["compare_paths"]

DEFAULT_PROTOCOL = "per-10k-chars"


def compare_paths(first: Path, second: Path, protocol: str | None = None, seed: int = 1) -> dict[str, Any]:
    """Compare two run folders, reports or result files in upstream's format.

    protocol: under which both are scored again; by default the one that made the reports, per-10k-chars for files in
    upstream's format. Returns `{a, b, protocol, notes, comparisons}`; the notes say what could not be checked and
    which models had nobody to be compared with.
    Raises `DataError` for files that cannot be read and naming the fields in which the runs differ, `ConfigError` for
    an unknown protocol.
    """
    a, b = load_run(first), load_run(second)
    suites = [suite for suite in ("tempaffect", "spiral") if suite in a.identity and suite in b.identity]
    if not suites:
        raise DataError(f"{first} and {second} have no suite in common")
    notes = [
        f"{suite} is in {(a if suite in a.identity else b).path} alone"
        for suite in ("tempaffect", "spiral")
        if (suite in a.identity) != (suite in b.identity)
    ]
    found: list[Comparison] = []
    used: Protocol | None = None
    for suite in suites:
        own, other = dict(a.identity[suite]), dict(b.identity[suite])
        if protocol is not None:
            # Both are scored again, so what scored them before is of no consequence.
            own.pop("protocol_hash", None)
            other.pop("protocol_hash", None)
        unknown = check_comparable(suite, own, other, (str(first), str(second)))
        unknown = [name for name in unknown if name != "spiral.protocol_hash"]
        if unknown:
            notes.append(f"not recorded on both sides, so not checked: {', '.join(unknown)}")
        if suite == "spiral":
            used = _protocol(protocol, own.get("protocol_hash") or other.get("protocol_hash"))
            for name in _paired_models(a, b, suite, notes):
                runs = (a.conversations[name[0]], b.conversations[name[1]])
                found.append(compare_conversations(name, *runs, used, seed))
        else:
            found += _cards(a, b, notes, seed)
    return {
        "a": {"path": str(first), "run": a.id},
        "b": {"path": str(second), "run": b.id},
        "protocol": used.name if used else None,
        "notes": notes,
        "comparisons": [comparison_json(row) for row in found],
    }


def _paired_models(a: RecordedRun, b: RecordedRun, suite: str, notes: list[str]) -> list[tuple[str, str]]:
    """Models by name; a single one on each side whatever they are called."""
    here, there = a.models(suite), b.models(suite)
    if len(here) == 1:
        return [(here[0], counterpart(here[0], b, suite))]
    if len(there) == 1:
        return [(counterpart(there[0], a, suite), there[0])]
    alone = sorted({*here} ^ {*there})
    if alone:
        notes.append(f"{suite}: in one run alone: {', '.join(alone)}")
    return [(model, model) for model in here if model in there]


def _cards(a: RecordedRun, b: RecordedRun, notes: list[str], seed: int) -> list[Comparison]:
    found = []
    for names in _paired_models(a, b, "tempaffect", notes):
        for mode in ("schema", "raw"):
            here, there = a.items.get((names[0], mode)), b.items.get((names[1], mode))
            if here and there:
                found.append(compare_items(names, mode, here, there, a.expected, seed))
            elif here or there:
                notes.append(f"tempaffect: {mode} mode of {names[0]} is in one run alone")
    return found


def _protocol(name: str | None, wanted: str | None) -> Protocol:
    """The protocol by name, or the shipped one with this hash."""
    if name is not None or wanted is None:
        return load_protocol(name or DEFAULT_PROTOCOL)
    for known in protocol_names():
        if load_protocol(known).hash == wanted:
            return load_protocol(known)
    raise DataError("both runs were scored by a protocol that this version does not have; name one with --protocol")
