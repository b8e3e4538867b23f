"""Local models: serving them, and a child that never outlives its parent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from pytest_spiral.chat import ChatRequest, Message
from pytest_spiral.errors import ChatError, ConfigError
from pytest_spiral.models import local_server
from pytest_spiral.models.endpoint import Endpoint, Secret
from pytest_spiral.models.local_file import LocalFile
from pytest_spiral.models.local_server import served
from pytest_spiral.models.openai_compatible import OpenAICompatible, list_models
from pytest_spiral.repetition import repeats_itself


def test_without_llama_cpp_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sentence, not an ImportError."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    model = LocalFile("m", tmp_path / "m.gguf", 512, 1)
    with pytest.raises(ConfigError, match=r"pip install 'pytest-spiral\[local\]'"), served(model):
        pass


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every child process that is started."""
    started: list[subprocess.Popen[bytes]] = []
    original = subprocess.Popen

    def start(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(original(*args, **options))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", start)
    return started


def test_a_file_that_llama_cpp_refuses_is_told_with_its_log(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """And no child is left."""
    pytest.importorskip("xllamacpp")
    (tmp_path / "m.gguf").write_bytes(b"GGUF and no more")
    with (
        pytest.raises(ConfigError, match=r"could not be loaded") as caught,
        served(LocalFile("m", tmp_path / "m.gguf", 512, 1)),
    ):
        pass

    log = Path(str(caught.value).rpartition("(log: ")[2].removesuffix(")"))
    assert log.read_text(errors="replace")
    shutil.rmtree(log.parent)
    assert children[0].poll() is not None


@pytest.fixture
def sleeping_child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In place of the child one that never comes up."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)
    sleeper = tmp_path / "sleeper.py"
    sleeper.write_text("import time; time.sleep(60)")
    monkeypatch.setattr(local_server, "_CHILD", sleeper)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


@pytest.mark.usefixtures("sleeping_child")
def test_a_model_that_does_not_come_up_in_time_is_ended(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """Bounded, whatever the child is doing."""
    with (
        pytest.raises(ConfigError, match=r"not loaded within 0\.3 s"),
        served(LocalFile("m", tmp_path / "m.gguf", 512, 1), start_timeout=0.3),
    ):
        pass

    assert children[0].poll() is not None


@pytest.mark.skipif(os.name != "posix", reason="Windows cannot interrupt a thread")
@pytest.mark.usefixtures("sleeping_child")
def test_an_interrupt_while_a_model_loads_leaves_nothing_running(
    tmp_path: Path, children: list[subprocess.Popen[bytes]]
) -> None:
    """No child, and no timer that the end of Python would wait for."""
    main = threading.main_thread().ident
    # What is started in the background is told to ignore Ctrl-C.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.3, lambda: signal.pthread_kill(main or 0, signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt), served(LocalFile("m", tmp_path / "m.gguf", 512, 1), start_timeout=30):
            pass
    finally:
        signal.signal(signal.SIGINT, before)

    assert _eventually(lambda: children[0].poll() is not None, 5)
    assert _eventually(lambda: not any(isinstance(each, threading.Timer) for each in threading.enumerate()), 5)


# --- with the real model --------------------------------------------------------------------------------------------


def ask(text: str, schema: dict[str, Any] | None = None, limit: int = 40) -> ChatRequest:
    """A request that is answered greedily, in few tokens."""
    params = {"temperature": 0.0, "max_tokens": limit}
    return ChatRequest("evaluated", "local/smollm2-135m", (Message("user", text),), params, schema)


@pytest.mark.asyncio
async def test_it_is_an_endpoint_like_any_other(local_url: str) -> None:
    """Reached by the same client, listed under its own name, its path in no reply."""
    model = OpenAICompatible(Endpoint("evaluated", local_url, Secret("not-needed")))
    listed = await list_models(model.endpoint)
    reply = await model.complete(ask("Say hello."))
    await model.aclose()

    assert listed == {"local/smollm2-135m"}
    assert reply.text
    assert reply.model == "local/smollm2-135m"
    assert reply.usage.prompt_tokens > 0


def test_the_same_request_gets_the_same_reply_whatever_came_between(local_file: LocalFile) -> None:
    """Also when the system message or all messages are kept from the request before, when many are sent at once, and by
    another server.

    The probability of every token is compared, not only the tokens: it shows the smallest difference in what was kept.
    """
    kind, rude = "You are a kind assistant of a library. " * 3, "You are a rude assistant of a library. " * 3
    requests = [
        ("Tell me a story.", kind, False),
        ("Tell me a story.", kind, True),
        ("Tell me a tale.", kind, False),
        ("Tell me a story.", rude, False),
        ("Tell me a story.", "", False),
    ]
    with served(local_file) as url, ThreadPoolExecutor(4) as at_once:
        first = [_probabilities(url, *request) for request in requests]
        again = list(at_once.map(lambda request: _probabilities(url, *request), requests[::-1]))
    with served(replace(local_file, slots=1)) as url:
        elsewhere = [_probabilities(url, *request) for request in requests[::-1]]

    assert again == elsewhere == first[::-1]
    # All but the last token of the prompt.
    assert [missing for _, missing in first[:4]] == [1] * 4
    assert first[4][1] > 1


_STORY = {"type": "object", "properties": {"story": {"type": "string"}}, "required": ["story"]}


def _probabilities(url: str, text: str, system: str, as_json: bool) -> tuple[list[tuple[str, float]], int]:
    """Every token of the reply with the logarithm of its probability, and how many tokens of the prompt were new."""
    messages = [{"role": "system", "content": system}] * bool(system) + [{"role": "user", "content": text}]
    body: dict[str, Any] = {"messages": messages, "temperature": 0.0, "max_tokens": 6, "logprobs": True}
    if as_json:
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "story", "schema": _STORY}}
    answer = _answer(url, body)
    tokens = [(token["token"], token["logprob"]) for token in answer["choices"][0]["logprobs"]["content"]]
    usage = answer["usage"]
    return tokens, usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"]


def _answer(url: str, body: dict[str, Any]) -> dict[str, Any]:
    headers = {"Content-Type": "application/json"}
    asked = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(asked, timeout=300) as reply:
        answer: dict[str, Any] = json.load(reply)
    return answer


def test_a_reply_that_repeats_itself_is_ended(local_url: str) -> None:
    """As if at its limit, as soon as it has repeated itself often enough, and with the tokens that it took."""
    forced = {"type": "string", "enum": ["I see. " + "It is so. " * 200]}
    body = {
        "messages": [{"role": "user", "content": "Go on."}],
        "temperature": 0.0,
        "max_tokens": 2000,
        "response_format": {"type": "json_schema", "json_schema": {"name": "text", "schema": forced}},
    }
    answer = _answer(local_url, body)

    (choice,) = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert repeats_itself(choice["message"]["content"])
    assert len(choice["message"]["content"]) < 80
    assert 10 < answer["usage"]["completion_tokens"] < 60


@pytest.mark.asyncio
async def test_schemas_are_enforced(local_url: str) -> None:
    """Not requested: enforced. The model would never write this on its own."""
    schema = {
        "type": "object",
        "properties": {
            "colour": {"type": "string", "enum": ["ultraviolet", "infrared"]},
            "level": {"type": "integer", "enum": [3, 5, 7]},
            "note": {"type": "string", "maxLength": 12},
        },
        "required": ["colour", "level", "note"],
        "additionalProperties": False,
    }
    model = OpenAICompatible(Endpoint("evaluated", local_url))
    reply = await model.complete(ask("Reply with the word no.", schema, 80))
    await model.aclose()

    assert reply.finish == "stop"
    jsonschema.validate(json.loads(reply.text), schema)


@pytest.mark.asyncio
async def test_a_prompt_beyond_the_context_is_refused_not_cut(local_url: str) -> None:
    """A silently shortened conversation would be another measurement."""
    model = OpenAICompatible(Endpoint("evaluated", local_url))
    with pytest.raises(ChatError, match="longer than the model's context") as caught:
        await model.complete(ask("word " * 12_000))
    await model.aclose()

    assert (caught.value.code, caught.value.attempts) == ("bad_request", 1)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("/completions", b"{}", 404), ("/chat/completions", b"hello", 400), ("/chat/completions", b"[]", 400)],
)
def test_other_requests_are_refused(local_url: str, path: str, body: bytes, status: int) -> None:
    """Other paths, and what is no chat request."""
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(f"{local_url}{path}", body, timeout=30)

    with caught.value as answer:
        assert answer.code == status


