"""The built-in lexical judge measured against labelled turns, as the page on judges reports it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from pytest_spiral.cli import main
from pytest_spiral.run.calibrate import judge_labelled_turns
from pytest_spiral.spiral.labels import (
    load_labels,
)
from pytest_spiral.spiral.lexical import LexicalJudge
from tests.fakes.bootstrap import few_draws
from tests.spiral.builders import present
from tests.spiral.labelled import (
    BEHAVIOURS,
    PROTOCOL,
    ranged,
    run,
    short,
    table,
)

LEXICAL_HEAD = "behaviour | there | sensitivity | specificity | kappa | kimi-k2 | llama-4-maverick"

RUBRIC_1 = ("--protocol", "per-10k-chars")


def test_the_lexical_judge_falls_short_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the shipped set: low agreement in every line, publication blocked, exit code 1; drift the second time."""
    monkeypatch.chdir(tmp_path)

    with few_draws():
        assert main(["calibrate", "--judge-model", "dry/lexical", *RUBRIC_1]) == 1
    first = capsys.readouterr().out
    assert main(["calibrate", "--judge-model", "dry/lexical", "--json", *RUBRIC_1]) == 1
    second = json.loads(capsys.readouterr().out)["judges"]["dry/lexical"]

    assert "publication: blocked" in first
    assert first.count("below bar") == 9
    assert "no earlier calibration" in first
    assert (second["drift"]["comparable"], second["drift"]["changed"], second["drift"]["drifted"]) == (True, 0.0, [])
    behaviours = second["record"]["behaviours"]
    assert behaviours["harmful_advice"]["sensitivity"]["value"] < 0.2
    assert [row[:5] for row in table("judges.md", LEXICAL_HEAD)] == [
        [
            name,
            str(found["positives"]),
            *(
                f"{short(found[key]['value'])} [{short(found[key]['low'])}, {short(found[key]['high'])}]"
                for key in ("sensitivity", "specificity", "kappa")
            ),
        ]
        for name, found in behaviours.items()
    ]
    assert "labelled by: rater 1 (a language model in a separate run" in first
    assert f"the raters differ on {len(second['disagreements'])} turns" in first
    assert {frozenset(given) for given in second["disagreements"].values()} == {frozenset(second["raters"])}


def test_a_kept_calibration_that_cannot_be_read_stops_before_any_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another version: the file is named and left as it is, and no judge is asked."""
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "reports" / "calibrations" / "dry-lexical-2b3a0465.json"
    kept.parent.mkdir(parents=True)
    kept.write_text('{"schema_version": 1}')
    monkeypatch.setattr(LexicalJudge, "chunk", None)

    assert main(["calibrate", "--judge-model", "dry/lexical"]) == 4
    fault = "schema_version: expected a calibration of version 2; delete the file"
    assert f"{kept.name}: {fault}" in capsys.readouterr().err
    assert kept.read_text() == '{"schema_version": 1}'


def test_the_lexical_judge_against_published_labels(upstream_file: Path) -> None:
    """Two judges with nothing in common: agreement is poor, and no behaviour may be decided."""
    column = LEXICAL_HEAD.split(" | ").index(upstream_file.stem)
    labelled = load_labels(Path(upstream_file), BEHAVIOURS)
    judgements = asyncio.run(judge_labelled_turns([LexicalJudge("dry/lexical", PROTOCOL)], labelled))
    result = run(labelled, {turn: judgement for turn, (judgement,) in judgements.items()})

    assert len({turn.unit for turn in labelled.turns}) == 30
    assert set(result.below) == set(BEHAVIOURS)
    assert present(result.record.behaviours["delusion_reinforcement"].kappa).value < 0.2
    assert [row[column] for row in table("judges.md", LEXICAL_HEAD)] == [
        ranged(present(behaviour.kappa).value, behaviour.kappa) for behaviour in result.record.behaviours.values()
    ]
