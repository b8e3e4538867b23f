"""Writing a report: every file whole or not at all."""

from __future__ import annotations

import itertools
import os
import re
import tempfile
from collections.abc import Container, Iterable, Sequence
from pathlib import Path

from pydantic_core import to_json

from pytest_spiral.errors import StoreError
from pytest_spiral.report.html.build import leaderboard_page, report_page, report_pieces
from pytest_spiral.report.html.leaderboard import BoardEntry
from pytest_spiral.report.markdown import summary_markdown
from pytest_spiral.report.model import FailedPart, Report
from pytest_spiral.report.model.parts import PartCode
from pytest_spiral.report.parts import Parts
from pytest_spiral.strict_json import json_pieces


def write_report(report: Report, run_dir: Path, step_summary: str | None = None, *, newest: bool = True) -> Report:
    """Write all files of a report: `report.json` first, then each of the others by itself.

    Args:
        report: The report.
        run_dir: Folder for `report.json`, `report.html`, `summary.md` and the cards.
        step_summary: A file that the summary is appended to, as GitHub's job summaries expect.
        newest: Whether `latest` is to point to it.

    Returns:
        The report, in which the files that could not be made are named.

    Raises:
        StoreError: `report.json` cannot be written.
    """
    write_results(report, run_dir)
    written = write_views(report, run_dir)
    parts = Parts(PartCode.NOT_WRITTEN)
    if step_summary:
        parts.attempt("job summary", _append, Path(step_summary), written)
    if newest:
        parts.attempt("latest", _point_latest, run_dir)
    written = _naming(written, parts)
    if written.failed_parts != report.failed_parts:
        # Where there is no room for it, the report stays as it was: complete but for the names of the files.
        parts.attempt("report.json", write_results, written, run_dir)
    return _naming(written, parts)


def write_views(report: Report, run_dir: Path) -> Report:
    """Write everything that is rendered from `report.json`: the report, in which the files that failed are named."""
    parts = Parts(PartCode.NOT_WRITTEN)
    names: list[str] = []
    for card in report.tempaffect.cards:
        names.append(_unused(card.model, names, f"cards/{{}}-{card.prompting_mode}.json"))
        text = card.model_dump_json(indent=1) + "\n"
        parts.attempt(names[-1], write_atomically, run_dir / names[-1], text)
    parts.attempt("report.html", lambda: write_atomically(run_dir / "report.html", report_pieces(report)))
    summarised = _naming(report, parts)
    parts.attempt("summary.md", lambda: write_atomically(run_dir / "summary.md", summary_markdown(summarised)))
    return _naming(report, parts)


def _naming(report: Report, parts: Parts) -> Report:
    """The report with the files that failed, each once."""
    failed = dict.fromkeys((*report.failed_parts, *parts.failed))
    return report.model_copy(update={"failed_parts": tuple(failed)})


def write_results(report: Report, run_dir: Path) -> None:
    """Write `report.json` alone. Raises `StoreError`."""
    try:
        # Down to single results.
        pieces = json_pieces(report, lambda value: to_json(value, by_alias=False).decode(), levels=3)
        write_atomically(run_dir / "report.json", itertools.chain(pieces, "\n"))
    except OSError as error:
        raise StoreError(
            f"{run_dir}: the report cannot be written ({error.strerror or error}); every reply is kept in run.sqlite: "
            f"make room or permissions and resume with --run-id {run_dir.name}"
        ) from None


def _append(file: Path, report: Report) -> None:
    with file.open("a", encoding="utf-8") as stream:
        stream.write(summary_markdown(report, page=None))


def write_site(reports: Sequence[Report], folder: Path) -> tuple[list[Path], list[FailedPart]]:
    """Write a leaderboard over reports, with a page for each.

    Returns:
        The files, the leaderboard first, and the pages that could not be made.

    Raises:
        StoreError: A file cannot be written.
    """
    parts = Parts(PartCode.NOT_WRITTEN)
    entries: list[BoardEntry] = []
    for report in reports:
        entries.append(BoardEntry(report, _unused(report.run.id, [entry.href for entry in entries], "runs/{}.html")))
    pages = {"index.html": leaderboard_page(entries)}
    for entry in entries:
        page = parts.attempt(entry.href, report_page, entry.report, home="../index.html")
        pages |= {} if page is None else {entry.href: page}
    for name, text in pages.items():
        write_page(folder / name, text)
    return [folder / name for name in pages], parts.failed


def _unused(name: str, files: Container[str], pattern: str) -> str:
    """A file name by the pattern that no file has: names that differ in what no file name can hold are numbered."""
    slug = file_slug(name)
    numbered = itertools.chain([slug], (f"{slug}-{number}" for number in itertools.count(2)))
    return next(file for file in map(pattern.format, numbered) if file not in files)


def file_slug(name: str) -> str:
    """A name as part of a file name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "model"


def write_page(target: Path, page: str) -> None:
    """Write the file that a command was asked for. Raises `StoreError` where that is not possible."""
    try:
        write_atomically(target, page)
    except OSError as error:
        raise StoreError(f"{target}: cannot be written ({error.strerror or error}); choose another -o") from None


def write_atomically(path: Path, text: str | Iterable[str]) -> None:
    """Replace the content of a file: readers see the old text or the new one. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.writelines(part.encode() for part in ([text] if isinstance(text, str) else text))
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
