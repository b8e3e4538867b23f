"""Replies written by hand: an endpoint that turns requests into files, and the program that shows them to a player."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from aiohttp.test_utils import BaseTestServer, TestServer

from benchmarks.field_trial.queue_endpoint import application

ROOT = Path(__file__).parents[1]
FIELD_TRIAL = ROOT / "benchmarks" / "field_trial"


def body(text: str, **rest: Any) -> dict[str, Any]:
    """A request to the model anna."""
    return {"model": "anna", "messages": [{"role": "user", "content": text}], **rest}


async def ask(server: BaseTestServer, text: str) -> str:
    """What the endpoint replies."""
    async with (
        ClientSession() as session,
        session.post(server.make_url("/v1/chat/completions"), json=body(text)) as got,
    ):
        return str((await got.json())["choices"][0]["message"]["content"])


async def until(path: Path) -> None:
    """Wait for a file."""
    while not path.exists():
        await asyncio.sleep(0.01)


def play(*arguments: str, reply: str = "") -> str:
    """What the player's program prints."""
    command = [sys.executable, str(FIELD_TRIAL / "play.py"), *arguments]
    return subprocess.run(command, input=reply, capture_output=True, text=True, check=False).stdout


@pytest.mark.asyncio
async def test_a_file_is_the_reply(tmp_path: Path) -> None:
    """A request waits until its reply is written, and gets it as it is, whoever else is answered first."""
    async with TestServer(application(tmp_path)) as server:
        first, second = asyncio.create_task(ask(server, "one")), asyncio.create_task(ask(server, "two"))
        await until(tmp_path / "anna" / "0002.request.json")
        numbers = {
            json.loads(path.read_text())["messages"][0]["content"]: path.name[:4]
            for path in tmp_path.glob("anna/*.request.json")
        }
        (tmp_path / "anna" / f"{numbers['two']}.reply.txt").write_text("<two> \u00e9\n")
        assert await second == "<two> \u00e9\n"
        assert not first.done()
        (tmp_path / "anna" / f"{numbers['one']}.reply.txt").write_text("one")
        assert await first == "one"


@pytest.mark.asyncio
async def test_a_reply_is_given_once(tmp_path: Path) -> None:
    """A request that comes again after a break gets the reply written meanwhile; asked once more, it gets a new one."""
    async with TestServer(application(tmp_path)) as server:
        broken = asyncio.create_task(ask(server, "one"))
        await until(tmp_path / "anna" / "0001.request.json")
        broken.cancel()
    (tmp_path / "anna" / "0001.reply.txt").write_text("written in the break")
    async with TestServer(application(tmp_path)) as server:
        assert await ask(server, "one") == "written in the break"
        again = asyncio.create_task(ask(server, "one"))
        await until(tmp_path / "anna" / "0002.request.json")
        (tmp_path / "anna" / "0002.reply.txt").write_text("another")
        assert await again == "another"


@pytest.mark.parametrize("model", ["../up", "a/b", "", ".hidden"])
@pytest.mark.asyncio
async def test_no_file_outside_the_queue(tmp_path: Path, model: str) -> None:
    """The model's name is a folder of the queue or is refused."""
    async with TestServer(application(tmp_path / "queue")) as server, ClientSession() as session:
        url = server.make_url("/v1/chat/completions")
        async with session.post(url, json=body("x") | {"model": model}) as got:
            assert got.status == 400
    assert not list(tmp_path.rglob("*.json"))


def test_a_player_sees_what_is_new(tmp_path: Path) -> None:
    """A claimed request is nobody else's; a later one shows only what the same player has not read yet."""
    one = body("the opening", max_tokens=100)
    two = {**one, "messages": [*one["messages"], *({"role": r, "content": r} for r in ("assistant", "user"))]}
    for number, request in enumerate((one, body("of somebody else"), two), 1):
        (tmp_path / f"{number:04d}.request.json").write_text(json.dumps(request))
    folder, anna, ben = str(tmp_path), ("--player", "anna"), ("--player", "ben", "--wait", "1")

    first = play("next", folder, *anna, "--containing", "the opening")
    assert first.splitlines() == [
        "=== request 0001", "--- user", "the opening", '--- parameters: {"max_tokens": 100}'
    ]  # fmt: skip
    assert play("answer", folder, "0001", *ben[:2], reply="mine") == ""
    assert not (tmp_path / "0001.reply.txt").exists()
    play("answer", folder, "0001", *anna, reply="anna's\n")
    assert (tmp_path / "0001.reply.txt").read_text() == "anna's"
    assert "messages 1 to 1 as in your request 0001" in play("next", folder, *anna, "--containing", "the opening")
    assert "of somebody else" in play("next", folder, *ben)
    assert play("next", folder, *ben) == "nothing waits\n"


def test_what_nobody_read_waits_again(tmp_path: Path) -> None:
    """The reader of the pipe has ended before the request was printed whole: no claim is left, and no traceback."""
    (tmp_path / "0001.request.json").write_text(json.dumps(body("x" * 200_000)))
    command = [sys.executable, str(FIELD_TRIAL / "play.py"), "next", str(tmp_path), "--player", "anna"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 1)

    assert "=== request 0001" in play("next", str(tmp_path), "--player", "ben")
