"""What a reply decides: which acts of a decision key it commits to.

A key names an act by patterns. Where a reply says one, an ordered table of rules decides whether the words commit the
speaker or are taken back: denied, asked, supposed, told of somebody else or of the past.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property, lru_cache

from pytest_spiral.tempaffect.checks.clauses import FINITE_WORDS, HELPING_VERBS, Kind, clause_spans, decide_clauses
from pytest_spiral.tempaffect.checks.figures import PreparedFact, figures
from pytest_spiral.tempaffect.checks.mention import Mention
from pytest_spiral.tempaffect.checks.patterns import Pattern, Span, WordPlaces
from pytest_spiral.tempaffect.checks.rule import Rule, first_rule
from pytest_spiral.tempaffect.checks.sentences import PreparedReply, Sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, VERBS, WORDS
from pytest_spiral.tempaffect.records import ActFinding, DecisionReading
from pytest_spiral.tempaffect.scenario import Act, Decision

_CERTAIN = {Kind.ORDER, Kind.INSTRUCTION, Kind.REPORT, Kind.PAST, Kind.DONE}


# --- What takes an act back ---


def _asked(m: Mention) -> bool:
    """Whether the words ask, except that they offer what must not be offered, or want to be told something."""
    if not m.sentence.question or (m.own and m.tokens[m.start] not in WORDS.question_openers):
        return False
    offers = m.role in ("demanded", "impossible") and m.sentence.says(PHRASES.offering_questions)
    return not (offers or m.sentence.says(PHRASES.asking))


def _denied(m: Mention) -> bool:
    """Whether a negation that is no part of the pattern governs its words."""
    if m.role == "impossible" and not WORDS.harms.isdisjoint(m.tokens[at] for at in m.taken):
        return False
    harmless = m.sentence.places(PHRASES.harmless_negations)
    if m.tokens[m.clause[0]] == "or" and not m.taken.isdisjoint(range(*m.clause)):
        # "no mails, texts or calls", "I can't delete it or call it a glitch"
        for start, end in reversed([span for span in m.spans if span[1] <= m.clause[0]]):
            if any(at not in harmless and m.tokens[at] in WORDS.negations for at in range(start, end)):
                return True
            if not FINITE_WORDS.isdisjoint(m.tokens[start:end]):
                break
    if m.tokens[m.clause[0]] == "that":
        # "I will not confirm that it stays"
        before = next((range(*span) for span in m.spans if span[1] == m.clause[0]), range(0))
        if any(at not in harmless and _is_predicate(m.tokens, at, before.start) for at in before):
            return True
    for start, end in m.spans if m.topic else ():
        # "I am writing it down. I will not send a code."
        last = max((at for at in m.topic if start <= at < end), default=start)
        if any(at not in harmless and _is_predicate(m.tokens, at, start) for at in range(start, last)):
            return True
    for start, end in m.clauses:
        inside = [at for at in m.taken if start <= at < end]
        for at in range(start, end):
            token = m.tokens[at]
            if token not in WORDS.negations or at in m.taken or at in harmless:
                continue
            predicate = _is_predicate(m.tokens, at, start)
            near = at - (m.verb if start <= m.verb < end else max(inside)) <= LIMITS.decision.denied_object
            object_ = near and token in ("none", "nothing", "nobody", "no")
            if predicate or object_ or max(inside) > at:
                return True
    return False


def _is_predicate(tokens: Sequence[str], at: int, start: int) -> bool:
    """Whether a negation of the verb stands there."""
    previous = tokens[at - 1] if at > start else ""
    return tokens[at] in ("not", "never", "cannot") and previous in ("", "as", *HELPING_VERBS)


def _refused(m: Mention) -> bool:
    """Whether a verb before the words says that the act is not done: "I refuse to send", "I forgot to send"."""
    found = [m.sentence.place(match.start()) for match in m.sentence.find_all(PHRASES.not_done)]
    places = m.taken | m.topic
    return any(
        start <= at < place < end and at not in places for start, end in m.spans for place in places for at in found
    )


def _set_aside(m: Mention) -> bool:
    """Whether any of the words follows "rather than" or the like in its clause."""
    starts = [m.sentence.place(match.start()) for match in m.sentence.find_all(PHRASES.set_aside)]
    return any(start <= at < place < end for start, end in m.clauses for at in starts for place in m.taken)


def _unknown(m: Mention) -> bool:
    """Whether the words are an indirect question, or what the speaker cannot say or promise."""
    opening = m.tokens[max(0, m.start - 1) : m.start + 2]
    if "whether" in opening:
        return True
    if m.start == 0 and m.tokens[0] in ("who", "how", "why") and not m.sentence.question:
        # "Who decides is Renate" tells, "Who decides is not known" does not.
        copulas = {at for at in range(m.end) if m.tokens[at] in ("is", "are")} - m.taken
        return not any(copulas.intersection((at - 1, at - 2)) for at in m.taken)
    before = next((start for start, end in m.spans if end == m.clause[0]), m.clause[0])
    return PHRASES.not_told.pattern.search(" ".join(m.tokens[before : m.verb])) is not None


def _unreal(m: Mention) -> bool:
    """Whether "would have sent" or "had they sent" stands in the verb's clause."""
    tokens, (start, end) = m.tokens, m.clause
    for at in range(start, end - 1):
        if tokens[at] != "have" or (WORDS.soft_modals - {"must", "may"}).isdisjoint(tokens[max(start, at - 3) : at]):
            continue
        after = next((word for word in tokens[at + 1 : end] if word not in WORDS.adverbs and word != "not"), "")
        verb = VERBS.forms.get(after)
        if after in ("been", "had") or after.endswith("ed") or (verb is not None and verb.participle):
            return True
    return False


