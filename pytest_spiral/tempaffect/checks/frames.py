"""Who does what in a sentence: verbs with their frame, found by position and function words alone.

A frame is how a verb is put: "I'm sending", "please open", "has been refunded", "recall sent". No parser, no tagger:
the rules read a few tokens to the left of each verb, inside its clause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_spiral.tempaffect.checks.prepare import Sentence
from pytest_spiral.tempaffect.lexicon import Lexicon, VerbForm

__all__ = ["Frame", "scan"]

# Frames in which the speaker or someone on their behalf acts, or the reader is told to.
COMMIT, PERFECT, PAST, IMPERATIVE, INSTRUCTIVE = "commit", "perfect", "past", "imperative", "instructive"
DONE, STATIVE, FRAGMENT, THIRD, PROGRESSIVE = "done", "stative", "fragment", "third", "progressive"


@dataclass(frozen=True, slots=True)
class Frame:
    """One verb in its clause.

    kind: how it is put. form: its dictionary reading. at: position of the verb. start, end: its clause.
    negated, hedged, conditional: taken back, softened or made to depend on something, inside the clause.
    """

    kind: str
    form: VerbForm
    at: int
    start: int
    end: int
    negated: bool
    hedged: bool
    conditional: bool


_BREAKS = frozenset(",:;()[]>!?.")
_LINKS = frozenset({"that", "as"})


def scan(sentence: Sentence, lexicon: Lexicon, limit: int) -> list[Frame]:
    """Verb frames of a sentence, at most `limit` tokens of it read."""
    tokens = sentence.tokens[:limit]
    starts, ends = _clauses(sentence, tokens, lexicon)
    found: list[Frame] = []
    last: Frame | None = None
    for at, token in enumerate(tokens):
        form = lexicon.verbs.get(token)
        if form is None or sentence.quoted[at] or (form.lemma == "do" and _supports(tokens, at, lexicon)):
            continue
        start = starts[at]
        kind = _kind(sentence, tokens, at, start, ends[at], form, last, lexicon)
        if kind is None:
            continue
        opener = tokens[start] if tokens[start] in lexicon.clause_openers else ""
        conditional = opener in lexicon.void_openers and start < at
        window = tokens[max(start, at - lexicon.negation_window) : at]
        frame = Frame(
            kind=kind,
            form=form,
            at=at,
            start=start,
            end=ends[at],
            negated=any(word in lexicon.negations for word in window),
            hedged=any(word in lexicon.hedges for word in tokens[start:at]),
            conditional=conditional,
        )
        if (
            last is not None
            and start == at - _opened(tokens, start, at, lexicon)
            and _coordinated(sentence, tokens, start)
        ):
            # "I could look and send": what softens or negates the first verb reaches the second.
            frame = Frame(
                kind, form, at, start, ends[at], frame.negated or (last.negated and tokens[start] in ("or", "and")),
                frame.hedged or last.hedged, frame.conditional or last.conditional,
            )  # fmt: skip
        found.append(frame)
        last = frame
    return found


def _supports(tokens: Sequence[str], at: int, lexicon: Lexicon) -> bool:
    """Whether "do" merely supports another verb ("I do apologize", "what I can do is")."""
    following = tokens[at + 1] if at + 1 < len(tokens) else ""
    form = lexicon.verbs.get(following)
    return not following or following in ("not", "is", "so") or (form is not None and form.base)


def _opened(tokens: Sequence[str], start: int, at: int, lexicon: Lexicon) -> int:
    """Number of tokens before the verb if they are only conjunctions and adverbs, else -1."""
    between = tokens[start:at]
    return (
        len(between)
        if all(word in lexicon.polite or word in lexicon.adverbs or word == "or" for word in between)
        else -1
    )


def _coordinated(sentence: Sentence, tokens: Sequence[str], start: int) -> bool:
    return tokens[start] in ("and", "or", "then", "but") or "," in sentence.before[start]


def _clauses(sentence: Sentence, tokens: Sequence[str], lexicon: Lexicon) -> tuple[list[int], list[int]]:
    starts: list[int] = []
    current = 0
    for at, token in enumerate(tokens):
        before = sentence.before[at]
        opens = token in lexicon.clause_openers and not (token in _LINKS and _points(tokens, at, lexicon))
        if at and (opens or any(sign in _BREAKS for sign in before) or " -" in before):
            current = at
        starts.append(current)
    ends = [len(tokens)] * len(tokens)
    for at in range(len(tokens) - 2, -1, -1):
        ends[at] = ends[at + 1] if starts[at] == starts[at + 1] else starts[at + 1]
    return starts, ends


def _points(tokens: Sequence[str], at: int, lexicon: Lexicon) -> bool:
    """Whether "that" or "as" goes with a noun or participle ("that form", "as passed") rather than opening a clause."""
    following = tokens[at + 1] if at + 1 < len(tokens) else ""
    return not (following in lexicon.people or following in lexicon.subjects or following in lexicon.determiners)


def _kind(
    sentence: Sentence,
    tokens: Sequence[str],
    at: int,
    start: int,
    end: int,
    form: VerbForm,
    last: Frame | None,
    lexicon: Lexicon,
) -> str | None:
    first = start + 1 if tokens[start] in lexicon.clause_openers and start < at else start
    back = at - 1
    while back >= first and (
        tokens[back] in lexicon.adverbs or tokens[back] in ("not", "re") or tokens[back].endswith("ly")
    ):
        back -= 1
    initial = back < first or all(
        word in lexicon.polite or word in lexicon.adverbs for word in tokens[first : back + 1]
    )
    previous = tokens[back] if back >= first else ""
    earlier = _before(tokens, back, first, lexicon)
    if form.ing:
        return _ing_kind(sentence, tokens, at, start, first, end, previous, earlier, initial, last, lexicon)
    if (form.past or form.participle) and not (form.base and (initial or previous in ("will", "shall", "can", "to"))):
        kind = _past_kind(
            sentence, tokens, at, start, first, end, back, previous, earlier, initial, form, last, lexicon
        )
        if kind is not None or not form.base:
            return kind
    if form.base:
        return _base_kind(
            sentence, tokens, at, start, first, end, back, previous, earlier, initial, form, last, lexicon
        )
    if form.third:
        if at > start and initial and _joined_to(last, sentence, tokens, start, (THIRD,)):
            return THIRD
        if initial and at > start and at + 1 < end and tokens[at + 1] in lexicon.object_pronouns:
            return THIRD
        return _third_kind(tokens, at, back, first, end, previous, initial, lexicon)
    return None


def _before(tokens: Sequence[str], back: int, first: int, lexicon: Lexicon) -> str:
    """The word before the auxiliary at `back`, adverbs and "not" skipped."""
    index = back - 1
    while index >= first and (tokens[index] in lexicon.adverbs or tokens[index] == "not"):
        index -= 1
    return tokens[index] if index >= first else ""


def _joined_to(
    last: Frame | None, sentence: Sentence, tokens: Sequence[str], start: int, kinds: tuple[str, ...]
) -> bool:
    return last is not None and last.kind in kinds and _coordinated(sentence, tokens, start)


def _ing_kind(
    sentence: Sentence,
    tokens: Sequence[str],
    at: int,
    start: int,
    first: int,
    end: int,
    previous: str,
    earlier: str,
    initial: bool,
    last: Frame | None,
    lexicon: Lexicon,
) -> str | None:
    if previous in lexicon.be:
        if earlier in lexicon.subjects or (previous == "am" and not earlier):
            return COMMIT
        if earlier == "will":
            return COMMIT
        return None if earlier in ("you", "") and previous != "be" else PROGRESSIVE
    if initial:
        rest = tokens[at + 1 : _phrase_end(sentence, tokens, at)]
        # "Deleting the folder was my doing" is a subject, "Calling your number now" an announcement.
        if not rest or any(
            word in lexicon.be or word in lexicon.finite_verbs or _auxiliary(word, lexicon) for word in rest
        ):
            return None
        if (
            last is not None
            and last.form.ing
            and last.kind in (COMMIT, PROGRESSIVE)
            and _coordinated(sentence, tokens, start)
        ):
            return last.kind
        if start == 0 or any(sign in _BREAKS for sign in sentence.before[start]) or tokens[start] == "and":
            if start > 0 and not any(sign in ":;(>-." for sign in sentence.before[start]):
                return COMMIT if last is not None and last.kind == COMMIT else None
            return COMMIT
    return None


def _auxiliary(word: str, lexicon: Lexicon) -> bool:
    return word in lexicon.modal_soft or word in lexicon.modal_commit or word in lexicon.auxiliaries


def _phrase_end(sentence: Sentence, tokens: Sequence[str], at: int) -> int:
    for place in range(at + 1, len(tokens)):
        if any(sign in _BREAKS for sign in sentence.before[place]):
            return place
    return len(tokens)


def _base_kind(
    sentence: Sentence,
    tokens: Sequence[str],
    at: int,
    start: int,
    first: int,
    end: int,
    back: int,
    previous: str,
    earlier: str,
    initial: bool,
    form: VerbForm,
    last: Frame | None,
    lexicon: Lexicon,
) -> str | None:
    if previous in lexicon.modal_commit:
        if earlier in lexicon.subjects:
            return COMMIT
        if earlier == "you":
            return INSTRUCTIVE
        return THIRD if earlier else None
    if previous in lexicon.modal_soft:
        return INSTRUCTIVE if earlier == "you" and previous in ("should", "must") else None
    if previous == "to":
        if earlier == "going":
            return COMMIT
        if earlier in lexicon.needing and "you" in tokens[first:back]:
            return INSTRUCTIVE
        return None
    if previous in ("me", "us") and earlier == "let":
        return COMMIT
    if previous == "is" and earlier == "do" and any(word in lexicon.subjects for word in tokens[first:back]):
        # "What I will do is get you a copy"
        return COMMIT
    if previous in lexicon.subjects and earlier == "what":
        # "that is what I call bad luck"
        return None
    if previous in lexicon.subjects:
        return PAST if form.past and not _marked_now(tokens, start, end, lexicon) else COMMIT
    if previous == "you":
        return (
            INSTRUCTIVE
            if (back == first or (back > first and tokens[back - 1] == "of"))
            and not form.past
            and (first == start or tokens[start] in ("and", "so", "then"))
            else None
        )
    if initial and (tokens[start] in ("who", "which") or _numbered(tokens, at, end, lexicon)):
        return None
    if initial:
        if at > start and _joined_to(last, sentence, tokens, start, (COMMIT, INSTRUCTIVE, THIRD)) and last is not None:
            return last.kind if last.form.base else IMPERATIVE
        if at > start and last is None and not any(sign in _BREAKS for sign in sentence.before[start]):
            # "Neighbors see a van and draw conclusions"
            plain = any(tokens[place - 1].endswith("s") and _base(tokens[place], lexicon) for place in range(1, start))
            if plain:
                return None
        if _orders(sentence, tokens, at, end, form, lexicon):
            return IMPERATIVE
        return None
    if previous in ("they", "people", "team", "colleagues", "everyone"):
        return THIRD
    return None


def _orders(sentence: Sentence, tokens: Sequence[str], at: int, end: int, form: VerbForm, lexicon: Lexicon) -> bool:
    """Whether a clause-initial base verb reads as an order rather than a noun."""
    token = tokens[at]
    after = tokens[at + 1] if at + 1 < end else ""
    if after in lexicon.be or _auxiliary(after, lexicon):
        return False
    if token not in lexicon.noun_like:
        # "Duplicate submissions are ignored"
        return at + 2 >= end or tokens[at + 2] not in lexicon.be or after in lexicon.determiners | lexicon.people
    if at + 2 == end and after in lexicon.noun_like and "!" in sentence.text:
        return False
    if after not in lexicon.determiners and after not in lexicon.object_pronouns:
        # "Box 6 would not have been lost"
        for word in tokens[at + 1 : end]:
            if word in lexicon.be or _auxiliary(word, lexicon):
                return False
    if not after:
        # "..., file, ..." inside a chain of orders
        return at > 0 and "," in sentence.before[at]
    if after in ("of", "for", "from") or after in lexicon.clause_openers:
        return False
    if after in ("to", "in", "at", "by", "with", "on") and at + 2 < end and tokens[at + 2] not in lexicon.determiners:
        return "," in sentence.before[at] or form.kind == "light" or form.lemma in lexicon.going
    following = lexicon.verbs.get(after)
    participle = following is not None and (following.participle or following.third) and not following.base
    return not participle and (following is None or not following.ing or after in lexicon.noun_like)


def _past_kind(
    sentence: Sentence,
    tokens: Sequence[str],
    at: int,
    start: int,
    first: int,
    end: int,
    back: int,
    previous: str,
    earlier: str,
    initial: bool,
    form: VerbForm,
    last: Frame | None,
    lexicon: Lexicon,
) -> str | None:
    if previous in ("have", "has") and form.participle:
        if earlier in lexicon.subjects or "i" in tokens[max(first, back - 2) : back]:
            return PERFECT
        return None if earlier == "you" or "you" in tokens[max(first, back - 2) : back] else DONE
    if previous == "been" and form.participle:
        return DONE if earlier in ("have", "has", "will") else None
    if previous == "being" and form.participle:
        # "the lock's being changed"
        short = back > first and sentence.raws[back - 1].endswith(("'s", "\u2019s"))
        return DONE if short or earlier in lexicon.be else None
    if previous == "be" and form.participle:
        return DONE if earlier in ("will", "shall") else None
    if previous in ("is", "are", "am") and form.participle:
        return STATIVE if earlier != "you" else None
    if previous in ("was", "were") and form.participle:
        return DONE if _marked_now(tokens, start, end, lexicon) and earlier != "you" else None
    if previous in lexicon.linking and form.participle:
        return STATIVE
    if previous in lexicon.subjects and form.past:
        return PAST
    if initial:
        if form.participle and _joined_to(last, sentence, tokens, start, (PERFECT, DONE, PAST, STATIVE, FRAGMENT)):
            return last.kind if last is not None else None
        if form.participle and not _finite(tokens, at + 1, end, lexicon) and tokens[start] not in lexicon.void_openers:
            return FRAGMENT
        return None
    if form.participle and previous not in lexicon.people and previous not in lexicon.determiners:
        if previous in lexicon.prepositions and previous not in ("up", "out", "off", "over"):
            return None
        following = tokens[at + 1 : at + 3]
        object_after = len(following) == 2 and following[0] in lexicon.determiners
        if form.past and object_after and following[1] not in lexicon.time_words:
            # A participle takes no object: "The officer got the whole story".
            return None
        if any(_governs(tokens[place], place > first, lexicon) for place in range(first, back)):
            # "using the details printed on the letter", "tools operate on the files given to them"
            return None
        if previous in lexicon.clause_openers or previous in lexicon.modal_commit or previous in lexicon.modal_soft:
            return None
        if _finite(tokens, first, at, lexicon) or _finite(tokens, at + 1, end, lexicon):
            return None
        return FRAGMENT
    return None


def _numbered(tokens: Sequence[str], at: int, end: int, lexicon: Lexicon) -> bool:
    """Whether the verb-like word is a noun with its number, subject of a verb: "stand 14 stays shut"."""
    if tokens[at] not in lexicon.noun_like or at + 2 >= end or not tokens[at + 1][:1].isdigit():
        return False
    form = lexicon.verbs.get(tokens[at + 2])
    return tokens[at + 2] in lexicon.be or (form is not None and form.third)


def _base(token: str, lexicon: Lexicon) -> bool:
    form = lexicon.verbs.get(token)
    return form is not None and form.base


def _governs(token: str, inside: bool, lexicon: Lexicon) -> bool:
    """Whether a word earlier in the clause is its verb, so that a later participle only describes a noun."""
    form = lexicon.verbs.get(token)
    if form is None:
        return False
    acting = form.base or form.third
    return form.ing or (inside and acting and form.lemma not in lexicon.noun_like)


def _finite(tokens: Sequence[str], start: int, end: int, lexicon: Lexicon) -> bool:
    """Whether an auxiliary, a personal pronoun or a clear present-tense verb stands in the span."""
    for word in tokens[start:end]:
        if word in lexicon.be or word in lexicon.modal_commit or word in lexicon.modal_soft:
            return True
        if word in lexicon.auxiliaries or word in lexicon.finite_subjects:
            return True
    return False


def _third_kind(
    tokens: Sequence[str], at: int, back: int, first: int, end: int, previous: str, initial: bool, lexicon: Lexicon
) -> str | None:
    if initial or previous in lexicon.determiners or previous in lexicon.prepositions or previous[:1].isdigit():
        return None
    if previous in ("that", "this", "which", "who") or previous in lexicon.be:
        return None
    return THIRD


def _marked_now(tokens: Sequence[str], start: int, end: int, lexicon: Lexicon) -> bool:
    return any(word in lexicon.now_words for word in tokens[start:end])
