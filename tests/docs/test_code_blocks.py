"""Every code block of the documentation runs as it stands.

Blocks of one page run one after another in one folder; `console` blocks are shell sessions, `python` blocks tests or
programs, `yaml` blocks pipelines whose steps are run, `toml` and `json` blocks files. A comment before a block says
what it is for:

    <!-- block: file spiral.toml -->   what the block is the content of
    <!-- block: exit 10 -->            the exit code of its last command
    <!-- block: skip, REASON -->       it cannot run offline
"""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_spiral.cli import main
from pytest_spiral.models.providers import providers
from tests.fakes import spiral_cast
from tests.fakes.dialects import DIALECTS
from tests.fakes.forks import ADDOPTS, ForkedPopen
from tests.fakes.openai_server import fake_openai
from tests.fakes.scripted_model import ScriptedModel
from tests.plugin.conftest import few_resamples

__all__ = ["few_resamples"]

ROOT = Path(__file__).parents[2]
PROVIDERS = ROOT / "docs" / "how-to" / "providers"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"(?:<!-- block: (?P<note>[^>]*?) -->\n+)?^```(?P<kind>\w*)[^\n]*\n(?P<text>.*?)^```$", re.M | re.S)
SKIPPABLE = re.compile(r"skip, \S.{10,}")


@dataclass(frozen=True)
class Block:
    """One fenced block. note: what a comment says about it."""

    kind: str
    text: str
    note: str
    line: int

    @property
    def skipped(self) -> bool:
        return self.note.startswith("skip")


def blocks(page: Path) -> list[Block]:
    text = page.read_text()
    return [
        Block(m["kind"], m["text"], (m["note"] or "").strip(), text[: m.start("kind")].count("\n") + 1)
        for m in BLOCK.finditer(text)
    ]


def cast(body: dict[str, Any], number: int) -> Any:
    """Whoever is asked answers: scenarios, the three parts of a conversation, a word for a plain question."""
    schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
    if "pushback" in schema.get("properties", {}) or "off_rails" in schema.get("properties", {}):
        return spiral_cast.judge(body)
    if "seeker" in body["model"] or "kimi" in body["model"]:
        return spiral_cast.simulated_user(body)
    if body["messages"][0]["role"] == "system":
        return SCENARIOS(body, number)
    return spiral_cast.assistant(body)


SCENARIOS = ScriptedModel()


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """An endpoint where the pages' example.com is."""
    with fake_openai(cast, models=("my-model",)) as server:
        yield server.base_url


class Reader:
    """Somebody who types in what a page says, in an empty project.

    pytest and the console script run in this process, which is several times cheaper; everything else in a shell.
    """

    def __init__(self, pytester: pytest.Pytester, endpoint: str, tools: Path, lean: Mapping[str, str]) -> None:
        self.pytester = pytester
        self.folder = pytester.path
        self.endpoint = endpoint
        path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]])
        # Plugins of our own test extras are not in a reader's environment.
        # Where a page names no number of turns, two do what twenty would.
        options = f"{ADDOPTS} --num-turns=2"
        self.environ = {**lean, "PATH": path, "PYTEST_ADDOPTS": options, "OPENAI_BASE_URL": endpoint}

    def here(self, text: str) -> str:
        """Addresses of the pages as they are on this machine."""
        return re.sub(r"https://[a-z.]*example\.com/v1", self.endpoint, text)

    def shell(self, script: str, wanted: int, environ: dict[str, str] | None = None) -> None:
        """Run commands, one to a line; the last one's exit code is what counts, the others must succeed."""
        with pytest.MonkeyPatch.context() as patch:
            for name in list(os.environ):
                if name.startswith(("PYTEST_", "GITHUB_")) or name.endswith(("_API_KEY", "_BASE_URL")):
                    patch.delenv(name)
            for name, value in {**self.environ, **(environ or {})}.items():
                patch.setenv(name, self.here(value))
            patch.chdir(self.folder)
            patch.setattr(subprocess, "Popen", ForkedPopen)
            for number, line in enumerate(lines := script.splitlines(), start=1):
                status = self._line(self.here(line), patch)
                assert status == (wanted if number == len(lines) else 0), f"{line} ended with {status}"

    def _line(self, line: str, patch: pytest.MonkeyPatch) -> int:
        if line.endswith("|| true"):
            self._line(line.removesuffix("|| true"), patch)
            return 0
        words = shlex.split(line, comments=True)
        command = words[0]
        if command == "env":
            with patch.context() as inner:
                while words[1] == "-u":
                    inner.delenv(words[2], raising=False)
                    del words[1:3]
                return self._line(shlex.join(words[1:]), inner)
        arguments = [path for word in words[1:] for path in sorted(glob.glob(word)) or [word]]  # noqa: PTH207
        if command == "export":
            for word in words[1:]:
                patch.setenv(*word.split("=", 1))
            return 0
        if re.search(r"[|;<>$&]", re.sub(r"'[^']*'", "", line)) or command not in ("pytest", "pytest-spiral"):
            return subprocess.run(["bash", "-c", line], check=False, timeout=100).returncode
        if command == "pytest":
            return int(self.pytester.runpytest_inprocess(*arguments).ret)
        return main(arguments)

    def run(self, block: Block) -> None:
        """Do what a block says. Fails where it does not work."""
        wanted = int(match[1]) if (match := re.search(r"exit (\d+)", block.note)) else 0
        if name := re.search(r"file (\S+)", block.note):
            (self.folder / name[1]).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name[1]).write_text(block.text)
        if block.kind == "console":
            for number, script in enumerate(scripts := commands_of(block.text), start=1):
                self.shell(script, wanted if number == len(scripts) else 0)
        elif block.kind == "python":
            self._python(block)
        elif block.kind == "yaml":
            for script, environ in pipeline(yaml.safe_load(block.text)):
                self.shell(script, 0, environ)
        elif block.kind == "toml":
            tomllib.loads(block.text)
        elif block.kind in ("json", "jsonl"):
            for document in block.text.splitlines() if block.kind == "jsonl" else [block.text]:
                json.loads(document)

    def _python(self, block: Block) -> None:
        if "def test_" in block.text:
            file = f"test_line_{block.line}.py"
            (self.folder / file).write_text("import pytest\n" + block.text)
            self.shell(f"pytest {file} --model=dry/perfect --suite=spiral -q -o asyncio_mode=auto", 0)
            return
        with pytest.MonkeyPatch.context() as patch:
            patch.chdir(self.folder)
            module = types.ModuleType("page")
            patch.setitem(sys.modules, "page", module)
            exec(compile(block.text, f"line {block.line}", "exec"), module.__dict__)


