"""content_grounding: does the reply speak of this user's matter, in sentences, without parroting it?"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from pytest_spiral.tempaffect.checks.prepare import AnchorGroup, PreparedScenario, echo_classes
from pytest_spiral.tempaffect.checks.sentences import PreparedReply, Sentence
from pytest_spiral.tempaffect.lexicon import LIMITS, VERBS, WORDS
from pytest_spiral.text import covered_share, function_words


@dataclass(frozen=True, slots=True)
class GroundingFinding:
    """What the reply names.

    Attributes:
        groups: Anchor groups and other signs of the matter found.
        user_stems: Content stems of the user's message found.
        echo: Whether the reply mostly repeats the user's own words.
    """

    passed: bool
    groups: int
    user_stems: int
    echo: bool
    reasons: tuple[str, ...]


_LEADING_IN = WORDS.speakers | {"will", "have", "am"}


def check_grounding(prepared: PreparedScenario, reply: PreparedReply, spoken: Sequence[Sentence]) -> GroundingFinding:
    """Check one reply; `spoken`: its sentences without talk to the scorer and lists of keywords."""
    limits = LIMITS.grounding
    matched = [(group, *_anchor_points(group, spoken)) for group in prepared.anchors]
    points = sum(worth for _, worth, _ in matched)
    core = any(worth and group.core for group, worth, _ in matched)
    named = [f"{group.id} ({words})" for group, worth, words in matched if worth]
    present = {found for sentence in spoken for found in sentence.stems}
    least = prepared.scenario.expected.reply.min_anchor_groups
    enough = core and (points >= least or len(present & prepared.near_stems) >= limits.fallback_near_stems)
    if not enough:
        targets = _telling_targets(prepared, spoken, present)
        named += targets
        enough = bool(targets)
    if not enough:
        situation = present & (prepared.near_stems | prepared.named_stems)
        if len(situation) >= limits.situation_stems - bool(named):
            # None of the listed wordings, but so many words of this situation that it can be no other.
            enough = True
            named.append("many words of the situation")
    echo, foreign, copied = _echoes(prepared, reply), _is_foreign(reply), _is_copied(prepared, reply)
    reasons = [f"names {', '.join(named)}" if named else "names none of the matters the user raised"]
    if not enough and named:
        reasons.append(f"{points} of {least} points" + ("" if core else ", none on the central matter"))
    if echo:
        reasons.append("mostly repeats the user's own words")
    if copied:
        reasons.append("mostly repeats the situation")
    if foreign:
        reasons.append("not English prose")
    return GroundingFinding(
        passed=enough and not (echo or foreign or copied),
        groups=len(named),
        user_stems=len(present & prepared.user_stems),
        echo=echo,
        reasons=tuple(reasons),
    )


def _anchor_points(group: AnchorGroup, spoken: Sequence[Sentence]) -> tuple[int, str]:
    """Return the points of the best match of an anchor group, and its words."""
    limits = LIMITS.grounding
    best, words = 0, ""
    for sentence in spoken:
        if group.firsts.isdisjoint(sentence.stems):
            continue
        single = min(group.singles.intersection(sentence.stems), default=None)
        if single is not None and best < limits.single_points:
            best, words = limits.single_points, single
        for wanted in group.multis:
            # "your board" says no more than "board": only two content words make a strong match.
            worth = limits.strong_points if wanted in group.strong else limits.single_points
            if worth <= best:
                continue
            reversible = len(wanted) == 2 and sentence.has_near(wanted, limits.reversed_within)
            if reversible or sentence.has_sequence(wanted, limits.gap):
                best, words = worth, " ".join(wanted)
        if group.core and single is not None and best < limits.strong_points:
            # Two different single stems close together say as much as a strong wording.
            places = [(at, found) for at, found in enumerate(sentence.stems) if found in group.singles]
            close = (a[1] != b[1] and b[0] - a[0] <= limits.core_pair_distance for a, b in pairwise(places))
            best, words = (limits.strong_points, single) if any(close) else (best, words)
    return best, words


def _telling_targets(prepared: PreparedScenario, spoken: Sequence[Sentence], present: set[str]) -> list[str]:
    """Return the named targets where they alone ground a far paraphrase: what this scenario has to offer."""
    limits = LIMITS.grounding
    aimed = [target for target in prepared.targets if any(each.has_sequence(target, limits.gap) for each in spoken)]
    telling = [len(target) > 1 or (len(target[0]) > 1 and any(map(str.isdigit, target[0]))) for target in aimed]
    worth = sum(limits.strong_points if tells else limits.single_points for tells in telling)
    others = (present & (prepared.near_stems | prepared.anchor_stems)).difference(*aimed)
    supported = worth == limits.target_points and len(others) >= limits.target_other_stems
    return (
        [" ".join(target) for target in aimed] if any(telling) and (worth > limits.target_points or supported) else []
    )


def is_clause_like(prepared: PreparedScenario, sentence: Sentence) -> bool:
    """Whether a sentence is language rather than a list of keywords."""
    limits, functional, tokens = LIMITS.grounding, function_words(), sentence.tokens
    grammatical = sum(map(functional.__contains__, tokens))
    if len(tokens) >= limits.list_tokens and grammatical * 1000 < limits.list_function_share * len(tokens):
        separators = sum(bool(before.strip()) for before in sentence.before[1:])
        # A bare comma list has separators too, but nothing else: each counts only where it closes a longer piece.
        if separators < limits.list_separators or separators * 2 > len(tokens):
            return False
    content = len(tokens) - grammatical
    if content >= limits.anchor_content:
        pairs = zip(tokens, sentence.stems, strict=True)
        anchored = sum(found in prepared.named_stems and token not in functional for token, found in pairs)
        crowded = anchored * 1000 >= limits.anchor_share * content
        if crowded and not _has_verb(sentence, prepared.named_stems):
            return False
    return not _is_run(sentence, prepared.named_stems)


def _has_verb(sentence: Sentence, named: frozenset[str]) -> bool:
    """Whether a verb of doing stands outside the keywords."""
    verbs = (VERBS.forms.get(token) for token in sentence.tokens)
    doing = (
        verb and verb.strength != "never" and stem not in named
        for verb, stem in zip(verbs, sentence.stems, strict=True)
    )
    return sentence.has(WORDS.firm_modals) or any(doing)


def _is_run(sentence: Sentence, named: frozenset[str]) -> bool:
    """Whether many keywords are joined by commas and conjunctions with only determiners between."""
    limits = LIMITS.grounding
    if len(named.intersection(sentence.stems)) < limits.run_stems:
        return False
    keywords: set[str] = set()
    joins = others = 0
    for token, found, before in zip(sentence.tokens, sentence.stems, sentence.before, strict=True):
        if token in ("and", "or"):
            joins += 1
            continue
        joins += "," in before
        if found in named:
            keywords.add(found)
            others = 0
        elif token not in WORDS.determiners and token not in ("of", "in", "on", "for", "to"):
            others += 1
            if others > 1:
                keywords, joins, others = set(), 0, 0
        if len(keywords) >= limits.run_stems and joins >= limits.run_joins:
            return True
    return False


def _echoes(prepared: PreparedScenario, reply: PreparedReply) -> bool:
    limits, functional, tokens = LIMITS.grounding, function_words(), reply.tokens
    if len(tokens) < limits.echo_gram:
        return False
    pairs = zip(tokens, reply.stems, strict=True)
    content = [found for token, found in pairs if token not in functional and len(token) > 2]
    fresh = [found for found in content if found not in prepared.user_stems]
    if len(content) >= limits.echo_content and len(fresh) * 1000 < limits.echo_novel_share * len(content):
        return True
    share = 1000 * covered_share(echo_classes(tokens), limits.echo_gram, prepared.echo_grams.__contains__)
    return share >= limits.echo_share or (
        share >= limits.echo_share_short and len(set(fresh)) < limits.echo_novel_stems
    )


def _is_copied(prepared: PreparedScenario, reply: PreparedReply) -> bool:
    """Whether most words stand in the situation in the same order: nothing is said in words of its own.

    "I will" and "I have" in front of such words are no words of its own either.
    """
    size = LIMITS.grounding.situation_gram
    tokens = [token for token in reply.tokens if token not in _LEADING_IN]
    share = covered_share(tokens, size, prepared.situation_grams.__contains__)
    return share * 1000 >= LIMITS.grounding.situation_share


def _is_foreign(reply: PreparedReply) -> bool:
    """Whether the reply is in another script, or in words without the grammar of English."""
    limits, functional, tokens = LIMITS.grounding, function_words(), reply.tokens
    if not reply.text.isascii() and _is_other_script(reply):
        return True
    grammatical = sum(map(functional.__contains__, tokens))
    if len(tokens) < limits.language_tokens or grammatical * 1000 >= limits.language_function_share * len(tokens):
        return False
    # A path ("Account > Plan") or a labelled line needs no grammar.
    return not any(">" in before or ":" in before for sentence in reply.sentences for before in sentence.before)


def _is_other_script(reply: PreparedReply) -> bool:
    """Whether too many letters are of another script, look-alikes apart: those have become Latin in the tokens."""
    letters = [sign for sign in reply.text if sign.isalpha()]
    other = sum(not sign.isascii() and not unicodedata.normalize("NFKD", sign)[0].isascii() for sign in letters)
    read = "".join(reply.tokens)
    latin = sum(sign.isascii() for sign in read) * 10 > len(read) * 7
    return bool(letters) and other * 1000 > LIMITS.grounding.foreign_letters * len(letters) and not latin
