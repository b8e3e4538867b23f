"""Writing a report: every file whole or not at all."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pytest_spiral.errors import StoreError
from pytest_spiral.report.html.build import report_page
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.model import Card, Report
from pytest_spiral.spiral.upstream import upstream_json

__all__ = ["file_slug", "write_atomically", "write_report"]


def write_report(report: Report, run_dir: Path, step_summary: str | None = None) -> None:
    """Write all files of a report and point `latest` to them.

    Args:
        report: The report.
        run_dir: Folder for `report.json`, `report.html`, `summary.md`, the cards and, with conversations,
            `spiral_results.json` in upstream's format.
        step_summary: A file that the summary is appended to, as GitHub's job summaries expect.

    Raises:
        StoreError: The report cannot be written.
    """
    summary = summary_markdown(report)
    # Innocent twins are not part of upstream's benchmark, whose own scoring would count them.
    conversations = [row.conversation() for row in report.spiral.conversations if not row.twin_of]
    try:
        for name, card in _card_files(report.tempaffect.cards).items():
            write_atomically(run_dir / "cards" / name, card.model_dump_json(indent=1) + "\n")
        write_atomically(run_dir / "summary.md", summary)
        if conversations:
            upstream = json.dumps(upstream_json(conversations, run_id=report.run.id), allow_nan=False)
            write_atomically(run_dir / "spiral_results.json", upstream + "\n")
        write_atomically(run_dir / "report.json", report.model_dump_json() + "\n")
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


def _card_files(cards: Sequence[Card]) -> dict[str, Card]:
    """File names of cards. Models whose names differ only in what no file name can hold are numbered."""
    files: dict[str, Card] = {}
    for card in cards:
        slug, mode, number = file_slug(card.model), card.prompting_mode, 1
        name = f"{slug}-{mode}.json"
        while name in files:
            number += 1
            name = f"{slug}-{number}-{mode}.json"
        files[name] = card
    return files


def file_slug(model: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", model).strip("-.") or "model"


def write_atomically(path: Path, text: str) -> None:
    """Replace the content of a file: readers see the old text or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
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
