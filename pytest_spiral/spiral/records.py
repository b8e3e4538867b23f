"""The records of one conversation: transcript, judgements, and what is missing.

Frozen and typed. No scoring here: the protocol says which findings count, and how.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from pytest_spiral.chat import Message
from pytest_spiral.status import Reason, Status

PrefixKind = Literal["held", "slid", "mixed", "benign"]
CalledFor = Literal["none", "somewhat", "clearly"]
EvidenceClass = Literal["exact", "normalised", "elided", "unlocated"]
"""How a quote was found in the judged reply: letter by letter, after folding typography and markdown, in pieces around
an ellipsis, or not at all."""

MARK_SCALE = (0, 2)
"""Of the marks of a user message: not, somewhat, clearly."""
_GAPS = re.compile(r"[\s_-]+")


def behaviour_name(key: str) -> str:
    """The name of a behaviour as reports and gates spell it: lower case, words joined by underscores.

    >>> behaviour_name(" De-escalation ")
    'de_escalation'
    """
    return _GAPS.sub("_", key.strip().lower())


class _Strict:
    """A record that is read without unknown keys or conversions."""

    __slots__ = ()
    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)


@dataclass(frozen=True, slots=True)
class Finding(_Strict):
    """One behaviour that a judge reported in one assistant reply, with a quote.

    Attributes:
        turn: Which assistant message, counted from 0.
        behaviour: Its name.
        quote: The words that show it.
        strength: 1 (weak) to 3 (strong).
        judge: Who reported it.
        evidence: How the quote was located.
        start: First character of the quote in that message; None where it is unlocated.
        end: Its end, exclusive.
        in_user_text: The user used these words: a located quote repeats the user, an unlocated one is the user's.
    """

    turn: int
    behaviour: str
    quote: str
    strength: int
    judge: str = ""
    evidence: EvidenceClass = "unlocated"
    start: int | None = None
    end: int | None = None
    in_user_text: bool = False

    @property
    def is_open(self) -> bool:
        """Whether it may be true although the reply does not hold the quote.

        Words of the user's settle a weak finding only: "yes, all of it, tonight" has nothing to quote, so a judge
        quotes the plan that it agrees to.
        """
        return self.strength > 1 or not self.in_user_text

    def __post_init__(self) -> None:
        if not 1 <= self.strength <= 3:
            raise ValueError(f"strength: must lie in 1..3, got {self.strength}")
        if self.turn < 0:
            raise ValueError(f"turn: must not be negative, got {self.turn}")
        if (self.evidence == "unlocated") != (self.start is None) or (self.start is None) != (self.end is None):
            raise ValueError("start and end: needed for a located quote, and only for one")


class Repair(StrEnum):
    """What was overlooked in a judge's reply that can be read in one way only."""

    FENCE = "fence"
    """A Markdown fence around the object."""
    WORDS_AROUND = "words_around"
    """Words before or after the object."""
    NAME = "name"
    """A behaviour in another spelling: De-escalation."""
    NUMBER = "number"
    """A whole number as a string or with a point."""


@dataclass(frozen=True, slots=True)
class ChunkJudgement(_Strict):
    """One judge's judgement of one chunk, or why there is none.

    Attributes:
        index: Place of the chunk in the conversation, from 0.
        turns: Assistant messages judged, counted from 0.
        judge: Its name.
        status: `measured` if there is a judgement.
        reason: Why the status is not `measured`.
        behaviours: Those the judge was asked about, found or not.
        findings: What it reported.
        chars: Length of the judged replies as recorded with the judgement; None where it was not.
        stated: Sums of strengths as an imported record states them, by upstream key, with or without quotes; None for
            judgements of our own.
        unquoted: Behaviours for which an imported record claims more points than its quotes carry.
        raw_text: The judge's reply without the behaviours that it saw nothing of (`"escalation": []`), which the store
            has as well; of one that could not be read, the first 20,000 characters.
        repairs: What had to be overlooked to read it.
        called_for: Marks of the user's last message, 0 to 2: how far it calls for holding one's ground (`ground`) and
            for care (`care`). Empty under a rubric without marks.
    """

    index: int
    turns: tuple[int, ...]
    judge: str = ""
    status: Status = Status.MEASURED
    reason: Reason | None = None
    behaviours: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    chars: float | None = None
    stated: Mapping[str, float] | None = None
    unquoted: int = 0
    raw_text: str = ""
    repairs: tuple[Repair, ...] = ()
    called_for: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.index < 0 or any(turn < 0 for turn in self.turns):
            raise ValueError("index and turns: must not be negative")
        if self.status is not Status.MEASURED and (self.findings or self.stated):
            raise ValueError(f"findings: a judgement that is {self.status} has none")
        if not all(finding.turn in self.turns for finding in self.findings):
            raise ValueError("findings: one names a turn outside the chunk")
        if not all(math.isfinite(value) and value >= 0 for value in (self.stated or {}).values()):
            raise ValueError("stated: must be finite and not negative")
        if not all(MARK_SCALE[0] <= mark <= MARK_SCALE[1] for mark in self.called_for.values()):
            raise ValueError("called_for: marks must lie in 0..2")


@dataclass(frozen=True, slots=True)
class Retest(_Strict):
    """A second judgement of a chunk; no part of any score.

    how: as before, with the behaviours in another order, or without what stands before the chunk.
    """

    how: Literal["again", "reordered", "alone"]
    judgement: ChunkJudgement


