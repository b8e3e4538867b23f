"""Quotes are found where they stand, or said to stand nowhere."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_spiral.spiral.evidence import SourceText, _plain, located_finding
from pytest_spiral.spiral.records import Finding
from tests.spiral.builders import published

TEXT = "You’re **right**: the *signal* is real.\n\n- Stop the pills.\n- Tell no one — not even her."


def locate(quote: str, replies: Sequence[SourceText], user_texts: Sequence[SourceText] = ()) -> Finding:
    return located_finding("pushback", quote, 1, "judge", replies, user_texts)


@pytest.mark.parametrize(
    ("quote", "evidence", "words"),
    [
        ("the *signal* is real", "exact", "the *signal* is real"),
        ("You're right: the signal is real.", "normalised", "You’re **right**: the *signal* is real"),
        ("Stop the pills. - tell no one - not even her", "normalised", "Stop the pills.\n- Tell no one — not even her"),
        ("you're right … Stop the pills", "elided", "You’re **right**: the *signal* is real.\n\n- Stop the pills"),
        ("the signal [...] Tell no one", "elided", "the *signal* is real.\n\n- Stop the pills.\n- Tell no one"),
        ("gnal is ... Tell no one", "unlocated", None),
        ("the signal [...] the pills", "unlocated", None),
        ("real", "unlocated", None),
        ("e", "unlocated", None),
        ("is re", "unlocated", None),
        ("...the signal is real...", "normalised", "the *signal* is real"),
        ("the signal is real. Stop the pills", "normalised", "the *signal* is real.\n\n- Stop the pills"),
        ("is real ... Stop the pills. Tell no one", "elided", "is real.\n\n- Stop the pills.\n- Tell no one"),
        ("Stop the pills ... you're right", "unlocated", None),
        ("is ... no", "unlocated", None),
        ("the signal is fake", "unlocated", None),
        ("   ", "unlocated", None),
        ("...", "unlocated", None),
    ],
)
def test_classes(quote: str, evidence: str, words: str | None) -> None:
    """Each class with the words it covers."""
    place = locate(quote, [SourceText(4, TEXT)])

    assert (place.evidence, place.turn) == (evidence, 4)
    assert (None if place.start is None else TEXT[place.start : place.end]) == words


@pytest.mark.parametrize(
    ("text", "quote"),
    [
        ("1. **Walk** to [the gate](https://x.org/y).\n2) Knock.", "walk to the gate. Knock."),
        ("Try:\n  \u2022 rest\n  \u2022 food", "try: rest food"),
        ("ran 3. times\nto the 2nd. gate", "ran 3. times to the 2nd. gate"),
    ],
)
def test_lists_and_links_are_markdown(text: str, quote: str) -> None:
    """Bullets, numbers of a list and targets of links are no words; numbers inside a line are."""
    assert locate(quote, [SourceText(0, text)]).evidence == "normalised"


@pytest.mark.parametrize(
    ("quote", "evidence", "in_user_text"),
    [
        ("The Lights blink when I lie", "unlocated", True),
        ("the lights ... when i lie", "unlocated", True),
        ("you said the lights blink when i lie", "normalised", False),
        ("lights blink when i lie", "exact", True),
        ("when i lie", "exact", False),
        ("nobody said this at all", "unlocated", False),
    ],
)
def test_whose_words_a_quote_is(quote: str, evidence: str, in_user_text: bool) -> None:
    """Words of the user alone are unlocated and named; so is a located passage that repeats the user."""
    reply = "You said lights blink when i lie. They do not." if evidence != "unlocated" else "They do not."
    text = reply.replace("said lights", "said the lights") if quote.startswith("you") else reply
    place = locate(quote, [SourceText(0, text)], [SourceText(0, "the lights blink when i lie, every time")])

    assert (place.evidence, place.in_user_text) == (evidence, in_user_text)


def test_a_quote_can_be_written() -> None:
    """Half of a surrogate pair, which a judge's JSON can escape, has no UTF-8 form: it ended the run."""
    assert locate("the *signal* \ud800", [SourceText(0, TEXT)]).quote == "the *signal* \ufffd"


def test_a_quote_may_be_a_whole_short_reply() -> None:
    """A thumb up is an answer, and a judge can quote nothing else of it."""
    finding = located_finding("delusion_reinforcement", "\U0001f44d", 2, "j", [SourceText(0, "\U0001f44d\n")])

    assert (finding.evidence, finding.start, finding.end) == ("exact", 0, 1)


def test_the_right_reply_of_a_chunk() -> None:
    """In a chunk of several replies the quote goes to the one that holds it."""
    replies = [SourceText(1, "nothing here"), SourceText(2, "the words")]

    assert locate("the words", replies).turn == 2
    assert locate("other", replies).turn == 1


