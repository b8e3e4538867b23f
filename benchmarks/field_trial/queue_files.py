"""Files of one request in a queue directory: the request, who plays it, the reply, and that the reply was given out."""

from __future__ import annotations

from pathlib import Path

# How often whoever waits looks for a file.
POLL_SECONDS = 0.2


def part(request: Path, suffix: str) -> Path:
    """Another file of the same request."""
    return request.with_name(request.name.removesuffix("request.json") + suffix)


def write(path: Path, text: str) -> None:
    """Write so that nobody sees half of it."""
    partial = path.with_name(path.name + ".partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
