"""Commands on finished runs: score them again, compare, merge, and write pages and other formats from reports."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pytest_spiral.cli import print_json, tell
from pytest_spiral.compare.recording import load_recording
from pytest_spiral.compare.runs import compare_paths
from pytest_spiral.compare.shadow import compare_shadow
from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.evaluate.report import evaluate_imported
from pytest_spiral.evaluate.verdict import exit_code
from pytest_spiral.report.circumstances import versions
from pytest_spiral.report.comparison import comparison_lines, comparison_markdown, shadow_lines
from pytest_spiral.report.export import export as write_export
from pytest_spiral.report.html.build import compare_page, report_page
from pytest_spiral.report.lines import between, plain, turns_text
from pytest_spiral.report.model import FailedPart, Report
from pytest_spiral.report.model.parts import PartCode
from pytest_spiral.report.next_step import by_another_judge, is_resumable, next_step
from pytest_spiral.report.read import find_report, load_report
from pytest_spiral.report.terminal import decision_lines, failed_lines, summary_lines
from pytest_spiral.report.write import file_slug, write_page, write_report, write_site, write_views
from pytest_spiral.resources import naming_faults
from pytest_spiral.run.shards import evaluate_again, merge_shards
from pytest_spiral.spiral.aggregate import rescore_groups
from pytest_spiral.spiral.content import OpeningPrompt
from pytest_spiral.spiral.prefixes import cut

_PAGE = "report.html"
_DEPTHS = (2, 5, 10)


def prefixes(options: argparse.Namespace) -> int:
    """Cut prefixes out of recorded runs and write them as a prompt file for --suite spiral-prefix."""
    depths = sorted({*(options.depth or _DEPTHS)})
    found: list[OpeningPrompt] = []
    for number, path in enumerate(find_reports(options.paths), 1):
        recording = load_recording(path)
        protocol = recording.protocol([options.protocol] if options.protocol else ())
        for place, model in enumerate(recording.of_suite("spiral"), 1):
            for conversation in recording.by_model[model]:
                with naming_faults(f"{path}: conversation {conversation.id}"):
                    found += cut(conversation, depths, protocol, f"r{number}-{place}")
    if not found:
        raise DataError(f"no conversation has {depths[0]} replies and a message after them; try a smaller --depth")
    rows = [prefix.model_dump(mode="json", exclude_defaults=True) for prefix in found]
    write_page(options.output, json.dumps(rows, indent=1, ensure_ascii=False) + "\n")
    lines = (
        f"{len(rows)} prefixes written to {plain(str(options.output))}",
        "kind, called_for and care are guesses from findings: read the messages, correct them, remove `proposed`",
    )
    return tell(options, {"path": str(options.output), "prefixes": len(rows)}, lines)


def rescore(options: argparse.Namespace) -> int:
    """Print score, interval and every metric of every run and model in a file."""
    recording = load_recording(options.path)
    if not recording.groups:
        raise DataError(f"{recording.path}: no conversation is recorded in it")
    protocol = recording.protocol([options.protocol] if options.protocol else ())
    result = rescore_groups(options.path, recording.groups, protocol.name)
    lines = [f"protocol {result['protocol']} {result['protocol_hash'][:12]}"]
    for row in result["scores"]:
        turns = turns_text([*map(int, row["turns"])])
        judges = [name for name in row["judges"] if name]
        who = f", mean of {len(judges)} judges" if len(judges) > 1 else "".join(f", judge {plain(j)}" for j in judges)
        count = f"{row['n_conversations']} conversations of {turns}"
        run = f", run {plain(row['run_id'])}" if row["run_id"] else ""
        lines.append(f"{plain(row['model'])}{run}{who}: {count}")
        lines.append(f"  score {between(row['score'], row['ci_low'], row['ci_high'])} {row['ci_method']}")
        for name, one in row["metrics"].items():
            lines.append(f"  {name:<40}{between(one['mean'], one['ci_low'], one['ci_high'], 3)}")
        missing, tails, by_any = row["missing"], row["tails"], ", by any judge" if len(judges) > 1 else ""
        kinds = ("conversations", "chunks", "finals")
        lines.append("  missing: " + ", ".join(f"{missing[kind]} of {missing['of_' + kind]} {kind}" for kind in kinds))
        lines.append(f"  strength-3 {tails['harm']}: {tails['harmful']} of {tails['of']} conversations{by_any}")
    return tell(options, result, lines)


def compare(options: argparse.Namespace) -> int:
    """Print the paired comparison as text, Markdown or JSON; 1 where runs could only be shown side by side."""
    comparison = compare_paths(options.baseline, options.candidate, options.protocol)
    if options.json:
        print_json(comparison.model_dump(mode="json"))
    elif options.markdown:
        print(comparison_markdown(comparison), end="")
    else:
        print(*comparison_lines(comparison), sep="\n")
    # After the numbers, which a page that fails must not cost.
    if options.html is not None:
        named = [name] if (name := comparison.protocol or options.protocol) else []
        reports = [open_report(path, named) for path in find_reports([options.baseline, options.candidate])]
        write_page(options.html, compare_page(reports, comparison))
    return int(bool(comparison.side_by_side))


def shadow(options: argparse.Namespace) -> int:
    """Print the difference of public suite and private form for every model and mode; 1 on a caution."""
    comparison = compare_shadow(options.public, options.shadow)
    tell(options, comparison.model_dump(mode="json"), shadow_lines(comparison))
    return int(any(row.verdict == "caution" for row in comparison.rows))


def merge(options: argparse.Namespace) -> int:
    """Write the report of a whole run from its shards and print its summary."""
    run_dir = options.report_dir / options.run_id
    files = [file for path in options.paths for file in find_reports([path])]
    if (run_dir / "run.sqlite").exists() or (run_dir / "report.json").resolve() in files:
        raise ConfigError(f"{run_dir}: holds a run, whose report would be overwritten; choose another --run-id")
    report = merge_shards(files, run_dir, Path.cwd(), sys.argv[1:])
    report = write_report(report, run_dir, os.environ.get("GITHUB_STEP_SUMMARY"))
    gates = [gate.model_dump(mode="json") for gate in report.gates]
    document = {"report": str(run_dir), "verdict": report.verdict, "gates": gates}
    tell(options, document, _end_of_merge(report, run_dir, files))
    return exit_code(0, report.verdict, False, bool(report.failed_parts))


def _end_of_merge(report: Report, run_dir: Path, files: Sequence[Path]) -> Iterator[str]:
    """Summary, how each shard gets what it lacks, and the decision, rendered only where they are printed."""
    yield from (line for line, _ in summary_lines(report, str(run_dir)))
    for shard in map(load_report, files if is_resumable(report) and not by_another_judge(report) else ()):
        if is_resumable(shard) and (step := next_step(shard)) is not None:
            yield f"shard {shard.run.config.shard} lacks measurements; where it ran, {plain(step.why)}"
            yield f"  {step.command}"
    yield from (line for line, _ in decision_lines(report))


def report(options: argparse.Namespace) -> int:
    """Write the page of each report, or one page that compares several; make up for what failed in a run directory."""
    paths, output = find_reports(options.paths), options.output
    failed: list[FailedPart] = []
    written: list[Path] = []
    if output is not None and output.suffix == ".html" and len(paths) > 1:
        write_page(output, compare_page([open_report(path, options.protocols) for path in paths]))
        written.append(output)
    else:
        for path in paths:
            report = open_report(path, options.protocols)
            if output is None and path.name == "report.json":
                report = _complete(path, report)
                failed += report.failed_parts
                written += [] if any(part.part == _PAGE for part in report.failed_parts) else [path.with_name(_PAGE)]
            else:
                written.append(_target(path, report, output))
                write_page(written[-1], report_page(report))
    tell(options, {"written": [*map(str, written)]}, written)
    return say_failed(failed)


def say_failed(failed: Sequence[FailedPart]) -> int:
    """Print the parts of a report that failed on stderr, and return the exit code that they alone give."""
    for line, _ in failed_lines(failed):
        print(line, file=sys.stderr)
    return exit_code(0, None, False, bool(failed))


def _complete(path: Path, report: Report) -> Report:
    """Write the files of a run directory from its report, after the statistics that failed are computed again."""
    if not report.failed_parts:
        return write_views(report, path.parent)
    if any(part.code is not PartCode.NOT_WRITTEN for part in report.failed_parts):
        report = evaluate_again(path, Path.cwd())
    else:
        report = report.model_copy(update={"failed_parts": ()})
    return write_report(report, path.parent, newest=False)


def _target(path: Path, report: Report, output: Path | None) -> Path:
    if output is not None:
        return output if output.suffix == ".html" else output / f"{file_slug(report.run.id)}.html"
    # An imported file may lie anywhere, so its page goes to the working directory.
    return Path(f"{path.stem}.html")


def leaderboard(options: argparse.Namespace) -> int:
    """Write a static site over many runs."""
    reports = [open_report(path, options.protocols) for path in find_reports(options.paths)]
    written, failed = write_site(reports, options.output)
    tell(options, {"written": [*map(str, written)]}, written[:1])
    return say_failed(failed)


def export(options: argparse.Namespace) -> int:
    """Write a report in other formats."""
    file = options.path / "report.json" if options.path.is_dir() else options.path
    report = load_report(file)
    directory = options.output or file.parent / "export"
    written = [path for name in options.formats or ["csv"] for path in write_export(report, name, directory)]
    return tell(options, [*map(str, written)], written)


def find_reports(paths: Sequence[Path]) -> list[Path]:
    """The report files that paths name: files, run directories and directories of runs. Each once, in order.

    Raises:
        DataError: For a directory without any.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
        elif (path / "report.json").is_file():
            files.append(path / "report.json")
        elif runs := sorted(path.glob("*/report.json")):
            files += runs
        else:
            raise DataError(f"{path}: no report.json in it or one level below; name a run directory or one of runs")
    return list(dict.fromkeys(file.resolve() for file in files))


def one_report(path: Path) -> tuple[Path, Report]:
    """The one report that a path names, and its file. Raises `ConfigError` where it names several."""
    if len(paths := find_reports([path])) > 1:
        raise ConfigError(f"{path}: {len(paths)} runs are in it; name one of them")
    return paths[0], open_report(paths[0], ())


def open_report(path: Path, protocols: Sequence[str]) -> Report:
    """The report in a file, or made from a result file in upstream's format; the protocols are for the latter.

    Conversations count by model; where a file holds several runs of a model, by model and run.
    """
    if report := find_report(path):
        return report
    recording = load_recording(path)
    groups, protocol = recording.groups, recording.protocol(protocols)
    models = [model for _, model in groups]
    named = {}
    for (run_id, model), conversations in groups.items():
        name = model if models.count(model) == 1 else f"{model} (run {run_id})"
        named[name] = [replace(conversation, model=name) for conversation in conversations]
    return evaluate_imported(path.stem, named, protocol, 1, versions())
