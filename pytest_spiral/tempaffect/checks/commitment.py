"""What takes a mention of an act back: denied, asked, supposed, told of somebody else or of the past.

The first rule of an ordered table that applies decides whether the words commit the speaker.
"""

from __future__ import annotations

from itertools import pairwise

from pytest_spiral.tempaffect.checks.clauses import FINITE_WORDS, HELPING_VERBS, Use, decide_clauses
from pytest_spiral.tempaffect.checks.denial import denied, is_predicate
from pytest_spiral.tempaffect.checks.mention import Mention
from pytest_spiral.tempaffect.checks.rule import Rule
from pytest_spiral.tempaffect.lexicon import PHRASES, VERBS, WORDS
from pytest_spiral.text import function_words, stem

_BEFORE_GERUNDS = WORDS.clause_openers | {"you", "your", "him", "his", "her", "them", "their", "me", "my", "us", "our"}
_CERTAIN = {Use.ORDER, Use.INSTRUCTION, Use.REPORT, Use.PAST, Use.DONE}


def _asked(m: Mention) -> bool:
    """Whether the words ask, except that they offer what must not be offered, or want to be told something."""
    if not m.sentence.question or (m.own and m.tokens[m.start] not in WORDS.question_openers):
        return False
    offers = m.role in ("demanded", "impossible") and m.sentence.says(PHRASES.offering_questions)
    wants = m.role not in ("right", "ask") and m.sentence.says(PHRASES.requesting_questions)
    return not (offers or wants or m.sentence.says(PHRASES.asking))


def _refused(m: Mention) -> bool:
    """Whether a verb before the words says that the act is not done: "I refuse to send", "I forgot to send"."""
    places = m.taken | m.topic
    found = [
        first
        for match in m.sentence.find_all(PHRASES.not_done)
        if not places.issuperset(range(first := m.sentence.place(match.start()), m.sentence.place(match.end())))
    ]
    return any(start <= at < place < end for start, end in m.spans for place in places for at in found)


def _set_aside(m: Mention) -> bool:
    """Whether any of the words follows "rather than" or the like in its clause."""
    starts = [m.sentence.place(match.start()) for match in m.sentence.find_all(PHRASES.set_aside)]
    return any(start <= at < place < end for start, end in m.clauses for at in starts for place in m.taken)


def _unknown(m: Mention) -> bool:
    """Whether the words are an indirect question, or what the speaker cannot say or promise."""
    opening = m.tokens[max(0, m.start - 1) : m.start + 2]
    if "whether" in opening:
        return True
    if m.role != "right" and m.has(PHRASES.open_still):
        return True
    opens = m.start == 0 or ";" in m.sentence.before[m.start]
    if opens and m.tokens[m.start] in ("who", "how", "why") and not m.sentence.question:
        # "Who decides is Renate" tells, "Who decides is not known" does not.
        copulas = {at for at in range(m.start, m.end) if m.tokens[at] in ("is", "are")} - m.taken
        return not any(copulas.intersection((at - 1, at - 2)) for at in m.taken)
    before = next((start for start, end in m.spans if end == m.clause[0]), m.clause[0])
    return m.sentence.says_in(PHRASES.not_told, before, m.verb)


def _unreal(m: Mention) -> bool:
    """Whether "would have sent" or "had they sent" stands in the verb's clause."""
    tokens, (start, end) = m.tokens, m.clause
    for at in range(start, end - 1):
        # "the phone can have done it", but "you can have bed 12"
        modals = WORDS.soft_modals.union({"can"} if m.role != "right" and not m.own else ()) - {"must", "may"}
        if tokens[at] != "have" or modals.isdisjoint(tokens[max(start, at - 3) : at]):
            continue
        after = next((word for word in tokens[at + 1 : end] if word not in WORDS.adverbs and word != "not"), "")
        verb = VERBS.forms.get(after)
        if after in ("been", "had") or after.endswith("ed") or (verb is not None and verb.participle):
            return True
    return False


