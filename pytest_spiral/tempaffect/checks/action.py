"""concrete_action: does the reply do, promise or ask for something that could be checked?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from pytest_spiral.tempaffect.checks.clauses import FINITE_WORDS, Clause, Kind
from pytest_spiral.tempaffect.checks.prepare import PreparedScenario
from pytest_spiral.tempaffect.checks.rule import Rule, first_rule, matches
from pytest_spiral.tempaffect.checks.sentences import Sentence
from pytest_spiral.tempaffect.checks.statements import Act, Candidate, Statement, is_time, read_statement
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, VERBS, WORDS
from pytest_spiral.text import function_words

__all__ = ["ACT_RULES", "VERBLESS_RULES", "concrete_acts", "read_statements"]


def read_statements(prepared: PreparedScenario, spoken: Sequence[Sentence]) -> tuple[Statement, ...]:
    """Return the sentences as the scenario reads them, with their concrete acts, in order."""
    found: list[Statement] = []
    personal = any(sentence.speaks_for_itself for sentence in spoken)
    on_the_matter = False
    for sentence in spoken:
        statement = read_statement(prepared, sentence, personal)
        on_the_matter = on_the_matter or statement.names_matter
        found.append(replace(statement, acts=_acts(statement)) if on_the_matter else statement)
    return tuple(found)


def _acts(each: Statement) -> tuple[Act, ...]:
    found = _acts_by_verb(each)
    if not found and not each.vague:
        found = _acts_without_verb(each)
    if not found and each.prepared.question and _is_concrete_question(each):
        found = (("question", each.sentence.joined),)
    return () if found and each.sentence.accusing else found


def concrete_acts(prepared: PreparedScenario, statements: Sequence[Statement], echo: bool) -> tuple[Act, ...]:
    """Return the concrete acts of a reply; none where it merely echoes the user."""
    if echo:
        return ()
    acts = tuple(act for each in statements for act in each.acts)
    if acts or not prepared.direct_answer:
        return acts
    answer = next(filter(_is_direct_answer, statements), None)
    return (("direct_answer", answer.sentence.joined),) if answer else ()


def _is_direct_answer(each: Statement) -> bool:
    fresh = not each.prepared.fresh_stems.isdisjoint(each.sentence.stems)
    firm = not each.vague and not each.sentence.has(WORDS.negations)
    telling = each.targets >= LIMITS.action.direct_answer_targets and each.timed
    return telling and fresh and firm and not each.sentence.accusing


def _acts_by_verb(each: Statement) -> tuple[Act, ...]:
    found: list[Act] = []
    for clause in each.clauses:
        rule = first_rule(ACT_RULES, Candidate(clause, each))
        if rule and rule.kind:
            start, end = max(clause.start, clause.at - 4), min(clause.end, clause.at + 6)
            found.append((rule.kind, " ".join(clause.tokens[start:end])))
    return tuple(found)


def _acts_without_verb(each: Statement) -> tuple[Act, ...]:
    rule, words = next(matches(VERBLESS_RULES, each), (None, ""))
    if rule is None or not rule.kind:
        return ()
    sentence = each.sentence
    if rule.kind == "artifact" and not each.personal and not _is_arranged(sentence, 0, len(sentence.tokens)):
        return ()
    return ((rule.kind, words),)


# --- What makes a verb no concrete act ---

_COMPLETED = (Kind.REPORT, Kind.DONE)
_DIRECTED = (Kind.PROMISE, Kind.ORDER, Kind.INSTRUCTION)
_REPORTED = (*_COMPLETED, Kind.PAST)
_OBSERVED = (Kind.OTHERS, Kind.PROGRESS, Kind.STATE, Kind.FRAGMENT)


def _serves_purpose(c: Candidate) -> bool:
    """Whether the clause is a purpose ("so that you can open it") or follows one closely."""
    clause = c.clause
    return any(clause.start <= at < clause.end or at < clause.start <= at + 6 for at in c.statement.purposes)


def _is_believed(c: Candidate) -> bool:
    """Whether the act is part of what the speaker merely knows, hopes or feels."""
    before = c.clause.tokens[max(0, c.clause.at - 12) : c.clause.at]
    return c.kind in (*_OBSERVED, Kind.INSTRUCTION, Kind.DONE) and any(
        word in WORDS.belief_verbs and not WORDS.speakers.isdisjoint(before[max(0, at - 3) : at])
        for at, word in enumerate(before)
    )


def _acts_on_nothing(c: Candidate) -> bool:
    after = c.clause.tokens[c.clause.at + 1 : c.clause.at + 2]
    return c.kind in _DIRECTED and not WORDS.nothing_words.isdisjoint(after)


def _nobody_acts(c: Candidate) -> bool:
    """Whether a reply nobody stands behind states how things generally are, or an office handles its own papers."""
    clause = c.clause
    if c.statement.personal:
        return False
    if clause.conditional:
        return True
    if c.kind in (Kind.OTHERS, Kind.STATE, Kind.DONE) and clause.verb.lemma in WORDS.office_verbs:
        return True
    if c.kind is Kind.FRAGMENT:
        # "Buses run late", "The template opened": whole sentences, unlike "Recall sent".
        if clause.verb.base and clause.at > 0 and clause.tokens[clause.at - 1].endswith("s"):
            return True
        if clause.opener not in WORDS.determiners or not clause.verb.past:
            return False
    elif c.kind not in (Kind.OTHERS, Kind.STATE):
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
        if token in WORDS.second_person and not WORDS.institution_nouns.intersection(tokens[at + 1 : at + 2]):
            return True
        if number and at > 0:
            article = at >= 2 and tokens[at - 1] in WORDS.determiners
            if tokens[at - 2 if article else at - 1] in WORDS.deadline_words:
                return True
    return False


def _is_vague(c: Candidate) -> bool:
    """Whether a vague offer weakens the act; a state only where the offer stands in its own clause."""
    if not c.statement.vague or c.kind in _REPORTED:
        return False
    return c.kind is not Kind.STATE or any(c.clause.start <= at < c.clause.end for at in c.statement.vague_offers)


def _light_and_aimless(c: Candidate) -> bool:
    if c.strength != "light" or (c.timed and c.kind in (Kind.PROMISE, *_COMPLETED)):
        return False
    clause, named = c.clause, c.statement.prepared.named_stems
    stems = clause.sentence.stems[clause.at + 1 : clause.end] if c.kind in _DIRECTED else c.stems
    return named.isdisjoint(stems)


def _refers_elsewhere(c: Candidate) -> bool:
    """Whether the user is sent off to a place that the scenario does not name."""
    clause = c.clause
    if clause.verb.lemma not in WORDS.referral_verbs and not clause.sentence.says(PHRASES.referrals):
        return False
    within = set(clause.sentence.stems[clause.at + 1 : clause.at + 1 + LIMITS.action.redirect_reach])
    return not any(within.issuperset(target) for target in c.statement.prepared.targets)


def _weak_and_open(c: Candidate) -> bool:
    """Whether a weak verb lacks something to look at, or a time by which it happens."""
    if c.strength != "weak":
        return False
    acting = c.kind in (*_COMPLETED, Kind.PROMISE, Kind.PAST, Kind.PROGRESS) and c.aimed
    under_way = c.clause.verb.ing and c.kind is Kind.PROMISE and c.statement.targets > 0
    return not (acting and (c.timed or under_way))


def _without_object(c: Candidate) -> bool:
    past = c.kind is Kind.PAST and not c.statement.prepared.repair
    return (past or c.kind in _DIRECTED) and not _has_object(c.clause)


def _has_object(clause: Clause) -> bool:
    """Whether something is acted on: a word after the verb that is no adverb, or an object before it."""
    tokens, at = clause.tokens, clause.at
    after = tokens[at + 1 : min(clause.end, at + 8)]
    if any(token not in WORDS.adverbs and token not in WORDS.be_forms for token in after):
        return True
    if at + 1 < len(tokens) and clause.sentence.before[at + 1].strip() in (">", ":", "(", "-"):
        return True
    if not function_words().issuperset(tokens[clause.start : at]):
        return True
    # a chain of orders: "retype it, file, screenshot the receipt"
    return clause.kind is Kind.ORDER and at > 0 and "," in clause.sentence.before[at]


def _may_be_the_mistake(c: Candidate) -> bool:
    """Whether, after a mistake, a simple past tells the mistake rather than its repair."""
    if c.kind is not Kind.PAST or not c.statement.prepared.repair:
        return False
    return not (c.clause.now or (c.statement.targets > 0 and c.timed))


def _off_the_matter(c: Candidate) -> bool:
    each = c.statement
    if c.kind is Kind.OTHERS:
        near = not each.prepared.target_stems.isdisjoint(c.stems)
        return not each.timed or not (each.targets > 0 or (near and c.timed))
    if c.kind is Kind.PROGRESS:
        return not (c.aimed or c.timed)
    return c.kind in _OBSERVED and not (c.aimed or c.timed or each.targets > 0)


# --- Acts without a verb ---


def _is_step(each: Statement) -> bool:
    """Whether a step without a verb continues a row of steps: "then clock again"."""
    tokens = each.sentence.tokens
    return tokens[0] in WORDS.step_words and len(tokens) > 1 and not each.sentence.has(FINITE_WORDS)


def _artifact(each: Statement) -> str:
    """Return the words by which a result is handed over, unless they are negated or tell of an error."""
    sentence = each.sentence
    match = PHRASES.artifacts.search(sentence.joined)
    if match is None or len(sentence.tokens) < LIMITS.action.artifact_tokens:
        return ""
    place = sentence.place(match.start())
    first, end = _phrase_around(sentence, place)
    if not WORDS.error_words.isdisjoint(sentence.tokens[first:end]):
        return ""
    return "" if sentence.is_negated(place, since=first) else match.group()


def _phrase_around(sentence: Sentence, at: int) -> tuple[int, int]:
    """Return first position and end of the words between the punctuation marks around a position."""
    first, end = at, at + 1
    while first > 0 and not sentence.before[first].strip():
        first -= 1
    while end < len(sentence.tokens) and not sentence.before[end].strip():
        end += 1
    return first, end


def _is_arrangement(each: Statement) -> bool:
    """Whether a short sentence without a verb names a target and a new time or number: "Taxi in six minutes"."""
    sentence = each.sentence
    tokens = sentence.tokens
    if len(tokens) > LIMITS.action.fragment_tokens or not each.targets:
        return False
    if sentence.has(WORDS.error_words) or sentence.has(WORDS.negations) or sentence.has(FINITE_WORDS):
        return False
    if any(clause.kind in (Kind.OTHERS, Kind.PAST) for clause in each.clauses):
        return False
    if any(before.endswith("s") and _is_base(token) for before, token in pairwise(tokens)):
        return False
    targets = each.prepared.target_stems
    timed = [(token, stem) for token, stem in zip(tokens, sentence.stems, strict=True) if is_time(token)]
    return any(":" in token or stem not in targets for token, stem in timed)


def _is_base(token: str) -> bool:
    verb = VERBS.forms.get(token)
    return verb is not None and verb.base


_FIRM_QUESTION = frozenset({"could", "would", "will", "whether", "likely", "possible"})


def _is_concrete_question(each: Statement) -> bool:
    sentence = each.sentence
    if not sentence.question or sentence.says(PHRASES.soft_questions):
        return False
    if sentence.has(WORDS.hedges - _FIRM_QUESTION):
        return False
    return any(
        sentence.tokens[at] in WORDS.question_openers
        for at in range(len(sentence.tokens) - 3)
        if at == 0 or _begins_part(sentence, at)
    )


def _begins_part(sentence: Sentence, at: int) -> bool:
    before = sentence.before[at]
    return "," in before or ":" in before or " -" in before or sentence.tokens[at - 1] in ("and", "so", "but", "or")


# One rule per paragraph; the formatter would give every argument a line of its own.
# fmt: off
ACT_RULES: tuple[Rule[Candidate, str], ...] = (
    Rule("an idiom", lambda c: c.clause.at in c.statement.idioms, "", ("I will [make] the parcel safe and certain.",)),
    Rule("a negated act", lambda c: c.clause.negated, "", ("I won't [send] a new code for the parcel.",),
         ("I [send] a code, not a parcel.",)),
    Rule("an uncertain act", lambda c: c.clause.hedged, "", ("Maybe I can [send] a code for the parcel.",)),
    Rule("a verb that promises nothing", lambda c: c.strength in ("never", "act_only"), "",
         ("I'll [help] you with the parcel.",)),
    Rule("a purpose", _serves_purpose, "", ("I am opening the locker so that you can [collect] the parcel.",)),
    Rule("known or believed", _is_believed, "", ("I know the parcel is [locked] in.",),
         ("The parcel is [locked] in.",)),
    Rule("an act on nothing", _acts_on_nothing, "", ("We [accept] no liability for the parcel.",)),
    Rule("nobody acts", _nobody_acts, "", ("Parcels are [kept] in a locker.",),
         ("Parcels are [kept] until Friday for you.",)),
    Rule("a condition", lambda c: c.clause.conditional and c.kind not in _COMPLETED, "",
         ("If I [send] a code for the parcel.",)),
    Rule("a vague offer", _is_vague, "", ("I will [send] some kind of code for the parcel.",),
         ("I have [sent] some kind of code.",)),
    Rule("a question", lambda c: c.statement.sentence.question and c.kind not in (*_COMPLETED, Kind.ORDER), "",
         ("The parcel is [sent] now, my friend?",)),
    Rule("a light verb without the matter", _light_and_aimless, "", ("I will [take] it home.",),
         ("I will [take] the parcel home.",)),
    Rule("sends the user elsewhere", _refers_elsewhere, "", ("Please [contact] your bank about the parcel.",),
         ("I will [visit] locker 9.",)),
    Rule("a mere look", _weak_and_open, "", ("I will [check] this for you.",),
         ("I will [check] the parcel by Friday.",)),
    Rule("something went wrong",
         lambda c: c.wrong and c.kind in (*_OBSERVED, Kind.REPORT, Kind.PAST) and c.kind is not Kind.PROGRESS, "",
         ("I have [sent] the wrong code.",)),
    Rule("a general rule", lambda c: c.statement.general and c.kind in (*_OBSERVED, Kind.INSTRUCTION, Kind.DONE), "",
         ("You can [open] the locker at your own risk.",)),
    Rule("an act without an object", _without_object, "", ("I will [send].",), ("The code I [send] now.",)),
    Rule("the verb only informs",
         lambda c: c.kind in (Kind.OTHERS, Kind.STATE) and c.clause.verb.lemma in WORDS.informing_verbs, "",
         ("The parcel [includes] a code for me today.",)),
    Rule("perhaps the mistake itself", _may_be_the_mistake, "", ("I [sent] the parcel code to a dead locker.",),
         ("I [sent] now the pickup code.",)),
    Rule("not about the matter", _off_the_matter, "", ("My train is [sent].",), ("My parcel is [sent].",)),
    Rule("promised or done by the speaker", lambda c: c.kind in (Kind.PROMISE, Kind.REPORT, Kind.PAST), "commit",
         ("I'm [sending] a new pickup code.", "I have [extended] the locker.", "I [sent] the code.")),
    Rule("an order", lambda c: c.kind is Kind.ORDER, "imperative", ("[Open] locker 9 with the new code.",)),
    Rule("an instruction", lambda c: c.kind is Kind.INSTRUCTION, "instructive",
         ("You can [open] locker 9 with your passport.",)),
    Rule("done or arranged", lambda c: True, "done",
         ("A new code has been [sent].", "New pickup code [sent], parcel safe.", "The parcel is being [moved].",
          "I thank you. The courier [brings] the parcel to locker 9 today.")),
)

VERBLESS_RULES: tuple[Rule[Statement, str], ...] = (
    Rule("not about the matter", lambda s: s.general or s.prepared.target_stems.isdisjoint(s.sentence.stems), "",
         ("Here is a song for you.",)),
    Rule("a path to follow", lambda s: any(">" in before for before in s.sentence.before), "artifact",
         ("Lockers > Extension.",)),
    Rule("an apology", lambda s: s.sentence.says(PHRASES.apologies), "",
         ("Sorry about locker 9, here is my hand.",)),
    Rule("a step", lambda s: s.sentence.joined if _is_step(s) else "", "imperative", ("Then the pickup code.",),
         ("Then it is the pickup code.",)),
    Rule("uncertain", lambda s: s.sentence.question or s.sentence.has(WORDS.hedges), "",
         ("Maybe a pickup code.",)),
    Rule("a request", lambda s: s.sentence.joined if s.sentence.says(PHRASES.requests) else "",
         "need_request", ("I only need the pickup code.",)),
    Rule("a result", _artifact, "artifact", ("A new pickup code for the parcel is in your inbox.",),
         ("No pickup code is in your inbox.",)),
    Rule("an arrangement with place or time", _is_arrangement, "done", ("Pickup code at 18:00.",), ("Pickup code.",)),
)
# fmt: on
