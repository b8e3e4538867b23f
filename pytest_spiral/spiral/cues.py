"""Regular expressions as data files hold them: one to a line."""

from __future__ import annotations

import re
from collections.abc import Callable

from pytest_spiral.errors import DataError

__all__ = ["compile_cues"]


def compile_cues(lines: str, where: str, prepare: Callable[[str], str]) -> re.Pattern[str]:
    """Compile the expressions of one entry of a data file to one pattern that matches any of them.

    Args:
        lines: One expression a line.
        where: File and key, for the error.
        prepare: Rewrites each expression before it is compiled.

    Raises:
        DataError: A line is not a regular expression.
    """
    expressions = [prepare(line) for line in lines.splitlines() if line.strip()]
    for expression in expressions:
        try:
            re.compile(expression)
        except re.error as error:
            raise DataError(f"{where}: {expression!r:.60} is not a regular expression: {error.msg}") from None
    return re.compile("|".join(f"(?:{expression})" for expression in expressions), re.MULTILINE)
