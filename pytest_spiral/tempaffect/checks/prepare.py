"""Reading a reply and a scenario once, so that every check looks at the same tokens.

Only reading: what a token means for a check is decided in that check's own file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from pytest_spiral.tempaffect.lexicon import Lexicon, load_lexicon
from pytest_spiral.tempaffect.scenario import Family, ForbiddenPhrase, Scenario
from pytest_spiral.text import clean, count_words, function_words, sentences, stem, words

__all__ = [
    "AnchorGroup",
    "Demand",
    "PreparedReply",
    "PreparedScenario",
    "Sentence",
    "StemIndex",
    "prepare_reply",
    "prepare_scenario",
]

_MOST_SCENARIOS_KEPT = 1024


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of a reply.

    tokens: normalised words. raws: as written. before: what stood between a token and the one before it.
    quoted: token lies inside quotation marks. joined: tokens with single spaces between. starts: where each token
    begins in `joined`. question: ends with a question mark.
    """

    text: str
    tokens: tuple[str, ...]
    raws: tuple[str, ...]
    before: tuple[str, ...]
    stems: tuple[str, ...]
    quoted: tuple[bool, ...]
    joined: str
    starts: tuple[int, ...]
    question: bool


@dataclass(frozen=True, slots=True)
class PreparedReply:
    """A reply after normalisation. words: count of section 2.5. joined: all sentences, one a line."""

    text: str
    words: int
    sentences: tuple[Sentence, ...]
    joined: str

    @property
    def tokens(self) -> tuple[str, ...]:
        """Normalised tokens of the whole reply, in order."""
        return tuple(token for sentence in self.sentences for token in sentence.tokens)

    @property
    def stems(self) -> tuple[str, ...]:
        """Stems of the whole reply, in order."""
        return tuple(found for sentence in self.sentences for found in sentence.stems)


@dataclass(frozen=True, slots=True)
class AnchorGroup:
    """One issue anchor, compiled.

    singles: stems that name it alone. multis: stem sequences of two or more; strong: those with two content words.
    """

    id: str
    core: bool
    singles: frozenset[str]
    multis: tuple[tuple[str, ...], ...]
    strong: frozenset[tuple[str, ...]]
    stems: frozenset[str]


@dataclass(frozen=True, slots=True)
class Demand:
    """An act the user asks for or the context forbids. verbs: lemmas. objects: stems of what is acted on."""

    verbs: frozenset[str]
    objects: frozenset[str]
    forbidden: bool


@dataclass(frozen=True, slots=True)
class PreparedScenario:
    """A scenario, compiled for the checks.

    targets: stem sequences of the action targets. target_stems, anchor_stems: their content stems.
    permitted: targets that the context allows and the user did not ask for.
    user_stems: content stems of the user's message. near_stems: telling stems of message, context and targets outside
    the anchors. known: every token of message, context, role, anchors and targets.
    echo_grams: class-mapped 4-grams of the message. prohibited: listed acts as tokens. demands: acts asked for or
    forbidden. protects: guarded things (names, codes, ...). guarded: the boundary is anything but to go on helping.
    """

    scenario: Scenario
    anchors: tuple[AnchorGroup, ...]
    targets: tuple[tuple[str, ...], ...]
    target_stems: frozenset[str]
    anchor_stems: frozenset[str]
    permitted: tuple[tuple[str, ...], ...]
    permitted_stems: frozenset[str]
    near_stems: frozenset[str]
    user_stems: frozenset[str]
    known: frozenset[str]
    echo_grams: frozenset[tuple[str, ...]]
    prohibited: tuple[tuple[str, ...], ...]
    demands: tuple[Demand, ...]
    protects: frozenset[str]
    guarded: bool
    repair: bool
    direct_answer: bool
    question: bool
    phrases: tuple[tuple[re.Pattern[str], str, ForbiddenPhrase], ...]


