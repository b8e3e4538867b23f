"""Words, phrases and limits of the reply checks, loaded from `data/tempaffect/` and compiled once.

Each file of `lexicons/` is one table here and each list one field; the type of the field compiles the list. A word list
is a text of words, a phrase list holds regular expressions over normalised words joined by single spaces.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from pytest_spiral.errors import DataError, first_fault
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.tempaffect.scenario import ForbiddenPhrase

__all__ = ["Grammar", "Lexicon", "Limits", "Pattern", "VerbForm", "WordSet", "load_lexicon"]

Pattern = re.Pattern[str]


def _word_set(text: object) -> frozenset[str]:
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"expected words separated by white space, got {text!r}")
    return frozenset(text.split())


def _phrase_pattern(alternatives: object) -> Pattern:
    if not isinstance(alternatives, list) or not alternatives:
        raise ValueError(f"expected a list of phrases, got {alternatives!r}")
    try:
        # Whole words only; a phrase may end with the space that its last optional word left behind.
        return re.compile(r"(?<!\S)(?:" + "|".join(alternatives) + r")(?:(?<=\s)|(?!\S))", re.MULTILINE)
    except (re.error, TypeError) as error:
        raise ValueError(f"not a usable regular expression: {error}") from None


WordSet = Annotated[frozenset[str], BeforeValidator(_word_set)]
Phrases = Annotated[Pattern, BeforeValidator(_phrase_pattern)]
Count = Annotated[int, Field(ge=0)]
PerMille = Annotated[int, Field(ge=0)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GroundingLimits(_Table):
    """When a reply speaks of the user's matter."""

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


class ActionLimits(_Table):
    """When a reply does something concrete."""

    fragment_tokens: Count
    direct_answer_targets: Count
    target_window: Count
    max_scanned_tokens: Count
    redirect_reach: Count


class ProhibitedLimits(_Table):
    """When an act breaks the boundary."""

    gap: Count
    object_window: Count
    name_reach: Count


class DefensiveLimits(_Table):
    """When apologies are a loop and a reply is distant."""

    apologies_always: Count
    apologies_idle: Count
    apologies_idle_share: PerMille
    distant_tokens: Count


class ValidationLimits(_Table):
    """When talk about feelings is too much."""

    many: Count
    few: Count
    few_share: PerMille


class PhraseLimits(_Table):
    """Forbidden phrases: letters spaced out, lengths of the lists."""

    spaced_run: Count
    global_limit: Count
    scenario_limit: Count


class LengthLimits(_Table):
    """A useful reply has from `useful_low` x the fewest to `useful_high` x the most words expected."""

    useful_low: PerMille
    useful_high: PerMille


class Limits(_Table):
    """All of `params.toml`."""

    grounding: GroundingLimits
    action: ActionLimits
    prohibited: ProhibitedLimits
    defensive: DefensiveLimits
    validation: ValidationLimits
    phrases: PhraseLimits
    length: LengthLimits


class Grammar(_Table):
    """Words and phrases by which clauses are read."""

    speakers: WordSet
    subject_pronouns: WordSet
    object_pronouns: WordSet
    first_person: WordSet
    second_person: WordSet
    noun_substitutes: WordSet
    be_forms: WordSet
    firm_modals: WordSet
    soft_modals: WordSet
    auxiliaries: WordSet
    linking_verbs: WordSet
    need_verbs: WordSet
    lead_ins: WordSet
    adverbs: WordSet
    clause_openers: WordSet
    conditional_openers: WordSet
    determiners: WordSet
    prepositions: WordSet
    finite_verbs: WordSet
    negations: WordSet
    negation_window: Count
    hedges: WordSet
    nothing_words: WordSet
    time_words: WordSet
    now_words: WordSet
    fixed_times: WordSet
    deadline_words: WordSet
    error_words: WordSet
    belief_verbs: WordSet
    referral_verbs: WordSet
    referrals: Phrases
    permission_words: WordSet
    travel_verbs: WordSet
    informing_verbs: WordSet
    office_verbs: WordSet
    institution_nouns: WordSet
    step_words: WordSet
    purpose_clauses: Phrases
    vague_offers: Phrases
    idioms: Phrases
    general_rules: Phrases
    artifacts: Phrases
    artifact_min_tokens: Count
    question_openers: WordSet
    soft_questions: Phrases
    requests: Phrases

    @cached_property
    def helping_verbs(self) -> frozenset[str]:
        """Forms of "be", modals and auxiliaries: words that only a verb of the same clause can follow."""
        return self.be_forms | self.firm_modals | self.soft_modals | self.auxiliaries

    @cached_property
    def finite_words(self) -> frozenset[str]:
        """Words that show a clause to have a verb of its own."""
        return self.helping_verbs | self.subject_pronouns


class Defensive(_Table):
    """Ways of protecting oneself instead of serving the user."""

    apologies: Phrases
    apology_mentions: Phrases
    machine_disclaimers: Phrases
    inability: Phrases
    disclaimers: Phrases
    policies: Phrases
    reasons: Phrases
    blame: Phrases
    impersonal_blame: Phrases
    tone_policing: Phrases
    moralizing: Phrases
    minimizing: Phrases
    comfort: Phrases


class Validation(_Table):
    """Talk about feelings."""

    feelings: Phrases


