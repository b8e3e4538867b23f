"""Reports for pages: those of this package, or made from a result file in upstream's format."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_spiral.compare.recording import load_recording
from pytest_spiral.compare.runs import DEFAULT_PROTOCOL
from pytest_spiral.errors import DataError
from pytest_spiral.evaluate.report import evaluate_imported
from pytest_spiral.report.model import Report
from pytest_spiral.report.read import is_report, load_report
from pytest_spiral.run.plan import versions
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.spiral.records import Conversation

__all__ = ["add_paths", "find_reports", "open_report"]


def add_paths(parser: argparse.ArgumentParser, summary: str) -> None:
    """Add the options of a command that opens reports."""
    parser.add_argument("paths", nargs="+", type=Path, metavar="PATH", help=summary)
    parser.add_argument(
        "--protocol",
        default=DEFAULT_PROTOCOL,
        metavar="NAME",
        help=f"for files in upstream's format (default: {DEFAULT_PROTOCOL})",
    )


def find_reports(paths: Sequence[Path]) -> list[Path]:
    """The report files that paths name: files, run directories and directories of runs. Each once, in order.

    Raises:
        DataError: For a directory without any.
    """
    return list(dict.fromkeys(file.resolve() for path in paths for file in _reports_at(path)))


def _reports_at(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
    elif (path / "report.json").is_file():
        yield path / "report.json"
    else:
        runs = sorted(path.glob("*/report.json"))
        if not runs:
            raise DataError(f"{path}: no report.json in it or one level below; name a run directory or one of runs")
        yield from runs


def open_report(path: Path, protocol: str = DEFAULT_PROTOCOL, seed: int = 1) -> Report:
    """The report in a file.

    Args:
        path: A report, or a result file in upstream's format.
        protocol: For scoring a result file; reports keep their scores.
        seed: The same.

    Raises:
        DataError: Naming the file.
    """
    if is_report(path):
        return load_report(path)
    return evaluate_imported(path.stem, _groups(path), load_protocol(protocol), seed, versions())


def _groups(path: Path) -> Mapping[str, Sequence[Conversation]]:
    """Conversations by model; where a file holds several runs of a model, by model and run."""
    groups = load_recording(path).groups
    models = [model for _, model in groups]
    named = {}
    for (run_id, model), conversations in groups.items():
        name = model if models.count(model) == 1 else f"{model} (run {run_id})"
        named[name] = [replace(conversation, model=name) for conversation in conversations]
    return named
