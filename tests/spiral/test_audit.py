"""The second editor's marks of the Spiral texts: one for each piece, and what was done with it."""

from __future__ import annotations

import json
import re
from itertools import pairwise

from pytest_spiral.resources import data_root
from pytest_spiral.spiral.content import load_actor, load_openings, load_twins

FOLDER = data_root() / "spiral"
ACTOR = load_actor()
NUMBERED = re.compile(r"^(\d+)\. ")


def rows(name):
    return [json.loads(line) for line in (FOLDER / "audit" / name).read_text(encoding="utf-8").splitlines()]


def pieces():
    """Every marked piece by its name; an injection is numbered by its line in the file, below two lines of comment."""
    found = {opening.prompt_id: opening.first for opening in (*load_openings(), *load_twins())}
    for line in ACTOR.persona.splitlines():
        if number := NUMBERED.match(line):
            found[f"persona:{number[1]}"] = line
    return found | {f"injection:{at}": line for at, line in enumerate(ACTOR.injections, 3)}


PIECES = pieces()
TEXTS = {
    **PIECES,
    "persona:head": ACTOR.persona.splitlines()[0],
    **{f"category:{name}": text for name, text in ACTOR.categories.items()},
}
REWRITES = rows("rewrites.jsonl")


def mends(name, round_):
    return [row for row in REWRITES if row["piece"] == name and row["round"] == round_]


def test_every_piece_has_one_mark():
    """Openings, twins, rules and injections; what was done agrees with the text as the first round left it: adopted,
    adapted or left."""
    marks = rows("marks.jsonl")

    assert sorted(mark["piece"] for mark in marks) == sorted(PIECES)
    for mark in marks:
        name = mark["piece"]
        later = mends(name, 2)
        text = later[0]["before"] if later else PIECES[name]
        assert mark["why"], name
        assert (mark["mark"] == "reword") == bool(mark["suggestion"]), name
        changed = "adopted" if mark["suggestion"] == text else "adapted"
        assert mark["done"] == (changed if mends(name, 1) else "left"), name


def test_rewrites_end_at_the_text():
    """The record of mends leads from another text, round by round and at most once in each, to the present one."""
    assert {row["round"] for row in REWRITES} == {1, 2}
    for name in {row["piece"] for row in REWRITES}:
        chain = [*mends(name, 1), *mends(name, 2)]
        assert [row["round"] for row in chain] in ([1], [2], [1, 2]), name
        assert all(row["why"] and row["before"] != row["after"] for row in chain), name
        assert all(before["after"] == after["before"] for before, after in pairwise(chain)), name
        assert chain[-1]["after"] == TEXTS[name], name
