"""concrete_action (section 2.3): does the reply do, promise or ask for something that could be checked?"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_spiral.tempaffect.checks.frames import (
    COMMIT,
    DONE,
    FRAGMENT,
    IMPERATIVE,
    INSTRUCTIVE,
    PAST,
    PERFECT,
    PROGRESSIVE,
    STATIVE,
    THIRD,
    Frame,
    scan,
)
from pytest_spiral.tempaffect.checks.prepare import PreparedScenario, Sentence, StemIndex
from pytest_spiral.tempaffect.checks.stance import speaks_personally
from pytest_spiral.tempaffect.lexicon import Lexicon
from pytest_spiral.text import function_words

__all__ = ["ActionFinding", "SentenceActs", "check_action", "read_acts"]


@dataclass(frozen=True, slots=True)
class SentenceActs:
    """Frames of one sentence with what the action rules need to know about it.

    targets: action targets named in full. related: shares content with targets or anchors. forms: concrete forms found,
    as (form, words).
    """

    sentence: Sentence
    frames: tuple[Frame, ...]
    targets: int
    related: bool
    timed: bool
    soft: bool
    forms: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class ActionFinding:
    """acts: the concrete acts found, one per sentence and form."""

    passed: bool
    acts: tuple[tuple[str, str], ...]
    reasons: tuple[str, ...]


def read_acts(prepared: PreparedScenario, spoken: Sequence[Sentence], lexicon: Lexicon) -> tuple[SentenceActs, ...]:
    """Frames and concrete forms of every sentence, in order."""
    found: list[SentenceActs] = []
    named = prepared.target_stems | prepared.anchor_stems
    related_before = False
    personal = speaks_personally(spoken, lexicon)
    for sentence in spoken:
        index = StemIndex(sentence.stems)
        targets = sum(_names(target, index, lexicon) for target in prepared.targets)
        related = targets > 0 or any(stem in named for stem in sentence.stems)
        timed = any(_is_time(token, lexicon) for token in sentence.tokens)
        soft = lexicon.soft_sentence.search(sentence.joined) is not None
        frames = tuple(scan(sentence, lexicon, lexicon.limits.action.max_scanned_tokens))
        forms: tuple[tuple[str, str], ...] = ()
        if related or related_before:
            forms = tuple(_forms(prepared, sentence, frames, targets, timed, soft, personal, lexicon))
            if forms and _excused(sentence, lexicon):
                forms = ()
        found.append(SentenceActs(sentence, frames, targets, related, timed, soft, forms))
        related_before = related_before or related
    return tuple(found)


def check_action(
    prepared: PreparedScenario, acts: Sequence[SentenceActs], echo: bool, lexicon: Lexicon
) -> ActionFinding:
    """Section 2.3, without the prohibited acts, which can take the point away again."""
    found = [form for each in acts for form in each.forms]
    if not found and prepared.direct_answer and not echo:
        least = lexicon.limits.action.direct_answer_targets
        for each in acts:
            fresh = any(stem in prepared.permitted_stems for stem in each.sentence.stems)
            plain = not lexicon.negations.intersection(each.sentence.tokens) and not each.soft
            if each.targets >= least and each.timed and fresh and plain and not _excused(each.sentence, lexicon):
                found.append(("direct_answer", each.sentence.joined))
                break
    if echo:
        found = []
    if found:
        return ActionFinding(True, tuple(found), tuple(f"{form}: {words}" for form, words in found))
    return ActionFinding(False, (), ("nothing that could be checked is done, promised or asked for",))


def _excused(sentence: Sentence, lexicon: Lexicon) -> bool:
    """What stands in a sentence of blame or self-protection is no help."""
    return any(
        pattern.search(sentence.joined) is not None for pattern in (lexicon.blame, lexicon.hard_shield, lexicon.conduct)
    )


def _names(target: tuple[str, ...], index: StemIndex, lexicon: Lexicon) -> bool:
    if len(target) == 1:
        return target[0] in index.at
    return index.near(target, len(target) + lexicon.limits.action.target_window) is not None


def _is_time(token: str, lexicon: Lexicon) -> bool:
    return token[0].isdigit() or token in lexicon.time_words


def _forms(
    prepared: PreparedScenario,
    sentence: Sentence,
    frames: Sequence[Frame],
    targets: int,
    timed: bool,
    soft: bool,
    personal: bool,
    lexicon: Lexicon,
) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    blocked = _spans(sentence, lexicon.idioms)
    purpose = _spans(sentence, lexicon.purpose)
    softened = _spans(sentence, lexicon.soft_sentence) if soft else set()
    generic = lexicon.generic_rule.search(sentence.joined) is not None
    for frame in frames:
        if frame.at in blocked or frame.negated or frame.hedged or frame.form.kind in ("never", "act"):
            continue
        if any(_same_clause(frame, start) for start in purpose):
            continue
        if frame.kind in (THIRD, PROGRESSIVE, STATIVE, FRAGMENT, INSTRUCTIVE, DONE) and _believed(
            sentence, frame, lexicon
        ):
            continue
        if _empty_object(sentence, frame, lexicon):
            continue
        if not personal and _nobody_acts(sentence, frame, lexicon):
            continue
        if frame.conditional and frame.kind not in (PERFECT, DONE):
            continue
        in_clause = frame.kind != STATIVE or any(frame.start <= at < frame.end for at in softened)
        if soft and frame.kind not in (PERFECT, DONE, PAST) and in_clause:
            continue
        if sentence.question and frame.kind not in (PERFECT, DONE, IMPERATIVE):
            continue
        if _counts(prepared, sentence, frame, targets, timed, generic, lexicon):
            found.append((_FORM[frame.kind], _excerpt(sentence, frame)))
    if not found and not soft:
        verbless = _verbless(prepared, sentence, frames, targets, timed, generic, lexicon)
        found.extend(
            each
            for each in verbless
            if personal or each[0] != "artifact" or _arranged(sentence, 0, len(sentence.tokens), lexicon)
        )
    if not found and sentence.question and prepared.question and _concrete_question(sentence, lexicon):
        found.append(("question", sentence.joined))
    return found


_FORM = {
    COMMIT: "commit",
    PERFECT: "commit",
    PAST: "commit",
    IMPERATIVE: "imperative",
    INSTRUCTIVE: "instructive",
    DONE: "done",
    STATIVE: "done",
    FRAGMENT: "done",
    THIRD: "done",
    PROGRESSIVE: "done",
}


def _excerpt(sentence: Sentence, frame: Frame) -> str:
    return " ".join(sentence.tokens[max(frame.start, frame.at - 4) : min(frame.end, frame.at + 6)])


def _believed(sentence: Sentence, frame: Frame, lexicon: Lexicon) -> bool:
    """Part of what the speaker merely knows, hopes or feels."""
    before = sentence.tokens[max(0, frame.at - 12) : frame.at]
    return any(
        word in lexicon.epistemic and any(person in lexicon.subjects for person in before[max(0, at - 3) : at])
        for at, word in enumerate(before)
    )


def _empty_object(sentence: Sentence, frame: Frame, lexicon: Lexicon) -> bool:
    """An act on nothing: "we accept no liability"."""
    following = sentence.tokens[frame.at + 1 : frame.at + 2]
    return frame.kind in (COMMIT, IMPERATIVE, INSTRUCTIVE) and bool(following) and following[0] in lexicon.nothing


def _nobody_acts(sentence: Sentence, frame: Frame, lexicon: Lexicon) -> bool:
    """In a reply nobody stands behind: how things generally are, or an office at its own papers."""
    if frame.conditional:
        return True
    if frame.kind in (THIRD, STATIVE, DONE) and frame.form.lemma in lexicon.clerical:
        return True
    if frame.kind == FRAGMENT:
        # "Buses run late", "The template opened": whole sentences, unlike "Recall sent".
        habit = frame.form.base and frame.at > 0 and sentence.tokens[frame.at - 1].endswith("s")
        if habit:
            return True
        if sentence.tokens[frame.start] not in lexicon.determiners or not frame.form.past:
            return False
    elif frame.kind not in (THIRD, STATIVE):
        return False
    tokens, end = sentence.tokens, frame.end
    if end < len(tokens) and tokens[end] in lexicon.deadlines:
        # "paused until the 19th"
        end = min(len(tokens), end + lexicon.limits.action.redirect_reach)
    return not _arranged(sentence, frame.start, end, lexicon)


def _arranged(sentence: Sentence, start: int, end: int, lexicon: Lexicon) -> bool:
    """The words are about this user or a fixed point in time."""
    tokens = sentence.tokens
    for at in range(start, end):
        token = tokens[at]
        if token in lexicon.moments or (token[0].isdigit() and ":" in token):
            return True
        if token in lexicon.addressed and not (at + 1 < len(tokens) and tokens[at + 1] in lexicon.trenches):
            return True
        if token[0].isdigit() and at > 0:
            lead = tokens[at - 1] if tokens[at - 1] not in lexicon.determiners or at < 2 else tokens[at - 2]
            if lead in lexicon.deadlines:
                return True
    return False


def _same_clause(frame: Frame, at: int) -> bool:
    return frame.start <= at < frame.end or at < frame.start <= at + 6


def _counts(
    prepared: PreparedScenario,
    sentence: Sentence,
    frame: Frame,
    targets: int,
    timed: bool,
    generic: bool,
    lexicon: Lexicon,
) -> bool:
    clause = range(frame.start, frame.end)
    aimed = any(
        (sentence.stems[at] in prepared.target_stems and at != frame.at)
        or (sentence.stems[at] in prepared.anchor_stems and at != frame.at)
        for at in clause
    )
    clause_timed = any(_is_time(sentence.tokens[at], lexicon) for at in clause if at != frame.at)
    kind = frame.form.kind
    wrong = any(sentence.tokens[at] in lexicon.error_cues for at in clause)
    if kind == "light":
        after = range(frame.at + 1 if frame.kind in (COMMIT, IMPERATIVE, INSTRUCTIVE) else frame.start, frame.end)
        named = any(
            at != frame.at
            and (sentence.stems[at] in prepared.target_stems or sentence.stems[at] in prepared.anchor_stems)
            for at in after
        )
        if not (named or (clause_timed and frame.kind in (COMMIT, PERFECT, DONE))):
            return False
    if frame.form.lemma in lexicon.redirect or lexicon.generic_redirect.search(sentence.joined):
        reach = range(frame.at + 1, min(len(sentence.tokens), frame.at + 1 + lexicon.limits.action.redirect_reach))
        within = {sentence.stems[at] for at in reach}
        if not any(within.issuperset(target) for target in prepared.targets):
            return False
    if kind == "weak":
        strong = frame.kind in (COMMIT, PERFECT, PAST, DONE, PROGRESSIVE, IMPERATIVE) and aimed
        going = frame.form.ing and frame.kind == COMMIT and targets > 0
        if not (strong and (clause_timed or going)):
            return False
    if frame.kind == PAST:
        if prepared.repair:
            fresh = any(sentence.tokens[at] in lexicon.now_words for at in clause)
            return not wrong and (fresh or (targets > 0 and clause_timed))
        return not wrong and _has_object(sentence, frame, lexicon)
    if frame.kind == PERFECT:
        return not wrong
    if frame.kind == COMMIT:
        return _has_object(sentence, frame, lexicon)
    if frame.kind in (IMPERATIVE, INSTRUCTIVE):
        return (
            _has_object(sentence, frame, lexicon) and (kind != "weak") and not (generic and frame.kind == INSTRUCTIVE)
        )
    if frame.kind in (THIRD, STATIVE) and frame.form.lemma in lexicon.no_third:
        return False
    if frame.kind == THIRD:
        near = any(sentence.stems[at] in prepared.target_stems for at in clause if at != frame.at)
        return kind != "weak" and (targets > 0 or (near and clause_timed)) and timed and not generic and not wrong
    if frame.kind == STATIVE:
        return (targets > 0 or clause_timed or aimed) and not generic and not wrong
    if frame.kind == PROGRESSIVE:
        return (aimed or clause_timed) and not generic
    if frame.kind == FRAGMENT:
        return (aimed or clause_timed or targets > 0) and not generic and not wrong
    return not generic


def _has_object(sentence: Sentence, frame: Frame, lexicon: Lexicon) -> bool:
    """Something acted on: a word after the verb that is more than an adverb, or a fronted object."""
    for at in range(frame.at + 1, min(frame.end, frame.at + 8)):
        token = sentence.tokens[at]
        if token not in lexicon.adverbs and token not in lexicon.be:
            return True
    if frame.at + 1 < len(sentence.tokens) and sentence.before[frame.at + 1].strip() in (">", ":", "(", "-"):
        return True
    functional = function_words()
    if any(sentence.tokens[at] not in functional for at in range(frame.start, frame.at)):
        return True
    # a chain of orders: "retype it, file, screenshot the receipt"
    return frame.kind == IMPERATIVE and frame.at > 0 and "," in sentence.before[frame.at]


def _verbless(
    prepared: PreparedScenario,
    sentence: Sentence,
    frames: Sequence[Frame],
    targets: int,
    timed: bool,
    generic: bool,
    lexicon: Lexicon,
) -> list[tuple[str, str]]:
    """Artefacts and arrangements: "here is", "in your inbox", "Account > Plan", "Taxi in six minutes"."""
    aimed = [at for at, stem in enumerate(sentence.stems) if stem in prepared.target_stems]
    if not aimed or generic:
        return []
    if any(">" in before for before in sentence.before):
        return [("artifact", "a path to follow")]
    if lexicon.apology.search(sentence.joined):
        return []
    if sentence.tokens[0] in lexicon.sequence and len(sentence.tokens) > 1 and not _finite_word(sentence, lexicon):
        return [("imperative", sentence.joined)]
    if lexicon.hedges.intersection(sentence.tokens) or sentence.question:
        return []
    if lexicon.request.search(sentence.joined):
        return [("need_request", sentence.joined)]
    wrong = lexicon.error_cues.intersection(sentence.tokens)
    denied = lexicon.negations.intersection(sentence.tokens)
    if len(sentence.tokens) >= lexicon.artifact_min_tokens:
        match = lexicon.artifact.search(sentence.joined)
        place = bisect_right(sentence.starts, match.start()) - 1 if match is not None else 0
        if match is not None and not lexicon.error_cues.intersection(_piece(sentence, place)):
            window = _piece(sentence, place, forward=False)[-lexicon.negation_window - 1 : -1]
            if not any(token in lexicon.negations for token in window):
                return [("artifact", match.group())]
    finite = _finite_word(sentence, lexicon)
    short = len(sentence.tokens) <= lexicon.limits.action.fragment_tokens
    finite = finite or any(frame.kind in (THIRD, PAST) for frame in frames)
    finite = finite or any(
        (form := lexicon.verbs.get(token)) is not None and form.base and sentence.tokens[at].endswith("s")
        for at, token in enumerate(sentence.tokens[1:])
    )
    fresh = any(
        _is_time(token, lexicon) and (":" in token or stem not in prepared.target_stems)
        for token, stem in zip(sentence.tokens, sentence.stems, strict=True)
    )
    if short and not finite and fresh and targets and not wrong and not denied:
        return [("done", "an arrangement with place or time")]
    return []


def _piece(sentence: Sentence, at: int, *, forward: bool = True) -> tuple[str, ...]:
    """The words between the commas or other signs around a place, or up to the place alone."""
    first = last = at
    while first > 0 and not sentence.before[first].strip():
        first -= 1
    while forward and last + 1 < len(sentence.tokens) and not sentence.before[last + 1].strip():
        last += 1
    return sentence.tokens[first : last + 1]


def _finite_word(sentence: Sentence, lexicon: Lexicon) -> bool:
    return any(
        token in lexicon.be
        or token in lexicon.modal_commit
        or token in lexicon.modal_soft
        or token in lexicon.auxiliaries
        or token in lexicon.finite_subjects
        for token in sentence.tokens
    )


def _concrete_question(sentence: Sentence, lexicon: Lexicon) -> bool:
    if lexicon.question_soft.search(sentence.joined):
        return False
    if lexicon.hedges.intersection(sentence.tokens) - {"could", "would", "will", "whether", "likely", "possible"}:
        return False
    openings = {0} | {
        at for at, before in enumerate(sentence.before) if "," in before or ":" in before or " -" in before
    }
    openings |= {at + 1 for at, token in enumerate(sentence.tokens[:-1]) if token in ("and", "so", "but", "or")}
    return any(sentence.tokens[at] in lexicon.question_openers and len(sentence.tokens) - at >= 4 for at in openings)


def _spans(sentence: Sentence, pattern: re.Pattern[str]) -> set[int]:
    found: set[int] = set()
    for match in pattern.finditer(sentence.joined):
        first = bisect_right(sentence.starts, match.start()) - 1
        last = bisect_right(sentence.starts, match.end() - 1) - 1
        found.update(range(first, last + 1))
    return found
