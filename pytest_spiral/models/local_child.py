"""The child process that serves one GGUF file on loopback, by llama.cpp's own OpenAI-compatible server.

Before llama.cpp's servers stands a small one that has the system message of a request evaluated once and kept for the
requests after it, and the other messages for further requests with all of them the same. What is kept must not change a
reply, and the same tokens in batches of other sizes give slightly other numbers. So a request always finds the same
state: the system message evaluated by itself from nothing, its last token again by itself, then all other messages at
once. It also ends a reply that repeats itself, as if it had reached its token limit, where it would only go on to it.

Run as a script by `pytest_spiral.models.local_server`. It imports nothing of this package, so that it starts from any
directory. Its only line on stdout is JSON: `{"url": ...}` or `{"error": ...}`. It lives as long as its stdin is open
and its parent runs.
"""

from __future__ import annotations

import ctypes
import http.client
import importlib
import json
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

_PR_SET_PDEATHSIG = 1
_PLACEHOLDER = "placeholder-for-the-text-of-the-user"
# A module of the package, which may not be importable from here.
repeats_itself: Callable[[str], bool] = runpy.run_path(str(Path(__file__).parents[1] / "repetition.py"))[
    "repeats_itself"
]


def main() -> None:
    """Serve until the parent is gone."""
    options = json.loads(sys.argv[1])
    # llama.cpp prints to stdout: that goes to the log, and the pipe is kept for the one line.
    pipe = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    # Loading blocks the interpreter, so only the kernel can notice the parent's death meanwhile. Only until then: the
    # kernel sends this signal when the parent's thread ends, even if its process lives on.
    _die_with_parent(signal.SIGKILL)
    threading.Thread(target=_watch, args=(options["parent"], options["folder"]), daemon=True).start()
    try:
        servers = [
            _serve(options["model"], options["name"], options["context"], options["threads"])
            for _ in range(options["slots"])
        ]
        front = _Front([_Slot(server.listening_address) for server in servers])
        threading.Thread(target=front.serve_forever, daemon=True).start()
        said = {"url": f"http://127.0.0.1:{front.server_port}"}
    except Exception as error:  # a compiled module: anything may come, all of it means the same
        traceback.print_exc()
        said = {"error": f"{type(error).__name__}: {error}"}
    _die_with_parent(0)
    # The parent may have gone away meanwhile.
    with suppress(BrokenPipeError):
        os.write(pipe, json.dumps(said).encode("ascii") + b"\n")
    while os.read(sys.stdin.fileno(), 4096):
        pass
    # Usually the parent ends this process and removes the folder, but it may have had no time to.
    if "url" in said:
        shutil.rmtree(options["folder"], ignore_errors=True)
    # An orderly shutdown would wait for requests that nobody waits for.
    os._exit(0)


def _die_with_parent(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def _watch(parent: int, folder: str) -> None:
    """End with the parent, also where a process forked from it holds the pipe open. Windows keeps naming a dead one."""
    while os.getppid() == parent:
        time.sleep(1)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def _serve(model: str, name: str, context: int, threads: int) -> Any:
    xllamacpp = importlib.import_module("xllamacpp")
    params = xllamacpp.CommonParams()
    params.model.path = model
    # Otherwise every reply would carry the path, and with it the user's name, into reports.
    params.model_alias = {name}
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.n_ctx = context
    params.cpuparams.n_threads = threads
    params.cpuparams_batch.n_threads = threads
    # What temperature 0 needs to give the same reply to the same request: one request at a time, and no state kept but
    # what `_Slot` asks for.
    params.n_parallel = 1
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.n_ctx_checkpoints = 0
    params.ctx_shift = False
    params.sampling.seed = 1
    # The fused kernel of this version takes a quarter longer for each token that is generated after 800 others.
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    # A stop at the end of the context at the latest, whatever a request leaves out.
    params.n_predict = context
    # Nothing is offered beyond the API: no page, no view of other requests' prompts, no other origin.
    params.ui = False
    params.endpoint_slots = False
    params.cors_origins = "http://127.0.0.1"
    return xllamacpp.Server(params)


class _Slot:
    """One of llama.cpp's servers, which answers one request at a time.

    Attributes:
        system: The system message whose evaluation it holds; None for no message.
        asked: The messages of its last request.
    """

    def __init__(self, address: str) -> None:
        self.address = address.removeprefix("http://")
        self.system: str | None = None
        self.asked = ""
        self._held: str | None = None
        self._beginning = ""
        self._can_rewind = True

    def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of the answer."""
        with closing(self._send(method, path, body)) as connection:
            answer = connection.getresponse()
            return answer.status, answer.read()

    def chat(self, request: dict[str, Any], system: str | None, client: socket.socket) -> tuple[int, bytes] | None:
        """As `ask`, a chat request; None if the client hung up before, and then the work is given up."""
        request["cache_prompt"] = self._hold(system, json.dumps(request.get("messages")))
        request |= {"stream": True, "timings_per_token": True}
        with closing(self._send("POST", "/v1/chat/completions", json.dumps(request).encode())) as connection:
            if connection.sock not in select.select([connection.sock, client], [], [])[0]:
                return None
            answer = connection.getresponse()
            return _joined(answer, client) if answer.status == 200 else (answer.status, answer.read())

    def _send(self, method: str, path: str, body: bytes) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(self.address)
        connection.request(method, path, body or None, {"Content-Type": "application/json"})
        return connection

    def _hold(self, system: str | None, messages: str) -> bool:
        """Bring about the state after the messages, if this model's state can be brought back to it."""
        if system is not None and messages == self._held:
            return True
        known, self.system, self._held = self.system, None, None
        if system is None or not self._can_rewind:
            return False
        try:
            if system != known or not self._is_rewound():
                placeholder = {"role": "user", "content": _PLACEHOLDER}
                self._beginning = self._text([json.loads(system), placeholder]).rpartition(_PLACEHOLDER)[0]
                self._evaluate(self._beginning, cache_prompt=False)
                self._can_rewind = self._is_rewound()
            if self._can_rewind:
                self._evaluate(self._text(json.loads(messages)), cache_prompt=True)
                self.system, self._held = system, messages
        except KeyError:
            # Refused, perhaps for its length. Then the whole request will be, and llama.cpp says why.
            return False
        return self._can_rewind

    def _is_rewound(self) -> bool:
        # llama.cpp evaluates at least one token, and exactly one where it holds all that come before.
        return self._evaluate(self._beginning, cache_prompt=True) == 1

    def _text(self, messages: list[object]) -> str:
        return str(self._post("/apply-template", messages=messages)["prompt"])

    def _evaluate(self, text: str, *, cache_prompt: bool) -> int:
        """How many tokens had to be evaluated."""
        done = self._post("/completion", prompt=text, n_predict=0, cache_prompt=cache_prompt)
        return int(done["timings"]["prompt_n"])

    def _post(self, path: str, **body: object) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("POST", path, json.dumps(body).encode())[1])
        return found