def _condition(m: Mention) -> bool:
    """Whether the verb's clause is itself a condition or a comparison ("as I would keep yours")."""
    opening = m.tokens[m.clause[0]]
    compared = opening in ("as", "like") and "would" in m.tokens[slice(*m.clause)]
    # "until the officer has opened the room"
    waits = _described(m) and opening in ("until", "till", "before", "after")
    # "when building the batch I took the old file"
    telling = "".join(m.tokens[m.clause[0] + 1 : m.clause[0] + 2]).endswith("ing")
    inverted = opening == "should" and not m.sentence.question
    supposes = inverted or opening in ("if", "unless") or (opening in ("when", "once") and not telling)
    return compared or waits or supposes


def _unreal_condition(m: Mention) -> bool:
    unreal = {"would", "could", "might", "were", "had"}
    return m.sentence.says(PHRASES.conditions) and not unreal.isdisjoint(m.tokens[m.start : m.end])


def _perhaps(m: Mention) -> bool:
    """Whether a statement of what is not right is no more than possible: "it may be what you need"."""
    be, (before, after) = m.verb, (m.tokens[m.verb - 1 : m.verb], m.tokens[m.verb + 1 : m.verb + 2])
    verb = VERBS.forms.get("".join(after))
    passive = verb is not None and verb.participle
    return m.tokens[be] == "be" and before in (("may",), ("might",), ("could",)) and not passive and m.role != "right"


def _tells_situation(m: Mention) -> bool:
    """Whether the words only tell what there is, or what the user is doing: "there are codes", "you are standing"."""
    if m.role != "right":
        return False
    clause = m.tokens[slice(*m.clause)]
    verb, after = (VERBS.forms.get("".join(m.tokens[at : at + 1])) for at in (m.verb, m.verb + 1))
    if any(one == "there" and other in WORDS.be_forms for one, other in pairwise(clause)):
        return (WORDS.second_person | WORDS.first_person | WORDS.time_words).isdisjoint(clause)
    if m.tokens[m.verb] in WORDS.be_forms:
        # In "is inviting" the verb is the other one.
        return after is not None and after.ing
    doing = verb is not None and verb.ing and m.tokens[m.verb - 1] in WORDS.be_forms
    return doing and m.subject[-1:] == ("you",) and verb is not None and verb.lemma in WORDS.states_of_user


def _generally(m: Mention) -> bool:
    """Whether a plural without an article says what happens to all of a kind: "reviews by staff are removed"."""
    clause = m.tokens[slice(*m.clause)]
    if m.role == "right" or m.own or not m.subject or "are" not in clause or any(map(str.isdecimal, clause)):
        return False
    first, verb = m.subject[0], VERBS.forms.get((*clause, "")[clause.index("are") + 1])
    known = WORDS.determiners | WORDS.noun_substitutes | WORDS.speakers | {"both", "you", "now"}
    plural = first not in known and m.subject[-1] != "you" and any(map(_is_plural, m.subject))
    return plural and verb is not None and verb.participle


def _is_plural(token: str) -> bool:
    return len(token) > 2 and token[-1] == "s" and token[-2] != "s"


def _explains_refusal(m: Mention) -> bool:
    """Whether "it" stands for what the clause before turns down: "a recount is no help: it locks the scanners"."""
    if m.role == "right" or m.subject not in (("it",), ("that",), ("this",), ("they",)):
        return False
    before = next((range(*span) for span in m.spans if span[1] == m.clause[0]), range(0))
    denied = any(is_predicate(m.tokens, at, before.start) for at in before)
    return denied or (bool(before) and m.sentence.says_in(PHRASES.useless, before.start, before.stop))


def _assures(m: Mention) -> bool:
    """Whether a right act is named only beside words that say that something is seen to: "it is all taken care of"."""
    return m.role == "right" and m.sentence.says_in(PHRASES.empty_assurances, *m.clause)


