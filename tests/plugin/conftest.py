"""Fixtures for tests of the plugin as users meet it: whole pytest runs."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from pytest_spiral.cli import main
from tests.fakes.bootstrap import few_draws
from tests.fakes.forks import ADDOPTS, ForkedPopen
from tests.fakes.installed import read_once
from tests.fakes.openai_server import FakeOpenAI, Handler, fake_openai
from tests.fakes.scored import score_once

SUITE = "scenarios/test_tempaffect.py"
DISTRIBUTIONS = {"no-xdist": ("-p", "no:xdist"), "n0": ("-n", "0"), "n2": ("-n", "2")}


# pytester forgets what a run in this process imports; what is here already is imported once.
for name in (
    "httpcore2",
    "nltk.stem",
    "openai",
    "pytest_spiral.models.http_client",
    "pytest_spiral.run.calibrate",
    "truststore",
    "xdist.dsession",
    "xdist.workermanage",
    "pytest_spiral.tempaffect.checks",
    "pytest_spiral.plugin.controller",
    "pytest_spiral.plugin.worker",
    "pytest_spiral.plugin.distribution",
):
    importlib.import_module(name)
read_once()


def command(*args: str) -> list[str]:
    """How to run pytest in a process of its own; an evaluation is spared what no test of it looks at."""
    evaluates = any(arg.startswith("--model") for arg in args)
    quick = ("-p", "tests.fakes.quick_start") if evaluates else ()
    return [sys.executable, "-m", "pytest", *quick, *args]


def node(scenario: str, mode: str = "raw", model: str = "dry/perfect") -> str:
    """Node id of a bundled item."""
    return f"{SUITE}::test_scenario[{model}-{mode}-{scenario}]"


@pytest.fixture(params=DISTRIBUTIONS.values(), ids=list(DISTRIBUTIONS))
def distribution(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Arguments for no xdist, xdist without workers, xdist with two."""
    arguments: tuple[str, ...] = request.param
    return arguments


@pytest.fixture(params=[DISTRIBUTIONS["no-xdist"], ("-n", "1")], ids=["no-xdist", "n1"])
def anywhere(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Arguments for no xdist and for a worker, where it matters who runs an item and not how many there are."""
    arguments: tuple[str, ...] = request.param
    return arguments


@pytest.fixture(params=[DISTRIBUTIONS["no-xdist"], DISTRIBUTIONS["n2"]], ids=["no-xdist", "n2"])
def one_or_two(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """Arguments for no xdist and for two workers, where a run is too dear for all three."""
    arguments: tuple[str, ...] = request.param
    return arguments


Result = pytest.RunResult  # inside `Project` the name `pytest` is a method


class Project:
    """A user's project: an empty folder to fill, and pytest to run in it."""

    def __init__(self, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pytester = pytester
        self.path = pytester.path
        self.setenv = monkeypatch.setenv
        self.delenv = monkeypatch.delenv

    def pytest(self, *args: str, cwd: str | Path = ".") -> Result:
        """Run pytest in this process, xdist workers in theirs: several times cheaper than `process`."""
        os.chdir(self.path / cwd)
        try:
            return self.pytester.runpytest_inprocess(*args)
        finally:
            os.chdir(self.path)

    here = pytest

    def process(self, *args: str, cwd: str | Path = ".", timeout: float = 100) -> Result:
        """Run pytest in a process of its own, as users do: where workers must find a plugin of the project's, too."""
        os.chdir(self.path / cwd)
        try:
            return self.pytester.run(*command(*args), timeout=timeout)
        finally:
            os.chdir(self.path)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start pytest in a process group of its own, for signals."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            command(*args),
            cwd=self.path,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    def collected(self, *args: str, cwd: str | Path = ".") -> list[str]:
        """Node ids that a run would have."""
        result = self.here("--collect-only", "-q", "-p", "no:xdist", *args, cwd=cwd)
        assert result.ret == 0
        return [line for line in result.outlines if "::" in line]

    def folder(self, run: str = "latest") -> Path:
        return self.path / "reports" / run

    def report(self, run: str = "latest") -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.folder(run) / "report.json").read_text())
        return report

    def upstream(self, run: str = "latest") -> Path:
        """The conversations of a run, written as a public result file."""
        assert main(["export", str(self.folder(run)), "--format=upstream"]) == 0
        return self.folder(run) / "export" / "spiral_results.json"

    def items(self, run: str = "latest") -> dict[tuple[str, str], dict[str, Any]]:
        """Items of a report by (mode, scenario id)."""
        modes = {"schema_assisted": "schema", "raw_json": "raw"}
        return {(modes[item["prompting_mode"]], item["id"]): item for item in self.report(run)["tempaffect"]["items"]}

    def cards(self, run: str = "latest") -> dict[str, bytes]:
        """Card files, byte for byte."""
        return {path.name: path.read_bytes() for path in sorted((self.folder(run) / "cards").iterdir())}

    def write(self, **files: str) -> None:
        """Write files; `__` in a name stands for a dot."""
        for name, text in files.items():
            (self.path / name.replace("__", ".")).write_text(text)

    def reach(self, server: FakeOpenAI, key: str | None = None) -> None:
        """Point the evaluated model's endpoint to a server."""
        self.setenv("EVALUATED_MODEL_BASE_URL", server.base_url)
        if key is not None:
            self.setenv("EVALUATED_MODEL_API_KEY", key)


@pytest.fixture(scope="module", autouse=True)
def few_resamples() -> Iterator[None]:
    """Bootstrap intervals from few draws in this process: the reports of these tests took most of their time."""
    with few_draws(), pytest.MonkeyPatch.context() as patch:
        score_once(patch)
        yield


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, lean: dict[str, str]) -> Project:
    """An empty project in an environment without keys, endpoints and settings."""
    for name in list(os.environ):
        if name.endswith(("_API_KEY", "_BASE_URL")) or name.startswith(("PYTEST_", "GITHUB_")):
            monkeypatch.delenv(name)
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", ADDOPTS)
    for name, value in lean.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(subprocess, "Popen", ForkedPopen)
    monkeypatch.syspath_prepend(pytester.path)
    return Project(pytester, monkeypatch)


Serve = Callable[..., FakeOpenAI]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start fake servers; all are gone after the test."""
    with ExitStack() as stack:

        def start(handler: Handler | None = None, **options: Any) -> FakeOpenAI:
            return stack.enter_context(fake_openai(handler, **options))

        yield start


@pytest.fixture
def wait_for() -> Callable[..., None]:
    """Wait until a condition holds."""

    def wait(condition: Callable[[], bool], seconds: float = 90.0) -> None:
        until = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < until, "waited in vain"
            time.sleep(0.02)

    return wait


@pytest.fixture
def end() -> Iterator[Callable[[subprocess.Popen[str], signal.Signals], str]]:
    """Send a started run's whole process group a signal, wait for its end and return what it said."""
    started: list[subprocess.Popen[str]] = []

    def finish(process: subprocess.Popen[str], number: signal.Signals, *, group: bool = True) -> str:
        started.append(process)
        if group:
            os.killpg(process.pid, number)
        else:
            process.send_signal(number)
        return process.communicate(timeout=60)[0]

    yield finish
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait()
