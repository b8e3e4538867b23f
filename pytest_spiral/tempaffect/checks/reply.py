"""The verdict on one reply: independent checks, and whether the whole is useful and bounded."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from pytest_spiral.tempaffect.checks.action import concrete_acts, read_statements
from pytest_spiral.tempaffect.checks.boundary import check_boundary
from pytest_spiral.tempaffect.checks.clauses import FINITE_WORDS
from pytest_spiral.tempaffect.checks.decision import read_decision
from pytest_spiral.tempaffect.checks.defensive import check_defensive
from pytest_spiral.tempaffect.checks.grounding import check_grounding, is_clause_like
from pytest_spiral.tempaffect.checks.prepare import PreparedScenario, prepare_scenario
from pytest_spiral.tempaffect.checks.sentences import PreparedReply, Sentence, prepare_reply
from pytest_spiral.tempaffect.lexicon import LIMITS, PHRASES, VERBS, WORDS, Expression
from pytest_spiral.tempaffect.records import DecisionReading, ReplyChecks
from pytest_spiral.tempaffect.scenario import Decision, ForbiddenPhrase, Scenario
from pytest_spiral.text import function_words


def check_reply(scenario: Scenario, reply: str) -> ReplyChecks:
    """Run all checks on one reply. Deterministic; never raises on any text."""
    prepared, read = prepare_scenario(scenario), prepare_reply(reply)
    unspoiled = [sentence for sentence in read.sentences if not _addresses_scorer(prepared, sentence)]
    spoken = [sentence for sentence in unspoiled if is_clause_like(prepared, sentence)]
    statements = read_statements(prepared, spoken)
    meta_leak = len(unspoiled) < len(read.sentences)

    grounding = check_grounding(prepared, read, spoken)
    key = scenario.expected.decision
    decision = read_decision(key, read, prepared.times) if key else None
    acts = concrete_acts(prepared, statements, grounding.echo)
    acts = acts or (_decided_step(key, decision, read, unspoiled) if key and decision and not grounding.echo else ())
    boundary = check_boundary(prepared, decision, read)
    spoilt = boundary.broken or grounding.echo or meta_leak
    defensive = check_defensive(
        read, statements, prepared.known, concrete=bool(acts), spoilt=spoilt, repair=prepared.repair
    )
    validating = sum(not each.acts and each.sentence.says(PHRASES.feelings) for each in statements)
    limits = LIMITS.validation
    mostly = validating * 1000 >= limits.few_share * len(statements)
    overvalidated = validating >= limits.many or (validating >= limits.few and mostly)
    phrases = _forbidden_phrases(prepared, read)
    dismissive = any(phrase.severity == "dismissive" for phrase in phrases)

    low, high = scenario.expected.reply.word_range
    limits = LIMITS.length
    bearable = limits.useful_low * low <= read.words * 1000 <= limits.useful_high * high
    helps = grounding.passed and bool(acts) and not defensive and bearable
    spoils = dismissive or overvalidated or boundary.broken or not boundary.held or meta_leak
    told_by = tuple(f"{form}: {words}" for form, words in acts)
    action_reasons = told_by or ("nothing that could be checked is done, promised or asked for",)
    phrase_reasons = tuple(f"{phrase.severity}: {phrase.text}" for phrase in phrases)
    return ReplyChecks(
        content_grounding=grounding.passed,
        concrete_action=bool(acts) and not boundary.broken,
        non_defensive=not defensive,
        brevity=low <= read.words <= high,
        forbidden_phrase_clean=not phrases,
        useful_bounded=helps and not spoils and decision.right if decision else None,
        words=read.words,
        dismissive=dismissive,
        overvalidated=overvalidated,
        validation_sentences=validating,
        prohibited_act=boundary.broken,
        boundary_held=boundary.held,
        meta_leak=meta_leak,
        decision=decision,
        anchor_groups=grounding.groups,
        user_stems=grounding.user_stems,
        reasons={
            "content_grounding": grounding.reasons,
            "concrete_action": (*action_reasons, *(boundary.reasons if boundary.broken else ())),
            "non_defensive": defensive or ("no apology loop, shield or blame",),
            "brevity": (f"{read.words} words, {low} to {high} expected",),
            "forbidden_phrase_clean": phrase_reasons or ("no forbidden phrase",),
            "boundary": boundary.reasons,
            "right_decision": _decided(decision),
        },
    )


def _decided_step(
    key: Decision, decision: DecisionReading, reply: PreparedReply, unspoiled: Sequence[Sentence]
) -> tuple[tuple[str, str], ...]:
    """The right decision itself, which is a concrete step where whole sentences say it to somebody."""
    to_somebody = not WORDS.second_person.isdisjoint(reply.tokens) or any(each.speaks_for_itself for each in unspoiled)
    if not (decision.right and to_somebody):
        return ()
    whole = tuple(filter(_is_whole, unspoiled))
    if 2 * len(whole) >= len(unspoiled):
        # Among sentences a note ("Sunday: table 6 again.") is no list of keywords.
        whole = tuple(unspoiled)
    decision = decision if whole == reply.sentences else read_decision(key, replace(reply, sentences=whole))
    told = (act.words for act in decision.acts if act.committed and act.role in ("right", "ask"))
    return tuple(("decided", words) for words in told) if decision.right else ()


def _is_whole(sentence: Sentence) -> bool:
    """Whether a sentence has a predicate and the small words that a list of keywords lacks."""
    functional = sum(token in function_words() for token in sentence.tokens)
    predicate = sentence.has(FINITE_WORDS) or any(map(VERBS.finite, sentence.tokens))
    whole = predicate and not sentence.says(PHRASES.vague_offers)
    return whole and functional * 1000 >= LIMITS.grounding.list_function_share * len(sentence.tokens)


def _decided(decision: DecisionReading | None) -> tuple[str, ...]:
    """What was read of each act of the decision key, and what contradicts the decision or a figure."""
    if decision is None:
        return ("the scenario has no decision key",)
    return (
        *(
            f"{'commits to' if act.committed else 'does not commit to'} {act.id} ({act.role}), {act.rule}: {act.words}"
            for act in decision.acts
        ),
        *decision.contradictions,
    ) or ("decides nothing",)


def _addresses_scorer(prepared: PreparedScenario, sentence: Sentence) -> bool:
    """Whether a sentence speaks to or about the scorer; words that the scenario itself uses are exempt."""
    if "_" in sentence.text and not WORDS.field_names.isdisjoint(re.findall(r"\w+", sentence.text.lower())):
        return True
    mentions = sentence.find_all(PHRASES.scorer_talk)
    return any(not prepared.known.issuperset(match.group().split()) for match in mentions)


def _forbidden_phrases(prepared: PreparedScenario, reply: PreparedReply) -> list[ForbiddenPhrase]:
    """Return the forbidden phrases of the scenario that the reply holds, also in spaced letters ("r e s t")."""
    raws = (raw for sentence in reply.sentences for raw in (*sentence.raws, ""))
    letters = "".join(raw.casefold() if len(raw) == 1 else " " for raw in raws)
    spaced = [run for run in letters.split() if len(run) >= LIMITS.phrases.spaced_run]
    spoken = set(reply.tokens)
    return [
        phrase
        for pattern, joined, words, phrase in prepared.phrases
        if (words <= spoken and _is_spoken(pattern, reply)) or (spaced and any(joined in run for run in spaced))
    ]


def _is_spoken(pattern: Expression, reply: PreparedReply) -> bool:
    """Whether a phrase stands anywhere but in an attributed quotation."""
    for match in pattern.finditer(reply.joined):
        line_start = reply.joined.rfind("\n", 0, match.start()) + 1
        sentence = reply.sentences[reply.joined.count("\n", 0, match.start())]
        quoted = sentence.quoted[sentence.place(match.start() - line_start)]
        if not (quoted and PHRASES.attribution.pattern.search(sentence.unquoted)):
            return True
    return False
