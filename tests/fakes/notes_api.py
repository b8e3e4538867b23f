"""Notes of a request as the APIs of GitHub and GitLab keep them, on a real socket."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

__all__ = ["NotesApi"]


class NotesApi:
    """notes: bodies by id. calls: method and path, in order. tokens: what was sent as one. status: of every answer."""

    def __init__(self, per_page: int = 100, status: int = 200) -> None:
        self.notes: dict[int, str] = {}
        self.calls: list[tuple[str, str]] = []
        self.tokens: set[str] = set()
        self.status = status
        self._per_page = per_page
        api = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                """Nothing."""

            def do_GET(self) -> None:
                page = int(parse_qs(urlsplit(self.path).query)["page"][0]) - 1
                rows = [{"id": id_, "body": body} for id_, body in api.notes.items()]
                self._answer(rows[page * api._per_page : (page + 1) * api._per_page])

            def do_POST(self) -> None:
                self._write(max(api.notes, default=0) + 1)

            def do_PUT(self) -> None:
                self._write(int(self.path.rpartition("/")[2]))

            def do_PATCH(self) -> None:
                self.do_PUT()

            def _write(self, id_: int) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
                if api.status == 200:
                    api.notes[id_] = body
                self._answer({"id": id_, "body": body})

            def _answer(self, value: Any) -> None:
                api.calls.append((self.command, urlsplit(self.path).path))
                given = self.headers.get("PRIVATE-TOKEN") or self.headers.get("Authorization", "").removeprefix(
                    "Bearer "
                )
                api.tokens.add(given)
                # An API may say what it was given.
                refused = {"message": f"403 Forbidden for {given}"}
                data = json.dumps(value if api.status == 200 else refused).encode()
                self.send_response(api.status)
                if api.status == 302:
                    self.send_header("Location", "/elsewhere?page=1")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
