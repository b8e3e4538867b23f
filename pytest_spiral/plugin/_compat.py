"""Everything private of pytest and pytest-xdist that this plugin relies on, in one place.

Checked against pytest 9.0 to 9.2 and pytest-xdist 3.8. Where a release moves one of these, this file is to be changed.
"""

from __future__ import annotations

import pytest

__all__ = ["add_short_name", "remove_short_name"]


def add_short_name(parser: pytest.Parser, flag: str, short: str) -> None:
    """Give a registered option a second name that stands first in the help, unless somebody else has that name.

    `Parser.addoption` (https://docs.pytest.org/en/stable/reference/reference.html#pytest.Parser.addoption) takes all
    names at once, and refuses them all if one is taken; ours are tried after everybody else has chosen.
    """
    actions = parser.optparser._option_string_actions
    if short != flag and short not in actions:
        action = actions[flag]
        actions[short] = action
        action.option_strings = [short, *action.option_strings]
        parser._opt2dest[short] = action.dest


def remove_short_name(parser: pytest.Parser, flag: str, short: str) -> None:
    """Undo `add_short_name`; does nothing for a name that belongs to somebody else."""
    actions = parser.optparser._option_string_actions
    if short != flag and actions.get(short) is actions[flag]:
        del actions[short], parser._opt2dest[short]
        actions[flag].option_strings = [name for name in actions[flag].option_strings if name != short]
