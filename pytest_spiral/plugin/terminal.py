"""Everything that the controller writes to the terminal."""

from __future__ import annotations

import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from math import isinf

import pytest

from pytest_spiral.evaluate.spiral import spiral_metric_scales
from pytest_spiral.gates import OPERATORS, Scale
from pytest_spiral.plugin._compat import uncaptured
from pytest_spiral.report.lines import WIDTH, Tone, plain
from pytest_spiral.report.model.run import Preflight
from pytest_spiral.run.plan import RunPlan
from pytest_spiral.settings import DEFAULT_PROTOCOL
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
    lines = [f"spiral: {models}; suites {', '.join(plan.suites)}; run {plan.run_id}"]
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


def write_section(reporter: pytest.TerminalReporter, lines: Iterable[tuple[str, Tone]]) -> None:
    """Write the block at the end of a run."""
    reporter.section("spiral")
    for line, tone in lines:
        reporter.write_line(line, **_MARKUP[tone])


class Progress:
    """One line every few seconds that says how far a run is. describe: returns it without its prefix."""

    # For a person at a terminal, and for the log of a CI job.
    terminal_seconds = 5.0
    log_seconds = 30.0

    def __init__(self, config: pytest.Config, describe: Callable[[], str]) -> None:
        self._config = config
        self._describe = describe
        self._last = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds between two lines."""
        return self.terminal_seconds if sys.stdout.isatty() else self.log_seconds

    def tick(self) -> None:
        """Write a line if it is time for one."""
        if time.monotonic() - self._last >= self.seconds:
            self.write()

    def write(self) -> None:
        """Write a line now."""
        self._last = time.monotonic()
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            with uncaptured(self._config):
                reporter.ensure_newline()
                reporter.write_line(f"spiral: {self._describe()}")


def time_left(rest: float | None) -> str:
    """A clause about the seconds that the rest of a run takes, or nothing where that is not known."""
    if rest is None:
        return ""
    return f"about {rest / 60:.0f} min left, " if rest >= 300 else f"about {rest:.0f} s left, "


def gate_help() -> str:
    """Grammar and metrics of `--gate`, in 80 columns."""
    forms = " or ".join(f"'PATH {operator} BOUND'" for operator in OPERATORS)
    syntax = (
        f"{forms}; BOUND is a number or, with --baseline, 'baseline', 'baseline - 5', 'baseline + 0.02'. "
        "tempaffect[raw] and tempaffect[schema] name one prompting mode; without it the gate must hold in every mode."
    )
    lines = ["metrics of --gate:", *textwrap.wrap(syntax, WIDTH, initial_indent="  ", subsequent_indent="  ")]
    scales = {"tempaffect": metric_scales(), "spiral": spiral_metric_scales(load_protocol(DEFAULT_PROTOCOL))}
    for suite, metrics in scales.items():
        groups: dict[Scale, list[str]] = {}
        for name, scale in metrics.items():
            groups.setdefault(scale, []).append(f"{suite}.{name}")
        for (low, high), names in groups.items():
            span = f"at least {low:g}" if isinf(high) else f"at most {high:g}" if isinf(low) else f"{low:g} to {high:g}"
            text = f"{span}: {', '.join(names)}"
            lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False)
    return "\n".join(lines)
