"""Keys do not leak, nothing but the endpoints is contacted, files from outside are bounded and never executed."""

from __future__ import annotations

import ast
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import pytest_spiral
from pytest_spiral.compare.recording import load_recording
from pytest_spiral.errors import DataError
from pytest_spiral.resources import MAX_FILE_BYTES
from pytest_spiral.spiral.upstream import load_upstream
from pytest_spiral.tempaffect.suite import read_scenarios
from tests.fakes.openai_server import FakeOpenAI, Fault
from tests.fakes.script import Rule, Script
from tests.faults.catalogue import KEY
from tests.faults.runs import Run, cast, patient

SOURCES = sorted(Path(pytest_spiral.__file__).parent.rglob("*.py"))
_contacted: list[Any] | None = None


def _record_contact(event: str, arguments: tuple[Any, ...]) -> None:
    if _contacted is not None and event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        _contacted.append(arguments[1] if event == "socket.connect" else arguments[:2])


@contextmanager
def contacts() -> Iterator[list[Any]]:
    """Every address that this process connects to or looks up."""
    global _contacted
    if not getattr(sys, "_spiral_audited", False):
        # An audit hook cannot be removed, so all tests share one.
        sys.addaudithook(_record_contact)
        sys._spiral_audited = True  # type: ignore[attr-defined]  # a mark of our own
    result: list[Any] = []
    _contacted = result
    try:
        yield result
    finally:
        _contacted = None


@pytest.mark.parametrize("suite", ["tempaffect", "spiral"])
def test_nothing_but_the_endpoints_is_contacted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suite: str) -> None:
    """No target of a redirect, no address in a variable of another tool, and no server of ours."""
    for name in (
        "OPENAI_BASE_URL",
        "OPENAI_API_BASE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "OPENAI_CUSTOM_HEADERS",
    ):
        monkeypatch.setenv(name, "http://192.0.2.7:9/v1" if name != "OPENAI_CUSTOM_HEADERS" else "X: y")
    elsewhere = Fault("answer", 307, headers={"Location": "http://192.0.2.1/v1/chat/completions"})
    script = Script(cast(), [Rule(elsewhere, "m", calls={2})])

    with contacts() as result, FakeOpenAI(script, key=KEY) as server, patient(20, 60):
        Run(tmp_path, server, suite, KEY).go()
        port = int(server.origin.rpartition(":")[2])

    addresses = {tuple(address[:2]) for address in result if isinstance(address, tuple)}
    assert ("127.0.0.1", port) in addresses
    assert {host for host, _ in addresses} <= {"127.0.0.1", "localhost"}
    assert {where for host, where in addresses if isinstance(where, int) and where} == {port}


def test_the_audit_hook_sees_connections() -> None:
    """What the test above relies on."""
    import socket

    with contacts() as result, socket.socket() as connection:
        connection.settimeout(0.01)
        connection.connect_ex(("127.0.0.1", 9))

    assert ("127.0.0.1", 9) in result


def test_nothing_read_is_executed() -> None:
    """No pickle, no marshal, no eval of what comes from outside, anywhere in the package."""
    assert len(SOURCES) > 50
    for path in SOURCES:
        nodes = list(ast.walk(ast.parse(path.read_text())))
        names = {name.name.partition(".")[0] for node in nodes if isinstance(node, ast.Import) for name in node.names}
        names |= {str(node.module).partition(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
        calls = [node.func for node in nodes if isinstance(node, ast.Call)]
        called = {function.id for function in calls if isinstance(function, ast.Name)}

        assert not names & {"pickle", "marshal", "shelve", "dill", "cloudpickle", "yaml"}, path
        assert not called & {"eval", "exec", "compile", "__import__"}, path


@pytest.mark.parametrize("read", [load_upstream, load_recording, read_scenarios], ids=lambda read: read.__name__)
def test_files_from_outside_are_bounded(tmp_path: Path, read: Callable[[Path], object]) -> None:
    """Too large, no file at all, bytes that are no text, nesting without end: one sentence that names the file."""
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    deep, binary, pipe = tmp_path / "deep.json", tmp_path / "binary.json", tmp_path / "pipe.json"
    deep.write_text("[" * 100_000)
    binary.write_bytes(b"\xff\xfe\x00")
    os.mkfifo(pipe)

    for path in (large, deep, binary, pipe, tmp_path / "missing.json"):
        with pytest.raises(DataError, match=path.name):
            read(path)


@pytest.mark.parametrize("name", ["../../../p0", "/etc/p0", "..", "a/b"])
def test_names_in_a_prompt_file_are_not_paths(tmp_path: Path, name: str) -> None:
    """Refused, and nothing is written outside the run's folder."""
    with FakeOpenAI(cast(), key=KEY) as server:
        run = Run(tmp_path, server, "spiral", KEY)
        prompts = run.folder / "prompts.json"
        prompts.write_text(prompts.read_text().replace('"p0"', f'"{name}"'))

        with pytest.raises(DataError, match=r"prompts\.json: prompt 0: prompt_id"):
            run.go()

    assert {path.name for path in tmp_path.iterdir()} <= {"prompts.json", "reports", "spiral.toml"}
    assert {path.name for path in tmp_path.glob("reports/*")} <= {"r"}
