"""Replies that say one passage again and again. `models/local_child.py` runs this file by its path: no imports here."""

_TIMES, _CHARS = 5, 200
# Of the passage. What repeats at a greater distance is not looked for.
_LONGEST = 1000


def repeats_itself(text: str) -> bool:
    """Whether a text ends in one passage, to the letter, at least 5 times in a row and over at least 200 characters.

    A model that has come to this goes on with it: what it says next depends most on what it has said last.

    >>> repeats_itself("I see. " + "I am not sure what to do. " * 8), repeats_itself("I am not sure what to do. " * 4)
    (True, False)
    """
    for period in range(1, min(_LONGEST, len(text) // _TIMES) + 1):
        size = max(_TIMES * period, _CHARS)
        if size <= len(text) and text[-1] == text[-1 - period] and text[-size:-period] == text[period - size :]:
            return True
    return False