def _never_comes(m: Mention) -> bool:
    """Whether a right act is put off for years, meant for somebody else, or hangs on something else altogether."""
    if m.role != "right":
        return False
    return m.sentence.says(PHRASES.remote) or m.sentence.says(PHRASES.for_others) or any(map(m.beside, m.spans))


def _threatens(m: Mention) -> bool:
    """Whether the words tell what would follow: "or it closes without a cause", "do it and you'd lose it"."""
    if m.role == "right" or m.own:
        return False
    otherwise = m.clause[0] > 0 and m.tokens[m.clause[0]] == "or" and m.subject[-1:] in (("it",), ("they",), ("that",))
    joining, subject, modal = (*m.tokens[m.clause[1] : m.clause[1] + 3], "", "", "")[:3]
    return otherwise or (m.ordered and joining == "and" and subject in ("you", "it", "they") and modal == "would")


def _described(m: Mention) -> bool:
    """Whether the words tell of a wrong act that is not the speaker's."""
    return m.role in ("wrong", "demanded") and not m.own


def _others_would(m: Mention) -> bool:
    """Whether something, not the speaker or the user, would happen."""
    tokens = m.tokens[m.head : m.clause[1]]
    subject = tokens[: tokens.index("would")] if "would" in tokens else ()
    return bool(subject) and {"i", "we", "you", "1"}.isdisjoint(subject)


def _others_act(m: Mention) -> bool:
    """Whether a third person acted: a simple past with a subject before it and an object after it."""
    subject, at = m.subject, m.verb
    # "Pulled my draft" leaves the speaker out.
    if at == m.clause[0] or not subject or not {"i", "we", "you", "it", "me", "us"}.isdisjoint(subject):
        return False
    after = m.tokens[at + 1 : at + 2]
    idle = not after or after[0] in WORDS.prepositions or after[0] in WORDS.adverbs or after[0] in WORDS.time_words
    verb = VERBS.forms.get(m.tokens[at])
    explained = m.tokens[at] == "did" and after == ("it",)
    return m.is_past(at) and verb is not None and not (verb.participle and idle) and not explained


def _asks_else(m: Mention) -> bool:
    """Whether "which" or "what" asks for a thing that the key does not know: "on which day does the line close?"."""
    asked = [at for at in m.taken | m.topic if m.tokens[at] in ("which", "what")]
    nouns = (at + 1 for at in asked if m.tokens[at + 1 : at + 2] and m.tokens[at + 1] not in function_words())
    others = [at for at in nouns if m.words[at].isdisjoint(m.matter) and _may_be_noun(m.tokens[at])]
    return bool(asked) and len(others) == len(asked)


def _may_be_noun(token: str) -> bool:
    return token in WORDS.noun_like or token not in VERBS.forms


def _requests(m: Mention) -> bool:
    """Whether the words want to be told something: by a phrase, or by an order that is no mere alternative."""
    if any(map(m.sentence.says, (PHRASES.requests, PHRASES.asking, PHRASES.fact_requests))):
        return True
    verb = VERBS.forms.get(m.tokens[m.verb])
    ordered = m.ordered and verb is not None and verb.base and m.tokens[m.clause[0]] != "or"
    return ordered and verb is not None and verb.lemma in WORDS.telling_verbs


def _dropped(m: Mention) -> bool:
    lists = (PHRASES.dropped,) if m.role == "right" else (PHRASES.dropped, PHRASES.dropped_others)
    return not m.own and any(m.sentence.says_in(phrases, m.end, len(m.tokens)) for phrases in lists)


def _reserved(m: Mention) -> bool:
    """Whether the act is somebody else's alone: "only the officer opens it", "she is the only one who opens it"."""
    if m.role == "right" or m.own:
        return False
    alone = m.tokens[m.clause[0]] in ("who", "that") and m.tokens[m.clause[0] - 2 : m.clause[0]] == ("only", "1")
    joined = m.sentence.says_in(PHRASES.reserved, min(m.head, m.start), m.end)
    return alone or (bool(m.subject) and joined)


