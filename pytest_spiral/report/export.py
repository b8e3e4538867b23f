"""A report in the formats of other programs: tables, JUnit XML, Hugging Face model cards, Inspect logs, public results.

Cells of CSV files that a spreadsheet would run as a formula are made text; nothing else is changed.
"""

from __future__ import annotations

import csv
import importlib
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from pytest_spiral.errors import ConfigError
from pytest_spiral.report.inspect_log import inspect_logs
from pytest_spiral.report.junit import gates_xml
from pytest_spiral.report.lines import plain
from pytest_spiral.report.model import ConversationRecord, Report
from pytest_spiral.report.write import write_page
from pytest_spiral.resources import data_root, read_toml
from pytest_spiral.spiral.upstream import upstream_json
from pytest_spiral.status import Reason, Status

Cell = str | float | None
_Row = tuple[Cell, ...]

TABLES: Mapping[str, Mapping[str, str]] = read_toml(data_root() / "export_tables.toml")
"""Tables with their columns and the types of these in Parquet."""
# A spreadsheet takes a cell that starts with one of these for a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
# A metric's name, value and 95 % interval.
_Metric = tuple[str, float | None, float | None, float | None]


def tables(report: Report) -> dict[str, list[_Row]]:
    """The long tables of a report by name, with columns as in `TABLES`."""
    makers = (_metrics, _measurements, _messages, _findings, _gates, _usage)
    return {name: [(report.run.id, *row) for row in make(report)] for name, make in zip(TABLES, makers, strict=True)}


def _metrics(report: Report) -> Iterator[_Row]:
    for card in report.tempaffect.cards:
        for path, interval in card.intervals.items():
            bounds = (interval.low, interval.high, interval.method)
            yield "tempaffect", card.model, card.prompting_mode, path, card.value(path), *bounds
    for score in report.spiral.scores:
        key = ("spiral", score.model, score.protocol)
        for name, number in score.leading.items():
            yield *key, name, number.value, number.ci_low, number.ci_high, f"{_interval(name)} for any distribution"
        yield *key, "score", score.score, score.ci_low, score.ci_high, score.ci_method
        for name, metric in score.metrics.items():
            yield *key, name, metric.mean, metric.ci_low, metric.ci_high, score.ci_method


def _measurements(report: Report) -> Iterator[_Row]:
    for item in report.tempaffect.items:
        key = ("tempaffect", item.model, item.prompting_mode, item.id, item.family, item.epoch)
        state = (item.status, *_reason(item.reason))
        yield *key, *state, "score", item.score
        if item.useful_bounded is not None:
            yield *key, *state, "useful_bounded", float(item.useful_bounded)
        for metric, points in item.points.items():
            yield *key, *state, f"points.{metric}", points
    protocols = {score.model: score.protocol for score in report.spiral.scores}
    for conversation in report.spiral.conversations:
        place = (conversation.id, conversation.category, conversation.index)
        state = (conversation.status, *_reason(conversation.reason))
        for metric, value in _measured(conversation):
            yield "spiral", conversation.model, protocols.get(conversation.model), *place, *state, metric, value


def _measured(conversation: ConversationRecord) -> Iterator[tuple[str, float | None]]:
    is_measured = conversation.status is Status.MEASURED
    judged = {*conversation.behaviours, *(name for row in conversation.judgements for name in row.behaviours)}
    if not is_measured or not judged:
        yield "findings", len(conversation.findings) if is_measured else None
    for name in sorted(judged) if is_measured else ():
        yield f"strength.{name}", sum(one.strength for one in conversation.findings if one.behaviour == name)
    for metric, value in (conversation.final_judgement or {}).items():
        yield f"final.{metric}", value


def _reason(reason: Reason | None) -> tuple[str | None, str | None]:
    return (None, None) if reason is None else (reason.code, reason.detail)


def _messages(report: Report) -> Iterator[_Row]:
    for row in report.spiral.conversations:
        for index, message in enumerate(row.transcript):
            yield row.model, row.id, row.category, index, message.role, message.content


def _findings(report: Report) -> Iterator[_Row]:
    for row in report.spiral.conversations:
        for f in row.findings:
            yield row.model, row.id, row.category, f.turn, f.behaviour, f.strength, f.judge, f.evidence, f.quote


def _gates(report: Report) -> Iterator[_Row]:
    for gate in report.gates:
        numbers = (gate.value, gate.ci_low, gate.ci_high, gate.threshold)
        yield gate.expr, gate.model, gate.prompting_mode, gate.metric, *numbers, gate.policy, gate.outcome


def _usage(report: Report) -> Iterator[_Row]:
    _, _, *names = TABLES["usage"]
    for role, row in report.usage.by_role.items():
        yield role, *(getattr(row, name) for name in names)


def neutral(cell: Cell) -> Cell:
    """A cell that no spreadsheet runs: text that begins like a formula gets an apostrophe in front.

    >>> neutral("=1+1"), neutral("-0.5"), neutral(-0.5)
    ("'=1+1", "'-0.5", -0.5)
    """
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip(" ").startswith(_FORMULA) else cell


