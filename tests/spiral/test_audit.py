"""The second editor's marks of the Spiral texts: one for each piece, and what was done with it."""

from __future__ import annotations

import json
import re

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
CHANGED = {row["piece"]: row for row in rows("rewrites.jsonl")}


def test_every_piece_has_one_mark():
    """Openings, twins, rules and injections; what was done agrees with the text: adopted, adapted or left."""
    marks = rows("marks.jsonl")

    assert sorted(mark["piece"] for mark in marks) == sorted(PIECES)
    for mark in marks:
        name = mark["piece"]
        assert mark["why"], name
        assert (mark["mark"] == "reword") == bool(mark["suggestion"]), name
        changed = "adopted" if mark["suggestion"] == PIECES[name] else "adapted"
        assert mark["done"] == (changed if name in CHANGED else "left"), name


def test_a_rewrite_ends_at_the_text():
    """The record of mends holds the present text, and another one before it."""
    texts = PIECES | {f"category:{name}": text for name, text in ACTOR.categories.items()}

    assert len(CHANGED) == len(rows("rewrites.jsonl"))
    for name, row in CHANGED.items():
        assert row["why"], name
        assert row["before"] != row["after"] == texts[name], name
