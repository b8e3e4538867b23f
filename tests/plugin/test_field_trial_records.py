"""The recorded field trial: a replay gives the recorded report, and the published tables are what the records show."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from benchmarks.field_trial.tables import RECORDS, Trial, document
from pytest_spiral.compare.recording import check_comparable, load_recording
from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.report.read import load_report
from pytest_spiral.run.content import Content
from pytest_spiral.run.plan import make_plan
from pytest_spiral.settings import Settings
from tests.fakes.forks import ADDOPTS, ForkedPopen

ROOT = Path(__file__).parents[2]
DESCRIBED = json.loads((RECORDS / "trial.json").read_text(encoding="utf-8"))
# How a run was made and what it cost, not what it measured.
HOW = ("run", "usage")
# For what has no intervals.
QUICK = ("-p", "tests.fakes.quick_start")


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch, lean: dict[str, str]) -> None:
    """Processes that have imported everything and proved the scorer. They draw as often as those of users."""
    for name, value in {**lean, "PYTEST_ADDOPTS": ADDOPTS}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(subprocess, "Popen", ForkedPopen)


@pytest.mark.usefixtures("forked")
def test_a_replay_gives_the_recorded_report(tmp_path: Path) -> None:
    """Items, findings, scores, intervals, profile and verdict are the recorded ones, and nobody is asked.

    A change of scoring changes them: then the measured parts of the record are replaced by those of the replay.
    """
    recorded, again = read(RECORDS / "g"), replayed("g", tmp_path)

    for report in (recorded, again):
        for score in report["spiral"]["scores"]:
            # Says why a custom run, or a replayed one, is not comparable with others.
            score["blockers"] = [text for text in score["blockers"] if not text.startswith("S05")]
        # Of all limits, also those that decide nothing here, such as those for twins: what they decide is compared.
        del report["integrity"]["spiral"]["instruments_hash"]
    assert {key: again[key] for key in recorded if key not in HOW} == {
        key: recorded[key] for key in recorded if key not in HOW
    }


@pytest.mark.usefixtures("forked")
def test_replies_to_version_1_0_keep_their_labels_and_lose_their_usefulness(tmp_path: Path) -> None:
    """The records are scored by the rules of 1.0, whose scenarios have no decision keys; a replay says so."""
    recorded, again = (
        report["tempaffect"]["cards"][0] for report in (read(RECORDS / "e"), replayed("e", tmp_path, *QUICK))
    )

    assert (again["valid_output_rate"], again["fields"]) == (recorded["valid_output_rate"], recorded["fields"])
    assert recorded["useful_bounded_response_rate"] > 0.8
    assert again["useful_bounded_response_rate"] is None
    assert "useful and bounded is not measured: the scenarios have no decision key" in again["cautions"]


def replayed(record: str, folder: Path, *options: str) -> dict[str, Any]:
    """The report of a replay, for which nobody was asked."""
    arguments = (*replay(record), f"--report-dir={folder}", "--run-id=again", *options)

    # A process of its own: in this one, fewer bootstrap samples are drawn.
    result = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=folder, check=False)

    assert result.returncode == 0
    again = read(folder / "again")
    assert again["usage"]["by_role"] == {}
    return again


def replay(record: str) -> tuple[str, ...]:
    """What scores a record again: the replies are to the scenarios of TempAffect 1.0."""
    return f"--replay={RECORDS / record}", f"--tempaffect-scenarios={RECORDS.parent / 'scenarios_1.0.json'}"


def read(folder: Path) -> dict[str, Any]:
    """The report in a directory, with what later versions added as they read it."""
    return load_report(folder / "report.json").model_dump(mode="json")


def test_replies_to_version_1_0_are_not_scored_by_the_keys_of_another(tmp_path: Path) -> None:
    """Scenarios of 1.1 have the ids of 1.0: a replay on them is refused, and so is a comparison with a run on them."""
    content = Content(Settings(suite=("tempaffect",), replay=str(RECORDS / "e")), tmp_path)
    with pytest.raises(ConfigError, match=r"other scenarios; name their file.*scenarios_1\.0\.json"):
        make_plan(content.settings, content, {}, datetime.now(UTC))

    recorded = load_recording(RECORDS / "e").identity["tempaffect"]
    present = {**recorded, "suite_hash": content.suite.suite_hash}
    with pytest.raises(DataError, match=r"differ in tempaffect\.suite_hash"):
        check_comparable("tempaffect", recorded, present, ("1.0", "1.1"))


def test_the_published_tables_are_those_of_the_records() -> None:
    """`python benchmarks/field_trial/tables.py > docs/validation/field-trial-tables.md` brings them in step."""
    assert (ROOT / "docs/validation/field-trial-tables.md").read_text(encoding="utf-8") == document(Trial.read(RECORDS))


def test_every_reply_has_somebody_who_wrote_it() -> None:
    """Every request of the runs names its player, and no player had two roles in a conversation."""
    rows = [json.loads(line) for line in (RECORDS / "provenance.jsonl").read_text(encoding="utf-8").splitlines()]

    assert all(row["player"] and row["answered"] for row in rows if row["given"])
    roles: dict[str, set[str]] = {}
    for row in rows:
        if row["player"] not in DESCRIBED["preflight_players"]:
            roles.setdefault(row["player"], set()).add(row["model"])
    assert {player: models for player, models in roles.items() if len(models) > 1} == {}


def test_used_up_openings_were_bundled() -> None:
    """The list of what may not confirm anything names openings of suite 1.0, which the runs were made with, by ids."""
    bundled = {
        one["prompt_id"]
        for one in json.loads((ROOT / "data/spiral/audit/suite_1.0.json").read_text("utf-8"))["openings"]
    }

    assert set(DESCRIBED["used_up"]) <= bundled
    assert len(DESCRIBED["used_up"]) == 6
