"""What the field trial shows, as Markdown: from recorded runs, a second judge's judgements and ratings of replies.

    python benchmarks/field_trial/tables.py [RECORDS] > tables.md

RECORDS (default: `records` beside this file) holds `trial.json`, which names the runs, a directory for each with its
`report.json`, and `ratings.jsonl` and `provenance.jsonl`.
Everything here is exploratory: the texts have been read, and rules may change because of them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any, Literal

from pytest_spiral.report.model import Report
from pytest_spiral.report.read import load_report
from pytest_spiral.spiral.content import load_rubric
from pytest_spiral.spiral.records import Conversation, Finding
from pytest_spiral.stats import Clusters, ClusterUnit, Tally, weighted_kappa, wilson
from pytest_spiral.status import Status
from pytest_spiral.tempaffect.records import Item

RECORDS = Path(__file__).with_name("records")
# Which question of the blind ratings asks for what a check of the scorer decides.
QUESTIONS = {"content_grounding": "about", "concrete_action": "step", "non_defensive": "fair", "useful_bounded": "send"}
# Turns that are shown together.
SPAN = 5
Rows = Sequence[Sequence[object]]
Pairs = dict[str, list[tuple[int, int]]]
"""What two judged of the same things, by independent unit."""


@dataclass(frozen=True)
class Trial:
    """The recorded runs.

    Attributes:
        replies: Runs of TempAffect by condition.
        conversations: Runs of Spiral-Bench by condition.
        second: The same conversations judged by another judge, by condition.
        ratings: A row for each rater and reply.
        provenance: A row for each request.
        ends: A row for each reader and conversation: whether its matter is alive in the last five turns.
        conditions: Condition by directory.
    """

    replies: Mapping[str, Report]
    conversations: Mapping[str, Report]
    second: Mapping[str, Report]
    ratings: Sequence[Mapping[str, Any]]
    provenance: Sequence[Mapping[str, Any]]
    ends: Sequence[Mapping[str, Any]]
    conditions: Mapping[str, str]

    @classmethod
    def read(cls, folder: Path) -> Trial:
        """The trial in a directory."""
        described = json.loads((folder / "trial.json").read_text(encoding="utf-8"))

        def reports(kind: str) -> dict[str, Report]:
            return {
                condition: load_report(folder / name / "report.json") for name, condition in described[kind].items()
            }

        conditions = {**described["replies"], **described["conversations"]}
        ratings, provenance, ends = (_lines(folder / f"{name}.jsonl") for name in ("ratings", "provenance", "ends"))
        return cls(
            reports("replies"), reports("conversations"), reports("second"), ratings, provenance, ends, conditions
        )


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def table(head: Sequence[str], rows: Rows) -> str:
    """A Markdown table; numbers with two decimals."""
    cells = [
        [f"{cell:.2f}" if isinstance(cell, float) else "" if cell is None else str(cell) for cell in row]
        for row in rows
    ]
    lines = [head, ["---"] * len(head), *cells]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in line) + " |" for line in lines
    )


def rate(hits: int, n: int) -> str:
    """A share with its 95 % interval."""
    interval = wilson(Tally(hits, n, "scenario"))
    return f"{hits}/{n} [{interval.low:.2f}, {interval.high:.2f}]"


def replies_by_condition(trial: Trial) -> str:
    """TempAffect: the cards side by side."""
    cards = {condition: report.tempaffect.cards[0] for condition, report in trial.replies.items()}
    rows: list[list[object]] = [
        ["useful and bounded", *(card.useful_bounded_response_rate for card in cards.values())],
        ["score (13 points)", *(card.score for card in cards.values())],
        ["valid output", *(card.valid_output_rate for card in cards.values())],
    ]
    first = next(iter(cards.values()))
    rows += [[name, *(card.reply_checks[name] for card in cards.values())] for name in first.reply_checks]
    rows += [[name, *(card.fields[name] for card in cards.values())] for name in first.fields]
    return table(["", *cards], rows)


def scores_by_condition(trial: Trial) -> str:
    """Spiral-Bench: score and means of the behaviours side by side."""
    scores = {condition: report.spiral.scores[0] for condition, report in trial.conversations.items()}
    rows: list[list[object]] = [
        ["score (0-100)", *(score.score for score in scores.values())],
        ["95 % interval", *(f"{score.ci_low:.1f} to {score.ci_high:.1f}" for score in scores.values())],
        ["conversations", *(score.n_conversations for score in scores.values())],
    ]
    names = next(iter(scores.values())).metrics
    rows += [[name, *(score.metrics[name].mean for score in scores.values())] for name in names]
    return table(["", *scores], rows)


def course(trial: Trial) -> str:
    """Sums of strengths per turn, protective and risky, over the course of the conversations."""
    signs = {name: behaviour["sign"] for name, behaviour in load_rubric().behaviours.items()}
    rows: list[list[object]] = []
    for condition, report in trial.conversations.items():
        held = [one for one in report.spiral.recorded() if one.transcript]
        for sign in ("protective", "risky"):
            spans: dict[int, list[int]] = defaultdict(list)
            for one in held:
                by_turn = Counter[int]()
                for finding in _located(one):
                    by_turn[finding.turn] += finding.strength * (signs.get(finding.behaviour) == sign)
                for turn in range(len(one.replies)):
                    spans[turn // SPAN].append(by_turn[turn])
            rows.append([condition, sign, *(fmean(values) for _, values in sorted(spans.items()))])
    longest = max(len(row) for row in rows) - 2
    return table(["condition", "", *(f"turns {n * SPAN + 1}-{(n + 1) * SPAN}" for n in range(longest))], rows)


def _located(conversation: Conversation) -> Iterator[Finding]:
    return (finding for finding in conversation.findings if finding.evidence != "unlocated")


def last_turns(trial: Trial) -> str:
    """Whether what the user brought is alive in the last five turns, and how sure the user is, as readers see it."""
    by_conversation: dict[tuple[str, str], list[Mapping[str, Any]]] = defaultdict(list)
    for row in trial.ends:
        by_conversation[trial.conditions[row["record"]], row["prompt_id"]].append(row)
    rows = [
        [*key, ", ".join(row["alive"] for row in read), ", ".join(str(row["held"]) for row in read), read[0]["quote"]]
        for key, read in sorted(by_conversation.items())
    ]
    head = ["condition", "opening", "alive (each reader)", "how sure, 0 to 4", "words of the user that show it"]
    return table(head, rows)


def simulated_user(trial: Trial) -> str:
    """Which rules of its persona the simulated user broke."""
    rows = []
    for condition, report in trial.conversations.items():
        health = report.spiral.scores[0].simulator_health
        assert health is not None, condition
        rules = ", ".join(f"{rule} {count}" for rule, count in sorted(health.rules.items())) or "none"
        rows.append([condition, health.messages, health.flagged, rules, health.collapsed, health.median_chars])
    return table(["condition", "messages", "with a flag", "flags", "simulations given up", "median characters"], rows)


def judges(trial: Trial) -> str:
    """How far two judges agree on the same replies: where they report a behaviour, and how strong."""
    pairs: dict[str, Pairs] = defaultdict(lambda: defaultdict(list))
    for condition, report in trial.second.items():
        ours = {one.id: _strengths(one) for one in trial.conversations[condition].spiral.recorded()}
        for one in report.spiral.recorded():
            for key, strength in _strengths(one).items():
                pairs[key[1]][f"{condition} {one.id}"].append((ours[one.id][key], strength))
    rows = []
    for behaviour, found in pairs.items():
        present = {unit: [(int(a > 0), int(b > 0)) for a, b in values] for unit, values in found.items()}
        counts = Counter(pair for values in present.values() for pair in values)
        kappas = [_kappa("conversation", present, "none"), _kappa("conversation", found, "quadratic")]
        rows.append([behaviour, counts.total(), counts[1, 1], counts[1, 0], counts[0, 1], *kappas])
    return table(["behaviour", "replies", "both", "first only", "second only", "kappa", "weighted kappa"], rows)


def _strengths(conversation: Conversation) -> dict[tuple[int, str], int]:
    """The greatest strength of each behaviour in each judged reply."""
    strengths: dict[tuple[int, str], int] = {}
    for judgement in conversation.judgements:
        if judgement.status is Status.MEASURED:
            strengths |= {(turn, name): 0 for turn in judgement.turns for name in judgement.behaviours}
    for finding in _located(conversation):
        key = finding.turn, finding.behaviour
        strengths[key] = max(strengths.get(key, 0), finding.strength)
    return strengths


def _kappa(unit: ClusterUnit, pairs: Pairs, weights: Literal["quadratic", "none"]) -> float | None:
    return weighted_kappa(Clusters(unit, tuple(pairs), tuple(pairs.values())), weights)


def requests(trial: Trial) -> str:
    """Who was asked how often; a request above the expected number was asked again."""
    counts = Counter((row["record"], row["model"], row["player"]) for row in trial.provenance)
    return table(
        ["run", "model", "player", "requests"], [[*key, count] for key, count in sorted(counts.items(), key=str)]
    )


def suspicions(trial: Trial) -> str:
    """Passages that the filter takes for an address to the judge."""
    rows = [
        [
            condition,
            one.id,
            passage.turn,
            passage.kind,
            one.transcript[2 * passage.turn + 1].content[passage.start : passage.end],
        ]
        for condition, report in trial.conversations.items()
        for one in report.spiral.conversations
        for passage in one.suspicions
    ]
    return table(["condition", "conversation", "turn", "kind", "passage"], rows) if rows else "None."


def raters_and_scorer(trial: Trial) -> str:
    """The scorer's checks against the majority of the raters, and the raters against each other."""
    items, votes = _items(trial), _votes(trial)
    rows = []
    for check, question in QUESTIONS.items():
        decided = {key: majority for key in votes if (majority := _majority(votes[key], question)) is not None}
        ours = {key: _decision(items[key], check) for key in decided}
        bad, good = [key for key in decided if not decided[key]], [key for key in decided if decided[key]]
        with_majority: Pairs = defaultdict(list)
        for key, majority in decided.items():
            with_majority[key[1]].append((int(majority), int(ours[key])))
        between: Pairs = defaultdict(list)
        for (_, scenario), by_rater in votes.items():
            given = [int(row[question] == "y") for _, row in sorted(by_rater.items()) if row[question] != "?"]
            between[scenario] += combinations(given, 2)
        passed, failed = sum(ours[key] for key in bad), sum(not ours[key] for key in good)
        kappas = [_kappa("scenario", pairs, "none") for pairs in (with_majority, between)]
        rows.append([check, question, rate(passed, len(bad)), rate(failed, len(good)), *kappas])
    return table(
        ["check", "question", "bad passed", "good failed", "kappa with majority", "kappa between raters"], rows
    )


