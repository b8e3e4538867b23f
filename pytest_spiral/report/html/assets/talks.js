/* Conversations: the list, all findings of one kind, and the chat viewer. */

const EVIDENCE_NAMES = { exact: "letter by letter", normalised: "typography aside", elided: "in pieces", unlocated: "not found in the reply" };
// Imported files name no judge; in addresses an empty value would mean all of them.
const UNNAMED = "-";
const judgeKey = (judge) => judge || UNNAMED;
const STRENGTHS = [["1", "1 and more"], ["2", "2 and more"], ["3", "3"]];

function signOf(report, model, behaviour) {
  const score = report.spiral.scores.find((row) => row.model === model) || report.spiral.scores[0];
  return score?.metrics[behaviour]?.sign === "protective" ? "protective" : "risky";
}

/** The short findings of a row of the list as records. */
function shortFindings(report, talk) {
  const { behaviours, judge_names: judges } = report.spiral;
  return talk.findings.map(([turn, behaviour, strength, judge, evidence], index) => ({
    turn, behaviour: behaviours[behaviour], strength, judge: judges[judge], evidence, number: index + 1,
  }));
}

function chosen(finding, state) {
  return (!state.behaviour || finding.behaviour === state.behaviour) && (!state.strength || finding.strength >= Number(state.strength))
    && (!state.judge || judgeKey(finding.judge) === state.judge) && (!state.evidence || finding.evidence === state.evidence);
}

function findingFilters(report, findings) {
  return [
    { name: "behaviour", label: "Behaviour", options: choices(findings.map(({ behaviour }) => behaviour), words) },
    { name: "strength", label: "Strength", options: STRENGTHS },
    { name: "judge", label: "Judge", options: choices(findings.map(({ judge }) => judgeKey(judge)), (judge) => (judge === UNNAMED ? "not named" : judge)) },
    { name: "evidence", label: "Evidence", options: choices(findings.map(({ evidence }) => evidence)) },
  ];
}

const ofTalk = (talk) => talk.model === undefined ? {} : { model: talk.model, id: talk.id };

function twinFilter(talks) {
  return { name: "twin", label: "Benign twins", options: talks.some((talk) => talk.twin_of) ? [["yes", "only they"], ["no", "without them"]] : [] };
}

const ofTwins = (talk, state) => !state.twin || Boolean(talk.twin_of) === (state.twin === "yes");

function talksView(report, parameters) {
  const all = report.spiral.talks;
  const heading = h("h1", { tabindex: "-1" }, "Conversations");
  if (!all.length) return [heading, empty("No conversation is in this report.")];
  const body = h("tbody", {});
  const outcome = h("p", { class: "note", role: "status" });
  const after = h("div", {});
  const everything = all.flatMap((talk) => shortFindings(report, talk));
  const several = new Set(all.map((talk) => talk.model)).size > 1;
  const { state, bar } = filters("talks", parameters, [
    { name: "model", label: "Model", options: choices(all.map((talk) => talk.model)) },
    { name: "category", label: "Category", options: choices(all.map((talk) => talk.category), words) },
    { name: "status", label: "State", options: choices(all.map((talk) => talk.status), (status) => STATUS_NAMES[status]) },
    ...findingFilters(report, everything),
    twinFilter(all),
    { name: "suspected", label: "Speaks to the judge", options: all.some((talk) => talk.suspicions) ? [["yes", "yes"], ["no", "no"]] : [] },
    { name: "q", label: "Search everything said", search: true },
  ], draw);
  async function draw(now) {
    const turn = (draw.turn = (draw.turn ?? 0) + 1);
    const stopped = () => turn !== draw.turn;
    const byFinding = now.behaviour || now.strength || now.judge || now.evidence;
    let rows = all
      .filter((talk) => (!now.model || talk.model === now.model) && (!now.category || talk.category === now.category) && (!now.status || talk.status === now.status) && ofTwins(talk, now)
        && (!now.suspected || Boolean(talk.suspicions) === (now.suspected === "yes")))
      .map((talk) => ({ talk, found: shortFindings(report, talk).filter((finding) => chosen(finding, now)) }))
      .filter(({ found }) => !byFinding || found.length);
    if (now.q) {
      outcome.textContent = "Searching\u2026";
      rows = await talksSaying(rows, now.q, stopped);
    }
    if (stopped()) return;
    body.replaceChildren();
    after.replaceChildren(portions(rows, (row) => talkRow(report, row, now, several), body));
    outcome.textContent = `${count(rows.length, "conversation")} of ${all.length}, ${count(rows.reduce((sum, { found }) => sum + found.length, 0), "finding")}`;
  }
  draw(state);
  return [
    heading, bar, outcome,
    scrolling(h("table", {}, h("caption", {}, "Conversations: open one to read it"), h("thead", {}, h("tr", {},
      ["Conversation", "Risky", "Protective", several && "Model", "Category", "State", "Turns", "Final judgement", "Opening"].filter(Boolean).map((name) => h("th", { scope: "col" }, name)))), body), "Conversations"),
    after,
  ];
}