def _joined(events: Iterable[bytes], client: socket.socket) -> tuple[int, bytes] | None:
    """Status and body as without streaming; None if the client hung up."""
    message: dict[str, str] = {}
    reply: dict[str, Any] = {}
    finish, probabilities = "length", []
    for line in events:
        if select.select([client], [], [], 0)[0]:
            return None
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line.removeprefix(b"data: "))
        if "error" in event:
            return 500, json.dumps(event).encode()
        reply |= event
        for choice in event["choices"]:
            for key, value in choice["delta"].items():
                message[key] = message.get(key, "") * (key != "role") + (value or "")
            probabilities += (choice.get("logprobs") or {}).get("content", [])
            finish = choice["finish_reason"] or finish
        if repeats_itself(message.get("content", "")):
            break
    timings = reply["timings"]
    prompt, completion = timings["cache_n"] + timings["prompt_n"], timings["predicted_n"]
    reply |= {
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": finish, "logprobs": {"content": probabilities}}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": timings["cache_n"]},
        },
    }
    return 200, json.dumps(reply).encode()


class _Front(ThreadingHTTPServer):
    """Gives every chat request to an idle slot, if possible to one that holds its messages."""

    daemon_threads = True

    def __init__(self, slots: list[_Slot]) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.first = slots[0]
        self._slots = slots
        self._idle = list(slots)
        self._waiting: list[str] = []
        self._changed = threading.Condition()

    def chat(self, body: bytes, client: socket.socket) -> tuple[int, bytes] | None:
        """The answer of the slot that is chosen."""
        try:
            request = json.loads(body)
            messages = request["messages"]
            has_system = len(messages) > 1 and messages[0]["role"] == "system"
        except (ValueError, TypeError, LookupError):
            return 400, json.dumps({"error": {"message": "this is no chat request"}}).encode()
        system = json.dumps(messages[0]) if has_system else None
        asked = json.dumps(messages)
        with self._changed:
            self._waiting.append(asked)
            self._changed.wait_for(lambda: any(self._next(slot) == asked for slot in self._idle))
            able = [slot for slot in self._idle if self._next(slot) == asked]
            slot = min(able, key=lambda slot: (slot.asked != asked, slot.system != system))
            slot.asked = asked
            self._waiting.remove(asked)
            self._idle.remove(slot)
            self._changed.notify_all()
        try:
            return slot.chat(request, system, client)
        finally:
            with self._changed:
                self._idle.append(slot)
                self._changed.notify_all()

    def _next(self, slot: _Slot) -> str:
        """What a slot is to be asked next: what it holds; else the oldest that no other slot holds; else the oldest."""
        elsewhere = {other.asked for other in self._slots if other is not slot}
        return min(self._waiting, key=lambda asked: (asked != slot.asked, asked in elsewhere))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Front

    def do_GET(self) -> None:
        self._send(self.server.first.ask("GET", self.path))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path != "/v1/chat/completions":
            self.send_error(404)
            return
        self._send(self.server.chat(body, self.connection))

    def _send(self, answer: tuple[int, bytes] | None) -> None:
        self.close_connection = answer is None
        if answer is None:
            return
        status, body = answer
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are logged by llama.cpp."""


if __name__ == "__main__":
    main()
