"""A server for runs without pytest around them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.openai_server import FakeOpenAI
from tests.faults.runs import patient
from tests.run.misconfigured import KEY


@pytest.fixture(scope="package")
def shared_server() -> Iterator[FakeOpenAI]:
    """One server for all; it also has a page and an address that redirects."""
    with FakeOpenAI(key=KEY, pages=True) as started:
        yield started


@pytest.fixture
def server(shared_server: FakeOpenAI) -> Iterator[FakeOpenAI]:
    """The shared server, with a client that waits shortly during a test: tests of other packages may run between."""
    with patient(10, 30):
        yield shared_server