function talkRow(report, { talk, found, hit }, state, several) {
  const tally = (sign) => {
    const own = found.filter((finding) => signOf(report, talk.model, finding.behaviour) === sign);
    if (!own.length) return "0";
    const strongest = Math.max(...own.map(({ strength }) => strength));
    const first = own.find(({ strength }) => strength === strongest);
    return link("talk", { ...ofTalk(talk), turn: first.turn + 1, finding: first.number }, h("span", { class: `count ${sign}` }, `${own.length}, up to ${strongest}`));
  };
  const kept = { behaviour: state.behaviour, strength: state.strength, judge: state.judge, evidence: state.evidence };
  return h("tr", {},
    h("th", { scope: "row" }, link("talk", { ...ofTalk(talk), ...kept, turn: hit?.turn }, bdi(talk.id))), h("td", {}, tally("risky")), h("td", {}, tally("protective")), several && h("td", {}, bdi(talk.model)), h("td", {}, words(talk.category), talk.twin_of && h("div", { class: "note" }, "benign twin of ", bdi(talk.twin_of))),
    h("td", {}, STATUS_NAMES[talk.status], talk.reason && h("div", { class: "note" }, reasonText(talk.reason))), h("td", { class: "number" }, String(talk.replies)),
    h("td", {}, talk.final_judgement ? Object.entries(talk.final_judgement).map(([name, value]) => h("div", { class: "pair" }, `${words(name)} ${number(value, 0)}`)) : MISSING),
    h("td", { class: "excerpt" }, bdi(hit ? hit.excerpt : talk.opening)));
}

async function talksSaying(rows, wanted, stopped) {
  const needle = wanted.toLowerCase();
  const found = [];
  await unhurried(rows, async (row) => {
    const { transcript } = await unpack(row.talk.pack);
    let turn = 0;
    for (const { role, content } of transcript) {
      if (role === "assistant") turn += 1;
      const place = content.toLowerCase().indexOf(needle);
      if (place < 0) continue;
      const from = Math.max(0, place - 60);
      found.push({ ...row, hit: { turn: Math.max(turn, 1), excerpt: `${from ? "\u2026" : ""}${content.slice(from, place + needle.length + 100)}` } });
      return;
    }
    if (row.talk.id.toLowerCase().includes(needle)) found.push(row);
  }, stopped);
  return found;
}

/** From a metric to the turns behind it: every finding with its words. */
function findingsView(report, parameters) {
  const all = report.spiral.talks.flatMap((talk) => shortFindings(report, talk).map((finding) => ({ ...finding, talk })));
  const heading = h("h1", { tabindex: "-1" }, "Findings");
  if (!all.length) return [heading, empty("No judge found anything in this run, or nothing was judged.")];
  const body = h("tbody", {});
  const outcome = h("p", { class: "note", role: "status" });
  const after = h("div", {});
  const { state, bar } = filters("findings", parameters, [
    { name: "model", label: "Model", options: choices(all.map(({ talk }) => talk.model)) },
    { name: "category", label: "Category", options: choices(all.map(({ talk }) => talk.category), words) },
    twinFilter(report.spiral.talks),
    { name: "sign", label: "Kind", options: [["risky", "risky"], ["protective", "protective"]] },
    ...findingFilters(report, all),
  ], draw);
  function draw(now) {
    const rows = all.filter((finding) => (!now.model || finding.talk.model === now.model) && (!now.category || finding.talk.category === now.category) && ofTwins(finding.talk, now) && chosen(finding, now))
      .map((finding) => ({ ...finding, sign: signOf(report, finding.talk.model, finding.behaviour) }))
      .filter(({ sign }) => !now.sign || sign === now.sign)
      .sort((one, other) => (one.sign === other.sign ? other.strength - one.strength : one.sign === "risky" ? -1 : 1));
    body.replaceChildren();
    after.replaceChildren(portions(rows, (finding) => findingRow(report, finding), body, 100));
    outcome.textContent = `${count(rows.length, "finding")} of ${all.length}, risky ones first, strongest first`;
  }
  draw(state);
  return [
    heading, bar, outcome,
    scrolling(h("table", {}, h("caption", {}, "Findings: open one to read it in its conversation"), h("thead", {}, h("tr", {},
      ["Behaviour", "Strength", "Words", "Conversation", "Judge", "Evidence"].map((name) => h("th", { scope: "col" }, name)))), body), "Findings"),
    after,
  ];
}

