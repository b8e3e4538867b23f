"""A part of the report that fails is named, and costs neither the others nor the exit code its meaning."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.cli import main, runs
from pytest_spiral.evaluate import report as evaluation
from pytest_spiral.plugin import controller
from pytest_spiral.report import write
from pytest_spiral.report.html.build import report_page
from pytest_spiral.report.model import Report
from pytest_spiral.report.read import load_report
from pytest_spiral.run.controller import RunController
from pytest_spiral.tempaffect.card import build_card
from tests.fakes.report_page import page_data
from tests.plugin.conftest import Project

GATE = ("--gate", "tempaffect.valid_output_rate >= 0.5")
RUN = ("--model=dry/perfect", "--suite=tempaffect", "--run-id=r", *GATE, "-p", "no:xdist")
RAW = (*RUN, "--prompting=raw")
BOTH = (*RUN[:2], "--suite=spiral", "--num-turns=1", "--benign-twins=off", "--run-id=r", "-p", "no:xdist")
VIEWS = ["cards", "progress.jsonl", "report.html", "report.json", "run.sqlite", "summary.md"]


def broken(*_args: object, **_options: object) -> Any:
    """Any function, with a fault."""
    raise ZeroDivisionError("a fault that nobody thought of")


def failing_for(text: str, function: Any) -> Any:
    """The function, with a fault wherever an argument is or names the text."""

    def wrapped(*args: Any, **options: Any) -> Any:
        if any(isinstance(arg, str | Path) and str(arg).endswith(text) for arg in args):
            broken()
        return function(*args, **options)

    return wrapped


def names(report: Report) -> list[tuple[str, str]]:
    return [(part.part, part.code.value) for part in report.failed_parts]


def files(project: Project) -> list[str]:
    return sorted(path.name for path in project.folder("r").iterdir() if path.suffix not in (".sqlite-wal", ".lock"))


def test_a_statistic_that_raises(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 3, its gate undecided, everything else there; the command computes it from the report afterwards."""
    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "build_card", failing_for("raw", build_card))
        result = project.pytest(*RUN)

    report = load_report(project.folder("r") / "report.json")
    assert result.ret == 3
    assert names(report) == [("tempaffect.cards[dry/perfect, raw_json]", "error")]
    assert "ZeroDivisionError: a fault that nobody thought of (test_failed_parts.py:" in report.failed_parts[0].detail
    assert [card.prompting_mode for card in report.tempaffect.cards] == ["schema_assisted"]
    assert (len(report.tempaffect.items), len(report.profile.tempaffect)) == (150, 2)
    assert [(row.outcome, row.reason.code.value) for row in report.gates] == [
        ("pass", "bound_met"),
        ("incomplete", "part_failed"),
    ]
    assert report.verdict == "incomplete"
    result.stdout.fnmatch_lines(
        ["verdict: INCOMPLETE", "FAILED tempaffect.cards[[]dry/perfect, raw_json]: error: Zero*"]
    )
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert '"code":"error"' in page_data(project.folder("r") / "report.html")
    assert "ZeroDivisionError" in (project.folder("r") / "summary.md").read_text()
    capsys.readouterr()

    assert main(["report", "reports/r"]) == 0

    again = load_report(project.folder("r") / "report.json")
    assert (again.verdict, again.failed_parts, len(again.tempaffect.cards)) == ("pass", (), 2)
    assert [row.outcome for row in again.gates] == ["pass", "pass"]
    assert project.pytest(*RUN).ret == 0
    resumed = load_report(project.folder("r") / "report.json")
    assert again.tempaffect == resumed.tempaffect
    assert (project.folder("r") / "summary.md").read_text().startswith("## pytest-spiral: PASS")


@pytest.mark.parametrize(
    ("part", "target"), [("report.html", "report_pieces"), ("summary.md", "summary_markdown")], ids=["page", "summary"]
)
def test_a_page_that_raises(project: Project, monkeypatch: pytest.MonkeyPatch, part: str, target: str) -> None:
    """The verdict stands, for it does not depend on the page; exit 3; the command writes the page afterwards."""
    with monkeypatch.context() as patch:
        patch.setattr(write, target, broken)
        result = project.pytest(*RAW)

    report = load_report(project.folder("r") / "report.json")
    assert result.ret == 3
    assert (names(report), report.verdict) == ([(part, "not_written")], "pass")
    assert files(project) == [name for name in VIEWS if name != part]
    result.stdout.fnmatch_lines([f"FAILED {part}: not_written: ZeroDivisionError*"])

    assert main(["report", "reports/r"]) == 0

    assert files(project) == VIEWS
    assert load_report(project.folder("r") / "report.json") == report.model_copy(update={"failed_parts": ()})


