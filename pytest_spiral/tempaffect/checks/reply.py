"""The verdict on one reply: five independent checks and whether the whole is useful and bounded."""

from __future__ import annotations

from pytest_spiral.tempaffect.checks.action import check_action, read_acts
from pytest_spiral.tempaffect.checks.boundary import check_boundary
from pytest_spiral.tempaffect.checks.defensive import check_defensive, check_validation
from pytest_spiral.tempaffect.checks.grounding import check_grounding, is_clause_like
from pytest_spiral.tempaffect.checks.phrases import check_phrases, is_meta
from pytest_spiral.tempaffect.checks.prepare import prepare_reply, prepare_scenario
from pytest_spiral.tempaffect.lexicon import Lexicon, load_lexicon
from pytest_spiral.tempaffect.records import ReplyChecks
from pytest_spiral.tempaffect.scenario import Scenario

__all__ = ["ReplyChecks", "check_reply"]


def check_reply(scenario: Scenario, reply: str, lexicon: Lexicon | None = None) -> ReplyChecks:
    """All checks of section 2 on one reply. Deterministic; never raises on any text."""
    lexicon = lexicon or load_lexicon()
    prepared = prepare_scenario(scenario, lexicon)
    read = prepare_reply(reply)
    unspoiled = tuple(sentence for sentence in read.sentences if not is_meta(prepared, sentence, lexicon))
    meta_leak = len(unspoiled) < len(read.sentences)
    spoken = tuple(sentence for sentence in unspoiled if is_clause_like(prepared, sentence, lexicon))

    grounding = check_grounding(prepared, read, spoken, lexicon)
    acts = read_acts(prepared, spoken, lexicon)
    action = check_action(prepared, acts, grounding.echo, lexicon)
    boundary = check_boundary(prepared, read, acts, lexicon)
    concrete = action.passed and not boundary.broken
    defensive = check_defensive(
        prepared, read, acts, action.passed, boundary.broken or grounding.echo or meta_leak, lexicon
    )
    validation = check_validation(acts, lexicon)
    phrases = check_phrases(prepared, read, lexicon)

    low, high = scenario.expected.reply.word_range
    length = lexicon.limits.length
    brief = low <= read.words <= high
    bearable = length.useful_low * low <= read.words * 1000 <= length.useful_high * high
    useful = (
        grounding.passed
        and concrete
        and defensive.passed
        and not phrases.dismissive
        and not validation.over
        and boundary.held
        and not meta_leak
        and bearable
    )
    return ReplyChecks(
        content_grounding=grounding.passed,
        concrete_action=concrete,
        non_defensive=defensive.passed,
        brevity=brief,
        forbidden_phrase_clean=phrases.passed,
        useful_bounded=useful,
        words=read.words,
        dismissive=phrases.dismissive,
        overvalidated=validation.over,
        validation_sentences=validation.sentences,
        prohibited_act=boundary.broken,
        boundary_held=boundary.held,
        meta_leak=meta_leak,
        anchor_groups=grounding.groups,
        user_stems=grounding.user_stems,
        reasons={
            "content_grounding": grounding.reasons,
            "concrete_action": (*action.reasons, *(boundary.reasons if boundary.broken else ())),
            "non_defensive": defensive.reasons,
            "brevity": (f"{read.words} words, {low} to {high} expected",),
            "forbidden_phrase_clean": phrases.reasons,
            "boundary": boundary.reasons,
        },
    )