def differences(trial: Trial) -> str:
    """Every reply on whose sending the scorer and the raters' majority differ."""
    items, votes = _items(trial), _votes(trial)
    rows = []
    for key, by_rater in sorted(votes.items()):
        item, majority = items[key], _majority(by_rater, "send")
        if majority is None or majority == bool(item.useful_bounded):
            continue
        failed = [f"{name}: {reason}" for name, reason in _failed(item)]
        why = " / ".join(row["why"] for row in by_rater.values() if row["why"])
        verdict = "fails" if majority else "passes"
        rows.append([*key, verdict, "<br>".join(failed) if majority else why, item.answer.reply if item.answer else ""])
    return table(["condition", "scenario", "the scorer", "why", "reply"], rows)


def _failed(item: Item) -> Iterator[tuple[str, str]]:
    """Checks that a reply fails, with the scorer's reasons."""
    for name in (*QUESTIONS, "boundary"):
        if item.checks and name in item.checks.reasons and not getattr(item.checks, name, False):
            yield name, "; ".join(item.checks.reasons[name])


def _items(trial: Trial) -> dict[tuple[str, str], Item]:
    return {(name, item.id): item for name, report in trial.replies.items() for item in report.tempaffect.items}


def _votes(trial: Trial) -> dict[tuple[str, str], dict[str, Mapping[str, Any]]]:
    votes: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = defaultdict(dict)
    for row in trial.ratings:
        votes[trial.conditions[row["record"]], row["id"]][row["rater"]] = row
    return votes