def _csv(columns: Iterable[str], rows: Iterable[_Row]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows([columns, *(map(neutral, row) for row in rows)])
    return out.getvalue()


def _write_parquet(report: Report, folder: Path) -> list[Path]:
    try:
        arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    except ImportError:
        raise ConfigError(
            "Parquet needs pyarrow, which is not installed; run `pip install 'pytest-spiral[parquet]'`"
        ) from None
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, rows in tables(report).items():
        columns = TABLES[name]
        schema = arrow.schema([(column, arrow.type_for_alias(kind)) for column, kind in columns.items()])
        data = [dict(zip(columns, row, strict=True)) for row in rows]
        paths.append(folder / f"{name}.parquet")
        parquet.write_table(arrow.Table.from_pylist(data, schema=schema), paths[-1])
    return paths


def model_card(report: Report, model: str) -> str:
    """The snippet for one model on the Hugging Face hub: `model-index` metadata and the same as prose.

    Scores that may not be published are named without numbers. Raises `ConfigError` for a model not in the report.
    """
    if not (results := list(_results(report, model))):
        raise ConfigError(f"{model}: no such model in this report")
    judges = sorted({plain(one.spec) for one in report.run.config.models if one.role in ("judge", "user")})
    by = f"; judges and simulated user: {', '.join(judges)}" if judges else ""
    version, run = report.run.versions["pytest-spiral"], plain(report.run.id)
    lines = [f"Evaluated with pytest-spiral {version}, run {run}; verdict of its gates: {report.verdict}{by}."]
    entries = []
    for dataset, blockers, metrics in results:
        if blockers:
            lines.append(f"- {dataset}: not publishable ({plain('; '.join(blockers))})")
            continue
        rows = [
            {"type": name, "value": value, "name": f"{_interval(name)} {low:.3f} to {high:.3f}"}
            for name, value, low, high in metrics
            if value is not None and low is not None and high is not None
        ]
        lines += [f"- {dataset}, {row['type']}: {row['value']:.3f} ({row['name']})" for row in rows]
        about = {"task": {"type": "text-generation"}, "dataset": {"name": dataset, "type": "pytest-spiral"}}
        entries.append({**about, "metrics": rows})
    # JSON is YAML, and needs no quoting of what a model may be called.
    index = json.dumps([{"name": model, "results": entries}], ensure_ascii=True)
    return (f"---\nmodel-index: {index}\n---\n" if entries else "") + "\n".join(lines) + "\n"


def _results(report: Report, model: str) -> Iterator[tuple[str, Sequence[str], Sequence[_Metric]]]:
    """Every card and score of a model: name, why it may not be published, metrics."""
    for card in report.tempaffect.cards:
        if card.model == model:
            metrics = [(path, *card.bounded(path)) for path in ("score", "useful_bounded_response_rate")]
            yield f"TempAffect 1 ({card.prompting_mode})", card.integrity.publication_blockers, metrics
    for score in report.spiral.scores:
        if score.model == model:
            turns = ", ".join(map(str, score.turns))
            about = f"{score.protocol}, {score.n_conversations} conversations of {turns} turns"
            leading = [(name, number.value, number.ci_low, number.ci_high) for name, number in score.leading.items()]
            # The composite lets good pay for harm: it is quoted only where nothing better leads the score.
            metrics = leading or [("score", score.score, score.ci_low, score.ci_high)]
            yield f"Spiral-Bench ({about})", score.blockers, metrics


def _interval(name: str) -> str:
    return "one-sided 95 % bounds" if name == "worst" else "95 % interval"


def _upstream_file(report: Report) -> dict[str, str]:
    # Innocent twins and replies to prefixes are not part of upstream's benchmark, whose own scoring would count them.
    if not (conversations := [one for one in report.spiral.recorded() if not (one.twin_of or one.beginning)]):
        raise ConfigError(f"run {plain(report.run.id)}: no conversation to write in the public Spiral-Bench format")
    text = json.dumps(upstream_json(conversations, run_id=report.run.id), allow_nan=False)
    return {"spiral_results.json": text + "\n"}


_TEXTS: Mapping[str, Callable[[Report], Mapping[str, str]]] = {
    "csv": lambda report: {f"{name}.csv": _csv(TABLES[name], rows) for name, rows in tables(report).items()},
    "junit": lambda report: {"gates.xml": gates_xml(report)},
    "model-card": lambda report: {
        f"model-card-{number}.md": model_card(report, model) for number, model in enumerate(report.models, start=1)
    },
    "inspect": lambda report: {name: json.dumps(log, indent=1) + "\n" for name, log in inspect_logs(report).items()},
    "upstream": _upstream_file,
}
FORMATS = (*_TEXTS, "parquet")


def export(report: Report, name: str, folder: Path) -> list[Path]:
    """Write a report in one of `FORMATS` into a directory; the files written.

    Raises:
        ConfigError: The format needs a package that is not installed, or conversations that the run has none of.
        StoreError: A file could not be written.
    """
    if name == "parquet":
        return _write_parquet(report, folder)
    texts = _TEXTS[name](report)
    for file, text in texts.items():
        write_page(folder / file, text)
    return [folder / file for file in texts]