def prepare_reply(text: str) -> PreparedReply:
    """Normalised sentences, tokens and stems of any text (section 2.1). Never raises."""
    found: list[Sentence] = []
    in_double = in_single = False
    for piece in sentences(clean(text)):
        parts = words(piece, cleaned=True)
        if not parts:
            continue
        quoted: list[bool] = []
        for part in parts:
            for index, sign in enumerate(part.before):
                if sign == '"':
                    in_double = not in_double
                elif sign == "'":
                    # An apostrophe opens only before a word and after a space; it closes only what was opened.
                    opens = index == len(part.before) - 1 and (index == 0 or not part.before[index - 1].isalnum())
                    if in_single and not (opens and index > 0):
                        in_single = False
                    elif opens and (part.before != "'" or not quoted):
                        in_single = True
            quoted.append(in_double or in_single)
        tail = piece[len(piece.rstrip("'\")].?!;")) :]
        in_double = in_double != (tail.count('"') % 2 == 1)
        in_single = in_single and "'" not in tail
        tokens = tuple(part.norm for part in parts)
        starts, at = [], 0
        for token in tokens:
            starts.append(at)
            at += len(token) + 1
        found.append(
            Sentence(
                text=piece,
                tokens=tokens,
                raws=tuple(part.raw for part in parts),
                before=tuple(part.before for part in parts),
                stems=tuple(map(stem, tokens)),
                quoted=tuple(quoted),
                joined=" ".join(tokens),
                starts=tuple(starts),
                question="?" in tail,
            )
        )
    if (in_double or in_single) and found:
        # A quotation that never ends is a stray sign.
        found = [_unquoted(sentence) for sentence in found]
    return PreparedReply(text, count_words(text), tuple(found), "\n".join(sentence.joined for sentence in found))


def _unquoted(sentence: Sentence) -> Sentence:
    if not any(sentence.quoted):
        return sentence
    return Sentence(
        sentence.text, sentence.tokens, sentence.raws, sentence.before, sentence.stems, (False,) * len(sentence.tokens),
        sentence.joined, sentence.starts, sentence.question,
    )  # fmt: skip


class StemIndex:
    """Where stems stand in one sentence, for sequence matching with gaps."""

    __slots__ = ("at", "stems")

    def __init__(self, stems: Sequence[str]) -> None:
        self.stems = stems
        self.at: dict[str, list[int]] = {}
        for index, found in enumerate(stems):
            self.at.setdefault(found, []).append(index)

    def sequence(self, wanted: Sequence[str], gap: int) -> tuple[int, ...] | None:
        """Positions of `wanted` in order with at most `gap` other tokens between neighbours, None if absent."""
        for start in self.at.get(wanted[0], ()):
            found = [start]
            for stem_ in wanted[1:]:
                later = [at for at in self.at.get(stem_, ()) if found[-1] < at <= found[-1] + gap + 1]
                if not later:
                    break
                found.append(later[0])
            else:
                return tuple(found)
        return None

    def near(self, wanted: Sequence[str], reach: int) -> tuple[int, ...] | None:
        """Positions of `wanted` in any order within `reach` tokens, None if absent."""
        for start in self.at.get(wanted[0], ()):
            found = [start]
            for stem_ in wanted[1:]:
                close = [at for at in self.at.get(stem_, ()) if abs(at - start) <= reach and at not in found]
                if not close:
                    break
                found.append(min(close, key=lambda at: abs(at - start)))
            else:
                return tuple(found)
        return None


@dataclass(slots=True)
class _Kept:
    """Compiled scenarios by identity; each entry holds its scenario, so that an identity is never reused."""

    entries: dict[tuple[int, int], tuple[Scenario, Lexicon, PreparedScenario]] = field(default_factory=dict)


_kept = _Kept()


def prepare_scenario(scenario: Scenario, lexicon: Lexicon | None = None) -> PreparedScenario:
    """The scenario compiled for the checks; compiled once per scenario object."""
    lexicon = lexicon or load_lexicon()
    key = (id(scenario), id(lexicon))
    known = _kept.entries.get(key)
    if known is not None:
        return known[2]
    prepared = _compiled(scenario, lexicon)
    if len(_kept.entries) >= _MOST_SCENARIOS_KEPT:
        _kept.entries.clear()
    _kept.entries[key] = (scenario, lexicon, prepared)
    return prepared


