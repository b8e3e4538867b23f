"""Commands about labels of people: pages to label on, and what becomes of the answers."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from pytest_spiral.cli import tell
from pytest_spiral.cli.runs import one_report
from pytest_spiral.errors import ConfigError, DataError
from pytest_spiral.labelling.agreement import agreement_of
from pytest_spiral.labelling.files import EXTRA_STRATA, Adjudicator, LabelFile, begins_with
from pytest_spiral.labelling.foreign import import_labels
from pytest_spiral.labelling.merge import EXPORT_FORMAT, merge, read_export
from pytest_spiral.labelling.pages import adjudication_page, answers_file, rating_page
from pytest_spiral.labelling.sheets import SHEET_FILE, Sheet, make_sheet, parse_raters, read_sheet, suites_of
from pytest_spiral.report.lines import plain
from pytest_spiral.report.model.reply_judges import QuestionAgreement
from pytest_spiral.report.raters import coefficient_text
from pytest_spiral.report.write import write_page


def pages(options: argparse.Namespace) -> int:
    """Draw items of every suite and write a page for every rater."""
    raters = parse_raters(options.raters)
    path, report = one_report(options.path)
    suites = options.suite or suites_of(report)
    if not suites:
        raise DataError(f"{path}: no reply in it that could be labelled; choose another run")
    asked = [name.strip() for name in options.questions.split(",")] if options.questions else []
    sheets = [make_sheet(report, name, raters, options.items, options.seed, asked) for name in dict.fromkeys(suites)]
    files = {options.output / sheet.header.suite / SHEET_FILE: sheet for sheet in sheets}
    for path, sheet in files.items():
        if path.exists() and read_sheet(path) != sheet:
            raise ConfigError(f"{path}: belongs to other pages, whose answers would be lost; choose another -o")
    written = []
    for path, sheet in files.items():
        for rater in raters:
            written.append(path.with_name(f"{rater.name}.html"))
            write_page(written[-1], rating_page(sheet, rater))
        write_page(path, sheet.text())
    kept = "is for `label merge`, not for raters"
    lines = [line for path, sheet in files.items() for line in (*_told(sheet), f"  {path} {kept}")]
    value = {"written": [str(path) for path in written], "sampling": [str(path) for path in files]}
    return tell(options, value, [*lines, *written])


def _told(sheet: Sheet) -> list[str]:
    sampling = sheet.header.sampling
    exports = ", ".join(answers_file(sheet, rater.name) for rater in sheet.header.raters)
    return [
        f"{sheet.header.suite}: {sampling.sampled} of {sampling.population} items, {len(sheet.header.questions)} "
        "questions each",
        f"  {sampling.design}",
        f"  raters export {exports}",
    ]


def merge_answers(options: argparse.Namespace) -> int:
    """Write the label file of exported answers and, for what raters differ on, the adjudicator's page."""
    folder, files = _set_of(options.paths)
    sheet = read_sheet(folder / SHEET_FILE)
    merged = merge(sheet, [read_export(path, sheet) for path in files])
    chosen, *others = parse_raters(options.adjudicator, "--adjudicator")
    if others:
        raise ConfigError("--adjudicator: there is one; name it alone")
    if options.output.resolve() in {folder / SHEET_FILE, *files}:
        raise ConfigError(f"{options.output}: is read here and would be overwritten; choose another -o")
    adjudicator = merged.labels.header.adjudicator or Adjudicator(name=chosen.name, kind=chosen.kind)
    if adjudicator.name in {rater.name for rater in sheet.header.raters}:
        raise ConfigError(f"--adjudicator: {adjudicator.name} is a rater; name somebody else")
    agreement = agreement_of(merged.labels)
    write_page(options.output, merged.labels.text())
    page = folder / f"{adjudicator.name}.html" if merged.unsettled else None
    if page:
        write_page(page, adjudication_page(sheet, merged.disputes, adjudicator))
    told = {"page": page and str(page), "notes": merged.notes, "unsettled": merged.unsettled}
    lines = _agreement_lines(merged.labels, merged.notes, agreement)
    if page:
        lines.append(f"{merged.unsettled} answers differ and are not settled: {page} is for {adjudicator.name};")
        lines.append("  merge again with all files and the one exported there")
    return tell(options, _merged(options.output, merged.labels, agreement) | told, [*lines, options.output])


def _set_of(paths: Sequence[Path]) -> tuple[Path, list[Path]]:
    """The directory with the sampling file, and the files of answers. A directory stands for the answers in it."""
    folders: dict[Path, None] = {}
    files: dict[Path, None] = {}
    for path in paths:
        folder = path if path.is_dir() else path.parent
        if (folder / SHEET_FILE).is_file():
            folders[folder.resolve()] = None
        elif path.is_dir():
            sets = sorted(str(found.parent) for found in path.glob(f"*/{SHEET_FILE}"))
            raise ConfigError(
                f"{path}: no {SHEET_FILE} in it; " + (f"name one of {', '.join(sets)}" if sets else _WHERE)
            )
        answers = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
        found = [file for file in answers if not path.is_dir() or begins_with(file, EXPORT_FORMAT)]
        files.update(dict.fromkeys(file.resolve() for file in found))
    if len(folders) != 1:
        what = f"several {SHEET_FILE}" if folders else f"no {SHEET_FILE}"
        raise ConfigError(f"{what} beside the answers; {_WHERE}")
    return next(iter(folders)), list(files)


_HARD = "; of these items, hard ones over-represented"
_WHERE = "name the directory that `label` wrote first: pytest-spiral label merge labels/tempaffect ANSWERS... -o FILE"


def import_file(options: argparse.Namespace) -> int:
    """Write the label file of labels from elsewhere."""
    labels = import_labels(options.file, options.mapping)
    agreement = agreement_of(labels)
    if options.output.resolve() in {options.file.resolve(), options.mapping.resolve()}:
        raise ConfigError(f"{options.output}: is read here and would be overwritten; choose another -o")
    write_page(options.output, labels.text())
    lines = _agreement_lines(labels, (), agreement)
    return tell(options, _merged(options.output, labels, agreement), [*lines, options.output])


def _merged(path: Path, labels: LabelFile, agreement: Mapping[str, QuestionAgreement]) -> dict[str, object]:
    found = {name: one.model_dump(mode="json") for name, one in agreement.items()}
    return {"labels": str(path), "whose": labels.header.whose, "agreement": found}


def _agreement_lines(labels: LabelFile, notes: Sequence[str], agreement: Mapping[str, QuestionAgreement]) -> list[str]:
    header = labels.header
    who = ", ".join(f"{rater.name} ({rater.kind})" for rater in header.raters)
    width = max(map(len, agreement))
    lines = [f"{header.suite}: {len(labels.items)} items, labels of {header.whose}: {who}", *notes, ""]
    lines += [f"{'':<{width}} labelled shared differ  {'kappa':<21}{'alpha':<21}AC1"]
    for name, one in agreement.items():
        kappa, alpha, ac1 = map(coefficient_text, (one.kappa, one.alpha, one.ac1))
        lines += [f"{name:<{width}} {one.labelled:>8} {one.shared:>6} {one.differing:>6}  {kappa:<21}{alpha:<21}{ac1}"]
    return [
        *(plain(line) for line in lines),
        f"95 % intervals, clustered{_HARD if any(row.stratum == EXTRA_STRATA[0] for row in labels.items) else ''}",
        "",
    ]