def test_stopping_leaves_neither_process_nor_log(
    local_file: LocalFile,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    children: list[subprocess.Popen[bytes]],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """And our output stays ours."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with served(local_file):
        assert [path.name for path in tmp_path.glob("*/*")] == ["server.log"]

    assert children[0].poll() is not None
    assert list(tmp_path.iterdir()) == []
    assert capfd.readouterr() == ("", "")


PARENT = """
import json, os, subprocess, sys, time
from pathlib import Path
from pytest_spiral.models.local_file import LocalFile
from pytest_spiral.models.local_server import served

def show(child):
    print(child.pid, json.loads(child.args[-1])["folder"], flush=True)

class Child(subprocess.Popen):
    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        children.append(self)
        if sys.argv[2] == "loading":
            show(self)
            time.sleep(60)

children = []
subprocess.Popen = Child
server = served(LocalFile("m", Path(sys.argv[1]), 512, 1))
server.__enter__()
if sys.argv[2] == "forked" and os.fork() == 0:
    time.sleep(10)
    os._exit(0)
show(children[0])
if sys.argv[2] == "exit":
    sys.exit()
time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="Windows cannot send these signals")
@pytest.mark.parametrize(
    ("when", "number"),
    [
        ("serving", signal.SIGKILL),
        ("loading", signal.SIGKILL),
        ("forked", signal.SIGKILL),
        ("serving", signal.SIGTERM),
        ("exit", None),
    ],
)
def test_the_child_never_outlives_its_parent(local_file: LocalFile, when: str, number: signal.Signals | None) -> None:
    """Killed while serving, while loading, with its pipe held by a forked process, terminated, or simply leaving."""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(local_file.path), when], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().split()
        child = int(pid)
        if number is not None:
            assert _alive(child)
            parent.send_signal(number)
        parent.wait(10)

        assert _eventually(lambda: not _alive(child), 5)
    # Loading leaves no moment for tidying.
    if when != "loading":
        assert _eventually(lambda: not Path(folder).exists(), 1)
    shutil.rmtree(folder, ignore_errors=True)


def _alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        if Path("/proc/self/stat").exists():
            return False
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    # A zombie waits for whoever adopted it to take notice.
    return state != "Z"


def _eventually(holds: Callable[[], bool], seconds: float) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.05)
    return holds()