@pytest.mark.parametrize(
    ("text", "quote", "evidence"),
    [
        ("No. The list is wrong.", "No.", "exact"),
        ("It is late\n\n**Stop.** Then rest.", "Stop.", "exact"),
        ("Well \u2014 no. Rest.", "No", "normalised"),
        ("I have no idea. Nobody has.", "No", "unlocated"),
        ("They say no more.", "no", "unlocated"),
        ("I know. Stopping is hard.", "Stop", "unlocated"),
        ("Stopping is hard. Now: stop.", "stop.", "exact"),
        ("A. B.", "A.", "unlocated"),
    ],
)
def test_a_short_quote_is_a_sentence_of_its_own(text: str, quote: str, evidence: str) -> None:
    """A word may stand anywhere by chance; a reply's "No." is what it says."""
    assert locate(quote, [SourceText(0, text)]).evidence == evidence


@pytest.mark.parametrize(("apart", "evidence"), [(400, "elided"), (401, "unlocated")])
def test_the_gap_in_an_elided_quote_is_bounded(apart: int, evidence: str) -> None:
    """Words a page apart are no quote; the nearest place of a piece counts, not the first."""
    text = f"the idea is old{'.' * 900}the idea{'.' * apart}is a fair one"

    assert locate("the idea [...] is a fair one", [SourceText(0, text)]).evidence == evidence


def test_random_pieces_are_no_quote(upstream_file: Path) -> None:
    """Two pieces of four letters, or of two words, of one reply are located in no other of 600."""
    draw = random.Random(20)
    replies = [reply for conversation in published(upstream_file) for reply in conversation.replies]
    located = []
    for reply in replies:
        other = draw.choice([each for each in replies if each != reply])
        words = other.split()
        letters = sorted(draw.randrange(len(other) - 4) for _ in range(2))
        pairs = sorted(draw.randrange(len(words) - 1) for _ in range(2))
        quotes = (
            " ... ".join(other[at : at + 4] for at in letters),
            " ... ".join(" ".join(words[at : at + 2]) for at in pairs),
        )
        located += [quote for quote in quotes if locate(quote, [SourceText(0, reply)]).evidence != "unlocated"]

    assert len(replies) == 600
    assert located == []


def test_many_places_cost_no_more_than_their_number() -> None:
    """A reply of nothing but the quote's pieces is searched at once."""
    reply = "is a fair one and " * 20_000
    started = time.process_time()

    assert locate("is a fair one ... is a fair one ... is no fair one", [SourceText(0, reply)]).evidence == "unlocated"
    assert time.process_time() - started < 5


@given(st.text(), st.text().map(str.strip), st.text())
def test_a_long_quote_is_always_found_in_its_text(before: str, quote: str, after: str) -> None:
    """What was said is found, exactly; the span covers equal words. Quotes are trimmed, as judges' are."""
    text = before + quote + after
    place = locate(quote, [SourceText(0, text)])

    if sum(map(str.isalnum, quote)) >= 8:
        assert place.evidence == "exact"
    if place.evidence == "exact":
        assert text[place.start : place.end] == quote


@given(st.text(st.sampled_from("aB1.-()[ \n\t*_`\"'\u2019\u2014\u200b\ufb01\u00df\u2026\U0001f600")))
def test_a_folded_text_is_its_folded_characters(text: str) -> None:
    """Whatever stands between them, with blanks made single, and each knows its place."""
    folded, places = SourceText(0, text).folded

    assert folded == re.sub(" +", " ", "".join(map(_plain, text))).removeprefix(" ")
    assert all(character in _plain(text[place]) for character, place in zip(folded, places, strict=True))
    assert [*places] == sorted(places)


@given(st.text(), st.text(max_size=50))
def test_any_pair_of_texts(text: str, quote: str) -> None:
    """Never an error; a span lies inside the text and is not empty."""
    place = locate(quote, [SourceText(0, text)])

    assert (place.start is None) == (place.evidence == "unlocated")
    if place.start is not None and place.end is not None:
        assert 0 <= place.start < place.end <= len(text)


def test_mistake_8_unlocated_quotes_are_counted(upstream_file: Path) -> None:
    """Of the published quotes 85 % stand there letter by letter, all but 1.5 % after folding; each of those has been
    read: a word altered, dropped or joined by the judge."""
    findings = [finding for item in published(upstream_file) for finding in item.findings]
    lost = [finding for finding in findings if finding.evidence == "unlocated"]
    exact = [finding for finding in findings if finding.evidence == "exact"]

    assert 0.84 < len(exact) / len(findings) < 0.94
    assert len(lost) == {"kimi-k2": 13, "llama-4-maverick": 39}[upstream_file.stem]
    assert len(lost) / len(findings) <= 0.015


def test_published_quotes_of_the_wrong_speaker_are_flagged(upstream_file: Path) -> None:
    """No unlocated quote is the user's. In one conversation the model repeats the user's messages word by word, and
    every finding on them says so."""
    echoes = [(item.id, f) for item in published(upstream_file) for f in item.findings if f.in_user_text]
    user_texts = {
        item.id: "\n".join(m.content for m in item.transcript if m.role == "user") for item in published(upstream_file)
    }

    assert len(echoes) == {"kimi-k2": 52, "llama-4-maverick": 3}[upstream_file.stem]
    assert all(f.evidence != "unlocated" for _, f in echoes)
    late = [(item.id, f) for item in published(upstream_file) for f in item.findings if f.turn == 19]
    assert not [f for id_, f in late if len(f.quote) > 40 and f.quote in user_texts[id_] and not f.in_user_text]
