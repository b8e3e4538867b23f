"""Configuration of all tests."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_spiral.models.local_file import default_cache_dir
from tests.fakes.forks import ADDOPTS, ADDRESS, forking

try:
    from hypothesis import settings
except ImportError:
    # Evaluations started in a checkout read this file as well, and `make bench` installs no test extras.
    pass
else:
    # How long an example takes says nothing about its correctness: machines are shared.
    settings.register_profile("no-deadline", deadline=None)
    # What `make test` looks at, the same every time.
    settings.register_profile("ci", deadline=None, derandomize=True, database=None, print_blob=True, max_examples=30)
    # For an hour of search: --hypothesis-profile=thorough.
    settings.register_profile("thorough", deadline=None, max_examples=2_000)
    settings.load_profile("no-deadline")


# Modules whose tests take many seconds each.
_LONG = {
    "test_local_model.py",
    "test_local.py",
    "test_packaging.py",
    "test_code_blocks.py",
    "test_field_trial_records.py",
}


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes long, or in the end the other workers wait for it. The rest stays in random order."""
    items.sort(key=lambda item: item.path.name not in _LONG)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """All that is loaded lives to the end: looking through it for garbage again and again took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)


@pytest.fixture(scope="session")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """What makes many small runs cheap: scipy, which nltk imports where it can, is not seen; processes are forks.

    Imported into several modules, it would be as many fixtures, each with a process that forks.
    """
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    hidden = folder / "hidden"
    hidden.mkdir(exist_ok=True)
    (hidden / "scipy.py").write_text("raise ImportError('not a dependency of the package')\n")
    path = os.pathsep.join(filter(None, [str(hidden), os.environ.get("PYTHONPATH"), str(Path(__file__).parents[1])]))
    environ = {
        "PYTHONPATH": path,
        # Found now, because pytester moves HOME away.
        "PYTEST_SPIRAL_CACHE": str(default_cache_dir(os.environ)),
    }
    with forking({**environ, "PYTEST_ADDOPTS": ADDOPTS}) as address:
        yield {**environ, ADDRESS: address}
