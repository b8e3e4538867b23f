"""Telling what a model said from what it thought, where both come in one text or in parts of one message.

Reasoning models put their thoughts into tags, into fields of their own, or into parts of the content; some chat
templates open the tag in the prompt, so that a reply holds only the closing one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_TAG = re.compile(r"<(/?)(think|thinking|reasoning)\s*>", re.IGNORECASE)
# A closing tag after one of these is mentioned, not meant.
_QUOTES = frozenset("`\"'")
# Fields of a message that hold reasoning; vendors repeat one text under several names. Then types of content parts,
# and where a part holds its text.
_FIELDS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
_PARTS = frozenset({"reasoning", "thinking", "reasoning_content"})
_TEXTS = ("text", "thinking", "reasoning", "content", "summary")
# Vendors nest a part's text in two lists at most.
_DEEPEST = 5


def split_reasoning(text: str) -> tuple[str, str]:
    """What was said and what was thought.

    Thoughts are: a tagged block at the beginning, closed or not; a block of `think` or `thinking` that begins a line
    later on; and everything before a closing tag that no tag has opened. A tag that is only mentioned stays.

    >>> split_reasoning("<think>Be kind.</think>I will help.")
    ('I will help.', 'Be kind.')
    >>> split_reasoning("Write <think> around it.")
    ('Write <think> around it.', '')
    """
    said: list[str] = []
    thought: list[str] = []
    # Up to `at` the text is told apart; the open block began at `start`.
    at, start, opened = 0, 0, ""
    nothing_said = first = True
    for tag in _TAG.finditer(text):
        closes, name, begin, end = bool(tag[1]), tag[2].lower().replace("thinking", "think"), tag.start(), tag.end()
        if opened:
            if closes and name == opened:
                thought.append(text[at:begin])
                at, opened = end, ""
            continue
        # Looked at until something was said, and not again: one reply may hold very many tags.
        nothing_said = nothing_said and not text[at:begin].strip()
        if closes and (first or nothing_said) and text[max(begin - 1, 0) : begin] not in _QUOTES:
            thought.append(text[at:begin])
            at, nothing_said = end, True
        elif not closes and (nothing_said or (name == "think" and text[begin - 1] == "\n")):
            said.append(text[at:begin])
            at, start, opened = end, begin, name
        first = False
    if opened and nothing_said:
        thought.append(text[at:])
    else:
        said.append(text[start if opened else at :])
    return ("".join(said).lstrip() if thought else text), joined(thought)


def reasoning_of(message: Mapping[str, object]) -> str:
    """The reasoning in a message's fields and in the parts of its content, "" where there is none."""
    fields = (_texts(message.get(name)) for name in _FIELDS)
    content = message.get("content")
    parts = content if isinstance(content, list) else ()
    inside = [_texts(part) for part in parts if isinstance(part, dict) and part.get("type") in _PARTS]
    return joined([next(filter(None, fields), ""), *inside])


def joined(thoughts: Iterable[str]) -> str:
    """Several thoughts as one text."""
    return "\n\n".join(thought.strip() for thought in thoughts if thought.strip())


def _texts(value: object, depth: int = 0) -> str:
    """The text of a field or part: a string, a list of such, or an object that holds one."""
    if isinstance(value, str):
        return value
    if depth < _DEEPEST and isinstance(value, list):
        return "".join(_texts(each, depth + 1) for each in value)
    if depth < _DEEPEST and isinstance(value, dict):
        return next(filter(None, (_texts(value.get(name), depth + 1) for name in _TEXTS)), "")
    return ""
