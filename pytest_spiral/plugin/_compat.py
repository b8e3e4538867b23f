"""Everything private of pytest and pytest-xdist that this plugin relies on, in one place.

Checked against pytest 9.0 to 9.2 and pytest-xdist 3.8. Where a release moves one of these, this file is to be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

import pytest
from _pytest.mark import ParameterSet as ParameterSet

Node: TypeAlias = Any
"""A worker as the controller sees it: `xdist.workermanage.WorkerController`, which has no types."""


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


def is_skipped(item: pytest.Item) -> bool:
    """Whether a skip or skipif mark applies. Only pytest's own plugin evaluates conditions written as strings."""
    from _pytest.skipping import evaluate_skip_marks

    return evaluate_skip_marks(item) is not None


def add_junit_properties(config: pytest.Config, properties: Iterable[tuple[str, str]]) -> None:
    """Add properties of the test suite where JUnit XML is written.

    The fixture `record_testsuite_property` does the same, but only for tests.
    """
    from _pytest.junitxml import xml_key

    xml = config.stash.get(xml_key, None)
    if xml is not None:
        for name, value in properties:
            xml.add_global_property(name, value)


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Let the terminal reporter write while a test is running (https://github.com/pytest-dev/pytest/issues/2704)."""
    capture = config.pluginmanager.get_plugin("capturemanager")
    found: AbstractContextManager[None] = capture.global_and_fixture_disabled() if capture else nullcontext()
    return found


def worker_input(config: pytest.Config) -> dict[str, Any] | None:
    """What the controller has given to this process, None if it is not a worker of pytest-xdist."""
    return getattr(config, "workerinput", None)


def worker_output(config: pytest.Config) -> dict[str, Any]:
    """What this worker leaves behind for the controller, which gets it when the worker ends."""
    output: dict[str, Any] = config.workeroutput  # type: ignore[attr-defined]  # xdist sets it on workers
    return output


def is_on_this_machine(node: Node) -> bool:
    """Whether a worker sees the same files: started here, and not told to work elsewhere."""
    spec = node.gateway.spec
    return bool(spec.popen) and not spec.chdir


def node_ids_differ(expected: Sequence[str], collected: Sequence[str], node: Node) -> str | None:
    """How the items that a worker has collected differ from those of the others, None if they do not."""
    from xdist.report import report_collection_diff

    found: str | None = report_collection_diff(expected, collected, "the others", node.gateway.id)
    return found


def _session(config: pytest.Config) -> Any:
    """xdist's session of the controller (`xdist.dsession.DSession`)."""
    return config.pluginmanager.get_plugin("dsession")


def stop_session(config: pytest.Config, reason: str) -> None:
    """End a distributed session: its loop looks at this attribute after every event."""
    _session(config).shouldstop = reason


def run_in_controller_loop(config: pytest.Config, call: Callable[[], None]) -> None:
    """Have `call` run in the main thread between two events of workers; safe from any thread.

    `DSession.loop_once` takes events from a queue and calls the method `worker_<name>` for each.
    """
    session = _session(config)
    session.worker_spiral = call
    session.queue.put(("spiral", {}))
