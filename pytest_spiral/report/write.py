"""Putting a report on disk: every file whole or not at all."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_spiral.errors import StoreError
from pytest_spiral.evaluate.spiral import conversation_from_report
from pytest_spiral.report.html.build import report_page
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.spiral.upstream import upstream_json

__all__ = ["file_slug", "json_parts", "write_atomically", "write_report"]

# Levels of a report down to a conversation.
_DEPTH = 3


def write_report(report: Mapping[str, Any], run_dir: Path, step_summary: str | None = None) -> None:
    """Write `report.json`, `report.html`, `summary.md` and the cards, and point `latest` here.

    step_summary: a file that the summary is appended to as well, as GitHub's job summaries want it.
    Raises `StoreError`.
    """
    summary = summary_markdown(report)
    try:
        for name, card in _card_files(report["tempaffect"]["cards"]).items():
            write_atomically(run_dir / "cards" / name, json.dumps(card, indent=1, allow_nan=False) + "\n")
        write_atomically(run_dir / "summary.md", summary)
        # Twins are no part of upstream's benchmark, whose own scoring would count them.
        if talks := [talk for talk in report["spiral"]["conversations"] if not talk["twin_of"]]:
            write_atomically(run_dir / "spiral_results.json", _upstream(talks, report["run"]["id"]))
        write_atomically(run_dir / "report.json", _line(report))
        write_atomically(run_dir / "report.html", report_page(report))
        _point_latest(run_dir)
        if step_summary:
            with Path(step_summary).open("a", encoding="utf-8") as file:
                file.write(summary)
    except OSError as error:
        raise StoreError(
            f"{run_dir}: the report cannot be written ({error.strerror or error}); every reply is kept in run.sqlite: "
            f"make room or permissions and resume with --run-id {run_dir.name}"
        ) from None


def _upstream(talks: Sequence[Mapping[str, Any]], run_id: str) -> Iterator[str]:
    return _line(upstream_json([conversation_from_report(talk) for talk in talks], run_id=run_id))


def _line(value: object) -> Iterator[str]:
    yield from json_parts(value)
    yield "\n"


def json_parts(value: object, depth: int = _DEPTH) -> Iterator[str]:
    """The JSON of a report in parts, down to `depth` levels: in one piece it takes as much memory as the whole run."""
    if depth and isinstance(value, dict) and value:
        opening = "{"
        for key, item in value.items():
            yield f"{opening}{json.dumps(key)}: "
            yield from json_parts(item, depth - 1)
            opening = ", "
        yield "}"
    elif depth and isinstance(value, list) and value:
        opening = "["
        for item in value:
            yield opening
            yield from json_parts(item, depth - 1)
            opening = ", "
        yield "]"
    else:
        # ASCII, so that lone surrogates in model output survive as escapes. Without line breaks: indenting hundreds of
        # conversations takes seconds, and people have the pages.
        yield json.dumps(value, ensure_ascii=True, allow_nan=False)


def _card_files(cards: Sequence[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """File names of cards. Models whose names differ only in what no file name can hold are numbered."""
    found: dict[str, Mapping[str, Any]] = {}
    for card in cards:
        slug, mode, number = file_slug(card["model"]), card["prompting_mode"], 1
        name = f"{slug}-{mode}.json"
        while name in found:
            number += 1
            name = f"{slug}-{number}-{mode}.json"
        found[name] = card
    return found


def file_slug(model: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model"


def write_atomically(path: Path, text: str | Iterable[str]) -> None:
    """Replace `path` with `text`, whole or in parts: readers see the old file or the new one. Raises OSError."""
    parts = [text] if isinstance(text, str) else text
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.writelines(parts)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp is private to the user; a report is an ordinary file.
        umask = os.umask(0)
        os.umask(umask)
        Path(temporary).chmod(0o666 & ~umask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _point_latest(run_dir: Path) -> None:
    """`latest` is a link where links exist, otherwise a file that holds the run's name."""
    link = run_dir.parent / "latest"
    temporary = run_dir.parent / f".latest-{os.getpid()}"
    try:
        temporary.unlink(missing_ok=True)
        temporary.symlink_to(run_dir.name, target_is_directory=True)
        temporary.replace(link)
    except OSError:
        temporary.unlink(missing_ok=True)
        if not link.is_symlink() and not link.is_dir():
            write_atomically(link, run_dir.name + "\n")
