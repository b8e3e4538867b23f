"""CPU time of the text checks that the messages of a Spiral-Bench run pass, on real texts.

    python -m benchmarks.text_checks FILE ... [--repeat 5]

FILE is a result file of the public Spiral-Bench repository. Of them are taken the replies of at least 1,500 characters
and the user messages of at least 700, cut to that length, and the quotes of all findings. Prints milliseconds of CPU
for each, the least of the repeats. Nothing is remembered of a text, because it is numbered anew each time.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from pytest_spiral.evaluate.profile import spiral_profile
from pytest_spiral.spiral import Conversation, load_upstream
from pytest_spiral.spiral.chunks import Chunk, Exchange
from pytest_spiral.spiral.evidence import SourceText, located_finding
from pytest_spiral.spiral.lexical import lexical_findings
from pytest_spiral.spiral.protocol import load_protocol
from pytest_spiral.spiral.simulator import SimulatorMonitor
from pytest_spiral.spiral.suspicion import suspicions, without_notes

REPLY_CHARS = 1_500
USER_CHARS = 700
TURNS = 20
_NUMBERS = itertools.count()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE")
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()
    conversations = [c for path in options.files for c in load_upstream(path)]
    replies, users = texts(conversations, "assistant", REPLY_CHARS), texts(conversations, "user", USER_CHARS)
    ascii_replies = [text for text in replies if text.isascii()]
    quoted = sum(len(conversation.findings) for conversation in conversations)
    rows: Sequence[tuple[str, Callable[[], None], int]] = [
        ("suspicion filter, reply", partial(suspect, replies), len(replies)),
        ("suspicion filter, plain ASCII reply", partial(suspect, ascii_replies), len(ascii_replies)),
        ("suspicion filter, user message", partial(suspect, users), len(users)),
        ("notes to the simulated user, reply", partial(blank_notes, replies), len(replies)),
        ("simulated user's checks, user message", partial(monitor, users, replies), len(users)),
        ("lexical profile, reply", partial(profile, replies), len(replies)),
        ("place of a quote", partial(locate, conversations), quoted),
        ("lexical judge, reply", partial(judge, replies), len(replies)),
    ]
    for name, run, messages in rows:
        print(f"{name:<40}{messages:>7,} {1000 * least_cpu(run, options.repeat) / messages:>8.3f} ms")
    return 0


def texts(conversations: Sequence[Conversation], role: str, chars: int) -> list[str]:
    """Messages of a role, all cut to the same length."""
    messages = [message for conversation in conversations for message in conversation.transcript]
    return [m.content[:chars] for m in messages if m.role == role and len(m.content) >= chars]


def numbered(text: str) -> str:
    """The text as one that was never read before."""
    return f"{text} {next(_NUMBERS)}"


def least_cpu(run: Callable[[], None], repeats: int) -> float:
    """Seconds of CPU."""
    taken = []
    for _ in range(repeats):
        started = time.process_time()
        run()
        taken.append(time.process_time() - started)
    return min(taken)


def suspect(messages: Sequence[str]) -> None:
    for text in messages:
        suspicions(numbered(text))


def blank_notes(messages: Sequence[str]) -> None:
    for text in messages:
        without_notes(numbered(text))


def monitor(users: Sequence[str], replies: Sequence[str]) -> None:
    """Conversations of user messages with the replies between them."""
    for at in range(0, len(users), TURNS):
        health = SimulatorMonitor("shipped")
        for user, reply in zip(users[at : at + TURNS], replies[at : at + TURNS], strict=False):
            health.add_user_message(numbered(user))
            health.add_reply(numbered(reply))


def profile(replies: Sequence[str]) -> None:
    spiral_profile("m", [replies[at : at + TURNS] for at in range(0, len(replies), TURNS)])


def locate(conversations: Sequence[Conversation]) -> None:
    """Every finding of a judge once more, as when it was read."""
    for conversation in conversations:
        sources = [SourceText(turn, reply) for turn, reply in enumerate(conversation.replies)]
        users = [SourceText(0, m.content) for m in conversation.transcript if m.role == "user"]
        for f in conversation.findings:
            located_finding(
                f.behaviour, f.quote, f.strength, f.judge, sources[f.turn : f.turn + 1], users[: f.turn + 1]
            )


def judge(replies: Sequence[str]) -> None:
    behaviours = load_protocol("per-chunk").behaviours
    for turn, reply in enumerate(replies):
        lexical_findings(Chunk(0, (Exchange(turn, "", numbered(reply)),)), behaviours, {})


if __name__ == "__main__":
    raise SystemExit(main())
