"""Commands that use labels of people: correct the numbers of a run, and say how many labels that takes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from math import ceil
from pathlib import Path

from pytest_spiral.cli import tell
from pytest_spiral.cli.runs import one_report, say_failed
from pytest_spiral.errors import ConfigError
from pytest_spiral.evaluate.corrected import PlannedLabels, check_gate, corrected_scales, planned_labels, with_labels
from pytest_spiral.evaluate.inputs import GivenLabels
from pytest_spiral.evaluate.verdict import exit_code
from pytest_spiral.gates import Gate, check_metric, parse_gate
from pytest_spiral.gates.grammar import Scale
from pytest_spiral.report.decision import decision_of
from pytest_spiral.report.lines import plain
from pytest_spiral.report.raters import corrected_lines
from pytest_spiral.report.terminal import gate_lines
from pytest_spiral.report.write import write_report
from pytest_spiral.run.baseline import given_labels
from pytest_spiral.tempaffect.records import MODES


def correct(options: argparse.Namespace) -> int:
    """Correct the numbers of a run by labels, and decide gates on them; exits with the code of the run's verdict."""
    path, report = one_report(options.path)
    labels = given_labels([str(name) for name in options.labels], Path())
    gates = [parse_gate(text) for text in options.gate]
    for gate in gates:
        check_gate(gate, labels)
        check_metric(gate, ("tempaffect", "spiral"), [*MODES.values()], _scales(gate, labels))
    # As the run was told to decide: of its gates one may be on a count, which has no bounds.
    report = with_labels(report, labels, gates, report.run.config.gate_policy)
    if path.name == "report.json":
        report = write_report(report, path.parent, newest=False)
    assert report.corrected is not None
    rows = [row.model_dump(mode="json") for row in report.gates]
    lines = [*corrected_lines(report.corrected)]
    lines += [line for gate in decision_of(report).gates for line in gate_lines(gate)]
    tell(
        options,
        {**report.corrected.model_dump(mode="json"), "gates": rows, "verdict": report.verdict},
        [*(line for line, _ in lines), f"verdict: {report.verdict.upper()}"],
    )
    say_failed(report.failed_parts)
    return exit_code(0, report.verdict, False, bool(report.failed_parts))


def _scales(gate: Gate, labels: Sequence[GivenLabels]) -> dict[str, Scale]:
    return corrected_scales({name for one in labels if one.suite == gate.suite for name in one.file.header.questions})


def plan(options: argparse.Namespace) -> int:
    """Print how many labels a half-width takes, or a gate, from the labels of a pilot."""
    _, report = one_report(options.path)
    labels = given_labels([str(name) for name in options.labels], Path())
    if (options.half_width is None) == (options.gate is None):
        raise ConfigError("name what the labels are for, either --half-width 0.05 or --gate EXPR")
    gate = parse_gate(options.gate) if options.gate else None
    if gate:
        suites = [one.suite for one in labels]
        check_metric(gate, suites, [*MODES.values()], _scales(gate, labels), baseline=False)
    rows = planned_labels(report, labels, options.half_width, gate)
    what = f"to decide {gate.expr} in 4 of 5 runs like this one" if gate else f"for +- {options.half_width:g}"
    head = [plain(what), f"{'':<40}{'pilot':>8}{'labels':>8}{'needed':>8}{'--items':>9}"]
    return tell(options, [asdict(row) for row in rows], head + [line for row in rows for line in label_plan_lines(row)])


def label_plan_lines(row: PlannedLabels) -> list[str]:
    """One number of a plan, with what to do where labels alone do not suffice."""
    name = f"{row.metric}, {plain(row.who)}"
    if row.plan is None:
        return [name, f"  no plan without labels of both kinds in two scenarios or conversations: {row.lacking}"]
    found = row.plan
    head = f"{name:<40}{found.value:>8.2f}{found.labels:>8}"
    if found.needed is not None:
        return [f"{head}{found.needed:>8}{row.of_run or found.needed:>9}"]
    times = ceil(10 * (found.more_units or 0)) / 10  # not 1.0, which would be this run
    more = f"a run about {times:.1f} times as large" if times else "another threshold"
    return [
        f"{head}{'none':>8}",
        f"  not by labels: all {found.items} labelled reach +- {found.reach:.3f}; it takes {more}",
    ]