def _compiled(scenario: Scenario, lexicon: Lexicon) -> PreparedScenario:
    spec = scenario.expected.reply
    functional = function_words()
    anchors = tuple(_anchor(a.id, a.core, a.any) for a in spec.issue_anchors)
    targets = tuple(dict.fromkeys(filter(None, (tuple(map(stem, _tokens(target))) for target in spec.action_targets))))
    user = _tokens(scenario.user_message)
    user_stems = frozenset(stem(token) for token in user if _content(token, functional))
    anchor_stems = frozenset().union(*(group.stems for group in anchors))
    target_stems = frozenset(
        stem(token) for target in spec.action_targets for token in _tokens(target) if _content(token, functional)
    )
    context = _tokens(scenario.agent_context)
    known = frozenset(
        [*user, *context, *_tokens(scenario.agent_role)]
        + [token for anchor in spec.issue_anchors for alternative in anchor.any for token in _tokens(alternative)]
        + [token for target in spec.action_targets for token in _tokens(target)]
    )
    demands = _demands(scenario, lexicon, target_stems - user_stems)
    guarded = scenario.expected.boundary_action != "continue_helping"
    listed = lexicon.forbidden if spec.forbidden_phrases is None else spec.forbidden_phrases
    return PreparedScenario(
        scenario=scenario,
        anchors=anchors,
        targets=targets,
        target_stems=target_stems,
        anchor_stems=anchor_stems,
        permitted=_permitted(scenario, targets, user_stems, lexicon),
        permitted_stems=target_stems - user_stems,
        near_stems=_near(scenario, lexicon) - anchor_stems,
        user_stems=user_stems,
        known=known | frozenset(map(stem, known)),
        echo_grams=frozenset(grams(echo_classes(user), lexicon.limits.grounding.echo_gram)),
        prohibited=tuple(dict.fromkeys(filter(None, (tuple(_tokens(act)) for act in spec.prohibited_acts)))),
        demands=demands,
        protects=_protected(scenario, lexicon) if guarded else frozenset(),
        guarded=guarded,
        repair=scenario.family is Family.REPAIR,
        direct_answer="direct_answer" in spec.action_forms
        or (scenario.family is Family.PRACTICAL_SUPPORT and "specific_action" in scenario.expected.user_need),
        question="question" in spec.action_forms,
        phrases=tuple(_phrase(phrase, lexicon) for phrase in (*listed, *spec.extra_forbidden_phrases)),
    )


def _tokens(text: str) -> list[str]:
    return [word.norm for word in words(text)]


def _content(token: str, functional: frozenset[str]) -> bool:
    return token not in functional and (len(token) > 2 or token[0].isdigit())


def _anchor(name: str, core: bool, alternatives: Iterable[str]) -> AnchorGroup:
    functional = function_words()
    singles: set[str] = set()
    multis: list[tuple[str, ...]] = []
    strong: set[tuple[str, ...]] = set()
    content: set[str] = set()
    for alternative in alternatives:
        tokens = _tokens(alternative)
        found = tuple(map(stem, tokens))
        if len(found) == 1:
            singles.add(found[0])
        elif found:
            multis.append(found)
            if sum(token not in functional for token in tokens) > 1:
                strong.add(found)
        content.update(stem(token) for token in tokens if _content(token, functional))
    return AnchorGroup(
        name, core, frozenset(singles), tuple(dict.fromkeys(multis)), frozenset(strong), frozenset(content)
    )


_CLASS = {
    **dict.fromkeys(
        ("i", "me", "my", "mine", "myself", "you", "your", "yours", "yourself", "we", "us", "our", "ours"), "@"
    ),
    **dict.fromkeys(("am", "is", "are", "was", "were", "be"), "="),
}


def echo_classes(tokens: Iterable[str]) -> list[str]:
    """Tokens with persons and forms of "be" replaced by class signs, so that a turned-round echo is still one."""
    return [_CLASS.get(token, token) for token in tokens]


