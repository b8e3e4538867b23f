"""`pytest-spiral shadow PUBLIC SHADOW`: from two paths to a difference per model and mode. No network, no model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_args

from pytest_spiral.compare.pairing import RecordedRun, check_comparable
from pytest_spiral.compare.recorded import recorded_run
from pytest_spiral.compare.shadow import ShadowRow, caution_above, compare_forms
from pytest_spiral.errors import DataError
from pytest_spiral.report.read import read_report
from pytest_spiral.run.replay import Recording, load_recording
from pytest_spiral.tempaffect.records import Mode

__all__ = ["compare_shadow"]


@dataclass(frozen=True, slots=True)
class _Form:
    """What was asked. terms: by name, what must be the same for a difference to be one of scenarios; None for what is
    not recorded."""

    suite_hash: str
    messages: frozenset[str]
    terms: Mapping[str, str | None]


def compare_shadow(public: Path, shadow: Path, seed: int = 1) -> dict[str, Any]:
    """The same models on the public suite and on a private form, of which neither holds a scenario of the other.

    Returns `{public, shadow, caution_above, notes, rows}`; the notes say what could not be checked, and which mode is
    in one run alone. Raises `DataError` for files that cannot be read, forms that are no two forms, models that are
    in one run alone, and naming the fields in which scorer, prompts or request parameters differ.
    """
    recordings = [load_recording(path) for path in (public, shadow)]
    forms = [_form(recording) for recording in recordings]
    runs = [recorded_run(recording, path) for recording, path in zip(recordings, (public, shadow), strict=True)]
    if not recordings[1].own_scenarios:
        raise DataError(f"{shadow}: asked the bundled scenarios; name the run with --tempaffect-scenarios second")
    if forms[0].suite_hash == forms[1].suite_hash:
        raise DataError(f"{public} and {shadow} are runs of the same scenarios")
    if common := forms[0].messages & forms[1].messages:
        raise DataError(f"{public} and {shadow} have {len(common)} scenarios in common; a private form has none")
    models, others = (set(run.models("tempaffect")) for run in runs)
    if models != others:
        raise DataError(f"in one of {public} and {shadow} alone: {', '.join(sorted(models ^ others))}")
    unknown = check_comparable("tempaffect", forms[0].terms, forms[1].terms, (str(public), str(shadow)))
    notes = [f"not recorded on both sides, so not checked: {', '.join(unknown)}"] if unknown else []
    rows = []
    for model in sorted(models):
        found, alone = _rows(model, runs[0], runs[1], seed)
        rows += found
        notes += [f"{mode} mode of {model} is in one run alone" for mode in alone]
    return {
        "public": {"path": str(public), "run": runs[0].id},
        "shadow": {"path": str(shadow), "run": runs[1].id},
        "caution_above": caution_above(),
        "notes": notes,
        "rows": [asdict(row) for row in rows],
    }


def _form(recording: Recording) -> _Form:
    report = read_report(recording.path)
    if not report["tempaffect"]["items"]:
        raise DataError(f"{recording.path}: holds nothing of tempaffect")
    try:
        integrity = report["integrity"]["tempaffect"]
        terms = {name: value for name, value in integrity["components"].items() if name != "scenarios"}
        for model in report["run"]["config"]["models"]:
            if model["role"] == "evaluated" and "tempaffect" in model["params"]:
                asked = json.dumps([model["model_id"], model["params"]["tempaffect"]], sort_keys=True)
                # A replay calls no model: with what its replies were asked for is not on record.
                terms[f"parameters of {model['spec']}"] = None if model["kind"] == "replay" else asked
        return _Form(
            suite_hash=integrity["suite_hash"],
            messages=frozenset(row["user_message"] for row in report["tempaffect"]["scenarios"].values()),
            terms={"scorer_fingerprint": integrity["scorer_fingerprint"], **terms},
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DataError(f"{recording.path}: not a report of this version ({type(error).__name__} {error})") from None


def _rows(model: str, public: RecordedRun, shadow: RecordedRun, seed: int) -> tuple[list[ShadowRow], list[Mode]]:
    """A model's rows, and the modes that only one of the runs has."""
    rows, alone = [], []
    for mode in get_args(Mode):
        ours, theirs = public.items.get((model, mode)), shadow.items.get((model, mode))
        if ours and theirs:
            forms = ((ours, public.expected), (theirs, shadow.expected))
            rows.append(compare_forms(model, mode, *forms, caution_above(), seed))
        elif ours or theirs:
            alone.append(mode)
    return rows, alone
