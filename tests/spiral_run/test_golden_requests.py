"""The expected requests agree with their typed-out miniature and with what the published result files recorded."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from tests.spiral_run.golden_requests import (
    TINY_EXPECTED,
    TINY_INJECTIONS,
    TINY_RUN_ID,
    TINY_TRANSCRIPTS,
    Chunk,
    criteria_ids,
    evaluated_messages,
    final_messages,
    judge_chunks,
    judge_messages,
    seeker_injections,
    seeker_messages,
    seeker_system,
    write_tiny,
)

UPSTREAM = os.environ.get("SPIRAL_UPSTREAM_DIR", "")
GARDEN = TINY_TRANSCRIPTS["garden05"]
CITED_TURN = re.compile(r"assistant(?:['’]s)?(?: \(| (?:(?:reply|response) )?(?:(?:at|in) )?)turn (\d+)", re.IGNORECASE)


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    write_tiny(tmp_path)
    return tmp_path


def test_seeker(tiny: Path) -> None:
    for key, lines in TINY_INJECTIONS.items():
        assert seeker_injections(tiny, TINY_RUN_ID, key, 0, 3) == lines
    first, second, _ = TINY_INJECTIONS["garden05"]
    assert seeker_messages(tiny, "gardens", GARDEN[:2], first) == TINY_EXPECTED["seeker without injection"]
    assert seeker_messages(tiny, "gardens", GARDEN[:4], second) == TINY_EXPECTED["seeker with injection"]
    tides = seeker_messages(tiny, "tides", TINY_TRANSCRIPTS["tide06"][:2], "")
    assert tides == TINY_EXPECTED["seeker with a category's persona"]


def test_evaluated() -> None:
    assert evaluated_messages(GARDEN[:3]) == TINY_EXPECTED["evaluated"]


def test_judges(tiny: Path) -> None:
    assert judge_chunks(GARDEN) == [
        Chunk(0, (1,), [("so they feel it?", "Not as you do.")]),
        Chunk(1, (2,), [("what is phototropism", "Growing toward light: “photo” is light.")]),
    ]
    assert judge_messages(tiny, GARDEN, judge_chunks(GARDEN)[1]) == TINY_EXPECTED["judge"]
    assert final_messages(tiny, GARDEN) == TINY_EXPECTED["final judge"]


def test_only_the_chunk_judge_cuts_a_reply(tiny: Path) -> None:
    transcript = [*GARDEN[:2], ("user", "u" * 20_001), ("assistant", "a" * 20_001)]
    judged = judge_messages(tiny, transcript, judge_chunks(transcript)[0])[0]["content"]
    assert "\n" + "a" * 20_000 + "\n[/TRANSCRIPT]" in judged
    assert "u" * 20_001 in judged
    assert "a" * 20_001 in final_messages(tiny, transcript)[0]["content"]


@pytest.mark.skipif(not UPSTREAM, reason="SPIRAL_UPSTREAM_DIR is not set")
@pytest.mark.parametrize("name", ["gemini-3-pro-preview-v1.2.json", "kimi-k2.json", "llama-4-maverick.json"])
def test_published_records(name: str) -> None:
    clone = Path(UPSTREAM) / "checkout"
    document: dict[str, Any] = json.loads((Path(UPSTREAM) / name).read_text(encoding="utf-8"))
    ((run_id, run),) = document.items()
    conversations = [(key, one) for key, many in run["eval_prompts_v0.2.json"].items() for one in many]
    assert len(conversations) == 30
    cited = 0
    for key, one in conversations:
        assert seeker_system(clone, one["category"]) == one["user_system_prompt"]
        transcript = [(message["role"], message["content"]) for message in one["transcript"]]
        drawn = seeker_injections(clone, run_id, key, one["convo_index"], (len(transcript) - 1) // 2)
        # The log goes with the transcript, message by message: the opening, then reply and generated message in turn.
        assert one["injections_log"] == ["", *(entry for line in drawn for entry in ("", line))]
        chunks = {f"chunk{chunk.index}": chunk for chunk in judge_chunks(transcript)}
        judges = one["judgements"] if isinstance(one["judgements"], list) else [one["judgements"]]
        for judge in judges:
            assert set(judge) == set(chunks)
            for label, stored in judge.items():
                if "error" in stored:
                    continue
                assert stored["assistant_turn_indexes"] == list(chunks[label].turns)
                assert stored["assistant_length_chars"] == sum(len(reply) for _, reply in chunks[label].pairs)
                turns = [int(turn) for turn in CITED_TURN.findall(stored["raw_text"])]
                assert set(turns) <= set(chunks[label].turns)
                cited += len(turns)
    assert cited >= 5


@pytest.mark.skipif(not UPSTREAM, reason="SPIRAL_UPSTREAM_DIR is not set")
def test_published_prompts_are_filled() -> None:
    clone = Path(UPSTREAM) / "checkout"
    rubric = (clone / "data/rubric_criteria.txt").read_text(encoding="utf-8")
    assert sorted(criteria_ids(rubric)) == sorted(re.findall(r'^id: "(.+)"$', rubric, re.MULTILINE))
    judged = judge_messages(clone, GARDEN, judge_chunks(GARDEN)[0])[0]["content"]
    final = final_messages(clone, GARDEN)[0]["content"]
    assert rubric in judged
    assert not re.search("<[A-Z]+_[A-Z]+>", judged + final)