@pytest.mark.parametrize("from_then_on", [False, True], ids=["for-the-page", "for-good"])
def test_a_disk_that_is_full_for_the_page(
    project: Project, monkeypatch: pytest.MonkeyPatch, from_then_on: bool
) -> None:
    """`report.json` is whole, whether or not there is room to name the page in it; the terminal names it anyway."""
    full: list[Path] = []
    really = write.write_atomically

    def with_little_room(path: Path, text: str | Iterable[str]) -> None:
        if path.name == "report.html" or (full and from_then_on):
            full.append(path)
            raise OSError(errno.ENOSPC, "No space left on device")
        really(path, text)

    with monkeypatch.context() as patch:
        patch.setattr(write, "write_atomically", with_little_room)
        result = project.pytest(*RAW)

    report = load_report(project.folder("r") / "report.json")
    assert result.ret == 3
    assert report.verdict == "pass"
    assert names(report) == ([] if from_then_on else [("report.html", "not_written")])
    result.stdout.fnmatch_lines(["FAILED report.html: not_written: OSError: [[]Errno 28[]] No space left on device*"])

    assert main(["report", "reports/r"]) == 0

    assert files(project) == VIEWS
    assert load_report(project.folder("r") / "report.json").failed_parts == ()


def test_measurements_are_on_disk_before_the_evaluation(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A process that dies in the middle of a statistic leaves a report to compute them from."""

    def dies(*_args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(evaluation, "build_card", dies)
        with pytest.raises(KeyboardInterrupt):
            project.pytest(*BOTH)

    raw = load_report(project.folder("r") / "report.json")
    assert (names(raw), raw.verdict) == ([("statistics", "not_evaluated")], "incomplete")
    assert (len(raw.tempaffect.items), len(raw.spiral.conversations)) == (150, 30)

    assert main(["report", "reports/r"]) == 0

    computed = load_report(project.folder("r") / "report.json")
    assert (computed.verdict, computed.failed_parts) == ("measured", ())
    assert project.pytest(*BOTH).ret == 0
    resumed = load_report(project.folder("r") / "report.json")
    assert (computed.tempaffect, computed.spiral) == (resumed.tempaffect, resumed.spiral)
    assert computed.profile == resumed.profile


@pytest.mark.parametrize(("where", "trace"), [("results", True), ("close", False)], ids=["full-trace", "quiet"])
def test_an_error_at_the_end_of_the_session(
    project: Project, monkeypatch: pytest.MonkeyPatch, where: str, trace: bool
) -> None:
    """3 with one line that says what is safe, never 1; the traceback on request."""
    with monkeypatch.context() as patch:
        patch.setattr(RunController, where, broken)
        result = project.pytest(*RAW, *(["--full-trace"] if trace else []))

    assert result.ret == 3
    assert "internal error, ZeroDivisionError" in result.stdout.str()
    assert ("Traceback" in result.stdout.str() + result.stderr.str()) == trace
    assert project.pytest(*RAW).ret == 0


def test_a_summary_that_raises(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal is a part like the others."""
    monkeypatch.setattr(controller, "summary_lines", broken)

    result = project.pytest(*RAW)

    assert result.ret == 3
    assert load_report(project.folder("r") / "report.json").verdict == "pass"
    result.stdout.fnmatch_lines(["FAILED terminal: error: ZeroDivisionError*"])


def test_a_command_that_fails(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The console script exits with 3 as well, with one line; the traceback on request."""
    assert project.pytest(*RAW).ret == 0
    monkeypatch.setattr(runs, "load_report", broken)
    capsys.readouterr()

    assert main(["export", "reports/r"]) == 3
    quiet = capsys.readouterr().err
    assert main(["export", "reports/r", "--full-trace"]) == 3
    loud = capsys.readouterr().err

    assert quiet.count("\n") == 1
    assert quiet.startswith("pytest-spiral: internal error, ZeroDivisionError")
    assert "Traceback" in loud


def test_a_page_of_a_site_that_raises(
    project: Project, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The leaderboard and the other pages are written, a page of the same name is no stand-in, exit 3."""
    for folder in ("one", "two"):
        assert project.pytest(*RAW, "--report-dir", folder).ret == 0
    pages = iter((broken, report_page))
    monkeypatch.setattr(write, "report_page", lambda *args, **options: next(pages)(*args, **options))
    capsys.readouterr()

    assert main(["leaderboard", "one", "two", "-o", "site"]) == 3

    assert sorted(path.name for path in (project.path / "site").rglob("*.html")) == ["index.html", "r-2.html"]
    assert capsys.readouterr().err.startswith("FAILED runs/r.html: not_written: ZeroDivisionError")
