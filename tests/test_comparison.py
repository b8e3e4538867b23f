"""Comparing two runs: what is refused, what is paired, what differs."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_spiral.cli import main
from pytest_spiral.compare.pairing import RecordedRun, check_comparable, compare_conversations, counterpart
from pytest_spiral.compare.runs import compare_paths
from pytest_spiral.errors import DataError
from pytest_spiral.evaluate.spiral import conversation_json
from pytest_spiral.spiral import dump_upstream, load_protocol
from tests.spiral.builders import bench, finding

UPSTREAM = os.environ.get("SPIRAL_UPSTREAM_DIR")
needs_upstream = pytest.mark.skipif(not UPSTREAM, reason="needs SPIRAL_UPSTREAM_DIR")
PROTOCOL = load_protocol("per-chunk")


def test_every_differing_field_is_named():
    """All of them at once, shortened where they are hashes; what one side does not know is returned."""
    first = {"protocol_hash": "a" * 64, "judges": "x", "user_model": "u", "rubric_hash": None}
    second = {"protocol_hash": "b" * 64, "judges": "y", "user_model": "u", "rubric_hash": "c" * 64}

    with pytest.raises(
        DataError, match=r"differ in spiral.judges \(x and y\), spiral.protocol_hash \(aaaaaaaaaaaa and"
    ):
        check_comparable("spiral", first, second, ("A", "B"))
    assert check_comparable("spiral", {**second, "rubric_hash": None}, second, ("A", "B")) == ["spiral.rubric_hash"]


def test_the_counterpart_is_the_namesake_or_the_only_one():
    """Several without the name are refused with a list."""

    def run(*models):
        return RecordedRun("path", "id", {}, {}, {}, dict.fromkeys(models, ()))

    assert counterpart("m", run("m", "n"), "spiral") == "m"
    assert counterpart("m", run("n"), "spiral") == "n"
    with pytest.raises(DataError, match="none of its models is m; it has n, o"):
        counterpart("m", run("n", "o"), "spiral")
    with pytest.raises(DataError, match="holds nothing of spiral"):
        counterpart("m", run(), "spiral")


def test_other_openings_under_the_same_id_are_refused():
    """Equal names do not make equal prompts."""
    talks = bench(prompts=4)
    one, other = ([replace(talk, prompts=(text,)) for talk in talks] for text in ("hello", "hallo"))

    with pytest.raises(DataError, match="other text under the same prompt id: p0, p1"):
        compare_conversations(("a", "b"), one, other, PROTOCOL, 1)
    with pytest.raises(DataError, match="no measured prompt in common"):
        compare_conversations(("a", "b"), talks[:1], talks[1:], PROTOCOL, 1)


def test_a_run_does_not_differ_from_itself():
    """All differences are 0 and inside their intervals; the MDE is not."""
    talks = bench(lambda n: [finding(strength=1 + n % 3)])

    found = compare_conversations(("a", "a"), talks, talks, PROTOCOL, 1)

    assert {row.difference for row in found.metrics.values()} == {0}
    assert not any(row.differs for row in found.metrics.values())
    assert found.metrics["harmful_advice"].mde >= 0


@needs_upstream
def test_the_published_files_are_compared(capsys):
    """The two public models differ in most metrics, not in all; the text fits 80 columns and prints the MDE."""
    files = [str(Path(UPSTREAM) / name) for name in ("kimi-k2.json", "llama-4-maverick.json")]

    assert main(["compare", *files, "--protocol", "upstream-per-chunk", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    (row,) = found["comparisons"]
    assert row["paired"] == 30
    assert row["metrics"]["score"]["difference"] == pytest.approx(72.984 - 48.064, abs=0.01)
    assert {"score", "pushback", "sycophancy_or_praise"} <= {n for n, m in row["metrics"].items() if m["differs"]}
    assert not row["metrics"]["tails.any_harm"]["differs"]
    assert "spiral.judges" in " ".join(found["notes"])

    assert main(["compare", *files, "--protocol", "upstream-per-chunk"]) == 0
    text = capsys.readouterr().out
    assert "finds a difference of" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


@needs_upstream
def test_what_cannot_be_paired_is_said(tmp_path):
    """A file without some prompts is compared on the others, and the missing ones are named."""
    whole = Path(UPSTREAM) / "kimi-k2.json"
    raw = json.loads(whole.read_text())
    (group,) = (value for key, value in raw["1"].items() if not key.startswith(("__", "scoring")))
    gone = sorted(group)[0]
    del group[gone]
    part = tmp_path / "part.json"
    part.write_text(json.dumps(raw))

    found = compare_paths(whole, part)

    assert found["comparisons"][0]["paired"] == 29
    assert found["comparisons"][0]["only_first"] == [gone]


def test_wrong_input_is_one_sentence(tmp_path, capsys):
    """Exit code 4, no traceback."""
    talks = bench(lambda n: [finding(strength=1 + n % 3)])
    dump_upstream(talks, tmp_path / "a.json")
    damaged = {
        "schema_version": 1,
        "tempaffect": {"items": []},
        "spiral": {"conversations": [conversation_json(talks[0])]},
    }
    (tmp_path / "damaged.json").write_text(json.dumps(damaged))

    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "b.json")]) == 4
    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "a.json"), "--protocol", "nobody"]) == 4

    assert main(["compare", str(tmp_path / "a.json"), str(tmp_path / "damaged.json")]) == 4

    err = capsys.readouterr().err
    assert "damaged.json: not a report of this version (KeyError 'run')" in err
    assert "b.json: cannot be read" in err
    assert "no protocol 'nobody'" in err
    assert err.count("\n") == 3
