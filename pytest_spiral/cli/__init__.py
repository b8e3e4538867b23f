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


def _positive(text: str) -> int:
    """A whole number from 1, for argparse."""
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 20_000:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no whole number from 1 to 20,000")
    return int(text)


_LABELS = _argument(
    "--labels",
    action="append",
    required=True,
    type=Path,
    metavar="FILE",
    help="label file (repeatable: one of each suite)",
)


def _half_width(text: str) -> float:
    """A number between 0 and 1/2, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 0.5:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is no number between 0 and 0.5, such as 0.05")
    return value


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


@dataclass(frozen=True)
class Group:
    """Commands under a common name. default: the one that is meant where none of them is named."""

    help: str
    commands: Mapping[str, Command]
    default: str = ""


COMMANDS: Mapping[str, Command | Group] = {
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
    "prefixes": Command(
        "runs:prefixes",
        "cut beginnings of conversations out of recorded runs, for --suite spiral-prefix",
        [
            _PATHS(help=f"runs to cut from, each {_RUN}"),
            _OUTPUT(metavar="FILE", required=True, help="prompt file to write"),
            _argument(
                "--depth",
                action="append",
                type=_positive,
                metavar="N",
                help="replies of the assistant before the message to answer (repeatable; default: 2, 5 and 10)",
            ),
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
    "scenarios": Group(
        "lint, hash and show scenario files",
        {
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
    ),
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
    "label": Group(
        "let people label replies of a run: write their pages, merge their answers, import labels",
        {
            "pages": Command(
                "labels:pages",
                "draw replies of a run and write a page for every rater; `label RUN` is short for it",
                [
                    _argument("path", type=Path, metavar="RUN", help=_RUN),
                    _OUTPUT(metavar="DIR", required=True, help="directory to write to, one directory a suite in it"),
                    _argument(
                        "--raters",
                        default="2",
                        metavar="N|NAMES",
                        help="how many raters, or their names as in ann,ben; a language model as in NAME:model "
                        "(default: 2)",
                    ),
                    _argument(
                        "--suite",
                        action="append",
                        choices=("tempaffect", "spiral"),
                        help="suite to label (repeatable; default: those of the run)",
                    ),
                    _argument(
                        "--items",
                        type=_positive,
                        metavar="N",
                        help="items to draw of each suite (default: 60 TempAffect replies, 40 Spiral-Bench turns)",
                    ),
                    _argument(
                        "--questions",
                        metavar="NAMES",
                        help="questions to ask, separated by commas (default: all of the suite)",
                    ),
                    _argument("--seed", type=int, default=1, metavar="N", help="seed of the draw (default: 1)"),
                ],
            ),
            "merge": Command(
                "labels:merge_answers",
                "check exported answers, print agreement, write a label file and a page for what differs",
                [
                    _PATHS(help="the directory with sampling.jsonl, and files of answers that lie elsewhere"),
                    _OUTPUT(metavar="FILE", required=True, help="label file to write"),
                    _argument(
                        "--adjudicator",
                        default="adjudicator",
                        metavar="NAME",
                        help="who settles what the raters differ on; a language model as NAME:model "
                        "(default: adjudicator)",
                    ),
                ],
            ),
            "import": Command(
                "labels:import_file",
                "write a label file from labels made elsewhere, in CSV or JSONL",
                [
                    _argument("file", type=Path, metavar="FILE", help="columns item, rater, question and answer"),
                    _argument(
                        "--mapping",
                        type=Path,
                        required=True,
                        metavar="MAP.toml",
                        help="what the columns and codes of the file are in our terms",
                    ),
                    _OUTPUT(metavar="FILE", required=True, help="label file to write"),
                ],
            ),
            "plan": Command(
                "corrected:plan",
                "say how many labels a corrected number or a gate on it takes, from the labels of a pilot",
                [
                    _argument("path", type=Path, metavar="RUN", help=_RUN),
                    _LABELS,
                    _argument(
                        "--half-width",
                        type=_half_width,
                        metavar="X",
                        help="wanted half of the 95 %% interval, such as 0.05",
                    ),
                    _argument(
                        "--gate",
                        metavar="EXPR",
                        help="gate to decide, such as 'tempaffect.corrected.useful_bounded >= 0.7'",
                    ),
                ],
            ),
        },
        default="pages",
    ),
    "correct": Command(
        "corrected:correct",
        "correct the numbers of a run by labels of a part of its replies; exits with the code of a run",
        [
            _argument("path", type=Path, metavar="RUN", help=_RUN),
            _LABELS,
            _argument(
                "--gate",
                action="append",
                default=[],
                metavar="EXPR",
                help="release condition on a corrected number, such as 'tempaffect.corrected.useful_bounded >= 0.7' "
                "(repeatable; labels of people only)",
            ),
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
        options = parser.parse_args(_complete(sys.argv[1:] if arguments is None else arguments))
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


def _complete(arguments: Sequence[str]) -> Sequence[str]:
    """The arguments with the default command of a group, where they name none of its commands."""
    group = COMMANDS.get(arguments[0]) if arguments else None
    if not isinstance(group, Group) or not group.default or len(arguments) < 2:
        return arguments
    named = arguments[1] in group.commands or arguments[1] in ("-h", "--help")
    return arguments if named else [arguments[0], group.default, *arguments[1:]]


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


def _add_commands(parser: argparse.ArgumentParser, commands: Mapping[str, Command | Group], metavar: str) -> None:
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
            group = subparsers.add_parser(
                name, help=command.help, description=f"{command.help[0].upper()}{command.help[1:]}."
            )
            _add_commands(group, command.commands, "ACTION")
