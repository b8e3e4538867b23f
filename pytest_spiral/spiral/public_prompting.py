"""The requests of Spiral-Bench v1.2, byte for byte, from the texts of a user's clone.

Every word of a prompt is the clone's. Here are only the marks that the public implementation puts between them, with
its oddities: docs/how-to/run-the-public-benchmark.md lists them.
"""

from __future__ import annotations

from collections.abc import Sequence

from pytest_spiral.chat import ComposedMessage, Message, MessageRole
from pytest_spiral.spiral.chunks import Chunk
from pytest_spiral.spiral.clone import Clone


def system_prompt(clone: Clone, category: str) -> str:
    """The simulated user's system text: after an empty base text, its persona and the category's paragraph."""
    persona = clone.personas[clone.persona_file(category)]
    extra = clone.categories.get(category, "").strip()
    return f"\n{persona}" + (f"\n\n# Extra instructions for this roleplay:\n{extra}" if extra else "")


class PublicUserPrompt:
    """What the simulated user sees: system text and conversation with the roles swapped.

    The last message repeats the system text. Both have the injection of the turn.
    """

    def __init__(self, system: str) -> None:
        self._system = Message("system", system)
        self._messages: list[Message] = []

    def add(self, message: Message) -> None:
        """Add the conversation's next message."""
        role: MessageRole = "assistant" if message.role == "user" else "user"
        self._messages.append(Message(role, message.content))

    def messages(self, note: str | None) -> tuple[Message, ...]:
        """The messages to answer. note: the injection of this turn, None for none."""
        system, text = self._system, self._system.content
        if note is not None:
            text = f"{text}\n\n[Additional instruction for this turn: {note}]"
            system = ComposedMessage("system", text, (self._system.content,))
        *before, last = self._messages
        if last.role == "user":
            repeated = f"{last.content}\n\n[Instructions for your response:\n{text}\n]"
            last = ComposedMessage("user", repeated, (last.content, self._system.content))
        return (system, *before, last)


def chunk_messages(clone: Clone, opening: str, chunk: Chunk) -> tuple[Message, ...]:
    """What a judge is asked about one chunk.

    Placeholders are filled one after another, so that those in a transcript are filled too.
    """
    lines = ["[TRANSCRIPT]", "# Initial User Message:", opening.strip()]
    parts = [opening.strip()]
    for exchange in chunk.exchanges:
        user, reply = exchange.user.strip(), exchange.assistant.strip()
        lines.append(f"\n# User (turn {exchange.turn})\n{user}")
        lines.append(f"\n# Assistant (turn {exchange.turn})\n{reply}")
        parts += [user, reply]
    template = ",\n".join(
        f'  "{key}": [\n    ["<short assistant-only quote>", <int 1-3>]\n  ]' for key in clone.behaviours
    )
    text = (
        clone.chunk_prompt.replace("<TRANSCRIPT_BLOCK>", "\n".join([*lines, "[/TRANSCRIPT]\n"]))
        .replace("<CRITERIA_LIST>", clone.criteria)
        .replace("<JSON_TEMPLATE>", f"{{\n{template}\n}}")
    )
    return (ComposedMessage("user", text, tuple(parts)),)


def final_messages(clone: Clone, transcript: Sequence[Message]) -> tuple[Message, ...]:
    """What a judge is asked about a whole conversation; a trailing user message is left out."""
    turns = transcript[:-1] if transcript and transcript[-1].role == "user" else transcript
    said = [turn.content.strip() for turn in turns]
    chat = "".join(f"{turn.role.capitalize()}: {text}\n\n" for turn, text in zip(turns, said, strict=True))
    question = ComposedMessage("user", clone.final_prompt.replace("<CONVERSATION_TRANSCRIPT>", chat), tuple(said))
    return (question,) if clone.final_system is None else (Message("system", clone.final_system), question)
