"""Text for a terminal: at most 80 columns, and without characters that a terminal would act on."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # workers use `plain`, and nothing else of the report
    from pytest_spiral.report.model.comparison import ItemChanges
    from pytest_spiral.report.model.floor import Floor
    from pytest_spiral.report.model.judges import LabelledBy
    from pytest_spiral.report.model.prefix import PrefixNumber, PrefixScore
    from pytest_spiral.report.model.spiral import Headline, HeadlineNumber, SchemeScore, WeightStability
    from pytest_spiral.report.model.tempaffect import ScorerRange

WIDTH = 80
Tone = Literal["plain", "good", "bad", "doubt", "dim"]
Line = tuple[str, Tone]

_SENTENCE_END = re.compile(r"[.!?][\"')\u201d\u2019]*(?=\s)")
_BREAKS = "\t\n\r\u2028\u2029"
CARD_METRICS = (
    ("useful and bounded", "useful_bounded_response_rate"),
    ("right decision", "right_decision"),
    ("without near-duplicates", "ubr_rate_deduped"),
    ("score (of 13 points)", "score"),
    ("skill over majority", "skill"),
    ("valid output", "valid_output_rate"),
    ("pressured: boundary held", "families.pressured_integrity.boundary_held"),
    ("label against reply", "label_reply_mismatch"),
)
"""The headline metrics of a card, as every table of cards shows them: label and path."""


def plain(text: str) -> str:
    """`text` on one line, without control, format and surrogate characters."""
    return "".join(" " if c in _BREAKS else c for c in text if c in _BREAKS or unicodedata.category(c)[0] != "C")


def wrapped(text: str, tone: Tone) -> Iterator[Line]:
    """`text`, made plain, in lines of at most 80 columns, continuation lines indented by two more."""
    text = plain(text)
    indent = " " * (len(text) - len(text.lstrip()))
    hanging = f"{indent}  "
    for line in textwrap.wrap(text, WIDTH, subsequent_indent=hanging, break_on_hyphens=False):
        yield line, tone


def turns_text(turns: Collection[int]) -> str:
    """The lengths of conversations in turns.

    >>> turns_text([3]), turns_text([18, 20]), turns_text([])
    ('3 turns', '18 to 20 turns', 'no turns')
    """
    if not turns:
        return "no turns"
    least, most = min(turns), max(turns)
    return f"{most} turn{'s' * (most != 1)}" if least == most else f"{least} to {most} turns"


def worst_text(lead: Headline) -> str:
    """How many conversations hold the worst findings, and of how many where the report says so."""
    return f"{lead.worst_conversations}{'' if lead.worst_of is None else f' of {lead.worst_of}'}"


def scheme_text(scheme: SchemeScore) -> str:
    """The score under another protocol, with its sensitivity to length."""
    half, double = (between(value, None, None) for value in (scheme.at_half_length, scheme.at_double_length))
    value = between(scheme.score, scheme.ci_low, scheme.ci_high)
    return f"{scheme.name}: {value}; the same findings in replies half as long {half}, twice as long {double}"


def skill_text(skill: HeadlineNumber | None, floor: Floor | None) -> str:
    """How far a score is above what models that do nothing get, and where that is known from."""
    if floor is None:
        return "skill over a model that does nothing: not measured, see --floors"
    if skill is None or floor.value is None:
        return f"skill over a model that does nothing: none; {floor.refused or 'there is no score'}"
    highest = max(floor.stand_ins, key=lambda name: floor.stand_ins[name].score or 0.0)
    drift = "older than the judges' last drift check, which shows no change"
    source = f" in run {floor.run} of {floor.measured_at[:10]}, {drift}" if floor.reused else ""
    return f"skill over a model that does nothing: {number_text(skill)}; floor {floor.value:.2f} ({highest}{source})"


def weights_text(stability: WeightStability) -> str:
    """How stable scores are under other weights: of one model its range, of several the pair that is least stable."""
    how = f"weights changed by a factor of about {stability.factor:g}, {stability.draws} draws"
    if not stability.orders:
        only = stability.ranges[0]
        return f"{how}: score {between(only.low, None, None)} to {between(only.high, None, None)} in 95 %"
    least = min(stability.orders, key=lambda order: order.holds)
    pair = f"{least.above} above {least.below}"
    return f"{how}: every order of two models holds in {int(100 * least.holds)} % or more (least: {pair})"


def against(whose: LabelledBy) -> str:
    """Whose labels something was measured against.

    >>> against("people"), against("unknown")
    ('against people', 'against raters of whom the file does not say what they are')
    """
    instead = {"mixed": "people and model raters", "unknown": "raters of whom the file does not say what they are"}
    return f"against {instead.get(whose, whose)}"


def between(value: float | None, low: float | None, high: float | None, digits: int = 2) -> str:
    """A value with its interval, `not measured` where there is no value.

    >>> between(0.5, 0.25, 0.75), between(0.5, None, None), between(None, None, None)
    ('0.50 [0.25, 0.75]', '0.50', 'not measured')
    """
    if value is None:
        return "not measured"
    interval = "" if low is None or high is None else f" [{low:.{digits}f}, {high:.{digits}f}]"
    return f"{value:.{digits}f}{interval}"


def number_text(number: HeadlineNumber | PrefixNumber, digits: int = 2) -> str:
    """A number with its interval."""
    return between(number.value, number.ci_low, number.ci_high, digits)


def prefix_numbers(prefix: PrefixScore) -> list[tuple[str, PrefixNumber]]:
    """What leads the score of replies to prefixes: label and number."""
    whole = prefix.rows[0]
    numbers = [
        ("prefix balance (0-100)", whole.balance),
        ("prefix protection", whole.protection),
        ("prefix fitting", whole.fitting),
        ("over-correction (0-1)", whole.over_correction),
    ]
    for label, history in (("steadiness (after held)", "held"), ("recovery (after slid)", "slid")):
        if row := prefix.row("history", history):
            numbers.append((label, row.protection))
    return numbers


def balance_text(floor: Floor | None) -> str:
    """What the balance of models that do nothing is."""
    known = floor.stand_ins.items() if floor and not floor.refused else ()
    found = ", ".join(f"{name} {one.balance:.1f}" for name, one in known if one.balance is not None)
    return f"balance of models that do nothing: {found or 'at most 50; --floors measures it'}"


def prefix_text(prefix: PrefixScore, floor: Floor | None) -> str:
    """What leads the score of replies to prefixes, on one line."""
    numbers = (f"{label} {number_text(number, 1)}" for label, number in prefix_numbers(prefix))
    return "; ".join(filter(None, [*numbers, balance_text(floor), anchoring_text(prefix)]))


def anchoring_text(prefix: PrefixScore) -> str:
    """How far the history moves the judges; empty where that is not known."""
    if (found := prefix.anchoring) is None or found.risk.value is None or found.clear_acts.value is None:
        return ""
    moved = f"{found.risk.value:+.1f} risk and {found.clear_acts.value:+.1f} % replies with a clear protective act"
    return f"with the history in view, judges find {moved}, in {found.prefixes} prefixes"


def scorer_range_text(found: ScorerRange) -> str:
    """What the scorer's own errors make of the rate of useful and bounded replies."""
    ends = f"{found.low:.2f} and {found.high:.2f} over {found.writers} writers"
    return f"with the scorer's own errors, useful and bounded lies between {ends} (a sensitivity analysis)"


def changes_text(changes: ItemChanges) -> str:
    """In what, and how much, newly fails and passes."""
    what = f"{changes.n_failing} newly fail, {changes.n_passing} newly pass of {changes.n} that both runs have"
    return f"{changes.suite}{f' {changes.mode}' if changes.mode else ''}: {what}"


def cut(text: str, most: int) -> str:
    """The beginning of a text from outside, on one line."""
    return shortened(plain(text[: 2 * most]), most)


def shortened(text: str, most: int) -> str:
    """The text, or as many of its first sentences as `most` characters hold; of one that is longer, its first words.

    >>> shortened("I did it. I am sorry. Ask Ann.", 24), shortened("One long sentence", 10)
    ('I did it. I am sorry. …', 'One long …')
    """
    if len(text) <= most:
        return text
    ends = [match.end() for match in _SENTENCE_END.finditer(text[: most + 1])]
    # A first sentence of a few words would say less than half of the second.
    end = ends[-1] if ends and ends[-1] > most // 3 else text.rfind(" ", 0, most)
    return f"{text[: end if end > 0 else most].rstrip()} …"
