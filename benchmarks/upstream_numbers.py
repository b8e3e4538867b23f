"""Make the test data of tests/data/upstream from public result files: their numbers without their texts.

    python -m benchmarks.upstream_numbers FOLDER [--check]

FOLDER holds the result files of the public Spiral-Bench repository. Kept are prompt ids, categories, points and lengths
of every chunk, strengths of every finding, final judgements and the stored summaries. Every text is replaced: messages
by made-up words, and each quote by a word that stands in the reply if, and only if, the quote did. Scores are those of
the original files. --check: compare with the files in the repository instead of writing them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_spiral.spiral import load_upstream
from pytest_spiral.spiral.records import ChunkJudgement, Conversation, behaviour_name
from tests.fakes.published import ENSEMBLE, FOLDER, SCORED

_KEPT = ("prompt_id", "category", "evaluated_model", "user_model", "convo_index", "completed")
_FINALS = ("final_judgements", "final_judgement")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    differing = []
    for name in (*SCORED, ENSEMBLE):
        document = numbers(options.folder / name)
        target = FOLDER / f"{name}.gz"
        data = json.dumps(document, separators=(",", ":")).encode()
        if not options.check:
            target.write_bytes(gzip.compress(data, 9, mtime=0))
            print(f"{target}: {target.stat().st_size:,} bytes")
        elif gzip.decompress(target.read_bytes()) != data:
            differing.append(name)
            print(f"{target}: differs from {options.folder / name}")
    return 1 if differing else 0


def numbers(path: Path) -> dict[str, Any]:
    """The numbers of a result file in the same format. Every file read here has one conversation on a prompt."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    judged = {item.origin.prompt_key or item.prompt_id: item for item in load_upstream(path)}
    for run in raw.values():
        for judge in run["__meta__"].get("judges", ()):
            del judge["base_url"]
        for file_key, prompts in run.items():
            if file_key in ("__meta__", "scoring_summary"):
                continue
            for number, (prompt_key, conversations) in enumerate(prompts.items()):
                prompts[prompt_key] = [_conversation(conversations[0], judged[prompt_key], number)]
    return dict(raw)


def _conversation(entry: Mapping[str, Any], judged: Conversation, number: int) -> dict[str, Any]:
    located: dict[int, list[str]] = {}
    if isinstance(entry["judgements"], list):
        judgements: Any = [
            _chunks(chunks, [one for one in judged.judgements if one.judge == judge], located, f".{place}")
            for place, (judge, chunks) in enumerate(zip(judged.origin.judges, entry["judgements"], strict=True))
        ]
    else:
        judgements = _chunks(entry["judgements"], judged.judgements, located)
    transcript, turn = [], 0
    for place, message in enumerate(entry["transcript"]):
        if message["role"] == "assistant":
            words = ["reply", *located.get(turn, ())]
            turn += 1
        else:
            # Unlike each other, so that the simulated user does not seem to repeat itself.
            words = [f"w{number}.{place}.{word}" for word in range(6)]
        transcript.append({"role": message["role"], "content": " ".join(words)})
    kept = {key: entry[key] for key in _KEPT}
    finals = {key: entry[key] for key in _FINALS if key in entry}
    return {**kept, **finals, "transcript": transcript, "judgements": judgements}


def _chunks(
    stored: Mapping[str, Any], judgements: Sequence[ChunkJudgement], located: dict[int, list[str]], suffix: str = ""
) -> dict[str, Any]:
    """One judge's chunks. suffix: tells its made-up quotes from those of others."""
    return {f"chunk{one.index}": _chunk(stored[f"chunk{one.index}"], one, located, suffix) for one in judgements}


def _chunk(
    stored: Mapping[str, Any], chunk: ChunkJudgement, located: dict[int, list[str]], suffix: str
) -> dict[str, Any]:
    if "metrics" not in stored:
        return {"error": "unreadable"}
    findings: dict[str, list[list[str | int]]] = {key: [] for key in stored["metrics"]}
    spelled = {behaviour_name(key): key for key in stored["metrics"]}
    for number, finding in enumerate(chunk.findings):
        # Long enough to be evidence wherever it stands.
        word = f"quotation{finding.turn}.{number}{suffix}q"
        if finding.evidence != "unlocated":
            located.setdefault(finding.turn, []).append(word)
        findings.setdefault(spelled.get(finding.behaviour, finding.behaviour), []).append([word, finding.strength])
    return {
        "metrics": stored["metrics"],
        "full_metrics": findings,
        "assistant_turn_indexes": stored["assistant_turn_indexes"],
        "assistant_length_chars": stored["assistant_length_chars"],
    }


if __name__ == "__main__":
    sys.exit(main())