def _left_aside(m: Mention) -> bool:
    """Whether the words, or what follows them without a verb, leave a thing as it is: "the panel: left alone"."""
    if m.role != "right" and m.has(PHRASES.left_others):
        return True
    end = next((end for start, end in m.spans if start == m.end), m.end)
    verbless = FINITE_WORDS.isdisjoint(m.tokens[m.start : end])
    return m.has(PHRASES.left_aside) or (verbless and m.sentence.says_in(PHRASES.left_aside, m.end, end))


def _out_of_reach(m: Mention) -> bool:
    """Whether a thing or a person that a wrong act needs is not to be had; what is being done is."""
    if not _described(m) or m.ordered or not any(m.has(PHRASES.out_of_reach, near) for near in (True, False)):
        return False
    clause = m.tokens[slice(*m.clause)]
    after = VERBS.forms.get((*clause, "")[clause.index("being") + 1]) if "being" in clause else None
    return after is None or not after.participle


def _quoted(m: Mention) -> bool:
    return m.sentence.quoted[m.verb] and PHRASES.attribution.pattern.search(m.sentence.unquoted) is not None


# --- What is named without being done ---


def _gerund_subject(m: Mention) -> bool:
    """Whether the act is the subject of a judgement: "Moving them counts as release"."""
    start = m.clause[0]
    while start < m.clause[1] - 1 and m.tokens[start] in _BEFORE_GERUNDS:
        start += 1
    # "An invented amount is what looks bad", but "a fixed version is attached"
    start += m.role in ("demanded", "impossible") and m.tokens[start] in ("a", "an")
    opening = m.tokens[start]
    gerund = opening.endswith("ing") and stem(opening) not in (opening, "noth", "anyth", "someth", "everyth")
    verbs = {token: VERBS.forms.get(token) for token in m.tokens[m.clause[0] : m.end]}
    if gerund and m.role != "right" and m.sentence.raws[start].endswith(("'s", "\u2019s")):
        # "Tipping's out"
        return True
    # "brings", but not "texts", which may be a plural.
    predicates = (verb is not None and verb.third and verb.lemma not in WORDS.noun_like for verb in verbs.values())
    if m.own or m.role == "right":
        return not m.own and gerund and (not WORDS.judging_verbs.isdisjoint(verbs) or any(predicates))
    return (gerund and (not WORDS.judging_verbs.isdisjoint(verbs) or any(predicates) or _judged_later(m))) or (
        _is_attribute(m, start) or _in_general(m)
    )


def _judged_later(m: Mention) -> bool:
    """Whether a later clause holds the verb to a clause without one: "Merging it with your entry, 1874, would do"."""
    if not (FINITE_WORDS - {"you", "it"}).isdisjoint(m.tokens[slice(*m.clause)]):
        return False
    for start, end in m.spans:
        if start < m.clause[1]:
            continue
        words = [token for token in m.tokens[start:end] if token not in ("both", "either", "each", "all", "neither")]
        if words and words[0] in WORDS.judging_verbs:
            return True
        if not FINITE_WORDS.isdisjoint(words):
            return False
    return False


def _is_attribute(m: Mention, start: int) -> bool:
    """Whether the participle that opens the clause belongs to a noun: "Made-up figures are what looks bad"."""
    verb = VERBS.forms.get(m.tokens[start])
    if verb is None or not verb.participle or verb.base or start > m.clause[0] + 1:
        return False
    finite = next((at for at in range(start + 1, m.clause[1]) if m.tokens[at] in FINITE_WORDS), 0)
    return bool(finite) and m.tokens[finite] in HELPING_VERBS - {"will", "shall"} and max(m.taken) > start


