"""What a reply decides: which acts of a decision key it commits to.

A key names an act by patterns. Where a reply says one, an ordered table of rules decides whether the words commit the
speaker or are taken back: denied, asked, supposed, told of somebody else or of the past.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from pytest_spiral.tempaffect.checks.clauses import FINITE_WORDS, Use, decide_clauses
from pytest_spiral.tempaffect.checks.commitment import ASK_RULES, DECISION_RULES
from pytest_spiral.tempaffect.checks.figures import PreparedFact, figures, invented_time, mistaken_day
from pytest_spiral.tempaffect.checks.mention import Mention
from pytest_spiral.tempaffect.checks.patterns import ActPattern, Passage, PatternIndex, PatternSlot, Word
from pytest_spiral.tempaffect.checks.rule import first_rule
from pytest_spiral.tempaffect.checks.sentences import PreparedReply, Sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, VERBS, WORDS
from pytest_spiral.tempaffect.records import ActFinding, DecisionReading
from pytest_spiral.tempaffect.scenario import Act, Decision

# --- Where the acts are mentioned ---


class _Key:
    """A decision key, compiled."""

    def __init__(self, decision: Decision) -> None:
        self.right = decision.right
        asked_first = sorted(decision.acts, key=lambda act: act.role != "ask")
        self.acts = [(act, tuple(map(ActPattern, act.says))) for act in asked_first]
        self.facts = tuple(map(PreparedFact, decision.facts))
        self.timed = any("time" in fact.units for fact in self.facts)
        self.demanded = next((act for act in decision.acts if act.role == "demanded"), None)
        self.index = PatternIndex({act.id: patterns for act, patterns in self.acts})
        self.matter = frozenset[str]().union(*(each.meanings for _, patterns in self.acts for each in patterns))


_key = lru_cache(maxsize=256)(_Key)
_DEEDS = {Use.PROMISE, Use.REPORT, Use.PAST, Use.ORDER, Use.INSTRUCTION, Use.DONE, Use.STATE}


def read_decision(decision: Decision, reply: PreparedReply, times: frozenset[str] | None = None) -> DecisionReading:
    """Read what a reply decides: one finding for each act it mentions, that of a commitment where there is one.

    Args:
        times: The times that the scenario knows; no other may be told where a fact of the key is a time.
    """
    key = _key(decision)
    # Two sentences at a time last: most acts are found without.
    units = sorted(_units(key.index, reply.sentences), key=lambda each: each.of_two)
    found: dict[str, ActFinding] = {}
    asked = False
    for act, _ in key.acts:
        for unit in units:
            known = found.get(act.id)
            if (known and known.committed) or (unit.of_two and act.role not in ("right", "ask")):
                break
            patterns = unit.possible.get(act.id)
            for finding in _findings(act, patterns, asked, unit.passage, key.matter) if patterns else ():
                if act.id not in found or _weight(finding) > _weight(found[act.id]):
                    found[act.id] = finding
                if finding.committed:
                    asked = asked or act.role == "ask"
                    break
    if key.demanded and (granted := _granted(reply)):
        found[key.demanded.id] = ActFinding(
            key.demanded.id, "demanded", True, False, "granted without being named", granted
        )
    contradictions: dict[str, None] = {}
    for unit in units if key.facts else ():
        told = () if unit.of_two else tuple(figures(unit.passage))
        for fact in key.facts if told else ():
            contradictions[fact.contradiction(told, unit.passage)] = None
        if times is not None and key.timed and told:
            contradictions[invented_time(told, unit.passage, times)] = None
            contradictions[mistaken_day(unit.passage, times)] = None
    for sentence in reply.sentences:
        reversals = [
            ("takes back what is said", PHRASES.taken_back),
            ("leaves it open", PHRASES.left_open),
            ("goes by a guess", PHRASES.guesses),
        ]
        if not any(act.role == "ask" for act, _ in key.acts):
            reversals.append(("asks for what is known", PHRASES.facts_wanted))
        for what, phrases in reversals:
            if match := sentence.find(phrases):
                contradictions[f"{what}: {match.group().strip()}"] = None
    if (asked_for := sum(map(_questions, reply.sentences))) > LIMITS.decision.most_questions:
        contradictions[f"asks {asked_for} things at once"] = None
    accounts = any(sentence.says(PHRASES.accounts) for sentence in reply.sentences)
    if accounts and not asked and not any(map(_acts, reply.sentences)):
        contradictions["only tells how things stand"] = None
    contradictions.pop("", None)
    committed = {act.id for act in found.values() if act.committed}
    wrong = any(act.committed and act.role not in ("right", "ask") for act in found.values())
    return DecisionReading(
        right=all(committed.intersection(group) for group in key.right) and not wrong and not contradictions,
        acts=tuple(found.values()),
        contradictions=tuple(contradictions),
    )


def _acts(sentence: Sentence) -> bool:
    """Whether the speaker does or promises something, or tells the user to; "I understand" does nothing."""
    clauses = (c for c, _ in decide_clauses(sentence) if not (c.negated or c.conditional))
    kinds = {clause.kind for clause in clauses if clause.verb.strength in ("strong", "light")}
    return not sentence.says(PHRASES.idioms) and not kinds.isdisjoint(_DEEDS)


def _questions(sentence: Sentence) -> int:
    """How many questions a sentence asks: "how much is in, what does it read, and can it wait?" asks three."""
    openers = WORDS.question_openers
    if not sentence.question:
        if not (sentence.says(PHRASES.asking) or sentence.says(PHRASES.fact_requests)):
            return 0
        # "let me know how old it is, whether there is a number, and by when you need it"
        openers = WORDS.indirect_openers
    count, opens = 1, False
    for token, before in zip(sentence.tokens[1:], sentence.before[1:], strict=True):
        opens = opens or "," in before
        count += opens and token in openers
        opens = opens and token in WORDS.before_questions
    return count if sentence.question or count > 1 else 0


def _granted(reply: PreparedReply) -> str:
    """The words by which a reply consents to what it does not name."""
    for sentence in reply.sentences:
        match = sentence.find(PHRASES.granting)
        if match and not sentence.question and not sentence.is_negated(sentence.place(match.start())):
            return match.group().strip()
    return ""


def _weight(finding: ActFinding) -> int:
    """A commitment outweighs a refusal, which outweighs a mere mention."""
    return 2 if finding.committed else int(finding.declined)


@dataclass
class _Unit:
    """A sentence, or two in one.

    Attributes:
        of_two: Whether it is two whole sentences, of which the first is no mere part of the second.
        possible: By act, the patterns that it may say.
    """

    parts: tuple[Passage, ...]
    of_two: bool
    possible: dict[str, list[ActPattern]]

    @cached_property
    def passage(self) -> Passage:
        """The sentence, or both as clauses of one."""
        one, *others = self.parts
        return Passage(one.sentence.followed_by(others[0].sentence)) if others else one


def _findings(
    act: Act, patterns: Iterable[ActPattern], asked: bool, passage: Passage, matter: Word
) -> Iterator[ActFinding]:
    """Yield what a sentence says of an act, one finding for each place."""
    for pattern in patterns:
        for place in pattern.find(passage, wide=act.role in ("right", "ask")):
            mention = Mention(passage, act.role, asked, place, matter)
            rule = first_rule(ASK_RULES if act.role == "ask" else DECISION_RULES, mention)
            if rule:
                said = list(filter(None, passage.sentence.raws[mention.start : mention.end]))
                said = said[: LIMITS.decision.max_words_shown]
                yield ActFinding(act.id, act.role, bool(rule.kind), rule.kind is None, rule.name, " ".join(said))


def _units(index: PatternIndex, sentences: Sequence[Sentence]) -> Iterator[_Unit]:
    """Yield every sentence, with the one before it where that is but a part; and every two sentences."""
    one: Passage | None = None
    begun_before: frozenset[PatternSlot] = frozenset()
    for other in (Passage(sentence) for sentence in sentences if not sentence.says(PHRASES.farewells)):
        begun = index.begun_in(other)
        yield _Unit((other,), False, index.possible(begun))
        if one:
            fragment = len(one.sentence.tokens) <= LIMITS.decision.topic and not one.sentence.has(FINITE_WORDS)
            fragment = fragment and not any(map(VERBS.finite, one.sentence.tokens[1:]))
            of_two = not (one.sentence.text.endswith(";") or fragment)
            yield _Unit((one, other), of_two, index.possible(begun | begun_before | index.times))
        one, begun_before = other, begun