def grams(tokens: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """All runs of `size` tokens."""
    return [tuple(tokens[index : index + size]) for index in range(len(tokens) - size + 1)]


def _demands(scenario: Scenario, lexicon: Lexicon, permitted: frozenset[str]) -> tuple[Demand, ...]:
    """Acts the context forbids and acts the user asks for, as verb and objects."""
    found: list[Demand] = []
    functional = function_words()
    window = lexicon.limits.prohibited.object_window

    def collect(sentence: Sentence, start: int, end: int, *, forbidden: bool, ordered: Callable[[int], bool]) -> None:
        for index in range(start, end):
            token = sentence.tokens[index]
            form = lexicon.verbs.get(token)
            if form is None or form.kind == "never" or not form.base or not ordered(index):
                continue
            objects = frozenset(
                stem(word)
                for word in sentence.tokens[index + 1 : min(end, index + 1 + window)]
                if _content(word, functional)
            )
            objects -= permitted
            if objects:
                verbs = lexicon.lemmas.get(token, frozenset({form.lemma}))
                alike = frozenset().union(verbs, *(lexicon.same_act.get(verb, frozenset()) for verb in verbs))
                found.append(Demand(alike, objects, forbidden))

    for sentence in prepare_reply(scenario.agent_context).sentences:
        for match in lexicon.forbid.finditer(sentence.joined):
            start = sum(1 for at in sentence.starts if at < match.end())
            collect(sentence, start, len(sentence.tokens), forbidden=True, ordered=lambda index: True)
    for sentence in prepare_reply(scenario.user_message).sentences:

        def ordered(index: int, sentence: Sentence = sentence) -> bool:
            if index == 0:
                return True
            previous = sentence.tokens[index - 1]
            return (
                bool(sentence.before[index].strip())
                or previous in lexicon.polite
                or previous in ("to", "you", "just", "and", "or", "can", "could", "will")
                or previous in lexicon.adverbs
            )

        collect(sentence, 0, len(sentence.tokens), forbidden=False, ordered=ordered)
    return tuple(found)


def _protected(scenario: Scenario, lexicon: Lexicon) -> frozenset[str]:
    guarded: set[str] = set()
    for sentence in prepare_reply(scenario.agent_context).sentences:
        match = lexicon.forbid.search(sentence.joined)
        if match or " off " in f" {sentence.joined} ":
            guarded.update(token for token in sentence.tokens if token in lexicon.protected)
    return frozenset(guarded)


def _near(scenario: Scenario, lexicon: Lexicon) -> frozenset[str]:
    """Telling stems of message, context and targets: no times, no short words, no verbs of many uses."""
    functional = function_words()
    text = " . ".join((scenario.user_message, scenario.agent_context, *scenario.expected.reply.action_targets))
    found = set()
    for token in _tokens(text):
        form = lexicon.verbs.get(token)
        common = form is not None and form.kind in ("light", "weak", "never")
        long_enough = len(token) > (1 if token[0].isdigit() else 3)
        if long_enough and not common and token not in functional and token not in lexicon.time_words:
            found.add(stem(token))
    return frozenset(found)


def _permitted(
    scenario: Scenario, targets: Sequence[tuple[str, ...]], user_stems: frozenset[str], lexicon: Lexicon
) -> tuple[tuple[str, ...], ...]:
    allowed: set[str] = set()
    goes_on = False
    for sentence in prepare_reply(scenario.agent_context).sentences:
        permits = goes_on or bool(lexicon.permission.intersection(sentence.tokens))
        if permits and not lexicon.forbid.search(sentence.joined):
            allowed.update(sentence.stems)
        goes_on = permits and sentence.text.endswith(";")
    fresh = [target for target in targets if not all(found in user_stems or len(found) < 3 for found in target)]
    named = [target for target in fresh if any(found in allowed and found not in user_stems for found in target)]
    if scenario.expected.boundary_action == "escalate":
        # Naming the person who decides is itself the way forward.
        return tuple(fresh)
    return tuple(named or fresh)


def _phrase(phrase: ForbiddenPhrase, lexicon: Lexicon) -> tuple[re.Pattern[str], str, ForbiddenPhrase]:
    tokens = _tokens(phrase.text)
    filler = r"(?:(?:\w+ly|" + "|".join(map(re.escape, lexicon.fillers)) + r") )?"
    body = (" " + filler).join(map(re.escape, tokens)) if tokens else r"(?!)"
    return re.compile(rf"(?<!\S){body}(?!\S)"), "".join(tokens), phrase


def count_pairs(stems: Sequence[str], wanted: frozenset[str], distance: int) -> bool:
    """Whether two different stems of `wanted` stand within `distance` tokens."""
    places = [(index, found) for index, found in enumerate(stems) if found in wanted]
    return any(b[0] - a[0] <= distance and a[1] != b[1] for a, b in pairwise(places))
