"""An OpenAI-compatible endpoint whose replies somebody writes: each request becomes a file, each reply is one.

    python benchmarks/field_trial/queue_endpoint.py QUEUE [--port 8080]

Prints its base URL. A request to the model NAME appears as `QUEUE/NAME/0001.request.json`; it is answered with the text
of `QUEUE/NAME/0001.reply.txt` as soon as that file exists. `play.py` shows requests and writes replies.
The endpoint can be stopped and started again: a request that comes again is given the reply that was written for it
meanwhile, and a reply is given out once only, so a repeated question gets a new one.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent))
from queue_files import POLL_SECONDS, part, write  # type: ignore[import-not-found]  # beside this script


class Queue:
    """Requests and replies of one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.waiting: set[Path] = set()

    def file(self, body: dict[str, Any]) -> Path:
        """The request's file: that of the same request if nobody has been given its reply, else a new one."""
        folder = self.directory / _folder_name(str(body["model"]))
        folder.mkdir(parents=True, exist_ok=True)
        digest = _digest(body)
        requests = sorted(folder.glob("*.request.json"))
        for path in requests:
            open_request = not part(path, "given.txt").exists() and path not in self.waiting
            if open_request and _digest(json.loads(path.read_text(encoding="utf-8"))) == digest:
                return path
        path = folder / f"{len(requests) + 1:04d}.request.json"
        write(path, json.dumps(body, ensure_ascii=False, indent=1))
        return path

    async def reply(self, body: dict[str, Any]) -> tuple[str, str]:
        """The id of the request and the text of its reply, once there is one."""
        path = self.file(body)
        self.waiting.add(path)
        try:
            while not (reply := part(path, "reply.txt")).exists():
                await asyncio.sleep(POLL_SECONDS)
            # The reply is given once: this file remembers it, and when.
            write(part(path, "given.txt"), f"{time.time():.0f}\n")
            return f"{path.parent.name}-{path.name[:4]}", reply.read_text(encoding="utf-8")
        finally:
            self.waiting.discard(path)


def _digest(body: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _folder_name(model: str) -> str:
    if not model or model.startswith(".") or "/" in model or "\\" in model:
        raise web.HTTPBadRequest(text=f"the model's name {model!r} cannot be the name of a folder")
    return model


def application(directory: Path) -> web.Application:
    """The endpoint as a web application."""
    queue = Queue(directory)

    async def complete(request: web.Request) -> web.Response:
        key, text = await queue.reply(await request.json())
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        return web.json_response({"id": key, "object": "chat.completion", "choices": [choice]})

    app = web.Application(client_max_size=64 * 2**20)
    app.add_routes([web.post("/v1/chat/completions", complete)])
    return app


def main() -> None:
    """Serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("queue", type=Path, help="directory for requests and replies")
    parser.add_argument("--port", type=int, default=8080)
    arguments = parser.parse_args()
    print(f"http://127.0.0.1:{arguments.port}/v1", flush=True)
    web.run_app(
        application(arguments.queue), host="127.0.0.1", port=arguments.port, print=None, handler_cancellation=True
    )


if __name__ == "__main__":
    main()
