"""Play a model: show requests that wait in a queue directory, and write their replies.

    python benchmarks/field_trial/play.py next QUEUE/NAME --player anna [--containing TEXT] [--most 1] [--wait 300]
    python benchmarks/field_trial/play.py answer QUEUE/NAME 0001 --player anna < reply.txt

`next` claims waiting requests for this player, oldest first, and prints them; what a request repeats from the one that
the same player was shown before is not printed again. Without one to claim after `--wait` seconds it prints "nothing
waits" and exits with 2; where nobody reads what it prints, they wait again, and it exits with 1. `answer` writes a
reply, without the line break at its end.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from queue_files import POLL_SECONDS, part, write

PARAMETERS = ("messages", "model", "response_format")
# Messages that begin with fewer equal lines are shown whole.
MOST_REPEATED_LINES = 20


def waiting(folder: Path, phrases: list[str], *, mixed: bool = False) -> list[Path]:
    """Requests with one of the phrases that nobody has claimed or answered, oldest first or in the order of digests."""
    return [
        path
        for path in sorted(folder.glob("*.request.json"), key=_digest if mixed else None)
        if not part(path, "player.txt").exists()
        and not part(path, "reply.txt").exists()
        and any(phrase in str(message["content"]) for message in _body(path)["messages"] for phrase in phrases)
    ]


def _digest(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


def claim(path: Path, player: str) -> bool:
    """Take a request for a player; False if somebody else was faster."""
    try:
        with part(path, "player.txt").open("x", encoding="utf-8") as file:
            file.write(player + "\n")
    except FileExistsError:
        return False
    return True


def shown(path: Path, player: str) -> str:
    """A request as its player reads it: only what the player's earlier requests have not shown."""
    body = _body(path)
    known = {_number(earlier): _body(earlier) for earlier in _earlier(path, player)}
    same = {number: _common(body["messages"], other["messages"]) for number, other in known.items()}
    nearest = max(same, key=lambda number: same[number], default="")
    before = same.get(nearest, 0)
    lines = [f"=== request {_number(path)}"]
    if before:
        lines.append(f"(messages 1 to {before} as in your request {nearest})")
    for message in body["messages"][before:]:
        lines += [f"--- {message['role']}", _new_text(str(message["content"]), known)]
    form = body.get("response_format")
    if form and not any(other.get("response_format") == form for other in known.values()):
        lines += ["--- the reply must be one JSON document of this form", json.dumps(form, ensure_ascii=False)]
    rest = {name: value for name, value in body.items() if name not in PARAMETERS}
    lines.append(f"--- parameters: {json.dumps(rest)}")
    return "\n".join(lines)


def _new_text(text: str, known: dict[str, dict[str, Any]]) -> str:
    """A message without a long beginning that an earlier one had, whole lines only."""
    lines = text.splitlines()
    same = {
        number: max(_common(lines, str(message["content"]).splitlines()) for message in body["messages"])
        for number, body in known.items()
    }
    nearest = max(same, key=lambda number: same[number], default="")
    if (count := same.get(nearest, 0)) < MOST_REPEATED_LINES:
        return text
    return "\n".join([f"(lines 1 to {count} as in your request {nearest}, ending: {lines[count - 1]})", *lines[count:]])


def _number(path: Path) -> str:
    return path.name.removesuffix(".request.json")


def _earlier(path: Path, player: str) -> list[Path]:
    others = [other for other in sorted(path.parent.glob("*.request.json")) if other < path]
    return [other for other in others if _claimed_by(other) == player]


def _claimed_by(path: Path) -> str | None:
    claim_file = part(path, "player.txt")
    return claim_file.read_text(encoding="utf-8").strip() if claim_file.exists() else None


def _common(one: list[Any], other: list[Any]) -> int:
    """How many elements from the first on are equal."""
    return next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def _body(path: Path) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return body


def show_next(folder: Path, player: str, phrases: list[str], most: int, wait: float, *, mixed: bool = False) -> int:
    """Claim and print requests; exit code 2 if none came, 1 if nobody read them."""
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        claimed = [path for path in waiting(folder, phrases, mixed=mixed)[:most] if claim(path, player)]
        if claimed:
            try:
                print("\n\n".join(shown(path, player) for path in claimed), flush=True)
            except BrokenPipeError:
                for path in claimed:
                    part(path, "player.txt").unlink()
                # What is still buffered must not fail again at the exit.
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return 1
            return 0
        time.sleep(POLL_SECONDS)
    print("nothing waits")
    return 2


def answer(folder: Path, number: str, player: str, text: str) -> int:
    """Write the reply to a request that this player has claimed."""
    path = folder / f"{number}.request.json"
    if not path.exists() or _claimed_by(path) != player:
        print(f"{path}: not a request that {player} was shown", file=sys.stderr)
        return 2
    if part(path, "given.txt").exists():
        print(f"{path}: its reply has been given already", file=sys.stderr)
        return 2
    write(part(path, "reply.txt"), text.removesuffix("\n"))
    return 0


def main() -> int:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("next")
    reply = commands.add_parser("answer")
    for command in (show, reply):
        command.add_argument("folder", type=Path, help="QUEUE/NAME")
        command.add_argument("--player", required=True)
    show.add_argument(
        "--containing", action="append", help="only requests with this text in a message (repeatable: with one of them)"
    )
    show.add_argument("--most", type=int, default=1, help="how many to claim at once")
    show.add_argument("--wait", type=float, default=300, help="seconds to wait for one")
    show.add_argument("--mixed", action="store_true", help="in an order that tells nothing, instead of oldest first")
    reply.add_argument("number")
    arguments = parser.parse_args()
    if arguments.command == "next":
        return show_next(
            arguments.folder,
            arguments.player,
            arguments.containing or [""],
            arguments.most,
            arguments.wait,
            mixed=arguments.mixed,
        )
    return answer(arguments.folder, arguments.number, arguments.player, sys.stdin.read())


if __name__ == "__main__":
    sys.exit(main())