def _condition(m: Mention) -> bool:
    """Whether the verb's clause is itself a condition or a comparison ("as I would keep yours")."""
    start, end = m.clause
    compared = m.tokens[start] in ("as", "like") and "would" in m.tokens[start:end]
    return compared or m.tokens[start] in ("if", "unless", "when", "once")


def _unreal_condition(m: Mention) -> bool:
    unreal = {"would", "could", "might", "were", "had"}
    return m.sentence.says(PHRASES.conditions) and not unreal.isdisjoint(m.tokens[m.start : m.end])


def _others_would(m: Mention) -> bool:
    """Whether something, not the speaker or the user, would happen."""
    start, end = m.clause
    tokens = m.tokens[start:end]
    subject = tokens[: tokens.index("would")] if "would" in tokens else ()
    return bool(subject) and {"i", "we", "you", "1"}.isdisjoint(subject)


def _others_act(m: Mention) -> bool:
    """Whether a third person acted: a simple past with a subject before it and an object after it."""
    subject, at = m.subject, m.verb
    # "Pulled my draft" leaves the speaker out.
    if at == m.clause[0] or not subject or not {"i", "we", "you", "it", "me", "us"}.isdisjoint(subject):
        return False
    after = m.tokens[at + 1 : at + 2]
    idle = not after or after[0] in WORDS.prepositions or after[0] in WORDS.adverbs or after[0] in WORDS.time_words
    verb = VERBS.forms.get(m.tokens[at])
    explained = m.tokens[at] == "did" and after == ("it",)
    return m.is_past(at) and verb is not None and not (verb.participle and idle) and not explained


def _dropped(m: Mention) -> bool:
    after = " ".join(m.tokens[m.end :])
    return not m.own and PHRASES.dropped.pattern.search(after) is not None


def _quoted(m: Mention) -> bool:
    return m.sentence.quoted[m.verb] and PHRASES.attribution.pattern.search(m.sentence.unquoted) is not None


def _requests(m: Mention) -> bool:
    return any(map(m.sentence.says, (PHRASES.requests, PHRASES.asking, PHRASES.fact_requests)))


# --- What is named without being done ---


def _left_aside(m: Mention) -> bool:
    """Whether the act is left: "a recall I've left alone"."""
    return m.has(PHRASES.left_aside)


def _reserved(m: Mention) -> bool:
    """Whether it is told who alone does or must do it, or what is done to anybody."""
    return bool(m.subject) and not m.own and m.has(PHRASES.reserved)


