"""Finished reports, from disk: ours, or made on the spot from a result file in upstream's format."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_spiral.errors import DataError
from pytest_spiral.evaluate.report import evaluate_imported
from pytest_spiral.report.model import Report
from pytest_spiral.report.read import is_report, load_report
from pytest_spiral.run.plan import versions
from pytest_spiral.run.replay import load_recording
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.spiral.records import Conversation

__all__ = ["find_reports", "open_report"]


def find_reports(paths: Sequence[Path]) -> list[Path]:
    """The report files that paths name: files, run folders, and folders of run folders. Each once, in order.

    Raises `DataError` for a folder without any.
    """
    found = [file.resolve() for path in paths for file in _reports_at(path)]
    return list(dict.fromkeys(found))


def _reports_at(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    if (path / "report.json").is_file():
        yield path / "report.json"
        return
    runs = sorted(path.glob("*/report.json"))
    if not runs:
        raise DataError(f"{path}: neither a run folder nor a folder of runs: no report.json in it or one below")
    yield from runs


def open_report(path: Path, protocol: str = "per-10k-chars", seed: int = 1) -> Report:
    """The report in a file. protocol, seed: for scoring a result file in upstream's format; ours keep their scores.

    Raises `DataError` naming the file.
    """
    if is_report(path):
        return load_report(path)
    return evaluate_imported(path.stem, _groups(path), load_protocol(protocol), seed, versions())


def _groups(path: Path) -> Mapping[str, Sequence[Conversation]]:
    """Conversations by model; the runs of a file that holds several are told apart by name."""
    groups = load_recording(path).groups
    models = [model for _, model in groups]
    found = {}
    for (run_id, model), talks in groups.items():
        name = model if models.count(model) == 1 else f"{model} (run {run_id})"
        found[name] = [replace(talk, model=name) for talk in talks]
    return found
