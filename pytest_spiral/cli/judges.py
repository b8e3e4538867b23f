"""Commands about models: calibrate judges, download a local model."""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from pytest_spiral.cli import tell
from pytest_spiral.errors import ConfigError
from pytest_spiral.models.environment import load_environment
from pytest_spiral.models.local_file import fetch
from pytest_spiral.report.lines import plain
from pytest_spiral.report.terminal import calibration_lines
from pytest_spiral.run.calibrate import calibrate as calibrate_judges
from pytest_spiral.run.content import Content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.plan import make_plan
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.labels import load_labels, sheet
from pytest_spiral.spiral.protocol import load_protocol


def calibrate(options: argparse.Namespace) -> int:
    """Print how well judges agree with labels, and keep it for later runs.

    Returns 1 where a behaviour is below the bar for a judge, or where the labels suffice for none.
    """
    protocol = load_protocol(options.protocol)
    labelled = load_labels(options.labels, protocol.behaviours)
    if options.sheet:
        for row in sheet(labelled, options.sheet):
            print(json.dumps(row, ensure_ascii=True))
        return 0
    if not options.judge_model:
        raise ConfigError("--judge-model: name the judge, such as --judge-model gpt-6.1-sol")
    settings = Settings(
        judge_model=tuple(options.judge_model), protocol=options.protocol, report_dir=options.report_dir
    )
    # Before anything is paid for: labels that leave out what was looked for calibrate nothing.
    print(plain(f"{labelled.name}: {labelled.basis}"), file=sys.stderr)
    environ = load_environment(os.environ, Path.cwd(), trust=options.trust_env)
    content = Content(settings, Path.cwd())
    session = RunController(make_plan(settings, content, environ, datetime.now(UTC)), content, environ)
    try:
        session.prepare()
        session.check_models()
        result = calibrate_judges(session.plan, content, session.store, environ, labelled)
    finally:
        session.close()
    found = {
        name: {
            **calibration.model_dump(mode="json"),
            "below": calibration.below,
            "uncalibrated": calibration.uncalibrated,
            "drift": change.model_dump(mode="json") if (change := result.drift.get(name)) else None,
        }
        for name, calibration in result.judges.items()
    }
    lines: list[str] = []
    for (name, calibration), path in zip(result.judges.items(), result.paths, strict=True):
        lines += [*map(plain, calibration_lines(calibration, result.drift.get(name))), f"kept in {path}\n"]
    tell(options, {"judges": found}, lines)
    return int(any(one.below or len(one.uncalibrated) == len(one.record.behaviours) for one in result.judges.values()))


def fetch_model(options: argparse.Namespace) -> int:
    """Download a model and print its path."""
    path = fetch(options.name)
    return tell(options, {"path": str(path)}, [path])
