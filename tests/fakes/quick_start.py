"""A plugin for runs in processes of their own, which would otherwise spend seconds on what no test of them looks at."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from unittest import mock

import pytest


# Around all others: the first of them is that of the controller.
@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Iterator[None]:
    """Intervals come from few draws, and the scorer proves itself on three scenarios."""
    if not hasattr(session.config, "workerinput"):
        _be_quick(session.config)
    return (yield)


def _be_quick(config: pytest.Config) -> None:
    # Imported here, because workers need none of it.
    from pytest_spiral.run import controller
    from pytest_spiral.tempaffect.self_check import SelfCheck, check_scorer
    from pytest_spiral.tempaffect.suite import Suite
    from tests.fakes.bootstrap import few_draws
    from tests.fakes.suites import under_hashes_of

    def on_three(suite: Suite) -> SelfCheck:
        return check_scorer(under_hashes_of(suite, map(suite.__getitem__, ("pi-01", "ps-01", "rm-01"))))

    stack = ExitStack()
    stack.enter_context(few_draws())
    stack.enter_context(mock.patch.object(controller, "check_scorer", on_three))
    config.add_cleanup(stack.close)
