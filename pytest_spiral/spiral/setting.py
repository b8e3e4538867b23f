"""How the simulated user and the judges of a run are asked: the seam between our own content and other people's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from pytest_spiral.chat import Message
from pytest_spiral.spiral.chunks import Chunk
from pytest_spiral.spiral.content import INJECTIONS_FILE, PERSONA_FILE, OpeningPrompt, Persona, Rubric
from pytest_spiral.spiral.judges import Judge, ModelJudge
from pytest_spiral.spiral.prompting import Participant, UserPrompt, chunk_messages, chunk_schema
from pytest_spiral.spiral.protocol import Protocol
from pytest_spiral.spiral.schedule import TurnNote, balanced_schedule, paced

Question = tuple[tuple[Message, ...], Mapping[str, JsonValue] | None]
"""Messages, and the JSON schema of the answer where one is asked for."""


@dataclass(frozen=True)
class Setting:
    """How a run asks its simulated user and its judges.

    Attributes:
        schedule: From the run's seed, an opening, the conversation's index and, for each user turn after the opening,
            whether the simulated user writes it: the note that it gets in that turn, None for none.
        injection_file: Name of the file of these notes.
        persona_file: Name of the file with what the simulated user is told, by category.
        system_prompt: The simulated user's system prompt, by category.
        user_prompt: From that system prompt, what the simulated user sees of a new conversation.
        judge: Makes a judge, with a secret that no model can know.
        question: What a judge is asked about a chunk after an opening, with that secret and, where a model would not
            stop by itself, the most characters of a string.
        persona_hash: Of everything that the simulated user is told.
        rubric_hash: Of everything that judges are told.
        files: SHA-256 of the user's files that all this comes from, by name.
        exact: Whether conversations are held as the public implementation holds them: the simulated user answers the
            last reply as well, what models say is kept as it is, and a simulated user that stops playing its role does
            not end the conversation.
    """

    schedule: Callable[[int | str, OpeningPrompt, int, Sequence[bool]], tuple[TurnNote | None, ...]]
    injection_file: str
    persona_file: Callable[[str], str]
    system_prompt: Callable[[str], str]
    user_prompt: Callable[[str], UserPrompt]
    judge: Callable[[Participant, Protocol, str], Judge]
    question: Callable[[Protocol, str, Chunk, str, int | None], Question]
    persona_hash: str
    rubric_hash: str
    files: Mapping[str, str] = field(default_factory=dict)
    exact: bool = False


def own_setting(persona: Persona, rubric: Rubric) -> Setting:
    """The package's own way, with its protection against text that addresses a judge or the simulated user."""

    def question(protocol: Protocol, opening: str, chunk: Chunk, secret: str, longest: int | None) -> Question:
        schema = chunk_schema(tuple(protocol.behaviours), rubric.marks, longest=longest)
        return chunk_messages(rubric, opening, chunk, secret), schema

    def schedule(
        seed: int | str, opening: OpeningPrompt, index: int, generated: Sequence[bool]
    ) -> tuple[TurnNote | None, ...]:
        notes, pace = persona.injections, persona.pace
        # What escalates or cools down has no object in a chat about nothing strange, nor is there anything to lead to.
        kinds = [notes.neutral] if opening.twin_of else [notes.escalate, notes.neutral, notes.cool_down]
        decks = [pace.lengths] if opening.twin_of else [pace.moves, pace.lengths]
        drawn = balanced_schedule(seed, opening.prompt_id, index, generated, kinds)
        written = [injection for injection, by_model in zip(drawn, generated, strict=True) if by_model]
        cards = iter(paced(seed, opening.prompt_id, index, written, decks))
        return tuple(
            TurnNote(" ".join((*next(cards), pace.manner)), injection or "") if by_model else None
            for injection, by_model in zip(drawn, generated, strict=True)
        )

    return Setting(
        schedule=schedule,
        injection_file=INJECTIONS_FILE,
        persona_file=lambda _: PERSONA_FILE,
        system_prompt=persona.system_prompt,
        user_prompt=UserPrompt,
        judge=lambda participant, protocol, secret: ModelJudge(participant, rubric, protocol, secret),
        question=question,
        persona_hash=persona.hash,
        rubric_hash=rubric.hash,
    )
