"""Serving a model file on loopback by a child process.

To everything else a served model is an OpenAI-compatible endpoint like any other.
"""

from __future__ import annotations

import atexit
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import IO, Self

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.local_file import LocalFile

# Seconds for the child to leave by itself when its stdin is closed; then it is killed.
_STOP_SECONDS = 3
_POLL_SECONDS = 0.05


class LocalServer:
    """One model served on 127.0.0.1 by a child process, for this process and all workers it starts.

        with LocalServer(locate("local/smollm2-135m")) as server:
            Endpoint("evaluated", server.base_url)

    The child ends with `stop()`, at interpreter exit, and when this process dies, however that happens.

    Args:
        start_timeout: Seconds that the model may take to load.
    """

    def __init__(self, file: LocalFile, *, start_timeout: float = 120.0) -> None:
        self.file = file
        self.base_url = ""
        self._start_timeout = start_timeout
        self._child: subprocess.Popen[bytes] | None = None
        self._folder: Path | None = None
        self._owner = os.getpid()

    @property
    def pid(self) -> int | None:
        """Process id of the child while it runs."""
        return self._child.pid if self._child is not None else None

    @property
    def log(self) -> Path | None:
        """What llama.cpp printed. Removed by `stop()` unless starting failed."""
        return self._folder / "server.log" if self._folder is not None else None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> str:
        """Load the model and return the base URL. Raises `ConfigError`; starting twice returns the same URL."""
        if self._child is not None and self._child.poll() is None:
            return self.base_url
        if importlib.util.find_spec("xllamacpp") is None:
            raise ConfigError(
                "local models need llama.cpp, which is not installed; run `pip install 'pytest-spiral[local]'`"
            )
        self._owner = os.getpid()
        self._folder = Path(tempfile.mkdtemp(prefix="pytest-spiral-local-"))
        deadline = time.monotonic() + self._start_timeout
        with (self._folder / "server.log").open("wb") as log:
            self._child = self._spawn(log, self._folder)
        atexit.register(self.stop)
        try:
            self.base_url = self._address(deadline) + "/v1"
            self._wait_until_healthy(deadline)
        except BaseException:
            self._end()
            raise
        return self.base_url

    def stop(self) -> None:
        """End the child and remove its log. Harmless when it is gone already."""
        if os.getpid() != self._owner:
            # A forked process runs the exit handlers too, but the server is not its to stop.
            return
        self._end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _spawn(self, log: IO[bytes], folder: Path) -> subprocess.Popen[bytes]:
        # By path and with -P: nothing in the current directory can take the place of a module.
        script, model = Path(__file__).with_name("local_child.py"), self.file
        command = [sys.executable, "-P", str(script), "--model", str(model.path), "--name", f"local/{model.name}"]
        command += ["--context", str(model.context), "--threads", str(model.threads)]
        command += ["--slots", str(model.slots)]
        command += ["--folder", str(folder), "--parent", str(os.getpid())]
        # A model server has no use for keys, and threads that spin while they wait stall a machine with busy cores.
        environ = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
        environ["OMP_WAIT_POLICY"] = "passive"
        # In a session of its own, because Ctrl-C in the terminal is for pytest, which then stops the child in order.
        return subprocess.Popen(  # noqa: S603  # our own script
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, env=environ, start_new_session=True
        )

    def _address(self, deadline: float) -> str:
        child = self._child
        assert child is not None
        assert child.stdout is not None
        lines: list[bytes] = []
        reader = threading.Thread(target=lambda pipe: lines.append(pipe.readline()), args=(child.stdout,), daemon=True)
        reader.start()
        reader.join(max(0.0, deadline - time.monotonic()))
        if reader.is_alive():
            raise self._failure(f"was not loaded within {self._start_timeout:g} s", "try a smaller model")
        try:
            message: dict[str, str] = json.loads(lines[0])
            if "url" in message:
                return message["url"]
            says = f"could not be loaded ({message.get('error', 'no reason given')})"
        except (ValueError, IndexError):
            with suppress(subprocess.TimeoutExpired):
                child.wait(5)
            says = f"could not be served (llama.cpp ended with code {child.returncode})"
        raise self._failure(says, "check that the file is complete and made for this version of llama.cpp")

    def _wait_until_healthy(self, deadline: float) -> None:
        url = self.base_url.removesuffix("/v1") + "/health"
        # Proxies of the environment cannot reach this machine's loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        while True:
            with suppress(OSError), opener.open(url, timeout=max(0.1, min(5.0, deadline - time.monotonic()))) as answer:
                if answer.status == 200:
                    return
            if time.monotonic() >= deadline:
                raise self._failure(f"did not answer within {self._start_timeout:g} s", "try a smaller model")
            time.sleep(_POLL_SECONDS)

    def _failure(self, says: str, remedy: str) -> ConfigError:
        return ConfigError(f"local model {self.file.path} {says}; {remedy} (log: {self.log})")

    def _end(self) -> None:
        child, self._child = self._child, None
        atexit.unregister(self.stop)
        if child is None:
            return
        # The child ends when its input does.
        with suppress(OSError):
            if child.stdin is not None:
                child.stdin.close()
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()
