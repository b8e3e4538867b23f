"""Fixtures for the tests of talking to models."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.local_file import LocalFile, locate
from pytest_spiral.models.local_server import served
from pytest_spiral.store import RunStore
from tests.fakes.openai_server import FakeOpenAI, Handler, fake_openai


@pytest.fixture
def serve() -> Iterator[Callable[..., FakeOpenAI]]:
    """Start fake servers; all are gone after the test."""
    with ExitStack() as stack:

        def start(handler: Handler | None = None, **options: Any) -> FakeOpenAI:
            return stack.enter_context(fake_openai(handler, **options))

        yield start


@pytest.fixture
def book() -> Iterator[RunStore]:
    """A store that keeps the limits of endpoints."""
    with closing(RunStore.in_memory({})) as store:
        yield store


@pytest.fixture(scope="session")
def local_file() -> LocalFile:
    """The small model, where it has been fetched."""
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed (extra `local`)")
    try:
        return locate("local/smollm2-135m")
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def local_url(local_file: LocalFile) -> Iterator[str]:
    """The base URL of the small model."""
    with served(local_file) as url:
        yield url