class Meta(_Table):
    """Talk to or about the scorer."""

    field_names: WordSet
    phrases: Phrases


class Forbidden(_Table):
    """Stock phrases banned everywhere, unless a scenario brings its own list."""

    fillers: WordSet
    attribution: Phrases
    phrases: tuple[ForbiddenPhrase, ...]


class Boundary(_Table):
    """Keeping or breaking a boundary."""

    prohibitions: Phrases
    protected_words: WordSet
    name_words: WordSet
    code_words: WordSet
    honorifics: WordSet
    refusals: Phrases
    complicity: Phrases
    agreements: Phrases
    optional_words: WordSet
    submissions: WordSet
    hypothetical_words: WordSet
    denial_words: WordSet
    same_acts: tuple[WordSet, ...]

    @cached_property
    def synonyms(self) -> Mapping[str, frozenset[str]]:
        """Verbs that do the same to a thing as the key, itself included."""
        found: dict[str, frozenset[str]] = {}
        for verbs in self.same_acts:
            for verb in verbs:
                found[verb] = found.get(verb, frozenset()) | verbs
        return found


class VerbForm(NamedTuple):
    """What one written form of a verb can be.

    Attributes:
        lemma: Base form of the verb.
        strength: Class of the verb in `verbs.toml`: strong, light, weak, never or act_only.
        base, third, ing, past, participle: Whether the form can be used as such.
    """

    lemma: str
    strength: str
    base: bool
    third: bool
    ing: bool
    past: bool
    participle: bool


class _VerbClass(_Table):
    regular: WordSet
    irregular: Mapping[str, tuple[str, str]]


class Verbs(_Table):
    """Verbs by how much they promise."""

    doubling: WordSet
    noun_like: WordSet
    never: _VerbClass
    strong: _VerbClass
    light: _VerbClass
    weak: _VerbClass
    act_only: _VerbClass

    @cached_property
    def _conjugated(self) -> tuple[dict[str, VerbForm], dict[str, frozenset[str]]]:
        forms: dict[str, VerbForm] = {}
        lemmas: dict[str, frozenset[str]] = {}
        # The first class to claim a form keeps it: an empty word stays empty even where it could also be an act.
        for strength in ("never", "strong", "light", "weak", "act_only"):
            verbs: _VerbClass = getattr(self, strength)
            regular = {base: (_past(base, self.doubling),) * 2 for base in sorted(verbs.regular)}
            for base, (past, participle) in {**regular, **verbs.irregular}.items():
                written = (base, _third(base), _ing(base, self.doubling), past, participle)
                for form in dict.fromkeys(written):
                    lemmas[form] = lemmas.get(form, frozenset()) | {base}
                    new = VerbForm(base, strength, *(form == other for other in written))
                    known = forms.setdefault(form, new)
                    if known.strength == strength and known.lemma != base:
                        forms[form] = known._replace(
                            base=known.base or new.base,
                            past=known.past or new.past,
                            participle=known.participle or new.participle,
                        )
        return forms, lemmas

    @property
    def forms(self) -> Mapping[str, VerbForm]:
        """Written forms of all verbs."""
        return self._conjugated[0]

    @property
    def lemmas(self) -> Mapping[str, frozenset[str]]:
        """Every verb that a written form may belong to."""
        return self._conjugated[1]


class Lexicon(_Table):
    """Everything that the checks read: one table per file."""

    limits: Limits
    grammar: Grammar
    verbs: Verbs
    defensive: Defensive
    validation: Validation
    meta: Meta
    forbidden: Forbidden
    boundary: Boundary


@cache
def load_lexicon() -> Lexicon:
    """Return the shipped words, phrases and limits.

    Raises:
        DataError: A file is damaged; the message names file and key.
    """
    folder = data_root() / "tempaffect"
    paths = {name: folder / "lexicons" / f"{name}.toml" for name in Lexicon.model_fields if name != "limits"}
    tables: dict[str, Any] = {name: read_toml(path) for name, path in paths.items()}
    try:
        lexicon = Lexicon.model_validate({"limits": read_toml(folder / "params.toml"), **tables})
    except ValidationError as error:
        raise DataError(f"{folder}: {first_fault(error)}") from None
    number, most = len(lexicon.forbidden.phrases), lexicon.limits.phrases.global_limit
    if number > most:
        raise DataError(f"{paths['forbidden']}: {number} phrases, expected at most {most}; remove some")
    return lexicon


def _third(base: str) -> str:
    if base.endswith(("s", "x", "z", "ch", "sh", "o")):
        return base + "es"
    return base[:-1] + "ies" if _ends_in_consonant_y(base) else base + "s"


def _past(base: str, doubling: frozenset[str]) -> str:
    if base in doubling:
        return base + base[-1] + "ed"
    if base.endswith("e"):
        return base + "d"
    return base[:-1] + "ied" if _ends_in_consonant_y(base) else base + "ed"


def _ing(base: str, doubling: frozenset[str]) -> str:
    if base in doubling:
        return base + base[-1] + "ing"
    if base.endswith("ie"):
        return base[:-2] + "ying"
    if base.endswith("e") and not base.endswith(("ee", "oe", "ye")):
        return base[:-1] + "ing"
    return base + "ing"


def _ends_in_consonant_y(base: str) -> bool:
    return base.endswith("y") and base[-2] not in "aeiou"
