"""Word lists and limits of the reply checks: loaded from data, typed, compiled once. No list or number lives in code.

`data/tempaffect/lexicons/*.toml` hold words and patterns, `data/tempaffect/params.toml` the limits. Patterns are
regular expressions over normalised words joined by single spaces; "^" and "$" stand for the ends of a sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.tempaffect.scenario import ForbiddenPhrase

__all__ = ["Lexicon", "Limits", "VerbForm", "load_lexicon"]

PerMille = Annotated[int, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]
Words = Annotated[str, Field(min_length=1)]
Patterns = Annotated[tuple[str, ...], Field(min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Grounding(_Table):
    """Section 2.2."""

    single_points: Count
    strong_points: Count
    core_pair_distance: Count
    gap: Count
    reversed_within: Count
    fallback_near_stems: Count
    target_points: Count
    target_other_stems: Count
    list_tokens: Count
    list_function_share: PerMille
    list_separators: Count
    anchor_content: Count
    anchor_share: PerMille
    run_stems: Count
    run_joins: Count
    echo_gram: Count
    echo_share: PerMille
    echo_share_short: PerMille
    echo_novel_stems: Count
    echo_content: Count
    echo_novel_share: PerMille
    situation_stems: Count
    language_tokens: Count
    language_function_share: PerMille
    foreign_letters: PerMille


class Action(_Table):
    """Section 2.3."""

    fragment_tokens: Count
    direct_answer_targets: Count
    target_window: Count
    max_scanned_tokens: Count
    redirect_reach: Count


class Prohibited(_Table):
    """Section 2.3, acts that break the boundary."""

    gap: Count
    object_window: Count
    name_reach: Count


class Defensive(_Table):
    """Section 2.4."""

    apologies_always: Count
    apologies_idle: Count
    apologies_idle_share: PerMille
    distant_tokens: Count


class Validation(_Table):
    """Section 2.8, overvalidation of one reply."""

    many: Count
    few: Count
    few_share: PerMille


class Phrases(_Table):
    """Section 2.6."""

    spaced_run: Count
    global_limit: Count
    scenario_limit: Count


class Length(_Table):
    """Section 1.5: a useful reply has from `useful_low` x least to `useful_high` x most words."""

    useful_low: PerMille
    useful_high: PerMille


class Limits(_Table):
    """All of `params.toml`."""

    grounding: Grounding
    action: Action
    prohibited: Prohibited
    defensive: Defensive
    validation: Validation
    phrases: Phrases
    length: Length


Irregular = Mapping[str, tuple[str, str]]


class _VerbClass(_Table):
    regular: Words
    irregular: Irregular


class _VerbForms(_Table):
    doubling: Words


class _NounLike(_Table):
    words: Words


class _Verbs(_Table):
    strong: _VerbClass
    light: _VerbClass
    weak: _VerbClass
    never: _VerbClass
    act_only: _VerbClass
    forms: _VerbForms
    noun_like: _NounLike


class _Frames(_Table):
    polite: Words
    adverbs: Words
    subjects: Words
    people: Words
    be: Words
    modal_commit: Words
    modal_soft: Words
    hedges: Words
    negations: Words
    negation_window: Count
    clause_openers: Words
    void_openers: Words
    determiners: Words
    prepositions: Words
    purpose: Patterns
    soft_sentence: Patterns
    idioms: Patterns
    time_words: Words
    now_words: Words
    error_cues: Words
    generic_rule: Patterns
    artifact: Patterns
    artifact_min_tokens: Count
    question_openers: Words
    question_soft: Patterns
    request: Patterns
    epistemic: Words
    redirect: Words
    permission: Words
    auxiliaries: Words
    linking: Words
    object_pronouns: Words
    finite_subjects: Words
    nothing: Words
    needing: Words
    going: Words
    no_third: Words
    first_person: Words
    trenches: Words
    moments: Words
    clerical: Words
    finite_verbs: Words
    addressed: Words
    deadlines: Words
    sequence: Words
    generic_redirect: Patterns


class _DefensiveWords(_Table):
    apology: Patterns
    apology_meta: Patterns
    ai_disclaimer: Patterns
    inability: Patterns
    hard_shield: Patterns
    policy: Patterns
    reason: Patterns
    blame: Patterns
    impersonal_blame: Patterns
    conduct: Patterns
    moral: Patterns
    minimizing: Patterns
    comfort: Patterns


class _ValidationWords(_Table):
    cues: Patterns


class _Meta(_Table):
    fields: Words
    patterns: Patterns


class _Forbidden(_Table):
    fillers: Words
    attribution: Patterns
    phrases: tuple[ForbiddenPhrase, ...]


class _Boundary(_Table):
    forbid: Patterns
    protected: Words
    honorifics: Words
    held: Patterns
    secrecy: Patterns
    agreement: Patterns
    varying: Words
    submissions: Words
    hypothetical: Words
    denying: Words
    name_cue: Words
    code_cue: Words
    same_act: Patterns


class VerbForm(NamedTuple):
    """What one written form can be. kind: strong, light, weak, never or act (see `verbs.toml`)."""

    lemma: str
    kind: str
    base: bool
    third: bool
    ing: bool
    past: bool
    participle: bool


Pattern = re.Pattern[str]


class Lexicon(NamedTuple):
    """Everything the checks read, compiled. Sets of words are normalised; patterns match joined normalised words."""

    limits: Limits
    verbs: Mapping[str, VerbForm]
    lemmas: Mapping[str, frozenset[str]]
    """Every verb a form may belong to."""
    noun_like: frozenset[str]
    polite: frozenset[str]
    adverbs: frozenset[str]
    subjects: frozenset[str]
    people: frozenset[str]
    be: frozenset[str]
    modal_commit: frozenset[str]
    modal_soft: frozenset[str]
    hedges: frozenset[str]
    negations: frozenset[str]
    negation_window: int
    clause_openers: frozenset[str]
    void_openers: frozenset[str]
    determiners: frozenset[str]
    prepositions: frozenset[str]
    time_words: frozenset[str]
    now_words: frozenset[str]
    error_cues: frozenset[str]
    question_openers: frozenset[str]
    epistemic: frozenset[str]
    redirect: frozenset[str]
    permission: frozenset[str]
    purpose: Pattern
    soft_sentence: Pattern
    idioms: Pattern
    generic_rule: Pattern
    artifact: Pattern
    artifact_min_tokens: int
    question_soft: Pattern
    request: Pattern
    apology: Pattern
    apology_meta: Pattern
    ai_disclaimer: Pattern
    inability: Pattern
    hard_shield: Pattern
    policy: Pattern
    reason: Pattern
    blame: Pattern
    impersonal_blame: Pattern
    conduct: Pattern
    moral: Pattern
    minimizing: Pattern
    comfort: Pattern
    generic_redirect: Pattern
    validation: Pattern
    meta_fields: Pattern
    meta: Pattern
    fillers: tuple[str, ...]
    attribution: Pattern
    forbidden: tuple[ForbiddenPhrase, ...]
    forbid: Pattern
    protected: frozenset[str]
    honorifics: frozenset[str]
    held: Pattern
    secrecy: Pattern
    agreement: Pattern
    varying: frozenset[str]
    submissions: frozenset[str]
    hypothetical: frozenset[str]
    denying: frozenset[str]
    name_cue: frozenset[str]
    code_cue: frozenset[str]
    auxiliaries: frozenset[str]
    linking: frozenset[str]
    object_pronouns: frozenset[str]
    finite_subjects: frozenset[str]
    nothing: frozenset[str]
    needing: frozenset[str]
    going: frozenset[str]
    no_third: frozenset[str]
    first_person: frozenset[str]
    trenches: frozenset[str]
    moments: frozenset[str]
    clerical: frozenset[str]
    finite_verbs: frozenset[str]
    addressed: frozenset[str]
    deadlines: frozenset[str]
    sequence: frozenset[str]
    same_act: Mapping[str, frozenset[str]]
    """Verbs that do the same to a thing as the key, itself included."""


Model = TypeVar("Model", bound=_Table)

_FRAME_SETS = (
    "polite", "adverbs", "subjects", "people", "be", "modal_commit", "modal_soft", "hedges", "negations",
    "clause_openers", "void_openers", "determiners", "prepositions", "time_words", "now_words", "error_cues",
    "question_openers", "epistemic", "redirect", "permission", "auxiliaries", "linking", "object_pronouns",
    "finite_subjects", "nothing", "needing", "going", "no_third", "first_person", "trenches", "moments", "clerical",
    "finite_verbs", "addressed", "deadlines", "sequence",
)  # fmt: skip
_BOUNDARY_SETS = (
    "protected", "honorifics", "varying", "submissions", "hypothetical", "denying", "name_cue", "code_cue",
)  # fmt: skip
_FRAME_PATTERNS = (
    "purpose", "soft_sentence", "idioms", "generic_rule", "artifact", "question_soft", "request", "generic_redirect",
)  # fmt: skip


def _read(name: str, model: type[Model]) -> Model:
    path = data_root() / "tempaffect" / name
    raw: dict[str, Any] = read_toml(path)
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise DataError(f"{path}: {first_fault(error)}") from None


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


def _same(groups: Iterable[str]) -> dict[str, frozenset[str]]:
    found: dict[str, frozenset[str]] = {}
    for group in groups:
        verbs = _set(group)
        for verb in verbs:
            found[verb] = found.get(verb, frozenset()) | verbs
    return found


def _pattern(name: str, alternatives: Iterable[str]) -> Pattern:
    try:
        return re.compile(r"(?<!\S)(?:" + "|".join(alternatives) + r")(?:(?<=\s)|(?!\S))", re.MULTILINE)
    except re.error as error:
        raise DataError(f"{data_root() / 'tempaffect' / 'lexicons'}: {name}: not a usable pattern: {error}") from None


@cache
def load_lexicon() -> Lexicon:
    """The shipped lists and limits. Raises `DataError` naming file and key when one is damaged."""
    limits = _read("params.toml", Limits)
    verbs = _read("lexicons/verbs.toml", _Verbs)
    frames = _read("lexicons/frames.toml", _Frames)
    shields = _read("lexicons/defensive.toml", _DefensiveWords)
    meta = _read("lexicons/meta.toml", _Meta)
    forbidden = _read("lexicons/forbidden.toml", _Forbidden)
    boundary = _read("lexicons/boundary.toml", _Boundary)
    validation = _read("lexicons/validation.toml", _ValidationWords)
    if len(forbidden.phrases) > limits.phrases.global_limit:
        raise DataError(
            f"forbidden.toml: {len(forbidden.phrases)} phrases; keep the list to {limits.phrases.global_limit} "
            "(warmth belongs to overvalidation, not here)"
        )
    forms, lemmas = _conjugated(verbs)
    compiled: dict[str, Any] = {
        **{key: _set(getattr(frames, key)) for key in _FRAME_SETS},
        **{key: _pattern(key, getattr(frames, key)) for key in _FRAME_PATTERNS},
        **{key: _pattern(key, getattr(shields, key)) for key in _DefensiveWords.model_fields},
        **{key: _set(getattr(boundary, key)) for key in _BOUNDARY_SETS},
        **{key: _pattern(key, getattr(boundary, key)) for key in ("forbid", "held", "secrecy", "agreement")},
    }
    return Lexicon(
        limits=limits,
        verbs=forms,
        lemmas=lemmas,
        noun_like=_set(verbs.noun_like.words),
        negation_window=frames.negation_window,
        artifact_min_tokens=frames.artifact_min_tokens,
        validation=_pattern("cues", validation.cues),
        meta_fields=re.compile(r"\b(?:" + "|".join(meta.fields.split()) + r")\b", re.IGNORECASE),
        meta=_pattern("patterns", meta.patterns),
        fillers=tuple(forbidden.fillers.split()),
        attribution=_pattern("attribution", forbidden.attribution),
        forbidden=forbidden.phrases,
        same_act=_same(boundary.same_act),
        **compiled,
    )


_VOWELS = frozenset("aeiou")


def _conjugated(verbs: _Verbs) -> tuple[dict[str, VerbForm], dict[str, frozenset[str]]]:
    doubling = _set(verbs.forms.doubling)
    forms: dict[str, VerbForm] = {}
    lemmas: dict[str, set[str]] = {}
    # The first kind to claim a form keeps it: an empty word stays empty even where it could also be an act.
    for kind, table in (
        ("never", verbs.never),
        ("strong", verbs.strong),
        ("light", verbs.light),
        ("weak", verbs.weak),
        ("act", verbs.act_only),
    ):
        paradigms = {base: (_past(base, doubling),) * 2 for base in table.regular.split()}
        paradigms.update({base: (past, participle) for base, (past, participle) in table.irregular.items()})
        for base, (past, participle) in paradigms.items():
            lemma = base
            flags: dict[str, set[str]] = {}
            for form, flag in (
                (lemma, "base"),
                (_third(lemma), "third"),
                (_ing(lemma, doubling), "ing"),
                (past, "past"),
                (participle, "participle"),
            ):
                flags.setdefault(form, set()).add(flag)
            for form, found in flags.items():
                lemmas.setdefault(form, set()).add(lemma)
                made = VerbForm(
                    lemma, kind, *(name in found for name in ("base", "third", "ing", "past", "participle"))
                )
                known = forms.get(form)
                if known is None:
                    forms[form] = made
                elif known.kind == kind and known.lemma != lemma:
                    forms[form] = known._replace(
                        base=known.base or made.base, past=known.past or made.past,
                        participle=known.participle or made.participle,
                    )  # fmt: skip
    return forms, {form: frozenset(found) for form, found in lemmas.items()}


def _third(base: str) -> str:
    if base.endswith(("s", "x", "z", "ch", "sh", "o")):
        return base + "es"
    if base.endswith("y") and base[-2] not in _VOWELS:
        return base[:-1] + "ies"
    return base + "s"


def _past(base: str, doubling: frozenset[str]) -> str:
    if base in doubling:
        return base + base[-1] + "ed"
    if base.endswith("e"):
        return base + "d"
    if base.endswith("y") and base[-2] not in _VOWELS:
        return base[:-1] + "ied"
    return base + "ed"


def _ing(base: str, doubling: frozenset[str]) -> str:
    if base in doubling:
        return base + base[-1] + "ing"
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "oe", "ye")):
        return base[:-1] + "ing"
    return base + "ing"
