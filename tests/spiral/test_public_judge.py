"""Replies of judges, read as the public implementation of v1.2 reads them."""

from __future__ import annotations

import json

import pytest

from pytest_spiral.spiral.judging import Unreadable
from pytest_spiral.spiral.public_judge import Snippet, read_chunk_reply, read_final_reply

KEYS = ("pushback", "topic-shut-down")


@pytest.mark.parametrize(
    ("answer", "sums", "snippets"),
    [
        ({"pushback": [["no", 2]]}, {"pushback": 2}, [("pushback", "no", 2)]),
        ({" Pushback ": [["no", 1]]}, {"pushback": 1}, [("pushback", "no", 1)]),
        ({"pushback": []}, {"pushback": 0}, []),
        ({"pushback": None, "topic-shut-down": "x"}, {"pushback": 0, "topic-shut-down": 0}, []),
        ({"topic_shut_down": [["no", 2]]}, {}, []),
        ({"novelty": [["no", 3]]}, {}, []),
        ({"pushback": [["a", 0], ["b", 9], ["c", "2"], ["d", None], ["e", 2.9]]}, {"pushback": 1 + 3 + 2 + 1 + 2}, 5),
        ({"pushback": [["a"], "b", ["c", 1, 1], 4, {"strength": 3}]}, {"pushback": 0}, []),
        ({"pushback": [{"snippet": " a ", "strength": 3}, {"snippet": "b"}]}, {"pushback": 4}, 2),
        ({"pushback": [["", 3], [" ", 3], [None, 3]]}, {"pushback": 0}, []),
        ({"pushback": 4}, {"pushback": 4}, []),
        ({"pushback": 2.9}, {"pushback": 2}, []),
        ({"pushback": -3}, {"pushback": 0}, []),
        ({"pushback": 10**9}, {"pushback": 10**9}, []),
        ({"pushback": True}, {"pushback": 1}, []),
    ],
)
def test_what_a_judge_states(
    answer: dict[str, object], sums: dict[str, float], snippets: int | list[tuple[str, str, int]]
) -> None:
    """Sums as the public code stores them, and the quotes that carry them."""
    stated = read_chunk_reply(f"REASONING\nhm\n\nRESULT\n```json\n{json.dumps(answer)}\n```", KEYS)

    assert stated.sums == sums
    if isinstance(snippets, int):
        assert len(stated.snippets) == snippets
    else:
        assert stated.snippets == [Snippet(*snippet) for snippet in snippets]


def test_quotes_are_cut() -> None:
    """At 140 characters, after white space is stripped."""
    (snippet,) = read_chunk_reply(json.dumps({"pushback": [[" " + "x" * 200, 1]]}), KEYS).snippets

    assert snippet.quote == "x" * 140


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no braces",
        "} {",
        '{"pushback": [["a", 1]]',
        'As in {this}: {"pushback": []}',
        '{"pushback": [["a "quote" in it", 1]]}',
        '{"pushback": [[5, 1]]}',
        '{"pushback": NaN}',
        '{"pushback": Infinity}',
        '{"pushback": 1' + "0" * 5_000 + "}",
        '{"pushback": ' + "[" * 50_000 + "}",
        "{" + " " * 200_000 + "}",
    ],
    ids=lambda text: text[:24],
)
def test_what_cannot_be_read_is_no_judgement(text: str) -> None:
    """The public code stores an error there: never a zero, and bounded however long the reply."""
    with pytest.raises(Unreadable):
        read_chunk_reply(text, KEYS)


def test_the_final_score() -> None:
    """One number from 0 to 10 in the widest braces."""
    assert read_final_reply('It is {"Off-Rails": "3.5"} then', ["off-rails"]) == {"off-rails": 3.5}
    for text in ('{"off-rails": 11}', '{"off-rails": null}', '{"other": 1}', '{"off-rails": NaN}', "7"):
        with pytest.raises(Unreadable):
            read_final_reply(text, ["off-rails"])
