"""Comparing two runs: what is refused, what is paired, what differs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_spiral.cli import main
from pytest_spiral.compare.changes import changed_conversations
from pytest_spiral.compare.recording import Recording, check_comparable, counterpart
from pytest_spiral.compare.runs import compare_conversations, compare_paths, compare_runs
from pytest_spiral.errors import DataError
from pytest_spiral.report.comparison import comparison_lines
from pytest_spiral.report.model.comparison import MetricDifference, RunComparison, RunName
from pytest_spiral.spiral import Conversation, dump_upstream, load_protocol
from pytest_spiral.status import Reason, ReasonCode, Status
from tests.fakes.bootstrap import few_draws
from tests.fakes.published import ENSEMBLE, SCORED, numbers_of
from tests.html.reports import BAD, demo_document, typed
from tests.spiral.builders import bench, finding

UPSTREAM = os.environ.get("SPIRAL_UPSTREAM_DIR", "")
needs_upstream = pytest.mark.skipif(not UPSTREAM, reason="needs SPIRAL_UPSTREAM_DIR")
PROTOCOL = load_protocol("per-chunk")


def test_every_differing_field_is_named() -> None:
    """All of them at once, shortened where they are hashes; what one side does not record is returned."""
    first = {"protocol_hash": "a" * 64, "judges": "x", "user_model": "u", "rubric_hash": None}
    second = {"protocol_hash": "b" * 64, "judges": "y", "user_model": "u", "rubric_hash": "c" * 64}

    with pytest.raises(
        DataError, match=r"differ in spiral.judges \(x and y\), spiral.protocol_hash \(aaaaaaaaaaaa and"
    ):
        check_comparable("spiral", first, second, ("old", "new"))
    assert check_comparable("spiral", {**second, "rubric_hash": None}, second, ("old", "new")) == ["spiral.rubric_hash"]


def test_the_counterpart_is_the_namesake_or_the_only_one() -> None:
    """Several without the name are refused with a list."""

    def run(*models: str) -> Recording:
        talks = tuple(replace(conversation, model=model) for model in models for conversation in bench(prompts=1))
        return Recording("path", Path("path"), "", talks)

    assert counterpart("m", run("m", "n"), "spiral") == "m"
    assert counterpart("m", run("n"), "spiral") == "n"
    with pytest.raises(DataError, match="none of its models is m; it has n, o"):
        counterpart("m", run("n", "o"), "spiral")
    with pytest.raises(DataError, match="no measurements of spiral"):
        counterpart("m", run(), "spiral")


def test_other_openings_under_the_same_id_are_refused() -> None:
    """Equal names do not make equal prompts."""
    conversations = bench(prompts=4)
    one, other = (
        [replace(conversation, prompts=(text,)) for conversation in conversations] for text in ("hello", "hallo")
    )

    with pytest.raises(DataError, match="different openings under the same prompt id: p0, p1"):
        compare_conversations(("a", "b"), (one, other), PROTOCOL, 1)
    with pytest.raises(DataError, match="no measured prompt in common"):
        compare_conversations(("a", "b"), (conversations[:1], conversations[1:]), PROTOCOL, 1)


def test_a_run_does_not_differ_from_itself() -> None:
    """All differences are 0 and inside their intervals."""
    conversations = bench(lambda n: [finding(strength=1 + n % 3)])

    result = compare_conversations(("a", "a"), (conversations, conversations), PROTOCOL, 1)

    assert {row.difference for row in result.metrics.values()} == {0}
    assert not any(row.differs for row in result.metrics.values())


def test_where_nothing_was_measured_no_interval_is_spoken_of() -> None:
    """And a small difference stands apart from the value before it."""
    held = bench(lambda n: [finding(strength=1 + n % 3)])
    row = compare_conversations(("a", "a"), (held, held), PROTOCOL, 1)
    small = {"risk": row.metrics["harmful_advice"].model_copy(update={"candidate": 0.175, "difference": 0.00784})}
    name = RunName(path="r", run="r")

    def text(metrics: Mapping[str, MetricDifference]) -> str:
        rows = (row.model_copy(update={"metrics": metrics}),)
        made = RunComparison(baseline=name, candidate=name, protocol="p", notes=(), comparisons=rows, side_by_side=())
        return "\n".join(comparison_lines(made))

    assert "no metric was measured in both" in text({})
    assert "no interval" not in text({})
    assert "0.175 +0.00784" in text(small)


def test_differences_are_candidate_minus_baseline() -> None:
    """A candidate with more findings has a positive difference; exchanging the runs mirrors it."""
    mild, severe = bench(lambda n: [finding(strength=1 + n % 2)]), bench(lambda n: [finding(strength=2 + n % 2)])

    there = compare_conversations(("a", "b"), (mild, severe), PROTOCOL, 1).metrics["harmful_advice"]
    back = compare_conversations(("b", "a"), (severe, mild), PROTOCOL, 1).metrics["harmful_advice"]

    assert there.difference == pytest.approx(there.candidate - there.baseline)
    assert there.difference > 0
    assert back.difference == pytest.approx(-there.difference)


@needs_upstream
def test_the_published_files_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    """The two public models differ in most metrics, not in all."""
    files = [str(Path(UPSTREAM) / name) for name in ("llama-4-maverick.json", "kimi-k2.json")]

    with few_draws():
        assert main(["compare", *files, "--protocol", "upstream-per-chunk", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    (row,) = result["comparisons"]
    assert row["paired"] == 30
    assert (row["baseline"], row["candidate"]) == ("meta-llama/llama-4-maverick", "moonshotai/kimi-k2")
    assert row["metrics"]["score"]["difference"] == pytest.approx(72.984 - 48.064, abs=0.01)
    assert {"score", "pushback", "sycophancy_or_praise"} <= {n for n, m in row["metrics"].items() if m["differs"]}
    assert not row["metrics"]["tails.any_harm"]["differs"]
    assert "spiral.judges" in " ".join(result["notes"])


@pytest.mark.parametrize("form", [[], ["--markdown"], ["--json"]])
def test_unequal_conversations_are_shown_side_by_side(capsys: pytest.CaptureFixture[str], form: list[str]) -> None:
    """Files of both versions: what each scored under the protocol that fits it, the reason, and no difference."""
    files = [str(numbers_of(name)) for name in (SCORED[0], ENSEMBLE)]
    with few_draws():
        assert main(["compare", *files, *form]) == 1
    out = " ".join(capsys.readouterr().out.replace("\\", "").split())

    assert "not compared, for they differ in spiral.num_turns (20 and 3)" in out
    if form == ["--json"]:
        result = json.loads(out)
        assert result["comparisons"] == []
        assert [(row["side"], row["protocol"], row["turns"], row["score"]) for row in result["side_by_side"]] == [
            ("baseline", "per-10k-chars", {"20": 30}, pytest.approx(72.65, abs=0.01)),
            ("candidate", "upstream-v1.2", {"3": 30}, 38.7),
        ]
    else:
        assert "google/gemini-3-pro-preview, 3 turns, protocol upstream-v1.2: score 38.7" in out
        assert "diff." not in out


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda item: replace(item, prompts=("another opening",)), "different openings under the same prompt id"),
        (lambda item: replace(item, prompt_id=f"{item.prompt_id}-other"), "no measured prompt in common"),
    ],
)
def test_runs_on_other_prompts_are_shown_side_by_side(
    tmp_path: Path, change: Callable[[Conversation], Conversation], says: str
) -> None:
    """As recorded, with the reason; there is no protocol of both."""
    items = [replace(item, prompts=("an opening",)) for item in bench(lambda n: [finding(strength=1 + n % 2)])]
    paths = tmp_path / "a.json", tmp_path / "b.json"
    dump_upstream(items, paths[0])
    dump_upstream([change(item) for item in items], paths[1])
    with few_draws():
        result = compare_paths(*paths)

    assert says in " ".join(result.notes)
    assert (result.comparisons, result.protocol) == ((), None)
    assert [row.side for row in result.side_by_side] == ["baseline", "candidate"]


def test_files_of_version_1_2_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Under their own protocol, with the number of turns; another run id stands for other injections."""
    other = tmp_path / "other.json"
    other.write_text(numbers_of(ENSEMBLE).read_text().replace('{"1.2":', '{"1.3":', 1))
    with few_draws():
        assert main(["compare", str(numbers_of(ENSEMBLE)), str(other), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    notes = " ".join(result["notes"])

    assert (result["protocol"], result["side_by_side"]) == ("upstream-v1.2", [])
    assert result["comparisons"][0]["metrics"]["score"]["difference"] == 0
    assert "conversations of 3 turns on both sides" in notes
    assert "the seeds are 1.2 and 1.3" in notes


def test_the_text_fits_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And prints the MDE."""
    monkeypatch.chdir(tmp_path)
    dump_upstream(bench(lambda n: [finding(strength=1 + n % 2)]), Path("a.json"))
    dump_upstream(bench(lambda n: [finding(strength=2 + n % 2)]), Path("b.json"))

    with few_draws():
        assert main(["compare", "a.json", "b.json"]) == 0

    text = capsys.readouterr().out
    assert "minimum detectable difference" in " ".join(text.split())
    assert all(len(line) <= 80 for line in text.splitlines())


def test_a_score_that_a_report_withholds_comes_with_the_reason(tmp_path: Path) -> None:
    """A run whose judges failed has no composite; what a comparison computes of it says so."""
    document = demo_document()
    score = next(score for score in document["spiral"]["scores"] if score["model"] == BAD)
    score["judges"]["health"]["no_verdict"] = ["judgements of j0 mean nothing: J01"]
    path = tmp_path / "report.json"
    path.write_text(typed(document).model_dump_json())
    with few_draws():
        notes = compare_paths(path, path, score["protocol"]).notes

    assert notes.count(f"{path}, {BAD}: judgements of j0 mean nothing: J01") == 1


@pytest.mark.parametrize(
    ("protocol", "how"), [("", "not in the means"), ("upstream-per-chunk", "counted by the turns before")]
)
def test_silence_of_the_model_is_told(tmp_path: Path, protocol: str, how: str) -> None:
    """What it broke off is in no mean: a comparison without a word would hide that it is silent where it is hard."""
    held = bench(lambda n: [finding(strength=1 + n % 2)])
    names = tmp_path / "held.json", tmp_path / "silent.json"
    reason = Reason(ReasonCode.EMPTY_REPLY, "turn 2: the reply is empty")
    silent = [replace(held[0], status=Status.MODEL_FAILED, reason=reason), *held[1:]]
    runs = [Recording(str(name), name, "", tuple(run)) for name, run in zip(names, (held, silent), strict=True)]

    with few_draws():
        notes = compare_runs((runs[0], runs[1]), protocol or "per-chunk").notes

    assert [note for note in notes if "broke off" in note] == [
        f"{names[1]}, m: 1 conversation that the model broke off, {how}"
    ]


def test_a_broken_conversation_newly_fails_by_what_was_said_before() -> None:
    """Harm of strength 3 is not undone by silence after it; without it nothing is known."""
    clean, harmful = bench(), bench(lambda n: [finding(strength=3)])
    reason = Reason(ReasonCode.EMPTY_REPLY, "turn 2: the reply is empty")

    def changes(candidate: list[Conversation]) -> tuple[int, int, int]:
        broken = [replace(one, status=Status.MODEL_FAILED, reason=reason) for one in candidate]
        found = changed_conversations("r", ("m", "m"), (clean, broken), PROTOCOL)
        return found.n_failing, found.n_passing, found.n

    assert changes(harmful) == (6, 0, 6)
    assert changes(clean) == (0, 0, 0)


@needs_upstream
def test_what_cannot_be_paired_is_named(tmp_path: Path) -> None:
    """A file without some prompts is compared on the others, and the missing ones are named."""
    whole = Path(UPSTREAM) / "kimi-k2.json"
    raw = json.loads(whole.read_text())
    (group,) = (value for key, value in raw["1"].items() if not key.startswith(("__", "scoring")))
    gone = sorted(group)[0]
    del group[gone]
    part = tmp_path / "part.json"
    part.write_text(json.dumps(raw))

    with few_draws():
        (row,) = compare_paths(whole, part).comparisons

    assert (row.paired, row.only_baseline, row.only_candidate) == (29, (gone,), ())


@pytest.mark.parametrize(
    ("candidate", "options", "message"),
    [
        ("b.json", [], "b.json: cannot be read"),
        ("a.json", ["--protocol", "nobody"], "no protocol 'nobody'"),
        ("damaged.json", [], "damaged.json: not a report of schema version 1"),
    ],
)
def test_wrong_input_is_one_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    candidate: str,
    options: list[str],
    message: str,
) -> None:
    """Exit code 4, no traceback."""
    monkeypatch.chdir(tmp_path)
    dump_upstream(bench(lambda n: [finding(strength=1 + n % 3)]), Path("a.json"))
    Path("damaged.json").write_text('{"schema_version": 1, "tempaffect": {"items": []}}')

    assert main(["compare", "a.json", candidate, *options]) == 4

    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1
