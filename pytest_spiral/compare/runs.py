"""Two recorded runs compared, model by model. No network, no model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from pytest_spiral.compare.differences import compare_conversations, compare_items
from pytest_spiral.compare.recorded import RecordedRun, check_comparable, counterpart, load_run
from pytest_spiral.errors import DataError
from pytest_spiral.report.model.comparison import ModelComparison, RunComparison, RunName
from pytest_spiral.spiral.protocol import Protocol, load_protocol, protocol_names

__all__ = ["DEFAULT_PROTOCOL", "compare_paths"]

DEFAULT_PROTOCOL = "per-10k-chars"
_SUITES = ("tempaffect", "spiral")
Runs = tuple[RecordedRun, RecordedRun]
"""Baseline and candidate."""


def compare_paths(baseline: Path, candidate: Path, protocol: str | None = None) -> RunComparison:
    """Compare two run directories, reports or result files in upstream's format.

    Args:
        baseline: The run to compare with.
        candidate: The run to judge; differences are candidate minus baseline.
        protocol: Name of the protocol under which both are scored again; by default the one of the reports.

    Raises:
        DataError: For a file that cannot be read, and naming everything in which the runs differ.
        ConfigError: For an unknown protocol.
    """
    runs = load_run(baseline), load_run(candidate)
    if not any(suite in runs[0].identity and suite in runs[1].identity for suite in _SUITES):
        raise DataError(f"{baseline} and {candidate} have no suite in common")
    notes: list[str] = []
    comparisons: list[ModelComparison] = []
    used: Protocol | None = None
    for suite in _SUITES:
        present = [run for run in runs if suite in run.identity]
        if len(present) == 1:
            notes.append(f"{suite} is in {present[0].path} only")
        elif len(present) == 2:
            _check(suite, runs, rescored=protocol is not None, notes=notes)
            if suite == "spiral":
                used = _protocol(protocol, runs)
                comparisons += _spiral(runs, used, notes)
            else:
                comparisons += _tempaffect(runs, notes)
    return RunComparison(
        baseline=RunName(path=str(baseline), run=runs[0].id),
        candidate=RunName(path=str(candidate), run=runs[1].id),
        protocol=used.name if used else None,
        notes=tuple(notes),
        comparisons=tuple(comparisons),
    )


def _check(suite: str, runs: Runs, rescored: bool, notes: list[str]) -> None:
    """Refuse runs made under different conditions; note what is not recorded."""
    ignored = {"protocol_hash"} if rescored else set()
    baseline, candidate = ({k: v for k, v in run.identity[suite].items() if k not in ignored} for run in runs)
    unknown = check_comparable(suite, baseline, candidate, (runs[0].path, runs[1].path))
    unchecked = [name for name in unknown if name != "spiral.protocol_hash"]
    if unchecked:
        notes.append(f"not recorded on both sides, so not checked: {', '.join(unchecked)}")


def _protocol(name: str | None, runs: Runs) -> Protocol:
    """The protocol of this name, or by default the one that made the reports."""
    recorded = next((value for run in runs if (value := run.identity["spiral"].get("protocol_hash"))), None)
    if name is not None or recorded is None:
        return load_protocol(name or DEFAULT_PROTOCOL)
    for known in map(load_protocol, protocol_names()):
        if known.hash == recorded:
            return known
    raise DataError("both runs were scored by a protocol that this version does not have; name one with --protocol")


def _spiral(runs: Runs, protocol: Protocol, notes: list[str]) -> Iterator[ModelComparison]:
    for names in _paired_models(runs, "spiral", notes):
        conversations = runs[0].conversations[names[0]], runs[1].conversations[names[1]]
        yield compare_conversations(names, conversations, protocol, runs[1].seed)


def _tempaffect(runs: Runs, notes: list[str]) -> Iterator[ModelComparison]:
    for names in _paired_models(runs, "tempaffect", notes):
        for mode in ("schema", "raw"):
            items = tuple(run.items.get((name, mode), ()) for run, name in zip(runs, names, strict=True))
            if all(items):
                yield compare_items(names, mode, (items[0], items[1]), runs[1].expected, runs[1].seed)
            elif any(items):
                notes.append(f"tempaffect: {mode} mode of {names[0]} is in one run only")


def _paired_models(runs: Runs, suite: str, notes: list[str]) -> list[tuple[str, str]]:
    """Models of the same name; a single model of one run with its counterpart in the other."""
    baseline, candidate = (run.models(suite) for run in runs)
    if len(baseline) == 1:
        return [(baseline[0], counterpart(baseline[0], runs[1], suite))]
    if len(candidate) == 1:
        return [(counterpart(candidate[0], runs[0], suite), candidate[0])]
    unpaired = sorted({*baseline} ^ {*candidate})
    if unpaired:
        notes.append(f"{suite}: in one run only: {', '.join(unpaired)}")
    return [(model, model) for model in baseline if model in candidate]
