"""The console script `pytest-spiral`: everything that needs no test run."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import methodcaller
from pathlib import Path
from pkgutil import resolve_name

from pytest_spiral.errors import UserError
from pytest_spiral.settings import DEFAULT_PROTOCOL

USAGE_ERROR, INTERNAL_ERROR = 4, 3
_argument = partial(methodcaller, "add_argument")
_RUN = "a run directory, its report.json, or a result file in the public Spiral-Bench format"
_DEFAULT_PROTOCOL = partial(_argument, "--protocol", default=DEFAULT_PROTOCOL, metavar="NAME")
_BY_VERSION = "(default: the report's own; of a result file per-10k-chars, or upstream-v1.2 for v1.2)"
_UPSTREAM_PROTOCOL = _argument(
    "--protocol",
    dest="protocols",
    action="append",
    default=[],
    metavar="NAME",
    help="protocol for result files in the public format; repeatable, each file takes the one that fits "
    "(default: per-10k-chars, or upstream-v1.2 for v1.2)",
)
_PATHS = partial(_argument, "paths", nargs="+", type=Path, metavar="PATH")
_OUTPUT = partial(_argument, "-o", "--output", type=Path)
_SCENARIOS = _argument(
    "paths", nargs="*", type=Path, metavar="FILE", help="scenario files (default: the bundled suite)"
)


@dataclass(frozen=True)
class Command:
    """A command: what runs it, as "module:function" below this package, its help and its arguments besides --json.

    The function takes the parsed arguments and returns the exit code. Its module is imported only to run it: loading
    all of them takes a second.
    """

    run: str
    help: str
    arguments: Sequence[methodcaller]


COMMANDS: Mapping[str, Command | Mapping[str, Command]] = {
    "rescore": Command(
        "runs:rescore",
        "score recorded conversations again, without calling a model",
        [
            _argument("path", type=Path, metavar="PATH", help=_RUN),
            _argument("--protocol", metavar="NAME", help=f"protocol to score with {_BY_VERSION}"),
        ],
    ),
    "compare": Command(
        "runs:compare",
        "paired comparison of two runs, with minimum detectable differences",
        [
            _argument("baseline", type=Path, metavar="BASELINE", help=f"the run to compare with: {_RUN}"),
            _argument(
                "candidate", type=Path, metavar="CANDIDATE", help="the run to evaluate, in any of the same forms"
            ),
            _argument(
                "--protocol", metavar="NAME", help="rescore both runs with this protocol (default: the reports' own)"
            ),
            _argument("--markdown", action="store_true", help="print Markdown"),
            _argument("--html", type=Path, metavar="FILE", help="also write a page with both runs side by side"),
        ],
    ),
    "report": Command(
        "runs:report",
        "write the HTML page of a run or a public result file; in a run directory, also what failed of the report",
        [
            _PATHS(help="run directories, report.json or result files"),
            _UPSTREAM_PROTOCOL,
            _OUTPUT(
                metavar="PATH",
                help="directory or .html file to write; one .html file shows several reports side by side "
                "(default: beside the report)",
            ),
        ],
    ),
    "leaderboard": Command(
        "runs:leaderboard",
        "write a static site that ranks comparable runs",
        [
            _PATHS(help="run directories, directories of runs, report.json or result files"),
            _UPSTREAM_PROTOCOL,
            _OUTPUT(metavar="DIR", required=True, help="directory to write the site to"),
        ],
    ),
    "merge": Command(
        "runs:merge",
        "combine the shards of a run and decide its gates; exits with the code of a run",
        [
            _PATHS(help="run directories of all shards"),
            _argument("--run-id", default="merged", metavar="ID", help="id of the merged run (default: merged)"),
            _argument(
                "--report-dir",
                type=Path,
                default=Path("reports"),
                metavar="DIR",
                help="directory in which the run directory is created (default: reports)",
            ),
        ],
    ),
    "export": Command(
        "runs:export",
        "write a report as CSV or Parquet tables, JUnit XML, a model card, Inspect logs or a public result file",
        [
            _argument("path", type=Path, metavar="PATH", help="a run directory or its report.json"),
            _argument(
                "--format",
                dest="formats",
                action="append",
                choices=("csv", "junit", "model-card", "inspect", "upstream", "parquet"),
                help="format to write (repeatable; default: csv)",
            ),
            _OUTPUT(metavar="DIR", help="directory to write to (default: export/ in the run directory)"),
        ],
    ),
    "scenarios": {
        "lint": Command("scenarios:lint", "check scenario files against the authoring rules", [_SCENARIOS]),
        "hash": Command(
            "scenarios:show_hashes",
            "print the suite hash and its components",
            [
                _argument(
                    "--write", action="store_true", help="write the hashes of the bundled suite to its lock file"
                ),
                _SCENARIOS,
            ],
        ),
        "show": Command(
            "scenarios:show",
            "print one scenario as the model sees it, with its expected answer",
            [_argument("id", metavar="ID", help="id of the scenario, such as ps-01"), _SCENARIOS],
        ),
    },
    "score-replies": Command(
        "scenarios:score_replies",
        "check the replies in a JSONL file against their scenarios",
        [
            _argument(
                "file",
                type=Path,
                metavar="FILE",
                help='JSONL, one {"scenario": SCENARIO, "reply": TEXT} object per line',
            ),
            _argument("--explain", action="store_true", help="print the evidence of every check"),
        ],
    ),
    "shadow": Command(
        "runs:shadow",
        "compare results on the public suite and on a private form; exits with 1 if the difference is above the limit",
        [
            _argument(
                "public", type=Path, metavar="PUBLIC", help="a run of the public suite: its directory or report.json"
            ),
            _argument(
                "shadow",
                type=Path,
                metavar="PRIVATE",
                help="a run of the same models on the private form (--tempaffect-scenarios)",
            ),
        ],
    ),
    "calibrate": Command(
        "judges:calibrate",
        "measure judges against labelled turns",
        [
            _argument(
                "--judge-model",
                action="append",
                metavar="SPEC",
                help="judge to measure (repeatable: each is measured by itself)",
            ),
            _argument(
                "--labels",
                type=Path,
                metavar="FILE",
                help="JSONL of labelled turns, or a public Spiral-Bench result file (default: the shipped turns)",
            ),
            _DEFAULT_PROTOCOL(help=f"protocol whose rubric the judges get (default: {DEFAULT_PROTOCOL})"),
            _argument(
                "--report-dir",
                default="reports",
                metavar="DIR",
                help="calibrations are kept in DIR/calibrations (default: reports)",
            ),
            _argument("--trust-env", action="store_true", help="let base URLs from .env have keys of the environment"),
            _argument(
                "--sheet",
                metavar="RATER",
                help="print the turns without labels, for this rater to label; calls no model",
            ),
        ],
    ),
    "fetch-model": Command(
        "judges:fetch_model",
        "download a small local model and verify its SHA-256",
        [
            _argument(
                "name",
                metavar="local/NAME",
                help="such as local/smollm2-135m; an unknown name lists all models",
            )
        ],
    ),
}
"""In the order of the help."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return the exit code of the process."""
    parser = argparse.ArgumentParser(
        prog="pytest-spiral",
        description="Score, compare and publish recorded runs.",
        epilog="Exit code 0: done; 1: a check failed; 3: internal error; 4: usage error, described on stderr. `merge` "
        "exits like a run.",
        allow_abbrev=False,
    )
    _add_commands(parser, COMMANDS, "COMMAND")
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        return USAGE_ERROR if stop.code else 0
    # Usage errors and help do without it.
    from pytest_spiral.report.parts import Parts, tracebacks

    parts = Parts()
    with tracebacks(options.full_trace):
        code = parts.attempt(options.run, _run, options)
    for failed in parts.failed:
        print(f"pytest-spiral: internal error, {failed.detail}; --full-trace shows where", file=sys.stderr)
    return INTERNAL_ERROR if code is None else code


