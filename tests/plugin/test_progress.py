"""Progress: one line that is refreshed, lines in a log, JSON for programs, and nothing for other plugins."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from _pytest.terminal import TerminalReporter

from pytest_spiral.plugin.terminal import Progress
from pytest_spiral.run.progress import RoleProgress, Snapshot
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import Project, Serve

BUSY = Snapshot(
    at=1.0,
    finished=12,
    units=42,
    replies=250,
    rate=3.14159,
    seconds_left=480.0,
    cost_usd=0.42,
    expected_usd=2.1,
    roles={"evaluated": RoleProgress(200, 600), "judge": RoleProgress(40, 618, 3, 0, 8)},
    paused=("m paused for 4 s: its endpoint fails",),
)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_line_says_what_matters_first() -> None:
    """Units, calls, rate, time, cost; then what is wrong, by role."""
    assert BUSY.line() == (
        "12 of 42 units, 240 of 1218 calls, 3.14/s, 8 min left, 0.42 of 2.10 USD, judge 3 retries throttled to 8; "
        "m paused for 4 s: its endpoint fails"
    )
    assert Snapshot(at=0.0, finished=0, units=None, replies=3).line() == "0 units, 3 replies"
    # Before the first call of every role has ended, nobody knows what the rest will cost.
    assert Snapshot(at=0.0, finished=0, units=None, replies=3, cost_usd=0.28).line() == "0 units, 3 replies, 0.28 USD"


def shown(pytester: pytest.Pytester, file: io.StringIO, path: Path) -> tuple[Progress, TerminalReporter]:
    config = pytester.parseconfig()
    reporter = TerminalReporter(config, file)
    config.pluginmanager.register(reporter, "terminalreporter")
    return Progress(config, lambda: BUSY, lambda: path), reporter


def test_a_terminal_has_one_line(pytester: pytest.Pytester) -> None:
    """It is overwritten and never wider than 80 columns; whoever writes next finds it empty."""
    screen = Terminal()
    progress, reporter = shown(pytester, screen, pytester.path / "p.jsonl")

    progress.write()
    progress.write()
    text = screen.getvalue()
    progress.clear()
    progress.clear()
    reporter.write_line("after")

    assert "\n" not in text
    assert all(len(part.rstrip()) <= 80 for part in text.split("\r"))
    assert text.count("spiral: 12 of 42 units") == 2
    *_, last = screen.getvalue().removesuffix("\n").split("\r")
    assert last.strip() == "after"


def test_a_log_has_a_line_each_time(pytester: pytest.Pytester) -> None:
    """Whole, for nobody refreshes it; 30 seconds apart, where a terminal has one every two."""
    log = io.StringIO()
    progress, _ = shown(pytester, log, pytester.path / "p.jsonl")

    progress.write()
    progress.write()

    assert log.getvalue().splitlines() == [f"spiral: {BUSY.line()}"] * 2
    assert progress.seconds == 30.0
    terminal, _ = shown(pytester, Terminal(), pytester.path / "p.jsonl")
    assert terminal.seconds == 2.0
    records = [json.loads(line) for line in (pytester.path / "p.jsonl").read_text().splitlines()]
    assert [record["roles"]["judge"]["most_in_flight"] for record in records] == [8, 8]


def test_other_plugins_see_nothing_of_it(
    project: Project, serve: Serve, monkeypatch: pytest.MonkeyPatch, one_or_two: tuple[str, ...]
) -> None:
    """pytest-reportlog and pytest-json-report have the items and nothing else; the event file has how far they were."""
    pytest.importorskip("pytest_reportlog")
    pytest.importorskip("pytest_jsonreport")
    project.reach(serve(ScriptedModel(), latency=0.2))
    monkeypatch.setattr(Progress, "log_seconds", 0.1)
    result = project.pytest(
        *("--model=m", "--suite=tempaffect", "--prompting=raw", "-k", "pi-0", "--run-id=r", "--concurrency=2"),
        *("--report-log=log.jsonl", "--json-report", "--json-report-file=report.json", *one_or_two),
    )

    result.assert_outcomes(passed=9)
    log = [json.loads(line) for line in (project.path / "log.jsonl").read_text().splitlines()]
    assert {row["when"] for row in log if row["$report_type"] == "TestReport"} == {"setup", "call", "teardown"}
    tests = json.loads((project.path / "report.json").read_text())["tests"]
    assert len(tests) == len({test["nodeid"] for test in tests}) == 9
    events = [json.loads(line) for line in (project.folder("r") / "progress.jsonl").read_text().splitlines()]
    assert len(events) > 1
    assert {event["event"] for event in events} == {"progress"}
    calls = [event["roles"]["evaluated"]["done"] for event in events]
    assert calls == sorted(calls)
    assert calls[-1] == events[-1]["roles"]["evaluated"]["planned"] == 9
