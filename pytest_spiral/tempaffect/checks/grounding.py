"""content_grounding (section 2.2): does the reply speak of this user's matter in sentences, without parroting it?"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_spiral.tempaffect.checks.prepare import (
    PreparedReply,
    PreparedScenario,
    Sentence,
    StemIndex,
    count_pairs,
    echo_classes,
    grams,
)
from pytest_spiral.tempaffect.lexicon import Lexicon
from pytest_spiral.text import function_words

__all__ = ["GroundingFinding", "check_grounding", "is_clause_like"]


@dataclass(frozen=True, slots=True)
class GroundingFinding:
    """groups: anchor groups found. user_stems: content stems of the user's message found. points: see section 2.2."""

    passed: bool
    groups: int
    user_stems: int
    points: int
    echo: bool
    reasons: tuple[str, ...]


def check_grounding(
    prepared: PreparedScenario, reply: PreparedReply, spoken: Sequence[Sentence], lexicon: Lexicon
) -> GroundingFinding:
    """Section 2.2. `spoken`: the sentences left after scorer talk and lists were set aside."""
    limits = lexicon.limits.grounding
    indexes = [StemIndex(sentence.stems) for sentence in spoken]
    points, cores, named = 0, 0, []
    for group in prepared.anchors:
        best, how = 0, ""
        for sentence, index in zip(spoken, indexes, strict=True):
            single = min((found for found in group.singles if found in index.at), default=None)
            if single is not None and best < limits.single_points:
                best, how = limits.single_points, single
            for wanted in group.multis:
                # "your board" says no more than "board": only two content words make a strong match.
                worth = limits.strong_points if wanted in group.strong else limits.single_points
                if worth <= best:
                    continue
                reversible = len(wanted) == 2 and index.near(wanted, limits.reversed_within)
                if index.sequence(wanted, limits.gap) or reversible:
                    best, how = worth, " ".join(wanted)
            if (
                group.core
                and single is not None
                and best < limits.strong_points
                and count_pairs(sentence.stems, group.singles, limits.core_pair_distance)
            ):
                best, how = limits.strong_points, single
        if best:
            points += best
            cores += group.core
            named.append(f"{group.id} ({how})")
    present = {found for sentence in spoken for found in sentence.stems}
    user_stems = len(present & prepared.user_stems)
    near = len(present & prepared.near_stems)
    least = prepared.scenario.expected.reply.min_anchor_groups
    enough = cores >= 1 and (points >= least or near >= limits.fallback_near_stems)
    if not enough:
        # Far paraphrase: none of the user's nouns, but the very things this scenario has to offer.
        aimed = [target for target in prepared.targets if any(index.sequence(target, limits.gap) for index in indexes)]
        worth = sum(_worth(target, lexicon) for target in aimed)
        spent = {found for target in aimed for found in target}
        others = len((present & (prepared.near_stems | prepared.anchor_stems)) - spent)
        telling = any(_worth(target, lexicon) >= limits.strong_points for target in aimed)
        if telling and (
            worth > limits.target_points or (worth == limits.target_points and others >= limits.target_other_stems)
        ):
            enough = True
            named.extend(" ".join(target) for target in aimed)
    situation = present & (prepared.near_stems | prepared.anchor_stems | prepared.target_stems)
    if not enough and len(situation) >= limits.situation_stems - bool(named):
        # None of the listed wordings, but so many words of this situation that it can be no other.
        enough = True
        named.append("many words of the situation")
    echo = _echoes(prepared, reply, lexicon)
    foreign = _foreign(reply, lexicon)
    reasons = [f"names {', '.join(named)}" if named else "names none of the matters the user raised"]
    if not enough and named:
        reasons.append(f"{points} of {least} points" + ("" if cores else ", none on the central matter"))
    if echo:
        reasons.append("mostly repeats the user's own words")
    if foreign:
        reasons.append("not English prose")
    return GroundingFinding(enough and not echo and not foreign, len(named), user_stems, points, echo, tuple(reasons))


def _worth(target: Sequence[str], lexicon: Lexicon) -> int:
    limits = lexicon.limits.grounding
    telling = len(target) > 1 or (len(target[0]) > 1 and any(sign.isdigit() for sign in target[0]))
    return limits.strong_points if telling else limits.single_points


