"""Replies that say one passage again and again. `models/local_child.py` runs this file by its path."""

import re

# Characters at the end of a text that are looked at: longer passages are not found.
_LAST = 5000
_NUMBER = re.compile(r"\d+")


def repeats_itself(text: str) -> bool:
    """Whether a text ends in one passage at least 3 times in a row and over at least 60 characters, to the letter.

    Where the passage has no letters, it must be 4 times and 120 characters, and where only the numbers in it change, 20
    times and 400, or 5 times and 1,500: rules, tables and lists may look like that. A model that has come to this goes
    on with it: what it says next depends most on what it has said last.

    >>> repeats_itself("I see. " + "I am not sure what to do. " * 3), repeats_itself("I am not sure what to do. " * 2)
    (True, False)
    >>> repeats_itself("-" * 100), repeats_itself("-" * 120)
    (False, True)
    >>> repeats_itself("".join(f"There are {number} of them. " for number in range(30)))
    True
    """
    last = text[-_LAST:]
    if any(map(str.isalpha, _passage(last, 3, 60))) or _passage(last, 4, 120):
        return True
    alike = _NUMBER.sub("0", last)
    return bool(_passage(alike, 20, 400) or _passage(alike, 5, 1500))


def _passage(text: str, times: int, least: int) -> str:
    """The shortest passage that a text ends in so many times in a row and over so many characters, "" for none."""
    for period in range(1, len(text) // times + 1):
        size = max(times * period, least)
        if size <= len(text) and text[-1] == text[-1 - period] and text[-size:-period] == text[period - size :]:
            return text[-period:]
    return ""
