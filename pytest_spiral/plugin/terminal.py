"""Everything that the controller writes to the terminal."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from math import isinf
from pathlib import Path

import pytest

from pytest_spiral.errors import LostStoreError
from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.gates import OPERATORS
from pytest_spiral.grouping import grouped
from pytest_spiral.plugin._compat import uncaptured
from pytest_spiral.report.lines import WIDTH, Tone, plain
from pytest_spiral.report.model.run import Preflight
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.run.progress import Snapshot
from pytest_spiral.settings import DEFAULT_PROTOCOL, PREFIX_PROTOCOL
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.tempaffect.card_metrics import metric_scales

_MARKUP: Mapping[Tone, dict[str, bool]] = {
    "plain": {},
    "dim": {"light": True},
    "good": {"green": True},
    "bad": {"red": True},
    "doubt": {"yellow": True},
}


def header_lines(plan: RunPlan, distribution: str, learned: Iterable[Preflight] = ()) -> list[str]:
    """The run, its models and what is unusual about it. learned: about each model, before anything was measured."""
    models = ", ".join(plain(model.spec) for model in plan.models)
    lines = [f"spiral: {models}; suites {', '.join(plan.suite_names)}; run {plan.run_id}"]
    if distribution not in ("no", "load"):
        lines.append(
            f"spiral: with --dist {distribution} each worker starts two items at a time; leave it out to start all"
        )
    if plan.settings.replay:
        lines.append(f"spiral: recorded in {plain(plan.settings.replay)}")
    others = [f"simulated user {plain(plan.user.spec)}"] if plan.user else []
    others += [f"judge {plain(judge.spec)}" for judge in plan.judges]
    if "spiral" in plan.suites and others:
        lines.append(f"spiral: {', '.join(others)}")
    notes = [f"{each.role} {each.model}: {note}" for each in learned for note in (*each.changes, *each.notes)]
    return [*lines, *(f"spiral: {plain(note)}" for note in (*plan.left_out(), *notes))]


def write_error(config: pytest.Config, text: str) -> None:
    """Write one red line, if there is a terminal reporter."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.write_line(f"ERROR: {plain(text)}", red=True)


def write_section(reporter: pytest.TerminalReporter, lines: Iterable[tuple[str, Tone]], title: str = "spiral") -> None:
    """Write a block at the end of a run."""
    reporter.section(title)
    for line, tone in lines:
        reporter.write_line(line, **_MARKUP[tone])


class Progress:
    """Says how far a run is: at a terminal in one line that is refreshed, in a log in a new line.

    Every time, a JSON object is appended to a file as well, for programs; other plugins see nothing of either.
    """

    # For a person at a terminal, and for the log of a CI job.
    terminal_seconds = 2.0
    log_seconds = 30.0

    def __init__(self, config: pytest.Config, look: Callable[[], Snapshot], file: Callable[[], Path]) -> None:
        """look: how far the run is. file: for the JSON objects."""
        self._config = config
        self._look = look
        self._file = file
        self._last = time.monotonic()
        # Whether the cursor is at the end of our line, which whoever writes next must find empty.
        self._open = False

    @property
    def _reporter(self) -> pytest.TerminalReporter | None:
        reporter: pytest.TerminalReporter | None = self._config.pluginmanager.get_plugin("terminalreporter")
        return reporter

    @property
    def seconds(self) -> float:
        """Seconds between two lines."""
        reporter = self._reporter
        return self.terminal_seconds if reporter is not None and reporter.isatty() else self.log_seconds

    def tick(self) -> None:
        """Write a line if it is time for one."""
        if time.monotonic() - self._last >= self.seconds:
            self.write()

    def record(self) -> Snapshot:
        """Append how far the run is to the file."""
        now = self._look()
        # A disk that is full, or a store that is gone, ends the run elsewhere with a sentence about it.
        with suppress(OSError, LostStoreError), self._file().open("ab") as file:
            file.write(now.json() + b"\n")
        return now

    def write(self) -> None:
        """Write a line now."""
        self._last = time.monotonic()
        now = self.record()
        reporter = self._reporter
        if reporter is None:
            return
        line = plain(f"spiral: {now.line()}")
        with uncaptured(self._config):
            if not reporter.isatty():
                reporter.ensure_newline()
                reporter.write_line(line)
                return
            if not self._open:
                reporter.ensure_newline()
            # One column less: some terminals wrap when the last one is written.
            reporter.rewrite(line[: WIDTH - 1], erase=True)
            reporter.flush()
            self._open = True

    def clear(self) -> None:
        """Make the line empty, before others write."""
        reporter = self._reporter
        if self._open and reporter is not None:
            self._open = False
            with uncaptured(self._config):
                reporter.rewrite("", erase=True)
                reporter.rewrite("")


def gate_help() -> str:
    """Grammar and metrics of `--gate`, in 80 columns."""
    forms = " or ".join(f"'PATH {operator} BOUND'" for operator in OPERATORS)
    syntax = (
        f"{forms}; BOUND is a number or, with --baseline, 'baseline', 'baseline - 5', 'baseline + 0.02'. "
        "tempaffect[raw] and tempaffect[schema] name one prompting mode; without it the gate must hold in every mode."
    )
    lines = ["metrics of --gate:", *textwrap.wrap(syntax, WIDTH, initial_indent="  ", subsequent_indent="  ")]
    default, prefix = map(load_protocol, (DEFAULT_PROTOCOL, PREFIX_PROTOCOL))
    scales = {"tempaffect": metric_scales(), "spiral": spiral_metric_scales(default) | spiral_metric_scales(prefix)}
    groups = grouped(((suite, own[name]), f"{suite}.{name}") for suite, own in scales.items() for name in own)
    texts = []
    for (_, (low, high)), names in groups.items():
        span = f"at least {low:g}" if isinf(high) else f"at most {high:g}" if isinf(low) else f"{low:g} to {high:g}"
        texts.append(f"{span}: {', '.join(names)}")
    texts.append(
        "with --labels of people, 0 to 1: tempaffect.corrected.NAME for content_grounding, concrete_action, "
        "non_defensive, right_decision and useful_bounded; spiral.corrected.NAME for every behaviour"
    )
    for text in texts:
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    return "\n".join(lines)
