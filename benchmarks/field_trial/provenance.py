"""Who played which request: one line of JSON for each request of a queue directory.

    python benchmarks/field_trial/provenance.py RECORD=QUEUE... > provenance.jsonl

A player saw the messages and the form of reply of its requests, nothing else; the digest names the request body.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from queue_files import part


def rows(record: str, queue: Path) -> Iterator[dict[str, Any]]:
    """All requests of one run, in their order."""
    for request in sorted(queue.glob("*/*.request.json")):
        player, reply = part(request, "player.txt"), part(request, "reply.txt")
        yield {
            "record": record,
            "model": request.parent.name,
            "request": request.name.removesuffix(".request.json"),
            "sha256": hashlib.sha256(request.read_bytes()).hexdigest(),
            "player": player.read_text(encoding="utf-8").strip() if player.exists() else None,
            "answered": reply.exists(),
            "given": part(request, "given.txt").exists(),
            "seconds": round(reply.stat().st_mtime - player.stat().st_mtime) if reply.exists() else None,
        }


def main() -> None:
    """Read the command line."""
    if len(sys.argv) < 2 or not all("=" in pair for pair in sys.argv[1:]):
        raise SystemExit(__doc__)
    for name, _, queue in (pair.partition("=") for pair in sys.argv[1:]):
        for row in rows(name, Path(queue)):
            print(json.dumps(row))


if __name__ == "__main__":
    main()