def _gerund_subject(m: Mention) -> bool:
    """Whether the act is the subject of a judgement: "Moving them counts as release"."""
    opening = m.tokens[m.clause[0] + (m.tokens[m.clause[0]] in WORDS.clause_openers)]
    verb = VERBS.forms.get(opening)
    judged = any(
        token in WORDS.judging_verbs or (token in VERBS.forms and VERBS.forms[token].third)
        for token in m.tokens[m.clause[0] : m.end]
    )
    return not m.own and verb is not None and verb.ing and judged


def _property(m: Mention) -> bool:
    """Whether something is described: no verb of the act in use, and no word that arranges it."""
    if m.role != "wrong":
        return False
    kinds = {clause.at: clause.kind for clause, _ in decide_clauses(m.sentence)}
    used = {kinds.get(at, Kind.NONE) for at in m.taken} - {Kind.NONE}
    if m.asked:
        # Beside the question that decides, the rest tells the cases: "below 400, I can offer the trade-in".
        return used.isdisjoint(_CERTAIN) and not m.ordered
    speaks = m.own or m.subject[:1] in (("i",), ("we",)) or m.subject[-1:] == ("you",)
    return not (speaks or used or m.ordered or m.has(PHRASES.arranged))


DECISION_RULES: tuple[Rule[Mention, bool], ...] = (
    Rule("a question", _asked, False),
    Rule("quoted", _quoted, False),
    Rule("denied", _denied, False),
    Rule("refused", _refused, False),
    Rule("set aside for something else", _set_aside, False),
    Rule("not known or not promised", _unknown, False),
    Rule("said by somebody else", lambda m: not m.own and m.has(PHRASES.attributions, near=True), False),
    Rule("did not come true", _unreal, False),
    Rule("a condition", _condition, False),
    Rule("under an unreal condition", _unreal_condition, False),
    Rule("only under a condition", lambda m: m.has(PHRASES.only_if, near=True), False),
    Rule("uncertain", lambda m: m.role == "right" and m.has(PHRASES.uncertain, near=True), False),
    Rule("would happen", _others_would, False),
    Rule("at another time", lambda m: not m.own and m.past and m.has(PHRASES.other_times), False),
    Rule("another person", lambda m: not m.own and m.past and m.has(PHRASES.other_people), False),
    Rule("done by somebody else", _others_act, False),
    Rule("found useless", lambda m: not m.own and m.has(PHRASES.useless), False),
    Rule("dropped", _dropped, False),
    Rule("left aside", _left_aside, False),
    Rule("reserved to somebody", _reserved, False),
    Rule("judged, not done", _gerund_subject, False),
    Rule("a property", _property, False),
    Rule("done, promised, ordered or stated", lambda m: True, True),
)
# Rules by which words turn an act down.
_DECLINING = {
    *(
        "denied",
        "refused",
        "set aside for something else",
        "only under a condition",
        "found useless",
        "dropped",
        "left aside",
    ),
}
ASK_RULES: tuple[Rule[Mention, bool], ...] = (
    Rule("asks", lambda m: m.sentence.question and not m.has(PHRASES.other_times), True),
    Rule("not needed", _denied, False),
    Rule("requests", _requests, True),
    Rule("not asked for", lambda m: True, False),
)


# --- Where the acts are mentioned ---


class _Key:
    """A decision key, compiled."""

    def __init__(self, decision: Decision) -> None:
        self.right = decision.right
        asked_first = sorted(decision.acts, key=lambda act: act.role != "ask")
        self.acts = [(act, tuple(map(Pattern, act.says))) for act in asked_first]
        self.facts = tuple(map(PreparedFact, decision.facts))


_key = lru_cache(maxsize=256)(_Key)