def _run(options: argparse.Namespace) -> int:
    try:
        run: Callable[[argparse.Namespace], int] = resolve_name(f"{__name__}.{options.run}")
        return run(options)
    except BrokenPipeError:
        # The reader has closed the pipe; flushing at exit must not fail on it again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except UserError as error:
        print(f"pytest-spiral: {error}", file=sys.stderr)
        return USAGE_ERROR


def print_json(value: object) -> None:
    """Print JSON values."""
    print(json.dumps(value, indent=1, ensure_ascii=True))


def _add_commands(
    parser: argparse.ArgumentParser, commands: Mapping[str, Command | Mapping[str, Command]], metavar: str
) -> None:
    subparsers = parser.add_subparsers(required=True, metavar=metavar)
    for name, command in commands.items():
        if isinstance(command, Command):
            one = subparsers.add_parser(name, help=command.help, description=command.help)
            one.set_defaults(run=command.run)
            everywhere = (
                _argument("--json", action="store_true", help="print JSON"),
                _argument("--full-trace", action="store_true", help="show the traceback of an internal error"),
            )
            for argument in (*everywhere, *command.arguments):
                argument(one)
        else:
            _add_commands(
                subparsers.add_parser(
                    name, help="lint, hash and show scenario files", description="Lint, hash and show scenario files."
                ),
                command,
                "ACTION",
            )
