"""concrete_action: does the reply do, promise or ask for something that could be checked?"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise

from pytest_spiral.tempaffect.checks.clauses import FINITE_WORDS, Clause, Use, decide_clauses
from pytest_spiral.tempaffect.checks.prepare import PreparedScenario
from pytest_spiral.tempaffect.checks.rule import Rule, first_rule, matches
from pytest_spiral.tempaffect.checks.sentences import Sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, VERBS, WORDS
from pytest_spiral.text import function_words

_Act = tuple[str, str]
"""Form of a concrete act, as scenarios name forms, and the words it was told by."""

_COMPLETED = (Use.REPORT, Use.DONE)
_DIRECTED = (Use.PROMISE, Use.ORDER, Use.INSTRUCTION)
_OBSERVED = (Use.OTHERS, Use.PROGRESS, Use.STATE, Use.FRAGMENT)
_FIRM_QUESTION = frozenset({"could", "would", "will", "whether", "likely", "possible"})


class Statement:
    """A sentence as one scenario reads it.

    Attributes:
        personal: Whether somebody stands behind the reply as a whole.
        clauses: Clauses of the verbs by which somebody acts.
        targets: Number of action targets named in full.
        idioms, purposes, vague_offers: Positions of idioms, purposes ("so that you can") and offers without commitment.
        general: Whether the sentence is about everybody rather than about this user.
        acts: The concrete acts, once the rules have decided.
    """

    def __init__(self, prepared: PreparedScenario, sentence: Sentence, personal: bool) -> None:
        self.prepared, self.sentence, self.personal = prepared, sentence, personal
        self.clauses = [clause for clause, _ in decide_clauses(sentence) if clause.kind is not Use.NONE]
        window = LIMITS.action.target_window
        named = (target for target in prepared.targets if target[0] in sentence.places_of)
        self.targets = sum(sentence.has_near(target, len(target) + window) for target in named)
        self.idioms = sentence.places(PHRASES.idioms)
        self.purposes = sentence.places(PHRASES.purpose_clauses)
        self.vague_offers = sentence.places(PHRASES.vague_offers)
        self.general = sentence.says(PHRASES.general_rules)
        self.acts: tuple[_Act, ...] = ()

    @cached_property
    def timed(self) -> bool:
        """Whether a number or a word of time occurs."""
        return any(map(_is_time, self.sentence.tokens))


class ActCandidate:
    """A clause that may be a concrete act, with its statement."""

    def __init__(self, clause: Clause, statement: Statement) -> None:
        self.clause, self.statement, self.prepared = clause, statement, statement.prepared
        self.kind, self.strength = clause.kind, clause.verb.strength

    @cached_property
    def stems(self) -> frozenset[str]:
        """Stems of the clause without the verb."""
        clause, stems = self.clause, self.clause.sentence.stems
        return frozenset((*stems[clause.start : clause.at], *stems[clause.at + 1 : clause.end]))

    @cached_property
    def aimed(self) -> bool:
        """Whether the clause names anything of the scenario besides the verb."""
        return not self.prepared.named_stems.isdisjoint(self.stems)

    @cached_property
    def timed(self) -> bool:
        """Whether the clause holds a number or a word of time besides the verb."""
        clause = self.clause
        return any(_is_time(clause.tokens[at]) for at in range(clause.start, clause.end) if at != clause.at)


def _is_time(token: str) -> bool:
    return token[0].isdigit() or token in WORDS.time_words


def read_statements(prepared: PreparedScenario, spoken: Sequence[Sentence]) -> list[Statement]:
    """Return the sentences as the scenario reads them, with their concrete acts, in order."""
    found: list[Statement] = []
    personal = any(sentence.speaks_for_itself for sentence in spoken)
    on_the_matter = False
    for sentence in spoken:
        each = Statement(prepared, sentence, personal)
        on_the_matter = on_the_matter or each.targets > 0 or not prepared.named_stems.isdisjoint(sentence.stems)
        if on_the_matter and not sentence.accusing:
            each.acts = _acts(each)
        found.append(each)
    return found


def _acts(each: Statement) -> tuple[_Act, ...]:
    found: list[_Act] = []
    for clause in each.clauses:
        rule = first_rule(ACT_RULES, ActCandidate(clause, each))
        if rule and rule.kind:
            start, end = max(clause.start, clause.at - 4), min(clause.end, clause.at + 6)
            found.append((rule.kind, " ".join(clause.tokens[start:end])))
    sentence = each.sentence
    if not found and not each.vague_offers:
        verbless, words = next(matches(VERBLESS_RULES, each), (None, ""))
        if verbless and verbless.kind:
            arranged = verbless.kind != "artifact" or each.personal or _is_arranged(sentence, 0, len(sentence.tokens))
            found += [(verbless.kind, words)] if arranged else []
    if not found and each.prepared.question and _is_concrete_question(sentence):
        found.append(("question", sentence.joined))
    return tuple(found)


def concrete_acts(prepared: PreparedScenario, statements: Sequence[Statement], echo: bool) -> tuple[_Act, ...]:
    """Return the concrete acts of a reply; none where it merely echoes the user."""
    if echo:
        return ()
    acts = tuple(act for each in statements for act in each.acts)
    if acts or not prepared.direct_answer:
        return acts
    for each in statements:
        sentence = each.sentence
        telling = each.targets >= LIMITS.action.direct_answer_targets and each.timed
        fresh = not prepared.fresh_stems.isdisjoint(sentence.stems)
        firm = not each.vague_offers and not sentence.has(WORDS.negations)
        if telling and fresh and firm and not sentence.accusing:
            return (("direct_answer", sentence.joined),)
    return ()


# --- What makes a verb no concrete act ---


def _serves_purpose(c: ActCandidate) -> bool:
    """Whether the clause is a purpose ("so that you can open it") or follows one closely."""
    start, end = c.clause.start, c.clause.end
    return any(start <= at < end or at < start <= at + 6 for at in c.statement.purposes)


def _is_believed(c: ActCandidate) -> bool:
    """Whether the act is part of what the speaker merely knows, hopes or feels."""
    before = c.clause.tokens[max(0, c.clause.at - 12) : c.clause.at]
    return c.kind in (*_OBSERVED, Use.INSTRUCTION, Use.DONE) and any(
        word in WORDS.belief_verbs and not WORDS.speakers.isdisjoint(before[max(0, at - 3) : at])
        for at, word in enumerate(before)
    )


def _nobody_acts(c: ActCandidate) -> bool:
    """Whether a reply nobody stands behind states how things generally are, or an office handles its own papers."""
    clause = c.clause
    if c.statement.personal:
        return False
    if clause.conditional:
        return True
    if c.kind in (Use.OTHERS, Use.STATE, Use.DONE) and clause.verb.lemma in WORDS.office_verbs:
        return True
    if c.kind is Use.FRAGMENT:
        # "Buses run late", "The template opened": whole sentences, unlike "Recall sent".
        if clause.verb.base and clause.at > 0 and clause.tokens[clause.at - 1].endswith("s"):
            return True
        if clause.opener not in WORDS.determiners or not clause.verb.past:
            return False
    elif c.kind not in (Use.OTHERS, Use.STATE):
        return False
    end = clause.end
    if end < len(clause.tokens) and clause.tokens[end] in WORDS.deadline_words:
        # "paused until the 19th"
        end = min(len(clause.tokens), end + LIMITS.action.redirect_reach)
    return not _is_arranged(clause.sentence, clause.start, end)


def _is_arranged(sentence: Sentence, start: int, end: int) -> bool:
    """Whether the words are about this user or a fixed point in time."""
    tokens = sentence.tokens
    for at in range(start, end):
        token, number = tokens[at], tokens[at][0].isdigit()
        if token in WORDS.fixed_times or (number and ":" in token):
            return True
        if token in WORDS.second_person and WORDS.institution_nouns.isdisjoint(tokens[at + 1 : at + 2]):
            return True
        if number and at > 0:
            article = at >= 2 and tokens[at - 1] in WORDS.determiners
            if tokens[at - 2 if article else at - 1] in WORDS.deadline_words:
                return True
    return False


def _is_vague(c: ActCandidate) -> bool:
    """Whether a vague offer weakens the act; a state only where the offer stands in its own clause."""
    if c.kind is Use.STATE:
        return any(c.clause.start <= at < c.clause.end for at in c.statement.vague_offers)
    return bool(c.statement.vague_offers) and c.kind not in (*_COMPLETED, Use.PAST)


def _light_and_aimless(c: ActCandidate) -> bool:
    if c.strength != "light" or (c.timed and c.kind in (Use.PROMISE, *_COMPLETED)):
        return False
    stems = c.clause.sentence.stems[c.clause.at + 1 : c.clause.end] if c.kind in _DIRECTED else c.stems
    return c.prepared.named_stems.isdisjoint(stems)


def _refers_elsewhere(c: ActCandidate) -> bool:
    """Whether the user is sent off to a place that the scenario does not name."""
    clause = c.clause
    if clause.verb.lemma not in WORDS.referral_verbs and not clause.sentence.says(PHRASES.referrals):
        return False
    within = set(clause.sentence.stems[clause.at + 1 : clause.at + 1 + LIMITS.action.redirect_reach])
    return not any(within.issuperset(target) for target in c.prepared.targets)


def _weak_and_open(c: ActCandidate) -> bool:
    """Whether a weak verb lacks something to look at, or a time by which it happens."""
    if c.strength != "weak":
        return False
    acting = c.kind in (*_COMPLETED, Use.PROMISE, Use.PAST, Use.PROGRESS) and c.aimed
    under_way = c.clause.verb.ing and c.kind is Use.PROMISE and c.statement.targets > 0
    return not (acting and (c.timed or under_way))


def _without_object(c: ActCandidate) -> bool:
    """Whether nothing is acted on: no word after the verb but adverbs, and no object before it."""
    clause, before = c.clause, c.clause.sentence.before
    if c.kind not in _DIRECTED and (c.kind is not Use.PAST or c.prepared.repair):
        return False
    tokens, at = clause.tokens, clause.at
    after = tokens[at + 1 : min(clause.end, at + 8)]
    if any(token not in WORDS.adverbs and token not in WORDS.be_forms for token in after):
        return False
    if at + 1 < len(tokens) and before[at + 1].strip() in (">", ":", "(", "-"):
        return False
    # a chain of orders: "retype it, file, screenshot the receipt"
    chained = clause.kind is Use.ORDER and at > 0 and "," in before[at]
    return not chained and function_words().issuperset(tokens[clause.start : at])


def _may_be_the_mistake(c: ActCandidate) -> bool:
    """Whether, after a mistake, a simple past tells the mistake rather than its repair."""
    if c.kind is not Use.PAST or not c.prepared.repair:
        return False
    return not (c.clause.now or (c.statement.targets > 0 and c.timed))


def _off_the_matter(c: ActCandidate) -> bool:
    each = c.statement
    if c.kind is Use.OTHERS:
        near = not c.prepared.target_stems.isdisjoint(c.stems)
        return not each.timed or not (each.targets > 0 or (near and c.timed))
    named_elsewhere = each.targets > 0 and c.kind is not Use.PROGRESS
    return c.kind in _OBSERVED and not (c.aimed or c.timed or named_elsewhere)


def _acts_on_nothing(c: ActCandidate) -> bool:
    after = c.clause.tokens[c.clause.at + 1 : c.clause.at + 2]
    return c.kind in _DIRECTED and not WORDS.nothing_words.isdisjoint(after)


def _only_informs(c: ActCandidate) -> bool:
    return c.kind in (Use.OTHERS, Use.STATE) and c.clause.verb.lemma in WORDS.informing_verbs


def _tells_of_an_error(c: ActCandidate) -> bool:
    kinds = (Use.OTHERS, Use.STATE, Use.FRAGMENT, Use.REPORT, Use.PAST)
    return c.kind in kinds and not WORDS.error_words.isdisjoint(c.clause.words)


ACT_RULES: tuple[Rule[ActCandidate, str], ...] = (
    Rule("an idiom", lambda c: c.clause.at in c.statement.idioms, ""),
    Rule("a negated act", lambda c: c.clause.negated, ""),
    Rule("an uncertain act", lambda c: c.clause.hedged, ""),
    Rule("a verb that promises nothing", lambda c: c.strength in ("never", "act_only"), ""),
    Rule("a purpose", _serves_purpose, ""),
    Rule("known or believed", _is_believed, ""),
    Rule("an act on nothing", _acts_on_nothing, ""),
    Rule("nobody acts", _nobody_acts, ""),
    Rule("a condition", lambda c: c.clause.conditional and c.kind not in _COMPLETED, ""),
    Rule("a vague offer", _is_vague, ""),
    Rule("a question", lambda c: c.clause.sentence.question and c.kind not in (*_COMPLETED, Use.ORDER), ""),
    Rule("a light verb without the matter", _light_and_aimless, ""),
    Rule("sends the user elsewhere", _refers_elsewhere, ""),
    Rule("a mere look", _weak_and_open, ""),
    Rule("something went wrong", _tells_of_an_error, ""),
    Rule("a general rule", lambda c: c.statement.general and c.kind in (*_OBSERVED, Use.INSTRUCTION, Use.DONE), ""),
    Rule("an act without an object", _without_object, ""),
    Rule("the verb only informs", _only_informs, ""),
    Rule("perhaps the mistake itself", _may_be_the_mistake, ""),
    Rule("not about the matter", _off_the_matter, ""),
    Rule("promised or done by the speaker", lambda c: c.kind in (Use.PROMISE, Use.REPORT, Use.PAST), "commit"),
    Rule("an order", lambda c: c.kind is Use.ORDER, "imperative"),
    Rule("an instruction", lambda c: c.kind is Use.INSTRUCTION, "instructive"),
    Rule("done or arranged", lambda c: True, "done"),
)


# --- Acts without a verb ---


def _step(each: Statement) -> str:
    """Return a step without a verb that continues a row of steps: "then clock again"."""
    tokens = each.sentence.tokens
    continues = tokens[0] in WORDS.step_words and len(tokens) > 1 and not each.sentence.has(FINITE_WORDS)
    return each.sentence.joined if continues else ""


def _artifact(each: Statement) -> str:
    """Return the words by which a result is handed over, unless they are negated or tell of an error."""
    sentence = each.sentence
    match = sentence.find(PHRASES.artifacts)
    if match is None or len(sentence.tokens) < LIMITS.action.artifact_tokens:
        return ""
    place = first = sentence.place(match.start())
    end = place + 1
    while first > 0 and not sentence.before[first].strip():
        first -= 1
    while end < len(sentence.tokens) and not sentence.before[end].strip():
        end += 1
    wrong = not WORDS.error_words.isdisjoint(sentence.tokens[first:end])
    return "" if wrong or sentence.is_negated(place, since=first) else match.group()


def _is_arrangement(each: Statement) -> bool:
    """Whether a short sentence without a verb names a target and a new time or number: "Taxi in six minutes"."""
    sentence = each.sentence
    tokens = sentence.tokens
    if len(tokens) > LIMITS.action.fragment_tokens or not each.targets:
        return False
    if sentence.has(WORDS.error_words) or sentence.has(WORDS.negations) or sentence.has(FINITE_WORDS):
        return False
    if any(clause.kind in (Use.OTHERS, Use.PAST) for clause in each.clauses):
        return False
    after_plurals = (VERBS.forms.get(token) for before, token in pairwise(tokens) if before.endswith("s"))
    if any(verb is not None and verb.base for verb in after_plurals):
        return False
    timed = ((token, stem) for token, stem in zip(tokens, sentence.stems, strict=True) if _is_time(token))
    return any(":" in token or stem not in each.prepared.target_stems for token, stem in timed)


def _is_concrete_question(sentence: Sentence) -> bool:
    if not sentence.question or sentence.says(PHRASES.soft_questions) or sentence.has(WORDS.hedges - _FIRM_QUESTION):
        return False
    tokens = sentence.tokens
    for at in range(len(tokens) - 3):
        before = sentence.before[at]
        begins = at == 0 or "," in before or ":" in before or " -" in before
        if tokens[at] in WORDS.question_openers and (begins or tokens[at - 1] in ("and", "so", "but", "or")):
            return True
    return False


VERBLESS_RULES: tuple[Rule[Statement, str], ...] = (
    Rule("not about the matter", lambda s: s.general or s.prepared.target_stems.isdisjoint(s.sentence.stems), ""),
    Rule("a path to follow", lambda s: any(">" in before for before in s.sentence.before), "artifact"),
    Rule("an apology", lambda s: s.sentence.says(PHRASES.apologies), ""),
    Rule("a step", _step, "imperative"),
    Rule("uncertain", lambda s: s.sentence.question or s.sentence.has(WORDS.hedges), ""),
    Rule("a request", lambda s: s.sentence.says(PHRASES.requests) and s.sentence.joined, "need_request"),
    Rule("a result", _artifact, "artifact"),
    Rule("an arrangement with place or time", _is_arrangement, "done"),
)