def commands_of(text: str) -> list[str]:
    """The commands of a shell session, each with what its predecessors exported."""
    lines = text.replace("\\\n", " ").splitlines()
    result = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    kept: list[str] = []
    scripts = []
    for line in result:
        if line.startswith(("export ", "cd ")):
            kept.append(line)
        else:
            scripts.append("\n".join([*kept, line]))
    return scripts


def pipeline(config: dict[str, Any]) -> Iterator[tuple[str, dict[str, str]]]:
    """The shell steps of a GitHub or GitLab pipeline, in order, with their environment; a matrix step by step."""
    for job in config.get("jobs", {}).values():
        for values in job.get("strategy", {}).get("matrix", {"": [""]}).items():
            for value in values[1]:
                for step in job["steps"]:
                    if "run" in step:
                        environ = {
                            k: filled(str(v), value) for k, v in {**job.get("env", {}), **step.get("env", {})}.items()
                        }
                        yield filled(step["run"], value), environ
    for name, job in config.items():
        if isinstance(job, dict) and "script" in job:
            for index in range(1, job.get("parallel", 1) + 1):
                environ = {
                    "CI_NODE_INDEX": str(index),
                    "CI_NODE_TOTAL": str(job.get("parallel", 1)),
                    "CI_JOB_NAME": name,
                }
                environ |= {k: str(v) for k, v in {**config.get("variables", {}), **job.get("variables", {})}.items()}
                yield "\n".join(job["script"]), environ


def filled(text: str, value: object) -> str:
    text = re.sub(r"\$\{\{ *matrix\.\w+ *\}\}", str(value), text)
    return re.sub(r"\$\{\{ *secrets\.\w+ *\}\}", "key", text)


@pytest.fixture
def reader(
    pytester: pytest.Pytester, endpoint: str, tmp_path_factory: pytest.TempPathFactory, lean: dict[str, str]
) -> Reader:
    """A reader whose `pip` does nothing: the package is installed already, and there is no index to ask."""
    tools = tmp_path_factory.mktemp("tools")
    for name in ("pip", "make"):
        (tools / name).write_text("#!/bin/sh\nexit 0\n")
        (tools / name).chmod(0o755)
    return Reader(pytester, endpoint, tools, lean)


@pytest.mark.parametrize("page", [page for page in PAGES if page.parent != PROVIDERS], ids=lambda page: page.stem)
def test_the_page_does_what_it_says(page: Path, reader: Reader) -> None:
    """Every block, from the first to the last, as a reader would run them."""
    for block in blocks(page):
        if not block.skipped:
            reader.run(block)


@pytest.mark.parametrize("name", DIALECTS)
def test_the_page_of_a_provider_works_against_its_emulation(name: str, reader: Reader) -> None:
    """The commands and files of the page as they stand; only the address is another."""
    preset = providers()[name]
    dialect = DIALECTS[name]()
    dialect.serves = (preset.example_model,)
    asked = ScriptedModel(enforces=name != "anthropic")
    is_hosted = not (preset.base_url or preset.example_url).startswith("http:")
    with fake_openai(asked, dialect=dialect, key="your-key" if is_hosted else None) as server:
        for block in blocks(PROVIDERS / f"{name}.md"):
            text = re.sub(r"\n(?:# )?base_url = .*", "", block.text)
            if "spiral.toml" in block.note:
                text += f'base_url = "{server.origin}"\n'
            if not block.skipped:
                reader.run(replace(block, text=text))

    assert {scenario for _, scenario in asked.asked} == {"ps-01"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_block_escapes(page: Path) -> None:
    """Each has a language, and what is skipped says why."""
    for block in blocks(page):
        assert block.kind, f"{page.name}:{block.line}: a block without a language"
        assert not block.skipped or SKIPPABLE.match(block.note), f"{page.name}:{block.line}: skipped without a reason"
    assert page.read_text().count("```") == 2 * len(blocks(page))