@dataclass(frozen=True, slots=True)
class FinalJudgement(_Strict):
    """One judge's scores of the whole conversation, 0 to 10 by metric, or why there are none."""

    judge: str = ""
    status: Status = Status.MEASURED
    reason: Reason | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    raw_text: str = ""
    repairs: tuple[Repair, ...] = ()

    def __post_init__(self) -> None:
        if self.status is not Status.MEASURED and self.scores:
            raise ValueError(f"scores: a judgement that is {self.status} has none")
        if not all(math.isfinite(value) and 0 <= value <= 10 for value in self.scores.values()):
            raise ValueError("scores: must lie in 0..10")


@dataclass(frozen=True, slots=True)
class Flag(_Strict):
    """A remark on one generated user message."""

    turn: Annotated[int, Field(ge=0)]
    """Number of the user message, the opening being 0."""
    rule: str
    detail: str


@dataclass(frozen=True, slots=True)
class Origin(_Strict):
    """Names of the files and models that a conversation was made with, as upstream's format records them.

    Conversations with the same `prompt_key` are pooled as one prompt; "" means the prompt id. `judges` are those that a
    file of version 1.2 lists, in its order; files of earlier versions, and our own records, list none.
    """

    run_id: str = ""
    file_key: str = ""
    prompt_key: str = ""
    prompt_file: str = ""
    instruction_file: str = ""
    injection_file: str = ""
    user_model: str = ""
    user_system_prompt: str = ""
    evaluated_system_prompt: str = ""
    judges: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Abandoned(_Strict):
    """An attempt at a conversation that was given up: what was said up to then, and what the judges found in it."""

    transcript: tuple[Message, ...]
    judgements: tuple[ChunkJudgement, ...] = ()


@dataclass(frozen=True, slots=True)
class Beginning(_Strict):
    """What stands before the first message of a conversation that begins in the middle.

    Attributes:
        history: Messages of user and assistant in turn, the user's first and the assistant's last.
        kind: What the assistant has done in it: held its ground, gone along, some of both; or there was nothing to
            dispute.
        called_for: Whether the message after it calls for holding one's ground.
        opening: The conversation it was cut from, which others may be cut from as well; intervals take it as one.
        family: The manner in which the assistant's part is written.
        care: Whether that message calls for care: the user is low, frightened, worn out or alone. A referral to help
            is then no over-correction.
        proposed: Kind and calls are a program's guess from recorded findings, which nobody has confirmed.
    """

    history: Annotated[tuple[Message, ...], Field(min_length=2, max_length=200)]
    kind: PrefixKind
    called_for: CalledFor
    opening: Annotated[str, Field(min_length=1, max_length=100)]
    family: Annotated[str, Field(min_length=1, max_length=100)]
    care: bool = False
    proposed: bool = False

    def __post_init__(self) -> None:
        roles = [message.role for message in self.history]
        if roles != ["user", "assistant"] * (len(roles) // 2):
            raise ValueError("history: expected messages of user and assistant in turn, the assistant's last")
        if not all(message.content.strip() for message in self.history):
            raise ValueError("history: a message is empty")

    @property
    def depth(self) -> int:
        """Replies of the assistant so far."""
        return len(self.history) // 2


@dataclass(frozen=True, slots=True)
class Conversation(_Strict):
    """One simulated conversation with its judgements.

    Attributes:
        prompt_id: The opening.
        category: Of the opening.
        model: The evaluated model.
        index: Which of the conversations on this prompt, from 0.
        status: `measured` if it was held to its end.
        reason: Why the status is not `measured`.
        prompts: Scripted user messages, the opening first; None stands for a generated one.
        transcript: All messages.
        injections_log: One entry per message, "" where nothing was injected.
        judgements: One per chunk and judge.
        finals: One per judge.
        twin_of: The prompt of which this one is the innocent twin, "" for none. Twins are left out of scores.
        given_up: Why earlier simulations of this conversation were given up, in their order.
        abandoned: Those simulations. The worst that was found in them counts, their means do not.
        retests: Second judgements of chunks.
        origin: Files and models it was made with.
        beginning: What the model was shown before the transcript; None for a conversation from its opening on.
    """

    prompt_id: str
    category: str
    model: str = ""
    index: int = 0
    status: Status = Status.MEASURED
    reason: Reason | None = None
    prompts: tuple[str | None, ...] = ()
    transcript: tuple[Message, ...] = ()
    injections_log: tuple[str, ...] = ()
    judgements: tuple[ChunkJudgement, ...] = ()
    finals: tuple[FinalJudgement, ...] = ()
    twin_of: str = ""
    given_up: tuple[Reason, ...] = ()
    abandoned: tuple[Abandoned, ...] = ()
    retests: tuple[Retest, ...] = ()
    origin: Origin = Origin()
    beginning: Beginning | None = None

    @property
    def history(self) -> tuple[Message, ...]:
        """The messages before the transcript, which the model did not write."""
        return self.beginning.history if self.beginning else ()

    @property
    def id(self) -> str:
        """Prompt id and number from 1, as in the node id: unique within a run of one model."""
        return f"{self.prompt_id}-{self.index + 1}"

    @property
    def replies(self) -> tuple[str, ...]:
        """The evaluated model's messages; `turn` counts them."""
        return tuple(message.content for message in self.transcript if message.role == "assistant")

    @property
    def abandoned_replies(self) -> tuple[str, ...]:
        """Its messages in attempts that were given up."""
        messages = (message for held in self.abandoned for message in held.transcript)
        return tuple(message.content for message in messages if message.role == "assistant")

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All findings of all judges, in the order of the judgements."""
        return tuple(finding for judgement in self.judgements for finding in judgement.findings)
