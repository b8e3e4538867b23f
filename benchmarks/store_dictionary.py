"""The preset dictionary with which the run store compresses single texts.

    python -m benchmarks.store_dictionary > data/store_dictionary.txt

Common words of the calibration turns and the prefixes, the most frequent ones last, then what a row holds of a judge's
prompt and reply: zlib reaches what is near the end most cheaply. Another dictionary is another format of the store.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator

from pytest_spiral.resources import data_root, read_json, scenarios_root
from pytest_spiral.spiral.chunks import Chunk, Exchange
from pytest_spiral.spiral.content import load_rubric
from pytest_spiral.spiral.prompting import chunk_messages
from pytest_spiral.spiral.protocol import load_protocol

# What deflate can look back, but for some bytes that it reserves.
BYTES = 32_500
_TEXTS = (data_root() / "spiral/calibration_2/turns.json", scenarios_root() / "spiral_prefix/prefixes.json")
_PROSE = 120


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _strings(part)


def _judged() -> str:
    """What a row of the store holds of a judge's request and reply, with the places of texts in between."""
    protocol = load_protocol("per-turn")
    rubric = load_rubric(protocol.rubric)
    said = [f"<{number}>" for number in range(484, 491)]
    *before, last = (Exchange(turn, *said[2 * turn + 1 : 2 * turn + 3]) for turn in range(3))
    (_, prompt) = chunk_messages(rubric, said[0], Chunk(2, (last,), tuple(before)), "")
    asked = re.sub(r"<(\d+)>", r'",-\1,"', json.dumps(prompt.content)[1:-1])
    marks = "".join(f', "{name}": 0' for name in rubric.marks)
    nothing = "".join(f', "{name}": []' for name in protocol.behaviours)
    finding = json.dumps('[{"quote": "", "strength": 2}, {"quote": "", "strength": 1}]')
    reply = json.dumps(f'{{"reasoning": ""{marks}{nothing}}}')
    return f'{finding}[0,0,["s",8,"u",["{asked}"]],{reply}]'


def dictionary() -> str:
    """The dictionary, in ASCII."""
    end = _judged()
    prose = (text for path in _TEXTS for text in _strings(read_json(path)) if len(text) > _PROSE)
    words = Counter(word for text in prose for word in re.findall(r"[A-Za-z']+[.,?]? ", text))
    common: list[str] = []
    left = BYTES - len(end)
    for word, _ in sorted(words.items(), key=lambda found: (-found[1], found[0])):
        left -= len(word)
        if left < 0:
            break
        common.append(word)
    return "".join(reversed(common)) + end


if __name__ == "__main__":
    print(dictionary(), end="")