def is_clause_like(prepared: PreparedScenario, sentence: Sentence, lexicon: Lexicon) -> bool:
    """Whether a sentence is language rather than a list of keywords (rules a, b, c of section 2.2)."""
    limits = lexicon.limits.grounding
    tokens = sentence.tokens
    functional = function_words()
    named = prepared.anchor_stems | prepared.target_stems
    if len(tokens) >= limits.list_tokens:
        share = sum(token in functional for token in tokens) * 1000
        separators = sum(bool(before.strip()) for before in sentence.before[1:])
        # A bare comma list has separators too, but nothing else: each counts only where it closes a longer piece.
        if share < limits.list_function_share * len(tokens) and separators < limits.list_separators:
            return False
        if share < limits.list_function_share * len(tokens) and separators * 2 > len(tokens):
            return False
    content = [found for token, found in zip(tokens, sentence.stems, strict=True) if token not in functional]
    if len(content) >= limits.anchor_content:
        anchored = sum(found in named for found in content)
        if anchored * 1000 >= limits.anchor_share * len(content) and not _has_verb(sentence, named, lexicon):
            return False
    return not _is_run(sentence, named, lexicon)


def _has_verb(sentence: Sentence, named: frozenset[str], lexicon: Lexicon) -> bool:
    """A verb of doing outside the keywords."""
    return any(
        token in lexicon.modal_commit
        or ((form := lexicon.verbs.get(token)) is not None and found not in named and form.kind != "never")
        for token, found in zip(sentence.tokens, sentence.stems, strict=True)
    )


def _is_run(sentence: Sentence, named: frozenset[str], lexicon: Lexicon) -> bool:
    """A coordination run: many keywords joined by commas and conjunctions with only determiners between."""
    limits = lexicon.limits.grounding
    distinct: set[str] = set()
    joins = 0
    since = 0
    for token, found, before in zip(sentence.tokens, sentence.stems, sentence.before, strict=True):
        if token in ("and", "or"):
            joins += 1
            continue
        if "," in before:
            joins += 1
        if found in named:
            distinct.add(found)
            since = 0
        elif token not in lexicon.determiners and token not in ("of", "in", "on", "for", "to"):
            since += 1
            if since > 1:
                distinct, joins, since = set(), 0, 0
        if len(distinct) >= limits.run_stems and joins >= limits.run_joins:
            return True
    return False


def _echoes(prepared: PreparedScenario, reply: PreparedReply, lexicon: Lexicon) -> bool:
    limits = lexicon.limits.grounding
    tokens = list(reply.tokens)
    if len(tokens) < limits.echo_gram:
        return False
    functional = function_words()
    content = [
        found for token, found in zip(tokens, reply.stems, strict=True) if token not in functional and len(token) > 2
    ]
    fresh = [found for found in content if found not in prepared.user_stems]
    if len(content) >= limits.echo_content and len(fresh) * 1000 < limits.echo_novel_share * len(content):
        return True
    covered: set[int] = set()
    for start, gram in enumerate(grams(echo_classes(tokens), limits.echo_gram)):
        if gram in prepared.echo_grams:
            covered.update(range(start, start + limits.echo_gram))
    share = len(covered) * 1000
    if share >= limits.echo_share * len(tokens):
        return True
    if share < limits.echo_share_short * len(tokens):
        return False
    return len(set(fresh)) < limits.echo_novel_stems


def _foreign(reply: PreparedReply, lexicon: Lexicon) -> bool:
    limits = lexicon.limits.grounding
    tokens = reply.tokens
    if not reply.text.isascii():
        letters = [character for character in reply.text if character.isalpha()]
        other = sum(
            not character.isascii() and not unicodedata.normalize("NFKD", character)[0].isascii()
            for character in letters
        )
        if letters and other * 1000 > limits.foreign_letters * len(letters) and not _reads_latin(reply):
            return True
    functional = function_words()
    share = sum(token in functional for token in tokens) * 1000
    return (
        len(tokens) >= limits.language_tokens
        and share < limits.language_function_share * len(tokens)
        and not any(">" in before or ":" in before for sentence in reply.sentences for before in sentence.before)
    )


def _reads_latin(reply: PreparedReply) -> bool:
    """Look-alike letters have become Latin by now; what is still another script is another language."""
    letters = "".join(reply.tokens)
    return sum(character.isascii() for character in letters) * 10 > len(letters) * 7
