"""Calibrating judges without a run: a session in which only judges are called."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pytest_spiral.run.calibrate import JudgeCalibrations, calibrate
from pytest_spiral.run.content import load_content
from pytest_spiral.run.controller import RunController
from pytest_spiral.run.plan import make_judge_plan
from pytest_spiral.settings import Settings

__all__ = ["calibrate_judges"]


def calibrate_judges(
    settings: Settings, folder: Path, environ: Mapping[str, str], started_at: datetime, labels: Path | None = None
) -> JudgeCalibrations:
    """Have judges label turns whose labels are known, and keep the result.

    Args:
        settings: Judges, protocol and report directory.
        folder: Where relative paths start.
        environ: Environment variables.
        started_at: Names the session's directory.
        labels: File of labelled turns; None for the bundled ones.

    Raises:
        UserError: For labels that cannot be read and judges that cannot be reached.
    """
    content = load_content(settings, folder)
    session = RunController(make_judge_plan(settings, folder, environ, started_at), content, environ)
    try:
        session.prepare()
        session.reach()
        return calibrate(session.plan, content, session.store, environ, labels)
    finally:
        session.close()