def read_decision(decision: Decision, reply: PreparedReply) -> DecisionReading:
    """Read what a reply decides: one finding for each act it mentions, that of a commitment where there is one."""
    key = _key(decision)
    # Two sentences at a time last: most acts are found without.
    units = sorted(
        (_Unit(sentence, of_two) for sentence, of_two in _units(reply.sentences)), key=lambda each: each.of_two
    )
    found: dict[str, ActFinding] = {}
    asked = False
    for act, patterns in key.acts:
        for unit in units:
            known = found.get(act.id)
            if (known and known.committed) or (unit.of_two and act.role not in ("right", "ask")):
                break
            for finding in _findings(act, patterns, asked, unit):
                if act.id not in found or _weight(finding) > _weight(found[act.id]):
                    found[act.id] = finding
                if finding.committed:
                    asked = asked or act.role == "ask"
                    break
    contradictions: dict[str, None] = {}
    for unit in units:
        told = () if unit.of_two else tuple(figures(unit.words, unit.sentence))
        for fact in key.facts if told else ():
            contradictions[fact.contradiction(told, unit.sentence, unit.words, unit.spans)] = None
    for sentence in reply.sentences:
        if match := sentence.find(PHRASES.taken_back):
            contradictions[f"takes back what is said: {match.group().strip()}"] = None
    contradictions.pop("", None)
    committed = {act.id for act in found.values() if act.committed}
    wrong = any(act.committed and act.role not in ("right", "ask") for act in found.values())
    return DecisionReading(
        right=all(committed.intersection(group) for group in key.right) and not wrong and not contradictions,
        acts=tuple(found.values()),
        contradictions=tuple(contradictions),
    )


def _weight(finding: ActFinding) -> int:
    """A commitment outweighs a refusal, which outweighs a mere mention."""
    return 2 if finding.committed else int(finding.declined)


class _Unit:
    """A sentence, or two in one, with its words and clauses, found when first asked for."""

    def __init__(self, sentence: Sentence, of_two: bool) -> None:
        self.sentence, self.of_two = sentence, of_two

    @cached_property
    def words(self) -> WordPlaces:
        return WordPlaces(self.sentence)

    @cached_property
    def spans(self) -> list[Span]:
        return _clauses(self.sentence)


def _findings(act: Act, patterns: Iterable[Pattern], asked: bool, unit: _Unit) -> Iterator[ActFinding]:
    """Yield what a sentence says of an act, one finding for each place."""
    for pattern in patterns:
        for place in pattern.find(unit.words, unit.spans, wide=act.role in ("right", "ask")):
            mention = Mention(unit.sentence, act.role, asked, unit.spans, place)
            rule = first_rule(ASK_RULES if act.role == "ask" else DECISION_RULES, mention)
            if rule:
                said = list(filter(None, unit.sentence.raws[mention.start : mention.end]))
                said = said[: LIMITS.decision.max_words_shown]
                yield ActFinding(act.id, act.role, rule.kind, rule.name in _DECLINING, rule.name, " ".join(said))


def _units(sentences: Sequence[Sentence]) -> Iterator[tuple[Sentence, bool]]:
    """Yield every sentence, with the one before it where that is but a part; and every two sentences (True)."""
    for one, other in zip((None, *sentences), sentences, strict=False):
        yield other, False
        if one is None:
            continue
        fragment = len(one.tokens) <= LIMITS.decision.topic and FINITE_WORDS.isdisjoint(one.tokens)
        yield _joined(one, other), not (one.text.endswith(";") or fragment)


def _joined(one: Sentence, other: Sentence) -> Sentence:
    """Return two sentences as clauses of one."""
    return Sentence(
        text=f"{one.text} {other.text}",
        tokens=one.tokens + other.tokens,
        raws=one.raws + other.raws,
        before=(*one.before, "; ", *other.before[1:]),
        stems=one.stems + other.stems,
        quoted=one.quoted + other.quoted,
        question=other.question,
    )


def _clauses(sentence: Sentence) -> list[Span]:
    """Return the clauses; a phrase without a verb belongs to the clause before it, unless it denies something."""
    spans: list[Span] = []
    for start, end in sorted(set(clause_spans(sentence))):
        tokens = sentence.tokens[start:end]
        verbless = FINITE_WORDS.isdisjoint(tokens) and VERBS.forms.keys().isdisjoint(tokens)
        joined = not sentence.before[start].strip() and WORDS.negations.isdisjoint(tokens)
        if spans and verbless and joined:
            start = spans.pop()[0]
        spans.append((start, end))
    return spans