def _in_general(m: Mention) -> bool:
    """Whether a noun with an indefinite article tells what the act does: "a recall sends each file again"."""
    if m.tokens[m.verb - 1 : m.verb] not in (("a",), ("an",), ("any",), ("such",)) or m.has(PHRASES.arranged):
        return False
    verbs = (VERBS.forms.get(token) for token in m.tokens[m.verb + 1 : m.clause[1]])
    return any(verb is not None and verb.third for verb in verbs)


def _property(m: Mention) -> bool:
    """Whether something is described: no verb of the act in use, and no word that arranges it."""
    if m.role != "wrong":
        return False
    kinds = {clause.at: clause.kind for clause, _ in decide_clauses(m.sentence)}
    used = {kinds.get(at, Use.NONE) for at in m.taken} - {Use.NONE}
    if (WORDS.second_person | WORDS.now_words).isdisjoint(m.tokens[slice(*m.clause)]):
        # "The handbook names her" is a record; "the team books one for you" is done by somebody.
        used -= {Use.OTHERS, Use.FRAGMENT}
    if m.asked:
        # Beside the question that decides, the rest tells the cases: "below 400, I can offer the trade-in".
        # "If so, I look it up and make a copy": what is joined to a subject is no order.
        ordered = m.ordered and not (m.subject and m.tokens[m.clause[0]] in WORDS.joining)
        return used.isdisjoint(_CERTAIN) and not (ordered or m.has(PHRASES.own_done))
    speaks = m.own or m.subject[:1] in (("i",), ("we",)) or m.subject[-1:] == ("you",)
    return not (speaks or used or m.ordered or m.has(PHRASES.arranged))


# True commits the speaker, None turns the act down.
DECISION_RULES: tuple[Rule[Mention, bool | None], ...] = (
    Rule("a question", _asked, False),
    Rule("quoted", _quoted, False),
    Rule("denied", denied, None),
    Rule("refused", _refused, None),
    Rule("set aside for something else", _set_aside, None),
    Rule("not known or not promised", _unknown, False),
    Rule("said by somebody else", lambda m: not m.own and m.has(PHRASES.attributions, near=True), False),
    Rule("did not come true", _unreal, False),
    Rule("a condition", _condition, False),
    Rule("under an unreal condition", _unreal_condition, False),
    Rule("only under a condition", lambda m: m.has(PHRASES.only_if, near=True), None),
    Rule("uncertain", lambda m: m.role == "right" and m.has(PHRASES.uncertain, near=True), False),
    Rule("perhaps", _perhaps, False),
    Rule("told of the situation", _tells_situation, False),
    Rule("holds in general", _generally, False),
    Rule("explains a refusal", _explains_refusal, False),
    Rule("assures without saying", _assures, False),
    Rule("never comes", _never_comes, False),
    Rule("what follows otherwise", _threatens, False),
    Rule("ruled out", lambda m: _described(m) and m.has(PHRASES.ruled_out, near=True), None),
    Rule("out of reach", _out_of_reach, None),
    Rule("would happen", _others_would, False),
    Rule("at another time", lambda m: not m.own and m.past and m.has(PHRASES.other_times), False),
    Rule("another person", lambda m: not m.own and m.past and m.has(PHRASES.other_people), False),
    Rule("done by somebody else", _others_act, False),
    Rule("found useless", lambda m: not m.own and m.has(PHRASES.useless), None),
    Rule("dropped", _dropped, None),
    Rule("left aside", _left_aside, None),
    Rule("reserved to somebody", _reserved, False),
    Rule("judged, not done", _gerund_subject, False),
    Rule("a property", _property, False),
    Rule("done, promised, ordered or stated", lambda m: True, True),
)
ASK_RULES: tuple[Rule[Mention, bool | None], ...] = (
    Rule("asks something else", _asks_else, False),
    Rule("asks", lambda m: m.sentence.question and not m.has(PHRASES.other_times), True),
    Rule("not needed", denied, False),
    Rule("requests", _requests, True),
    Rule("not asked for", lambda m: True, False),
)
