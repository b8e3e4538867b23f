"""The console script `pytest-spiral`: everything that needs no test run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pytest_spiral.errors import DataError, StoreError, UserError, first_fault

__all__ = ["main"]

USAGE_ERROR = 4
FOUND_FAULTS = 1
# Named here, so that `--help` imports nothing.
FORMATS = ("csv", "parquet", "junit", "model-card", "inspect")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. Exit code 0 done, 1 faults found, 4 wrong input (said on stderr); `merge` as a run."""
    parser = _parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        return USAGE_ERROR if stop.code else 0
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except BrokenPipeError:
        # The reader has seen enough; the interpreter's last flush must not complain about it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UserError as error:
        print(f"pytest-spiral: {error}", file=sys.stderr)
        return USAGE_ERROR


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="pytest-spiral", description=main.__doc__, allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    fetch = commands.add_parser("fetch-model", help="download a small local model, checked against its SHA-256")
    fetch.add_argument("name", help="local/NAME, such as local/smollm2-135m")
    _finish(fetch, _fetch_model)

    scenarios = commands.add_parser("scenarios", help="look after scenario files")
    actions = scenarios.add_subparsers(required=True, metavar="ACTION")
    lint = actions.add_parser("lint", help="check scenario files against the authoring rules")
    lint.add_argument("paths", nargs="*", type=Path, help="scenario files (default: the bundled suite)")
    _finish(lint, _lint)
    hashes = actions.add_parser("hash", help="print the suite hash and its components")
    hashes.add_argument("paths", nargs="*", type=Path, help="scenario files (default: the bundled suite)")
    hashes.add_argument("--write", action="store_true", help="pin the bundled suite's hashes in its lock file")
    _finish(hashes, _hash)
    show = actions.add_parser("show", help="print one scenario as the model sees it, and its key")
    show.add_argument("id")
    show.add_argument("paths", nargs="*", type=Path, help="scenario files (default: the bundled suite)")
    _finish(show, _show)

    again = commands.add_parser("rescore", help="score a finished Spiral-Bench result file again, without any model")
    again.add_argument("path", type=Path, help="a run folder, its report.json, or a result file in upstream's format")
    again.add_argument("--protocol", default="per-10k-chars", metavar="NAME", help="default: per-10k-chars")
    _finish(again, _rescore)

    merge = commands.add_parser("merge", help="make one run of its shards; exits like the run: 0, 1, 10 or 11")
    merge.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="run folders of all shards")
    merge.add_argument("--run-id", default="merged", metavar="ID", help="name of the whole run (default: merged)")
    merge.add_argument("--report-dir", type=Path, default=Path("reports"), metavar="DIR", help="default: reports")
    _finish(merge, _merge)

    out = commands.add_parser(
        "export", help="write a report as CSV or Parquet tables, JUnit XML, model card, Inspect log"
    )
    out.add_argument("path", type=Path, help="a run folder or its report.json")
    out.add_argument("--format", dest="formats", action="append", choices=FORMATS, help="repeatable (default: csv)")
    out.add_argument("-o", "--output", type=Path, metavar="DIR", help="default: export/ in the run folder")
    _finish(out, _export)

    pages = commands.add_parser(
        "report", help="write report.html again, or one from a result file in upstream's format"
    )
    pages.add_argument("paths", nargs="+", type=Path, metavar="PATH", help="run folders, report.json or result files")
    pages.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="PATH",
        help="folder; or a file ending in .html, for several reports one page to compare them in",
    )
    pages.add_argument(
        "--protocol", default="per-10k-chars", metavar="NAME", help="of imported files; default: per-10k-chars"
    )
    _finish(pages, _report)

    site = commands.add_parser("leaderboard", help="write a static site over many runs")
    site.add_argument(
        "paths", nargs="+", type=Path, metavar="PATH", help="run folders, folders of runs, report.json or result files"
    )
    site.add_argument("-o", "--output", type=Path, metavar="DIR", required=True, help="folder of the site")
    site.add_argument(
        "--protocol", default="per-10k-chars", metavar="NAME", help="of imported files; default: per-10k-chars"
    )
    _finish(site, _leaderboard)

    compare = commands.add_parser("compare", help="compare two finished runs, paired, with what they could tell apart")
    for side in ("a", "b"):
        compare.add_argument(
            side, type=Path, help="a run folder, its report.json, or a result file in upstream's format"
        )
    compare.add_argument("--protocol", metavar="NAME", help="score both again under it (default: the reports' own)")
    compare.add_argument("--markdown", action="store_true", help="print Markdown")
    compare.add_argument("--html", type=Path, metavar="FILE", help="also write a page: both runs side by side")
    _finish(compare, _compare)

    shadow = commands.add_parser(
        "shadow", help="hold a private form of TempAffect's scenarios against the public suite; exits 1 on a caution"
    )
    shadow.add_argument("public", type=Path, help="a run of the public suite: its folder or report.json")
    shadow.add_argument("shadow", type=Path, help="a run of the same models with --tempaffect-scenarios")
    _finish(shadow, _shadow)

    judge = commands.add_parser("calibrate", help="measure judges against labelled assistant turns")
    judge.add_argument("--judge-model", action="append", metavar="SPEC", help="a judge; repeat for an ensemble")
    judge.add_argument("--labels", type=Path, help="JSONL of labelled turns, or a result file in upstream's format")
    judge.add_argument(
        "--protocol", default="per-10k-chars", metavar="NAME", help="whose rubric; default: per-10k-chars"
    )
    judge.add_argument("--report-dir", default="reports", metavar="DIR", help="where calibrations are kept")
    judge.add_argument("--sheet", metavar="RATER", help="print the turns without labels, for another rater to label")
    _finish(judge, _calibrate)

    replies = commands.add_parser("score-replies", help="check replies of a JSONL file of {scenario, reply} objects")
    replies.add_argument("file", type=Path)
    _finish(replies, _score_replies)
    return parser


