"""The console script: one sentence for what is wrong, JSON for programs."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from pytest_spiral.cli import main

GOLDEN = [
    ("kimi-k2.json", "upstream-per-chunk", 73.0),
    ("kimi-k2.json", "upstream-per-10k-chars", 72.9),
    ("llama-4-maverick.json", "upstream-per-chunk", 48.1),
    ("llama-4-maverick.json", "upstream-per-10k-chars", 45.8),
]


@pytest.mark.parametrize(("file", "protocol", "score"), GOLDEN)
def test_published_scores_are_reproduced(capsys, file, protocol, score):
    """Rescoring a public result file gives its published score."""
    folder = os.environ.get("SPIRAL_UPSTREAM_DIR")
    if not folder:
        pytest.skip("needs SPIRAL_UPSTREAM_DIR")

    assert main(["rescore", str(Path(folder) / file), "--protocol", protocol, "--json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)["scores"]
    assert row["score"] == pytest.approx(score, abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["rescore", "missing.json"], "missing.json: cannot be read"),
        (["rescore", "list.json"], "neither a report of ours nor"),
        (["rescore", "empty.json"], "no conversation in it"),
        (["rescore", "version.json"], "not a report of this version"),
        (["scenarios", "show", "zz-99"], "no scenario 'zz-99'"),
        (["scenarios", "lint", "list.json"], "no scenario found"),
        (["score-replies", "replies.jsonl"], "replies.jsonl:2: an object with the keys scenario and reply"),
        (["score-replies", "broken.jsonl"], "broken.jsonl:1: not valid JSON"),
        (["fetch-model", "nobody"], "unknown local model"),
    ],
)
def test_wrong_input_is_one_sentence(tmp_path, monkeypatch, capsys, arguments, says):
    """Exit code 4, the file named, no traceback."""
    monkeypatch.chdir(tmp_path)
    for name, text in {
        "list.json": "[]",
        "empty.json": "{}",
        "version.json": '{"schema_version": 1}',
        "replies.jsonl": '\n{"reply": "hm"}\n',
        "broken.jsonl": "{\n",
    }.items():
        Path(name).write_text(text)

    assert main(arguments) == 4

    out, err = capsys.readouterr()
    assert says in err
    assert out == ""
    assert err.count("\n") == 1


def test_unknown_commands_are_usage_errors(capsys):
    """The exit code is 4 here as everywhere."""
    assert main(["dance"]) == 4
    assert main([]) == 4
    assert "invalid choice" in capsys.readouterr().err


def test_help_is_no_error(capsys):
    """Asking for help succeeds."""
    assert main(["--help"]) == 0
    assert "rescore" in capsys.readouterr().out


def test_the_bundled_suite_is_clean_and_pinned(capsys):
    """Its hashes are the pinned ones; a scenario can be shown without its key leaking into the prompt."""
    assert main(["scenarios", "hash"]) == 0
    assert main(["scenarios", "show", "ps-01"]) == 0

    prompt, _, key = capsys.readouterr().out.partition("--- key")
    assert "issue_anchors" in key
    assert "issue_anchors" not in prompt


def test_replies_are_scored_line_by_line(tmp_path, capsys):
    """A file of scenario and reply gives the checks of each."""
    from pytest_spiral.tempaffect.suite import load_suite

    scenario = load_suite()["ps-01"]
    rows = [scenario.reference_reply, "I hear you. Your feelings are valid."]
    path = tmp_path / "replies.jsonl"
    data = scenario.model_dump(mode="json", by_alias=True)
    path.write_text("\n".join(json.dumps({"scenario": data, "reply": reply}) for reply in rows))

    assert main(["score-replies", str(path), "--json"]) == 0
    assert [row["useful_bounded"] for row in json.loads(capsys.readouterr().out)] == [True, False]
    assert main(["score-replies", str(path)]) == 0
    assert "useful_bounded: 1 of 2" in capsys.readouterr().out
