"""Reading a clone of the public repository: what it must have, and what a hostile one cannot do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.chat import Message
from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.run.content import Content
from pytest_spiral.settings import Settings
from pytest_spiral.spiral.chunks import Chunk, Exchange
from pytest_spiral.spiral.clone import check_version, read_clone
from pytest_spiral.spiral.protocol import V1_2, load_protocol
from pytest_spiral.spiral.public_judge import PublicUserPrompt, chunk_messages, final_messages, system_prompt
from tests.fakes.public_clone import RUBRIC, WEIGHTS, write_clone
from tests.spiral_run import golden_requests as golden

UPSTREAM = os.environ.get("SPIRAL_UPSTREAM_DIR", "")
PROMPTS = "prompts/eval_prompts_v0.2.json"
FINAL = "prompts/final_judge_prompt.txt"
CATEGORIES = "user_instructions/category_instructions.json"
INJECTIONS = "user_instructions/entropy.json"
CODE = """
def judge_worker():
    messages = [{"role": "system", "content": "not this one"}]

def final_judge_worker(task, text):
    messages = [
        {"role": "system", "content": "You look at the whole. "
                                      "Answer shortly."},
        {"role": "user", "content": text},
    ]
"""


def as_json(messages: tuple[Message, ...]) -> list[golden.Message]:
    return [{"role": message.role, "content": message.content} for message in messages]


def test_the_typed_out_requests(tmp_path: Path) -> None:
    """Every literal request of the miniature clone."""
    golden.write_tiny(tmp_path)
    clone = read_clone(tmp_path)
    typed_out: Any = golden.TINY_TRANSCRIPTS["garden05"]
    garden = [Message(role, text) for role, text in typed_out]
    prompt = PublicUserPrompt(system_prompt(clone, "gardens"))
    for message in garden[:2]:
        prompt.add(message)

    first = prompt.messages(None)
    for message in garden[2:4]:
        prompt.add(message)
    second = prompt.messages(golden.TINY_INJECTIONS["garden05"][1])
    chunk = Chunk(1, (Exchange(2, garden[4].content, garden[5].content),))

    assert as_json(first) == golden.TINY_EXPECTED["seeker without injection"]
    assert as_json(second) == golden.TINY_EXPECTED["seeker with injection"]
    assert as_json(chunk_messages(clone, garden[0].content, chunk)) == golden.TINY_EXPECTED["judge"]
    assert as_json(final_messages(clone, garden)) == golden.TINY_EXPECTED["final judge"]


def test_the_final_judges_system_message_is_read_from_the_code(tmp_path: Path) -> None:
    """It is a literal there; the code is parsed, not run, and its file is hashed with the others."""
    clone = read_clone(write_clone(tmp_path, {"main.py": CODE + "raise SystemExit(1)\n"}))

    system, question = final_messages(clone, [Message("user", "a"), Message("assistant", "b"), Message("user", "c")])

    assert system == Message("system", "You look at the whole. Answer shortly.")
    assert "User: a\n\nAssistant: b\n\n\n[/TRANSCRIPT]" in question.content
    assert "main.py" in clone.files
    assert read_clone(write_clone(tmp_path, {"main.py": "judge = None\n"})).final_system is None


@pytest.mark.skipif(not UPSTREAM, reason="needs SPIRAL_UPSTREAM_DIR")
def test_the_public_files_fit_both_protocols() -> None:
    """Thirty prompts, sixteen injections, seventeen behaviours, and the weights of v1.2."""
    clone = read_clone(Path(UPSTREAM) / "checkout")

    for name in V1_2:
        check_version(clone, load_protocol(name), Path("clone"))
    assert (len(clone.openings), len(clone.injections), len(clone.behaviours)) == (30, 16, 17)
    assert clone.prompt_file == "eval_prompts_v0.2.json"


def test_the_newest_prompts_are_taken(tmp_path: Path) -> None:
    """By version, not by spelling."""
    newer = json.dumps([{"prompt_id": "n", "category": "gardens", "prompts": ["new"]}])
    write_clone(tmp_path, {"prompts/eval_prompts_v0.10.json": newer, "prompts/eval_prompts_v0.9.json": "[]"})

    assert read_clone(tmp_path).prompt_file == "eval_prompts_v0.10.json"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({PROMPTS: '[{"prompt_id": "a", "category": "c"}]'}, "eval_prompts_v0.2.json: prompt 0: prompts: missing key"),
        ({PROMPTS: '[{"prompt_id": "a", "category": "../x", "prompts": ["b"]}]'}, "prompt 0: category"),
        ({CATEGORIES: '{"gardens": ["x"]}'}, "category_instructions.json: gardens: expected a string, got list"),
        ({CATEGORIES: "{"}, "category_instructions.json:1:2: not valid JSON"),
        ({INJECTIONS: '{"a": "b"}'}, "entropy.json: file: expected a list, got dict"),
        ({INJECTIONS: "[]"}, "entropy.json: "),
        ({INJECTIONS: '["a", 1]'}, "entropy.json: 1: expected a string, got int"),
        ({WEIGHTS: '{"pushback": "1"}'}, "scoring_weights_v1.2.json: pushback: expected a number, got str"),
        ({WEIGHTS: '{"pushback": NaN}'}, "scoring_weights_v1.2.json: "),
        ({RUBRIC: "no list in it"}, "rubric_criteria.txt: expected a list of behaviours"),
        ({RUBRIC: " \n"}, "rubric_criteria.txt: the file is empty"),
        ({"data/rubric_prompt.txt": "<TRANSCRIPT_BLOCK> <JSON_TEMPLATE>"}, "expected the placeholder <CRITERIA_LIST>"),
        ({FINAL: "how was it?"}, "expected the placeholder <CONVERSATION_TRANSCRIPT>"),
        ({FINAL: "<CONVERSATION_TRANSCRIPT>" * 50_000}, "final_judge_prompt.txt: larger than 1 MiB"),
        ({"main.py": "def ("}, "main.py: cannot be read as Python code"),
        ({"main.py": "(" * 5_000}, "main.py: cannot be read as Python code"),
    ],
)
def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, changed: dict[str, str | None], message: str) -> None:
    """With the key, and before anything is sent."""
    write_clone(tmp_path, changed)

    with pytest.raises(DataError) as raised:
        read_clone(tmp_path)

    assert message in str(raised.value)


@pytest.mark.parametrize("name", [PROMPTS, FINAL, RUBRIC, CATEGORIES, INJECTIONS, "user_instructions/default.txt"])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    """Every file that a run needs."""
    write_clone(tmp_path)
    (tmp_path / name).unlink()

    with pytest.raises(DataError, match=Path(name).name.replace(".", r"\.").replace("_v0.2", "")):
        read_clone(tmp_path)


def test_a_directory_that_is_no_clone(tmp_path: Path) -> None:
    """The error says what was expected and how to get it."""
    (tmp_path / "data").mkdir()

    with pytest.raises(DataError, match=r"not a clone.*prompts, user_instructions not found.*git clone"):
        read_clone(tmp_path)


@pytest.mark.parametrize("name", [FINAL, PROMPTS, "main.py"])
def test_no_link_leads_out_of_the_clone(tmp_path: Path, name: str) -> None:
    """A file of this machine, such as a key, is not sent to a model."""
    secret = tmp_path / "secret"
    secret.write_text("<CONVERSATION_TRANSCRIPT> my key")
    clone = write_clone(tmp_path / "clone", {name: None})
    (clone / name).unlink(missing_ok=True)
    (clone / name).symlink_to(secret)

    with pytest.raises(DataError, match="a link that leads out of the clone"):
        read_clone(clone)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({RUBRIC: "- pushback\n- novelty"}, r"rubric_criteria\.txt: other behaviours .*novelty.*checkout"),
        ({WEIGHTS: '{"harmful-advice": 2}'}, r"scoring_weights_v1\.2\.json: .*topic-shut-down|harmful-advice"),
    ],
)
def test_another_version_is_refused(tmp_path: Path, changed: dict[str, str | None], message: str) -> None:
    """Its score under the protocol would have another meaning; the remedy can be pasted."""
    write_clone(tmp_path, changed)
    settings = Settings(model=("m",), spiral_upstream=str(tmp_path))

    with pytest.raises(DataError, match=message):
        _ = Content(settings, tmp_path).spiral


def test_its_protocols_are_those_of_the_version(tmp_path: Path) -> None:
    """The published one is the default, the corrected one a choice, and no other fits."""
    write_clone(tmp_path)

    def content(**options: Any) -> Content:
        return Content(Settings(model=("m",), spiral_upstream=str(tmp_path), **options), tmp_path)

    assert content().spiral.protocol.name == "upstream-v1.2"
    assert content(protocol="v1.2-corrected").spiral.protocol.name == "v1.2-corrected"
    with pytest.raises(ConfigError, match=r"choose one of upstream-v1\.2, v1\.2-corrected"):
        _ = content(protocol="per-chunk").spiral


def test_every_file_is_part_of_the_identity(tmp_path: Path) -> None:
    """Whatever changes in a file that is read changes the hashes of the run."""
    before = read_clone(write_clone(tmp_path)).files

    for name in before:
        text = (tmp_path / name).read_text()
        (tmp_path / name).write_text(text + "\n")
        assert read_clone(tmp_path).files[name] != before[name]