def _finish(parser: argparse.ArgumentParser, command: Callable[[argparse.Namespace], int]) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=command)


def _print_json(value: Any) -> None:
    print(json.dumps(value, indent=1, ensure_ascii=True))


def _fetch_model(options: argparse.Namespace) -> int:
    from pytest_spiral.models.local_file import fetch

    path = fetch(options.name)
    _print_json({"path": str(path)}) if options.json else print(path)
    return 0


def _lint(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from pytest_spiral.tempaffect.lint import lint_bundled, lint_scenario
    from pytest_spiral.tempaffect.suite import load_suite

    suite = load_suite(options.paths or None)
    if options.paths:
        faults = [fault for scenario in suite.scenarios for fault in lint_scenario(scenario)]
    else:
        faults = lint_bundled(suite.scenarios)
    if options.json:
        _print_json({"scenarios": len(suite.scenarios), "faults": [asdict(fault) for fault in faults]})
    else:
        for fault in faults:
            print(f"{fault.scenario}: {fault.rule}: {fault.message}")
        print(f"{len(suite.scenarios)} scenarios, {len(faults)} faults")
    return FOUND_FAULTS if faults else 0


def _hash(options: argparse.Namespace) -> int:
    from pytest_spiral.report.write import write_atomically
    from pytest_spiral.tempaffect.self_check import preflight
    from pytest_spiral.tempaffect.suite import load_suite, lock, lock_file

    suite = load_suite(options.paths or None)
    found: dict[str, Any] = {"suite_hash": suite.suite_hash, "components": dict(suite.components)}
    if not options.paths:
        found["scorer_fingerprint"] = preflight(suite).fingerprint
    if options.write:
        if options.paths:
            raise DataError("--write pins the bundled suite; leave the paths out")
        write_atomically(lock_file(), json.dumps(found, indent=2, sort_keys=True) + "\n")
    if options.json:
        _print_json(found)
    else:
        print(f"suite_hash {found['suite_hash']}")
        for name, value in found["components"].items():
            print(f"  {name} {value}")
        if "scorer_fingerprint" in found:
            print(f"scorer_fingerprint {found['scorer_fingerprint']}")
    if not options.paths and dict(lock()) != found:
        print("differs from the pinned hashes", file=sys.stderr)
        return FOUND_FAULTS
    return 0


def _show(options: argparse.Namespace) -> int:
    from pytest_spiral.tempaffect.prompting import build_messages
    from pytest_spiral.tempaffect.suite import load_suite

    suite = load_suite(options.paths or None)
    if options.id not in suite.by_id:
        raise DataError(f"no scenario {options.id!r}; there are {', '.join(suite.by_id)}")
    scenario = suite[options.id]
    if options.json:
        _print_json(scenario.model_dump(mode="json", by_alias=True))
        return 0
    for message in build_messages(scenario):
        print(f"--- {message.role}\n{message.content}\n")
    print("--- key")
    _print_json(scenario.expected.model_dump(mode="json"))
    print(f"--- reference\n{scenario.reference_reply}\n--- rationale\n{scenario.rationale}")
    return 0


def _rescore(options: argparse.Namespace) -> int:
    from pytest_spiral.report.lines import plain
    from pytest_spiral.run.replay import load_recording
    from pytest_spiral.spiral.rescore import rescore_groups

    recording = load_recording(options.path)
    if not recording.groups:
        raise DataError(f"{recording.path}: no conversation is recorded in it")
    found = rescore_groups(options.path, recording.groups, options.protocol)
    if options.json:
        _print_json(found)
        return 0
    print(f"protocol {found['protocol']} {found['protocol_hash'][:12]}")
    for row in found["scores"]:
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


def _report(options: argparse.Namespace) -> int:
    from pytest_spiral.compare.reports import find_reports, open_report
    from pytest_spiral.report.html.build import compare_page, report_page
    from pytest_spiral.report.write import file_slug

    paths, output = find_reports(options.paths), options.output
    if output is not None and output.suffix == ".html" and len(paths) > 1:
        _write_page(output, compare_page([open_report(path, options.protocol) for path in paths]))
        written = [output]
    else:
        written = []
        for path in paths:
            report = open_report(path, options.protocol)
            target = output
            if output is None:
                # Beside a report of ours; an imported file may lie anywhere, so its page goes where the user is.
                target = path.with_name("report.html") if path.name == "report.json" else Path(f"{path.stem}.html")
            elif output.suffix != ".html":
                target = output / f"{file_slug(report.run.id)}.html"
            _write_page(target, report_page(report))
            written.append(target)
    _print_json({"written": [str(path) for path in written]}) if options.json else print(*written, sep="\n")
    return 0


def _write_page(target: Path, page: str) -> None:
    from pytest_spiral.report.write import write_atomically

    try:
        write_atomically(target, page)
    except OSError as error:
        raise StoreError(f"{target}: cannot be written ({error.strerror or error}); give another place") from None


def _leaderboard(options: argparse.Namespace) -> int:
    from pytest_spiral.compare.reports import find_reports, open_report
    from pytest_spiral.report.site import write_site

    written = write_site([open_report(path, options.protocol) for path in find_reports(options.paths)], options.output)
    _print_json({"written": [str(path) for path in written]}) if options.json else print(written[0])
    return 0


def _compare(options: argparse.Namespace) -> int:
    from pytest_spiral.compare.runs import compare_paths
    from pytest_spiral.report.comparison import comparison_lines, comparison_markdown

    found = compare_paths(options.a, options.b, options.protocol)
    if options.html is not None:
        _write_comparison(options, found)
    if options.json:
        _print_json(found)
    elif options.markdown:
        print(comparison_markdown(found), end="")
    else:
        print("\n".join(comparison_lines(found)))
    return 0


def _shadow(options: argparse.Namespace) -> int:
    from pytest_spiral.compare.shadow_runs import compare_shadow
    from pytest_spiral.report.comparison import shadow_lines

    found = compare_shadow(options.public, options.shadow)
    _print_json(found) if options.json else print(*shadow_lines(found), sep="\n")
    return FOUND_FAULTS if any(row["verdict"] == "caution" for row in found["rows"]) else 0


def _write_comparison(options: argparse.Namespace, found: dict[str, Any]) -> None:
    from pytest_spiral.compare.reports import find_reports, open_report
    from pytest_spiral.report.html.build import compare_page

    protocol = found["protocol"] or "per-10k-chars"
    reports = [open_report(path, protocol) for path in find_reports([options.a, options.b])]
    _write_page(options.html, compare_page(reports, found))


def _calibrate(options: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from pytest_spiral.errors import ConfigError
    from pytest_spiral.models.environment import load_environment
    from pytest_spiral.report.calibration import calibration_lines
    from pytest_spiral.run.calibrate import calibrate
    from pytest_spiral.run.content import load_content
    from pytest_spiral.run.controller import RunController
    from pytest_spiral.run.plan import make_plan
    from pytest_spiral.settings import Settings
    from pytest_spiral.spiral.labels import load_labels, sheet
    from pytest_spiral.spiral.protocol import load_protocol

    if options.sheet:
        labelled = load_labels(options.labels, load_protocol(options.protocol).behaviours)
        for row in sheet(labelled, options.sheet):
            print(json.dumps(row, ensure_ascii=True))
        return 0
    if not options.judge_model:
        raise ConfigError("--judge-model: name the judge, such as --judge-model gpt-5")
    now = datetime.now(UTC)
    settings = Settings(
        model=("dry/perfect",),
        user_model="dry/seeker",
        judge_model=tuple(options.judge_model),
        suite=("spiral",),
        protocol=options.protocol,
        report_dir=options.report_dir,
        run_id=f"calibration-{now:%Y%m%d-%H%M%S}",
    )
    folder = Path.cwd()
    environ = load_environment(os.environ, folder)
    content = load_content(settings, folder)
    load_labels(options.labels, content.spiral.protocol.behaviours)
    controller = RunController(make_plan(settings, content, environ, now), content, environ)
    try:
        controller.prepare()
        controller.reach()
        found = calibrate(controller.plan, content, controller.store, environ, options.labels)
    finally:
        controller.close()
    if options.json:
        drift = None if found.drift is None else found.drift.model_dump(mode="json")
        alone = {name: run.to_json() for name, run in found.alone.items()}
        _print_json({**found.together.to_json(), "below": found.together.below, "drift": drift, "alone": alone})
    else:
        from pytest_spiral.report.lines import plain

        for line in calibration_lines(found.together, found.drift):
            print(plain(line))
        print(f"kept in {found.path}")
    return FOUND_FAULTS if found.together.below else 0


def _shown(value: float | None, digits: int = 2) -> str:
    return "not measured" if value is None else f"{value:.{digits}f}"


def _merge(options: argparse.Namespace) -> int:
    from pytest_spiral.evaluate.verdict import exit_code
    from pytest_spiral.report.terminal import summary_lines
    from pytest_spiral.report.write import write_report
    from pytest_spiral.run.shards import merge_shards

    merged = merge_shards(options.paths, options.run_id, Path.cwd(), sys.argv[1:])
    run_dir = options.report_dir / options.run_id
    write_report(merged, run_dir, os.environ.get("GITHUB_STEP_SUMMARY"))
    if options.json:
        gates = [gate.model_dump(mode="json") for gate in merged.gates]
        _print_json({"report": str(run_dir), "verdict": merged.verdict, "gates": gates})
    else:
        for line, _ in summary_lines(merged, str(run_dir)):
            print(line)
    return exit_code(0, merged.verdict, False)


def _export(options: argparse.Namespace) -> int:
    from pytest_spiral.report.export import export
    from pytest_spiral.report.read import load_report

    file = options.path / "report.json" if options.path.is_dir() else options.path
    report = load_report(file)
    folder = options.output or file.parent / "export"
    try:
        written = [path for name in options.formats or ["csv"] for path in export(report, name, folder)]
    except OSError as error:
        raise DataError(f"{folder}: cannot be written ({error.strerror or error})") from None
    _print_json([str(path) for path in written]) if options.json else print(*written, sep="\n")
    return 0


def _score_replies(options: argparse.Namespace) -> int:
    from dataclasses import asdict

    from pydantic import ValidationError

    from pytest_spiral.resources import read_text
    from pytest_spiral.tempaffect.checks import check_reply
    from pytest_spiral.tempaffect.records import REPLY_CHECKS
    from pytest_spiral.tempaffect.scenario import Scenario

    rows = []
    for number, line in enumerate(read_text(options.file).splitlines(), start=1):
        if not line.strip():
            continue
        where = f"{options.file}:{number}"
        try:
            row = json.loads(line)
            reply = row["reply"]
            scenario = Scenario.model_validate(row["scenario"])
        except ValidationError as error:
            raise DataError(f"{where}: scenario: {first_fault(error, 'object')}") from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: not valid JSON: {error}") from None
        except (KeyError, TypeError):
            raise DataError(f"{where}: an object with the keys scenario and reply is wanted") from None
        if not isinstance(reply, str):
            raise DataError(f"{where}: reply must be a string")
        rows.append({"line": number, "scenario": scenario.id, **asdict(check_reply(scenario, reply))})
    if options.json:
        _print_json(rows)
        return 0
    names = (*REPLY_CHECKS, "useful_bounded")
    for row in rows:
        print(f"{row['line']:>5} {row['scenario']:<24} " + " ".join(name for name in names if row[name]))
    for name in names:
        print(f"{name}: {sum(row[name] for row in rows)} of {len(rows)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
