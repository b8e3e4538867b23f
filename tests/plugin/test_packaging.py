"""What is published: a wheel and an sdist with everything in them, and a wheel that runs wherever it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.plugin.conftest import Project

ROOT = Path(__file__).parents[2]
SHIPPED = ("pytest_spiral", "scenarios", "data")
_IGNORED = shutil.ignore_patterns(
    ".venv", ".git", ".*_cache", ".hypothesis", "__pycache__", "reports", "dist", "*.egg-info", ".env"
)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and an sdist that the build backend makes of a copy of this checkout."""
    folder = tmp_path_factory.mktemp("built")
    source, backend = folder / "source", folder / "backend"
    shutil.copytree(ROOT, source, ignore=_IGNORED)
    pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "-q", "--no-compile"]
    done = subprocess.run([*pip, "--target", str(backend), "hatchling"], capture_output=True, text=True)
    if done.returncode != 0 and "hatchling" in done.stderr:
        pytest.skip("the build backend cannot be had: no package index")
    assert done.returncode == 0, done.stderr
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-d", str(folder)],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(backend)},
        check=True,
        capture_output=True,
    )
    return folder


def _files(folder: str) -> set[str]:
    """Files of the checkout that must be shipped."""
    return {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _wheel(built: Path) -> Path:
    (result,) = built.glob("*.whl")
    return result


def test_the_wheel_holds_code_scenarios_and_data(built: Path) -> None:
    """Every file, the two folders of data inside the package, without the records of label audits."""
    with zipfile.ZipFile(_wheel(built)) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}

    wanted = {
        name if name.startswith("pytest_spiral/") else f"pytest_spiral/_data/{name}"
        for folder in SHIPPED
        for name in _files(folder)
        if "/audit/" not in name
    }
    assert names == wanted


def test_the_wheel_says_what_it_is(built: Path) -> None:
    """Plugin entry point, console script, typing marker, licence and classifiers."""
    with zipfile.ZipFile(_wheel(built)) as wheel:
        info = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA")).rpartition("/")[0]
        metadata = Parser().parsestr(wheel.read(f"{info}/METADATA").decode())
        entry_points = wheel.read(f"{info}/entry_points.txt").decode()
        names = wheel.namelist()

    assert "pytest_spiral.plugin = pytest_spiral.plugin" in entry_points
    assert "pytest-spiral = pytest_spiral.cli:main" in entry_points
    assert "Framework :: Pytest" in metadata.get_all("Classifier", [])
    assert metadata["License-Expression"] == "MIT"
    assert f"{info}/licenses/LICENSE" in names
    assert "pytest_spiral/py.typed" in names


def test_the_sdist_holds_what_it_takes_to_test_it(built: Path) -> None:
    """Code, data, scenarios, tests and the make file; no reports, keys or caches."""
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    for folder in (*SHIPPED, "tests"):
        assert _files(folder) <= names
    assert {"pyproject.toml", "README.md", "LICENSE", "Makefile", "conftest.py", ".env.example"} <= names
    assert not {name for name in names if name.startswith((".venv", "reports/2", ".git/")) or name == ".env"}


def test_the_installed_wheel_runs_anywhere(project: Project, built: Path) -> None:
    """Installed into an environment inside the user's project, run from an empty folder of it: the same ids and files,
    and the environment's own tests are not collected."""
    venv = project.path / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = venv / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    # What `pip install --no-deps` does; the dependencies are those of the environment that runs this test.
    with zipfile.ZipFile(_wheel(built)) as wheel:
        wheel.extractall(site)
    shutil.copytree(
        sysconfig.get_path("purelib"), site / "dependencies", symlinks=True, ignore=_ours, copy_function=os.link
    )
    (site / "dependencies.pth").write_text("dependencies\n")
    project.delenv("PYTHONPATH")
    (project.path / "empty").mkdir()

    def run(*args: str) -> subprocess.CompletedProcess[str]:
        command = [str(venv / "bin" / "python"), "-m", "pytest", "--model=dry/perfect", *args]
        return subprocess.run(command, cwd=project.path / "empty", capture_output=True, text=True, timeout=100)

    done = run("-n", "1", "--num-turns=1", "-k", "ps-01 or td-02")
    listed = run("--collect-only", "-q", "--prompting=raw", "-p", "no:cacheprovider")
    where = subprocess.run(
        [str(venv / "bin" / "python"), "-c", "import pytest_spiral; print(pytest_spiral.__file__)"],
        cwd=project.path,
        capture_output=True,
        text=True,
    )

    assert where.stdout.strip() == str(site / "pytest_spiral" / "__init__.py")
    # A part of the suites is an incomplete run.
    assert done.returncode == 11, done.stdout + done.stderr
    assert "3 passed" in done.stdout
    assert (project.path / "empty/reports/latest/report.json").is_file()
    assert [line for line in listed.stdout.splitlines() if "::" in line] == project.collected(
        "--model=dry/perfect", "--prompting=raw", "--suite=tempaffect", "--suite=spiral"
    )
    # pytest writes its cache only where it has something to remember.
    assert {path.name for path in (project.path / "empty").iterdir()} - {".pytest_cache"} == {"reports"}


OURS = ("pytest_spiral", "_pytest_spiral", "_editable_impl_pytest_spiral")
LARGE = ("scipy", "numpy", "xllamacpp", "playwright", "material", "babel", "pyarrow")
UNUSED = ("mypy", "hypothesis", "setuptools", "pip")


def _ours(folder: str, names: list[str]) -> set[str]:
    """What must come from the wheel and not from the environment of this test, and what is large and not needed."""
    # Only packages have these names; nltk has a module babelfish.
    top = Path(folder) == Path(sysconfig.get_path("purelib"))
    return {name for name in names if name in UNUSED or (top and name.startswith((*OURS, *LARGE)))}


def test_evaluations_in_a_checkout_need_no_test_extras(tmp_path: Path) -> None:
    """`make bench` installs none, and pytest reads the conftest of the tests even where it runs other ones."""
    for extra in ("hypothesis", "scipy", "syrupy", "yaml"):
        (tmp_path / f"{extra}.py").write_text("raise ModuleNotFoundError('no test extra')\n")
    bundled = [sys.executable, "-m", "pytest", "--model=dry/perfect", "--collect-only", "-q"]
    bundled += ["-p", "no:hypothesispytest", "-p", "no:syrupy", "-p", "no:cacheprovider"]
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])

    done = subprocess.run(bundled, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "scenarios/test_tempaffect.py" in done.stdout