def _majority(by_rater: Mapping[str, Mapping[str, Any]], question: str) -> bool | None:
    """What most raters say; None for a tie."""
    answers = Counter(row[question] for row in by_rater.values())
    return None if answers["y"] == answers["n"] else answers["y"] > answers["n"]


def _decision(item: Item, check: str) -> bool:
    return bool(item.useful_bounded if check == "useful_bounded" else item.checks and getattr(item.checks, check))


HEAD = """# Field trial: tables

Written by `python benchmarks/field_trial/tables.py` from the records beside it. How they were made, what they show and
what not: [Field trial, part one](field-trial.md). All players, judges and raters are language models.
"""
SECTIONS = {
    "TempAffect, by condition": replies_by_condition,
    "Scorer and raters": raters_and_scorer,
    "Replies on which scorer and raters differ": differences,
    "Spiral-Bench, by condition": scores_by_condition,
    "Course over the turns (sum of strengths per turn)": course,
    "The matter in the last five turns": last_turns,
    "Simulated user": simulated_user,
    "Two judges": judges,
    "Suspicious passages": suspicions,
    "Players": requests,
}


def document(trial: Trial) -> str:
    """The page with all tables."""
    sections = (f"## {title}\n\n{section(trial)}\n" for title, section in SECTIONS.items())
    return "\n".join([HEAD, *sections])


def main() -> None:
    """Print the page."""
    sys.stdout.write(document(Trial.read(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDS)))


if __name__ == "__main__":
    main()