function findingRow(report, finding) {
  const quote = h("td", { class: "excerpt" }, "\u2026");
  unpack(finding.talk.pack).then(({ findings }) => quote.replaceChildren(bdi(findings[finding.number - 1].quote)));
  return h("tr", {},
    h("th", { scope: "row" }, link("talk", { ...ofTalk(finding.talk), turn: finding.turn + 1, finding: finding.number }, words(finding.behaviour))),
    h("td", {}, strengthOf(finding.strength, finding.sign)), quote,
    h("td", {}, bdi(finding.talk.id), `, turn ${finding.turn + 1}`, h("div", { class: "note" }, bdi(finding.talk.model))),
    h("td", {}, bdi(finding.judge || "not named")), h("td", {}, finding.evidence));
}

function strengthOf(strength, sign) {
  return h("span", { class: `strength ${sign}` }, String(strength));
}

async function talkView(report, parameters) {
  const all = report.spiral.talks;
  const place = all.findIndex((talk) => talk.id === parameters.id && (!parameters.model || talk.model === parameters.model));
  if (place < 0) return [h("h1", { tabindex: "-1" }, "Conversation"), empty("No such conversation in this report. ", link("talks", {}, "All conversations"))];
  const row = all[place];
  const talk = await unpack(row.pack);
  const findings = talk.findings.map((finding, index) => ({ ...finding, number: index + 1, sign: signOf(report, row.model, finding.behaviour) }));
  const chat = h("div", { class: "chat" });
  const cursor = h("aside", { class: "cursor", "aria-label": "The finding you are at", hidden: true });
  const { state, bar } = filters("talk", parameters, findingFilters(report, findings), draw);
  let shown = [];
  function draw(now) {
    shown = findings.filter((finding) => chosen(finding, now)).sort((one, other) => one.turn - other.turn || (one.start ?? Infinity) - (other.start ?? Infinity));
    chat.replaceChildren(...messages(talk, shown, row, now));
    point();
  }
  function point() {
    const finding = findings[state.finding - 1];
    cursor.hidden = !shown.length;
    cursor.replaceChildren(
      h("button", { type: "button", onclick: () => move(-1), "aria-label": "Previous finding" }, "\u2190"),
      h("p", {}, finding ? [h("strong", {}, words(finding.behaviour)), " ", strengthOf(finding.strength, finding.sign), ` turn ${finding.turn + 1}, ${shown.indexOf(finding) + 1} of ${shown.length} `, h("q", { dir: "auto" }, finding.quote)] : `${count(shown.length, "finding")} to step through`),
      h("button", { type: "button", onclick: () => move(1), "aria-label": "Next finding" }, "\u2192"),
    );
  }
  draw(state);
  const step = (by, rel, text) => all[place + by] && h("a", { rel, href: href("talk", ofTalk(all[place + by])) }, text);
  shortcuts.j = () => move(1);
  shortcuts.k = () => move(-1);
  shortcuts["]"] = () => all[place + 1] && go("talk", ofTalk(all[place + 1]));
  shortcuts["["] = () => all[place - 1] && go("talk", ofTalk(all[place - 1]));
  function move(by) {
    if (!shown.length) return;
    const now = shown.findIndex(({ number: own }) => String(own) === String(state.finding));
    const next = shown[(now + by + shown.length + (now < 0 && by < 0 ? 1 : 0)) % shown.length];
    select(next.number);
  }
  function select(number_) {
    const finding = findings[number_ - 1];
    Object.assign(state, { turn: finding.turn + 1, finding: number_ });
    history.replaceState(null, "", href("talk", state));
    point();
    for (const node of chat.querySelectorAll(".current")) node.classList.remove("current");
    for (const node of chat.querySelectorAll(`[data-finding~="${number_}"]`)) node.classList.add("current");
    const item = chat.querySelector(`#finding-${number_}`);
    item?.focus({ preventScroll: true });
    (chat.querySelector(`mark[data-finding~="${number_}"]`) || item)?.scrollIntoView({ block: "center" });
  }
  chat.addEventListener("click", (event) => {
    const target = event.target.closest("[data-finding]");
    if (!target || getSelection().toString()) return;
    event.preventDefault();
    select(Number(target.dataset.finding.split(" ")[0]));
  });
  return [
    h("nav", { class: "steps", "aria-label": "Conversations" }, link("talks", {}, "All conversations"), step(-1, "prev", "\u2190 previous"), step(1, "next", "next \u2192")),
    h("h1", { tabindex: "-1" }, bdi(row.id), h("small", {}, words(row.category))),
    h("p", { class: "lead" }, bdi(row.model), talk.twin_of && [" \u00b7 benign twin of ", bdi(talk.twin_of)], " \u00b7 ", badge(STATUS_NAMES[row.status], row.status === "measured" ? "good" : "doubt"), ` \u00b7 ${count(row.replies, "reply", "replies")} \u00b7 ${count(findings.length, "finding")}`),
    row.reason && h("p", { class: "notice" }, reasonText(row.reason)),
    finalPart(talk), bar,
    h("p", { class: "note keys" }, "Keys: j and k step through the findings, [ and ] through the conversations, ? lists all."),
    chat, cursor, moreAbout(talk),
  ];
}

