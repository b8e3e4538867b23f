"""The child process that serves one GGUF file on loopback, by llama.cpp's own OpenAI-compatible server.

Run as a script by `pytest_spiral.models.local_server`. It imports nothing of this package, so that it starts from any
directory. Its only line on stdout is JSON: `{"url": ...}` or `{"error": ...}`. It lives as long as its stdin is open.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import json
import os
import shutil
import signal
import sys
import threading
from typing import Any

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve until the parent is gone."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--name", required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--folder", required=True)
    parser.add_argument("--parent", type=int, required=True)
    options = parser.parse_args()

    # llama.cpp prints to stdout: that goes to the log, and the pipe is kept for the one line.
    pipe = os.dup(sys.stdout.fileno())
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    # Loading blocks the interpreter, so only the kernel can notice the parent's death meanwhile. Only until then: the
    # kernel sends this signal when the parent's thread ends, even if its process lives on.
    _die_with_parent(signal.SIGKILL)
    if os.getppid() != options.parent and os.name == "posix":
        os._exit(1)
    try:
        server = _serve(options.model, options.name, options.context, options.threads)
    except Exception as error:  # a compiled module: anything may come, all of it means the same
        _say(pipe, {"error": f"{type(error).__name__}: {error}"})
        os._exit(1)
    _die_with_parent(0)

    gone = threading.Event()
    threading.Thread(target=_wait_for_end_of_input, args=(gone,), daemon=True).start()
    _say(pipe, {"url": server.listening_address})
    # A process forked from the parent may hold the pipe open after the parent's death, so look for the parent as well.
    while not gone.wait(1.0):
        if os.name == "posix" and os.getppid() != options.parent:
            break
    # Usually the parent removes it, but it may have had no time to.
    shutil.rmtree(options.folder, ignore_errors=True)
    # An orderly shutdown would wait for requests that nobody waits for.
    os._exit(0)


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
    # What temperature 0 needs to give the same reply to the same request: one request at a time, no state kept from
    # the one before.
    params.n_parallel = 1
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.cache_idle_slots = False
    params.ctx_shift = False
    params.sampling.seed = 1
    # A stop at the end of the context at the latest, whatever a request leaves out.
    params.n_predict = context
    # Nothing is offered beyond the API: no page, no view of other requests' prompts, no other origin.
    params.ui = False
    params.endpoint_slots = False
    params.cors_origins = "http://127.0.0.1"
    return xllamacpp.Server(params)


def _die_with_parent(number: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def _wait_for_end_of_input(gone: threading.Event) -> None:
    try:
        while os.read(sys.stdin.fileno(), 4096):
            pass
    finally:
        gone.set()


def _say(pipe: int, message: dict[str, str]) -> None:
    try:
        os.write(pipe, json.dumps(message).encode("ascii") + b"\n")
        os.close(pipe)
    except BrokenPipeError:
        # The parent went away while we loaded; the watch below ends this process.
        pass


if __name__ == "__main__":
    main()
