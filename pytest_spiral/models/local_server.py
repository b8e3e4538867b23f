"""Serving a model file on loopback by a child process.

To everything else a served model is an OpenAI-compatible endpoint like any other.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.local_file import LocalFile

_CHILD = Path(__file__).with_name("local_child.py")


@contextmanager
def served(file: LocalFile, *, start_timeout: float = 120.0) -> Iterator[str]:
    """Serve a model on 127.0.0.1 for this process and all workers it starts. The value is the base URL.

        with served(locate("local/smollm2-135m")) as url:
            Endpoint("evaluated", url)

    The child also ends when this process dies, however that happens. What llama.cpp printed is kept where starting
    fails.

    Args:
        file: The model and how to run it.
        start_timeout: Seconds that the model may take to load.

    Raises:
        ConfigError: The model cannot be served; the message names the log.
    """
    if importlib.util.find_spec("xllamacpp") is None:
        raise ConfigError(
            "local models need llama.cpp, which is not installed; run `pip install 'pytest-spiral[local]'`"
        )
    folder = Path(tempfile.mkdtemp(prefix="pytest-spiral-local-"))
    log = folder / "server.log"
    options = {"model": str(file.path), "name": f"local/{file.name}", "context": file.context, "threads": file.threads}
    options |= {"slots": file.slots, "folder": str(folder), "parent": os.getpid()}
    # A model server has no use for keys, and threads that spin while they wait stall a machine with busy cores.
    environ = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    environ["OMP_WAIT_POLICY"] = "passive"
    # The folder is removed after the child has ended, which may still write to its log.
    with ExitStack() as afterwards, ExitStack() as running:
        with log.open("wb") as printed:
            # By path and with -P: nothing in the current directory can take the place of a module. In a session of its
            # own, because Ctrl-C in the terminal is for pytest, which then stops the child in order.
            child = running.enter_context(
                subprocess.Popen(  # noqa: S603  # our own script
                    [sys.executable, "-P", str(_CHILD), json.dumps(options)],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=printed,
                    env=environ,
                    start_new_session=True,
                )
            )
        running.callback(child.kill)
        try:
            url = _address(child, start_timeout)
        except ValueError as error:
            raise ConfigError(f"local model {file.path} {error} (log: {log})") from None
        afterwards.callback(shutil.rmtree, folder, ignore_errors=True)
        yield f"{url}/v1"


def _address(child: subprocess.Popen[bytes], seconds: float) -> str:
    """The address of the server once the model is loaded. Raises `ValueError` with the reason why there is none."""
    assert child.stdout is not None
    began = time.monotonic()
    timer = threading.Timer(seconds, child.kill)
    timer.daemon = True
    timer.start()
    try:
        line = child.stdout.readline()
    finally:
        timer.cancel()
    if not line and time.monotonic() - began >= seconds:
        raise ValueError(f"was not loaded within {seconds:g} s; try a smaller model")
    said: dict[str, str] = json.loads(line or "{}")
    if "url" in said:
        return said["url"]
    says = said.get("error") or f"llama.cpp ended with code {child.wait()}"
    raise ValueError(
        f"could not be loaded ({says}); check that the file is complete and made for this version of llama.cpp"
    )