function finalPart(talk) {
  if (!talk.final_judgement && !talk.finals.length) return empty("There is no judgement of the whole conversation.");
  return h("div", { class: "final" },
    h("p", {}, h("strong", {}, "The whole conversation: "), talk.final_judgement ? Object.entries(talk.final_judgement).map(([name, value]) => h("span", { class: "pair" }, `${words(name)} ${number(value, 1)} of 10`)) : MISSING),
    h("details", {}, h("summary", {}, "What the judges said of it"), talk.finals.map((final) => h("div", {}, h("p", {}, bdi(final.judge || "judge not named"), `: ${STATUS_NAMES[final.status]}`, final.reason && `, ${reasonText(final.reason)}`), final.raw_text ? pre(final.raw_text) : null))),
  );
}

const KNOWN_TALK = ["id", "prompt_id", "category", "model", "index", "status", "reason", "prompts", "transcript", "injections_log", "judgements", "finals", "findings", "final_judgement", "origin", "simulator", "suspicions", "twin_of"];

function moreAbout(talk) {
  const { flags, ...simulator } = talk.simulator || {};
  const more = { ...rest(talk, ...KNOWN_TALK), ...simulator, ...Object.fromEntries(Object.entries(talk.origin || {}).filter(([, value]) => value)) };
  return Object.keys(more).length ? h("details", {}, h("summary", {}, "More about this conversation"), facts(more)) : null;
}

/** The messages of a conversation with findings marked in place. */
function messages(talk, findings, row, now = {}) {
  let turn = -1;
  let asked = -1;
  const nodes = talk.transcript.map((message, index) => {
    if (message.role !== "assistant") {
      asked += 1;
      return said("user", message.role === "user" ? "Simulated user" : message.role, visible, message.content, userNotes(talk, index, asked));
    }
    turn += 1;
    return reply(talk, findings.filter((finding) => finding.turn === turn), row, turn, message.content, now);
  });
  return nodes.length ? nodes : [empty("Nothing was said.")];
}

/** What is to be said of a user message: what its author was told, and which rules of the persona it broke. */
function userNotes(talk, index, asked) {
  const injected = talk.injections_log?.[index];
  const flags = (talk.simulator?.flags || []).filter((flag) => flag.turn === asked);
  return [
    injected && h("p", { class: "note" }, "It was told: ", bdi(injected)),
    flags.map((flag) => h("p", { class: "note" }, badge(words(flag.rule), "doubt"), " ", flag.detail)),
  ];
}

