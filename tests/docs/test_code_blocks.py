"""Every code block of the documentation runs as it stands.

Blocks of one page run one after another in one folder; `console` blocks are shell sessions, `python` blocks tests or
programs, `yaml` blocks pipelines whose steps are run, `toml` and `json` blocks files. A comment before a block says
what it is for:

    <!-- block: file spiral.toml -->   what the block is the content of
    <!-- block: exit 10 -->            the exit code of its last command
    <!-- block: skip, REASON -->       it cannot run offline
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fakes import spiral_cast
from tests.fakes.openai_server import fake_openai
from tests.fakes.scripted_model import ScriptedModel

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
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
        return spiral_cast.seeker(body)
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
    """Somebody who types in what a page says, in an empty project."""

    def __init__(self, folder: Path, endpoint: str, tools: Path) -> None:
        self.folder = folder
        self.endpoint = endpoint
        environ = {
            k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "GITHUB_")) and "_API_KEY" not in k
        }
        path = os.pathsep.join([str(tools), str(Path(sys.executable).parent), environ["PATH"]])
        # Plugins of our own test extras are not in a reader's environment, and cost half a second a run.
        left_out = " ".join(f"-p no:{name}" for name in ("hypothesispytest", "randomly", "anyio", "syrupy", "timeout"))
        self.environ = {**environ, "PATH": path, "PYTEST_ADDOPTS": left_out, "OPENAI_BASE_URL": endpoint}

    def here(self, text: str) -> str:
        """Addresses of the pages as they are on this machine."""
        return re.sub(r"https://[a-z.]*example\.com/v1", self.endpoint, text)

    def shell(self, script: str, wanted: int, environ: dict[str, str] | None = None) -> None:
        done = subprocess.run(
            ["bash", "-c", self.here(script)],
            cwd=self.folder,
            env={**self.environ, **{k: self.here(v) for k, v in (environ or {}).items()}},
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == wanted, f"{script}\n{done.stdout[-3000:]}\n{done.stderr[-2000:]}"

    def run(self, block: Block) -> None:
        """Do what a block says. Fails where it does not work."""
        wanted = int(match[1]) if (match := re.search(r"exit (\d+)", block.note)) else 0
        if name := re.search(r"file (\S+)", block.note):
            (self.folder / name[1]).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name[1]).write_text(block.text)
        if block.kind == "console":
            for number, script in (commands := list(enumerate(commands_of(block.text), start=1))):
                self.shell(script, wanted if number == len(commands) else 0)
        elif block.kind == "python":
            self._python(block, wanted)
        elif block.kind == "yaml":
            for script, environ in pipeline(yaml.safe_load(block.text)):
                self.shell(script, 0, environ)
        elif block.kind == "toml":
            tomllib.loads(block.text)
        elif block.kind == "json":
            json.loads(block.text)
        elif block.kind == "jsonl":
            for line in block.text.splitlines():
                json.loads(line)

    def _python(self, block: Block, wanted: int) -> None:
        if "def test_" not in block.text:
            self.shell(f"python - <<'PYTHON'\n{block.text}\nPYTHON", wanted)
            return
        file = f"test_line_{block.line}.py"
        (self.folder / file).write_text("import pytest\n" + block.text)
        self.shell(f"pytest {file} --model=dry/perfect --suite=spiral -q -o asyncio_mode=auto", wanted)


def commands_of(text: str) -> list[str]:
    """The commands of a shell session, each with what its predecessors exported."""
    lines = text.replace("\\\n", " ").splitlines()
    found = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    kept: list[str] = []
    scripts = []
    for line in found:
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
                yield "\n".join(["set -e", *job["script"]]), environ


def filled(text: str, value: object) -> str:
    text = re.sub(r"\$\{\{ *matrix\.\w+ *\}\}", str(value), text)
    return re.sub(r"\$\{\{ *secrets\.\w+ *\}\}", "key", text)


@pytest.fixture
def reader(tmp_path, endpoint, tmp_path_factory):
    """A reader whose `pip` does nothing: the package is installed already, and there is no index to ask."""
    tools = tmp_path_factory.mktemp("tools")
    for name in ("pip", "make"):
        (tools / name).write_text("#!/bin/sh\nexit 0\n")
        (tools / name).chmod(0o755)
    return Reader(tmp_path, endpoint, tools)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_page_does_what_it_says(page, reader):
    """Every block, from the first to the last, as a reader would run them."""
    for block in blocks(page):
        if not block.skipped:
            reader.run(block)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_block_escapes(page):
    """Each has a language, and what is skipped says why."""
    for block in blocks(page):
        assert block.kind, f"{page.name}:{block.line}: a block without a language"
        assert not block.skipped or SKIPPABLE.match(block.note), f"{page.name}:{block.line}: skipped without a reason"
    assert page.read_text().count("```") == 2 * len(blocks(page))
