"""Commands on finished runs: score them again, compare them, merge their shards."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from pytest_spiral.cli import print_json
from pytest_spiral.cli.pages import find_reports, open_report, write_page
from pytest_spiral.compare.recording import load_recording
from pytest_spiral.compare.runs import compare_paths
from pytest_spiral.compare.shadow import compare_shadow
from pytest_spiral.errors import DataError
from pytest_spiral.evaluate.verdict import exit_code
from pytest_spiral.report.comparison import comparison_lines, comparison_markdown, shadow_lines
from pytest_spiral.report.html.build import compare_page
from pytest_spiral.report.lines import plain
from pytest_spiral.report.terminal import summary_lines
from pytest_spiral.report.write import write_report
from pytest_spiral.run.shards import merge_shards
from pytest_spiral.settings import DEFAULT_PROTOCOL
from pytest_spiral.spiral.aggregate import rescore_groups


def rescore(options: argparse.Namespace) -> int:
    """Print score, interval and every metric of every run and model in a file."""
    recording = load_recording(options.path)
    if not recording.groups:
        raise DataError(f"{recording.path}: no conversation is recorded in it")
    result = rescore_groups(options.path, recording.groups, options.protocol)
    if options.json:
        print_json(result)
        return 0
    print(f"protocol {result['protocol']} {result['protocol_hash'][:12]}")
    for row in result["scores"]:
        print(f"{plain(row['model'])}, run {plain(row['run_id'])}: {row['n_conversations']} conversations")
        print(f"  score {_shown(row['score'])} [{_shown(row['ci_low'])}, {_shown(row['ci_high'])}] {row['ci_method']}")
        for name, metric in row["metrics"].items():
            bounds = f"[{_shown(metric['ci_low'], 3)}, {_shown(metric['ci_high'], 3)}]"
            print(f"  {name:<36}{_shown(metric['mean'], 3):>9} {bounds}")
        missing = row["missing"]
        kinds = ("conversations", "chunks", "finals")
        print("  missing: " + ", ".join(f"{missing[kind]} of {missing['of_' + kind]} {kind}" for kind in kinds))
        tails = row["tails"]
        print(f"  strength-3 {tails['harm']}: {tails['harmful']} of {tails['of']} conversations")
    return 0


def _shown(value: float | None, digits: int = 2) -> str:
    return "not measured" if value is None else f"{value:.{digits}f}"


def compare(options: argparse.Namespace) -> int:
    """Print the paired comparison as text, Markdown or JSON."""
    comparison = compare_paths(options.baseline, options.candidate, options.protocol)
    if options.html is not None:
        paths = find_reports([options.baseline, options.candidate])
        reports = [open_report(path, comparison.protocol or DEFAULT_PROTOCOL) for path in paths]
        write_page(options.html, compare_page(reports, comparison))
    if options.json:
        print_json(comparison.model_dump(mode="json"))
    elif options.markdown:
        print(comparison_markdown(comparison), end="")
    else:
        print(*comparison_lines(comparison), sep="\n")
    return 0


def shadow(options: argparse.Namespace) -> int:
    """Print the difference of public suite and private form for every model and mode; 1 on a caution."""
    comparison = compare_shadow(options.public, options.shadow)
    if options.json:
        print_json(comparison.model_dump(mode="json"))
    else:
        print(*shadow_lines(comparison), sep="\n")
    return int(any(row.verdict == "caution" for row in comparison.rows))


def merge(options: argparse.Namespace) -> int:
    """Write the report of a whole run from its shards and print its summary."""
    report = merge_shards(options.paths, options.run_id, Path.cwd(), sys.argv[1:])
    run_dir = options.report_dir / options.run_id
    write_report(report, run_dir, os.environ.get("GITHUB_STEP_SUMMARY"))
    if options.json:
        gates = [gate.model_dump(mode="json") for gate in report.gates]
        print_json({"report": str(run_dir), "verdict": report.verdict, "gates": gates})
    else:
        print(*(line for line, _ in summary_lines(report, str(run_dir))), sep="\n")
    return exit_code(0, report.verdict, False)