function said(role, speaker, draw, text, ...below) {
  return h("article", { class: `message ${role}` }, h("p", { class: "speaker" }, speaker), h("div", { class: "said", dir: "auto" }, longText(text, draw)), below);
}

function reply(talk, findings, row, turn, text, now) {
  const target = now.finding && findings.find(({ number: own }) => String(own) === String(now.finding));
  const suspicions = (talk.suspicions || []).filter((row_) => row_.turn === turn);
  const located = [...findings.filter(({ start }) => start !== null), ...suspicions.map((row_) => ({ ...row_, suspected: true }))];
  const drawn = (part) => pieces(part, located.filter(({ start }) => start < part.length)).map((piece) => markedPiece(piece, target));
  const judgements = talk.judgements.filter(({ turns }) => turns.includes(turn));
  const here = !target && String(now.turn) === String(turn + 1);
  return h("article", { class: `message assistant${here ? " current" : ""}`, id: `turn-${turn + 1}`, tabindex: "-1", "data-arrive": here },
    h("p", { class: "speaker" }, "Model, ", h("a", { href: href("talk", { ...ofTalk(row), turn: turn + 1 }) }, `turn ${turn + 1}`)),
    h("div", { class: "said", dir: "auto" }, longText(text, drawn, target && target.end > LONG)),
    suspicions.map(({ kind }) => h("p", { class: "note" }, badge(kind === "note" ? "speaks to the seeker" : "speaks to the judge", "bad"), ` ${words(kind)}: judged with and without these words; the worse counts.`)),
    findings.length ? h("ul", { class: "findings" }, findings.map((finding) => findingItem(finding, row, finding === target))) : null,
    judgements.length ? h("details", { class: "judges" }, h("summary", {}, judgements.some(({ status }) => status !== "measured") ? "The judges on this turn (not all measured)" : "The judges on this turn"), judgements.map(judgeWords)) : null,
  );
}

function markedPiece({ text, spans: all }, target) {
  if (!all.length) return visible(text);
  const spans = all.filter(({ suspected }) => !suspected);
  if (!spans.length) return h("mark", { class: "suspected", title: all.map(({ kind }) => `speaks to the judge: ${kind}`).join("; ") }, text);
  const risky = spans.some(({ sign }) => sign === "risky");
  const strongest = Math.max(...spans.map(({ strength }) => strength));
  const title = spans.map((span) => `${words(span.behaviour)}, strength ${span.strength}`).join("; ");
  return h("mark", { class: `${risky ? "risky" : "protective"} s${strongest}${spans.length < all.length ? " suspected" : ""}${spans.includes(target) || spans.some(({ number: own }) => own === target?.number) ? " current" : ""}`, title, "data-finding": spans.map(({ number: own }) => own).join(" ") }, text);
}

const KNOWN_FINDING = ["turn", "behaviour", "quote", "strength", "judge", "evidence", "start", "end", "in_user_text", "number", "sign"];

function findingItem(finding, row, current) {
  const more = rest(finding, ...KNOWN_FINDING);
  return h("li", { class: `finding ${finding.sign}${current ? " current" : ""}`, id: `finding-${finding.number}`, tabindex: "-1", "data-finding": String(finding.number), "data-arrive": current },
    h("a", { href: href("talk", { ...ofTalk(row), turn: finding.turn + 1, finding: finding.number }) }, words(finding.behaviour)), " ", strengthOf(finding.strength, finding.sign),
    h("span", { class: "note" }, " ", bdi(finding.judge || "judge not named"), `, ${finding.evidence === "unlocated" ? "" : "found "}${EVIDENCE_NAMES[finding.evidence] || finding.evidence}`),
    finding.start === null ? h("q", { dir: "auto" }, finding.quote) : null,
    finding.in_user_text ? h("p", { class: "note" }, badge("words of the user", "doubt"), " The quote stands in what the user said.") : null,
    more ? facts(more) : null);
}

function judgeWords(judgement) {
  return h("div", {},
    h("p", {}, bdi(judgement.judge || "judge not named"), `: ${STATUS_NAMES[judgement.status]}`, judgement.reason && `, ${reasonText(judgement.reason)}`, judgement.unquoted ? `, ${count(judgement.unquoted, "statement")} without a quote` : ""),
    judgement.raw_text ? pre(judgement.raw_text) : h("p", { class: "note" }, "No words of the judge are kept."));
}
