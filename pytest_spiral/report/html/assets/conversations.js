/* Conversations: the list, the findings across conversations, and the transcript viewer. */

const EVIDENCE_NAMES = { exact: "exact match", normalised: "match up to typography", elided: "match in parts", unlocated: "not located in the reply" };
// Imported files name no judge; an empty value in an address would mean all judges.
const UNNAMED = "-";
const judgeKey = (judge) => judge || UNNAMED;
const STRENGTHS = [["1", "1 or more"], ["2", "2 or more"], ["3", "3"]];

function signOf(report, model, behaviour) {
  const score = report.spiral.scores.find((row) => row.model === model) || report.spiral.scores[0];
  return score?.metrics[behaviour]?.sign === "protective" ? "protective" : "risky";
}

/** A finding that one judge reported, or several in one place: `seen` has what each of them reported. */
function together(seen) {
  const located = seen.filter(({ start }) => measured(start));
  return {
    ...seen[0], seen, strength: Math.max(...seen.map(({ strength }) => strength)), in_user_text: seen.some(({ in_user_text: user }) => user),
    start: located.length ? Math.min(...located.map(({ start }) => start)) : null, end: located.length ? Math.max(...located.map(({ end }) => end)) : null,
  };
}

/** The short findings of a row of the list as records. */
function shortFindings(report, conversation) {
  const { behaviours, judge_names: judges } = report.spiral;
  return conversation.findings.map(([turn, behaviour, seen]) => together(seen.map(([place, strength, judge, evidence]) => ({
    turn, behaviour: behaviours[behaviour], strength, judge: judges[judge], evidence, number: place + 1,
  }))));
}

/** The findings of an opened conversation. */
function wholeFindings(report, row, conversation) {
  return conversation.places.map((places) => together(places.map((place) => {
    const finding = conversation.findings[place];
    return { ...finding, number: place + 1, sign: signOf(report, row.model, finding.behaviour) };
  })));
}

const numbered = (findings, number_) => findings.find(({ seen }) => seen.some(({ number: own }) => String(own) === String(number_)));

function isSelected(finding, state) {
  return (!state.behaviour || finding.behaviour === state.behaviour) && finding.seen.some(({ strength, judge, evidence }) => (!state.strength || strength >= Number(state.strength))
    && (!state.judge || judgeKey(judge) === state.judge) && (!state.evidence || evidence === state.evidence));
}

/** Each judge that reported a finding, and how strong it was to those that differ. */
function judgesOf({ seen }) {
  return seen.map(({ judge, strength }, index) => [index ? ", " : "", bdi(judge || "judge not named"), seen.length > 1 ? ` (${strength})` : ""]);
}

function findingFilters(report, findings) {
  const seen = findings.flatMap((finding) => finding.seen);
  return [
    { name: "behaviour", label: "Behaviour", options: choices(findings.map(({ behaviour }) => behaviour), words) },
    { name: "strength", label: "Strength", options: STRENGTHS },
    { name: "judge", label: "Judge", options: choices(seen.map(({ judge }) => judgeKey(judge)), (judge) => (judge === UNNAMED ? "not named" : judge)) },
    { name: "evidence", label: "Evidence", options: choices(seen.map(({ evidence }) => evidence)) },
  ];
}

const parametersOf = (conversation) => conversation.model === undefined ? {} : { model: conversation.model, id: conversation.id };

function twinFilter(conversations) {
  return { name: "twin", label: "Benign twins", options: conversations.some((conversation) => conversation.twin_of) ? [["yes", "only twins"], ["no", "without twins"]] : [] };
}

const matchesTwin = (conversation, state) => !state.twin || Boolean(conversation.twin_of) === (state.twin === "yes");

function conversationsView(report, parameters) {
  const all = report.spiral.conversations;
  const heading = h("h1", { tabindex: "-1" }, "Conversations");
  if (!all.length) return [heading, empty("This report has no conversations.")];
  const body = h("tbody", {});
  const outcome = h("p", { class: "note", role: "status" });
  const after = h("div", {});
  const allFindings = all.flatMap((conversation) => shortFindings(report, conversation));
  const several = new Set(all.map((conversation) => conversation.model)).size > 1;
  const { state, bar } = filters("conversations", parameters, [
    { name: "model", label: "Model", options: choices(all.map((conversation) => conversation.model)) },
    { name: "category", label: "Category", options: choices(all.map((conversation) => conversation.category), words) },
    { name: "status", label: "State", options: choices(all.map((conversation) => conversation.status), (status) => STATUS_NAMES[status]) },
    ...findingFilters(report, allFindings),
    twinFilter(all),
    { name: "suspected", label: "Addresses the judge", options: all.some((conversation) => conversation.suspicions) ? [["yes", "yes"], ["no", "no"]] : [] },
    { name: "q", label: "Search all messages", search: true },
  ], draw);
  async function draw(now) {
    const attempt = (draw.attempt = (draw.attempt ?? 0) + 1);
    const stopped = () => attempt !== draw.attempt;
    const byFinding = now.behaviour || now.strength || now.judge || now.evidence;
    let rows = all
      .filter((conversation) => (!now.model || conversation.model === now.model) && (!now.category || conversation.category === now.category) && (!now.status || conversation.status === now.status) && matchesTwin(conversation, now)
        && (!now.suspected || Boolean(conversation.suspicions) === (now.suspected === "yes")))
      .map((conversation) => ({ conversation, findings: shortFindings(report, conversation).filter((finding) => isSelected(finding, now)) }))
      .filter(({ findings }) => !byFinding || findings.length);
    if (now.q) {
      outcome.textContent = "Searching\u2026";
      rows = await conversationsContaining(rows, now.q, stopped);
    }
    if (stopped()) return;
    body.replaceChildren();
    after.replaceChildren(portions(rows, (row) => conversationRow(report, row, now, several), body));
    outcome.textContent = `${count(rows.length, "conversation")} of ${all.length}, ${count(rows.reduce((sum, { findings }) => sum + findings.length, 0), "finding")}`;
  }
  draw(state);
  return [
    heading, bar, outcome,
    scrolling(h("table", {}, h("caption", {}, "Conversations. Open one to read it"), h("thead", {}, h("tr", {},
      ["Conversation", "Risky", "Protective", several && "Model", "Category", "State", "Turns", "Final judgement", "Opening"].filter(Boolean).map((name) => h("th", { scope: "col" }, name)))), body), "Conversations"),
    after,
  ];
}

function conversationRow(report, { conversation, findings, hit }, state, several) {
  const tally = (sign) => {
    const own = findings.filter((finding) => signOf(report, conversation.model, finding.behaviour) === sign);
    if (!own.length) return "0";
    const strongest = Math.max(...own.map(({ strength }) => strength));
    const first = own.find(({ strength }) => strength === strongest);
    return link("conversation", { ...parametersOf(conversation), turn: first.turn + 1, finding: first.number }, h("span", { class: `count ${sign}` }, `${own.length}, up to ${strongest}`));
  };
  const kept = { behaviour: state.behaviour, strength: state.strength, judge: state.judge, evidence: state.evidence };
  return h("tr", {},
    h("th", { scope: "row" }, link("conversation", { ...parametersOf(conversation), ...kept, turn: hit?.turn }, bdi(conversation.id))), h("td", {}, tally("risky")), h("td", {}, tally("protective")), several && h("td", {}, bdi(conversation.model)), h("td", {}, words(conversation.category), conversation.twin_of && h("div", { class: "note" }, "benign twin of ", bdi(conversation.twin_of))),
    h("td", {}, STATUS_NAMES[conversation.status], conversation.reason && h("div", { class: "note" }, reasonText(conversation.reason))), h("td", { class: "number" }, String(conversation.replies)),
    h("td", {}, conversation.final_judgement ? Object.entries(conversation.final_judgement).map(([name, value]) => h("div", { class: "pair" }, `${words(name)} ${number(value, 0)}`)) : MISSING),
    h("td", { class: "excerpt" }, bdi(hit ? hit.excerpt : conversation.opening)));
}

async function conversationsContaining(rows, query, stopped) {
  const needle = query.toLowerCase();
  const matches = [];
  await inSlices(rows, async (row) => {
    const { transcript } = await unpack(row.conversation.pack);
    let turn = 0;
    for (const { role, content } of transcript) {
      if (role === "assistant") turn += 1;
      const place = content.toLowerCase().indexOf(needle);
      if (place < 0) continue;
      const from = Math.max(0, place - 60);
      matches.push({ ...row, hit: { turn: Math.max(turn, 1), excerpt: `${from ? "\u2026" : ""}${content.slice(from, place + needle.length + 100)}` } });
      return;
    }
    if (row.conversation.id.toLowerCase().includes(needle)) matches.push(row);
  }, stopped);
  return matches;
}

/** Findings across conversations, with their quotes: the turns behind a metric. */
function findingsView(report, parameters) {
  const all = report.spiral.conversations.flatMap((conversation) => shortFindings(report, conversation).map((finding) => ({ ...finding, conversation })));
  const heading = h("h1", { tabindex: "-1" }, "Findings");
  if (!all.length) return [heading, empty("The judges reported no findings in this run, or nothing was judged.")];
  const body = h("tbody", {});
  const outcome = h("p", { class: "note", role: "status" });
  const after = h("div", {});
  const { state, bar } = filters("findings", parameters, [
    { name: "model", label: "Model", options: choices(all.map(({ conversation }) => conversation.model)) },
    { name: "category", label: "Category", options: choices(all.map(({ conversation }) => conversation.category), words) },
    twinFilter(report.spiral.conversations),
    { name: "sign", label: "Kind", options: [["risky", "risky"], ["protective", "protective"]] },
    ...findingFilters(report, all),
  ], draw);
  function draw(now) {
    const rows = all.filter((finding) => (!now.model || finding.conversation.model === now.model) && (!now.category || finding.conversation.category === now.category) && matchesTwin(finding.conversation, now) && isSelected(finding, now))
      .map((finding) => ({ ...finding, sign: signOf(report, finding.conversation.model, finding.behaviour) }))
      .filter(({ sign }) => !now.sign || sign === now.sign)
      .sort((one, other) => (one.sign === other.sign ? other.strength - one.strength : one.sign === "risky" ? -1 : 1));
    body.replaceChildren();
    after.replaceChildren(portions(rows, (finding) => findingRow(report, finding), body, 100));
    const reported = rows.reduce((sum, { seen }) => sum + seen.length, 0);
    const judges = reported > rows.length ? ` (${reported} counted by judge)` : "";
    outcome.textContent = `${count(rows.length, "finding")}${judges} of ${all.length}, risky behaviours first, strongest first`;
  }
  draw(state);
  return [
    heading, bar, outcome,
    scrolling(h("table", {}, h("caption", {}, "Findings. Open one to read it in its conversation"), h("thead", {}, h("tr", {},
      ["Behaviour", "Strength", "Quote", "Conversation", "Judge", "Evidence"].map((name) => h("th", { scope: "col" }, name)))), body), "Findings"),
    after,
  ];
}

function findingRow(report, finding) {
  const quote = h("td", { class: "excerpt" }, "\u2026");
  unpack(finding.conversation.pack).then(({ findings }) => quote.replaceChildren(bdi(findings[finding.number - 1].quote)));
  return h("tr", {},
    h("th", { scope: "row" }, link("conversation", { ...parametersOf(finding.conversation), turn: finding.turn + 1, finding: finding.number }, words(finding.behaviour))),
    h("td", {}, strengthOf(finding.strength, finding.sign)), quote,
    h("td", {}, bdi(finding.conversation.id), `, turn ${finding.turn + 1}`, h("div", { class: "note" }, bdi(finding.conversation.model))),
    h("td", {}, judgesOf(finding)), h("td", {}, [...new Set(finding.seen.map(({ evidence }) => evidence))].join(", ")));
}

function strengthOf(strength, sign) {
  return h("span", { class: `strength ${sign}` }, String(strength));
}

async function conversationView(report, asked) {
  const parameters = { ...asked };
  const all = report.spiral.conversations;
  const place = all.findIndex((conversation) => conversation.id === parameters.id && (!parameters.model || conversation.model === parameters.model));
  if (place < 0) return [h("h1", { tabindex: "-1" }, "Conversation"), empty("This report has no such conversation. ", link("conversations", {}, "All conversations"))];
  const row = all[place];
  const conversation = await unpack(row.pack);
  const findings = wholeFindings(report, row, conversation);
  // Any of the findings in one place leads to them all.
  parameters.finding = numbered(findings, parameters.finding)?.number;
  const chat = h("div", { class: "chat" });
  const cursor = h("aside", { class: "cursor", "aria-label": "Current finding", hidden: true });
  const { state, bar } = filters("conversation", parameters, findingFilters(report, findings), draw);
  let shown = [];
  function draw(now) {
    shown = findings.filter((finding) => isSelected(finding, now)).sort((one, other) => one.turn - other.turn || (one.start ?? Infinity) - (other.start ?? Infinity));
    chat.replaceChildren(...messages(conversation, shown, row, now));
    showCurrent();
  }
  function showCurrent() {
    const finding = numbered(findings, state.finding);
    cursor.hidden = !shown.length;
    cursor.replaceChildren(
      h("button", { type: "button", onclick: () => move(-1), "aria-label": "Previous finding" }, "\u2190"),
      h("p", {}, finding ? [h("strong", {}, words(finding.behaviour)), " ", strengthOf(finding.strength, finding.sign), ` turn ${finding.turn + 1}, ${shown.indexOf(finding) + 1} of ${shown.length} `, h("q", { dir: "auto" }, finding.quote)] : `${count(shown.length, "finding")} to step through`),
      h("button", { type: "button", onclick: () => move(1), "aria-label": "Next finding" }, "\u2192"),
    );
  }
  draw(state);
  const step = (by, rel, text) => all[place + by] && h("a", { rel, href: href("conversation", parametersOf(all[place + by])) }, text);
  shortcuts.j = () => move(1);
  shortcuts.k = () => move(-1);
  shortcuts["]"] = () => all[place + 1] && go("conversation", parametersOf(all[place + 1]));
  shortcuts["["] = () => all[place - 1] && go("conversation", parametersOf(all[place - 1]));
  function move(by) {
    if (!shown.length) return;
    const now = shown.findIndex(({ number: own }) => String(own) === String(state.finding));
    const next = shown[(now + by + shown.length + (now < 0 && by < 0 ? 1 : 0)) % shown.length];
    select(next.number);
  }
  function select(number_) {
    const finding = numbered(findings, number_);
    Object.assign(state, { turn: finding.turn + 1, finding: number_ });
    history.replaceState(null, "", href("conversation", state));
    showCurrent();
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
    h("nav", { class: "steps", "aria-label": "Conversations" }, link("conversations", {}, "All conversations"), step(-1, "prev", "\u2190 previous"), step(1, "next", "next \u2192")),
    h("h1", { tabindex: "-1" }, bdi(row.id), h("small", {}, words(row.category))),
    h("p", { class: "lead" }, bdi(row.model), conversation.twin_of && [" \u00b7 benign twin of ", bdi(conversation.twin_of)], " \u00b7 ", badge(STATUS_NAMES[row.status], row.status === "measured" ? "plain" : "doubt"), ` \u00b7 ${count(row.replies, "reply", "replies")} \u00b7 ${count(findings.length, "finding")}`),
    row.reason && h("p", { class: "notice" }, reasonText(row.reason)),
    finalPart(conversation), bar,
    h("p", { class: "note keys" }, "Keyboard: j and k step through the findings, [ and ] through the conversations, ? lists all shortcuts."),
    chat, cursor, otherFacts(report, conversation),
  ];
}

function finalPart(conversation) {
  if (!conversation.final_judgement && !conversation.finals.length) return empty("There is no final judgement of this conversation.");
  return h("div", { class: "final" },
    h("p", {}, h("strong", {}, "Final judgement: "), conversation.final_judgement ? Object.entries(conversation.final_judgement).map(([name, value]) => h("span", { class: "pair" }, `${words(name)} ${number(value, 1)} of 10`)) : MISSING),
    h("details", {}, h("summary", {}, "Final judgements by judge"), conversation.finals.map((final) => h("div", {}, h("p", {}, bdi(final.judge || "judge not named"), `: ${STATUS_NAMES[final.status]}`, final.reason && `, ${reasonText(final.reason)}`), final.raw_text ? pre(final.raw_text) : null))),
  );
}

const KNOWN_CONVERSATION = ["id", "prompt_id", "category", "model", "index", "status", "reason", "prompts", "transcript", "injections_log", "judgements", "finals", "findings", "places", "final_judgement", "origin", "simulator", "suspicions", "twin_of", "beginning"];

function otherFacts(report, conversation) {
  const { flags, ...simulator } = conversation.simulator || {};
  const more = { ...rest(conversation, ...KNOWN_CONVERSATION), ...simulator, ...Object.fromEntries(Object.entries(report.spiral.origins[conversation.origin]).filter(([, value]) => value)) };
  return Object.keys(more).length ? h("details", {}, h("summary", {}, "More about this conversation"), facts(more)) : null;
}

/** The messages of a conversation with findings highlighted in place. */
function messages(conversation, findings, row, now = {}) {
  let turn = -1;
  let userTurn = -1;
  const nodes = conversation.transcript.map((message, index) => {
    if (message.role !== "assistant") {
      userTurn += 1;
      const user = conversation.beginning ? "User" : "Simulated user";
      return messageNode("user", message.role === "user" ? user : message.role, visible, message.content, userNotes(conversation, index, userTurn));
    }
    turn += 1;
    return reply(conversation, findings.filter((finding) => finding.turn === turn), row, turn, message.content, now);
  });
  const about = conversation.beginning;
  const before = about ? [h("details", { class: "judges" }, h("summary", {}, `The beginning, which the model did not write: ${about.kind}, ${count(about.history.length / 2, "reply", "replies")}; what follows calls for holding one's ground: ${about.called_for}`),
    about.history.map(({ role, content }) => messageNode(role, role === "user" ? "User" : "Assistant", visible, content)))] : [];
  return nodes.length ? [...before, ...nodes] : [empty("The conversation has no messages.")];
}

/** Notes on a user message: the injected instruction, and the persona rules it broke. */
function userNotes(conversation, index, userTurn) {
  const injected = conversation.injections_log?.[index];
  const flags = (conversation.simulator?.flags || []).filter((flag) => flag.turn === userTurn);
  return [
    injected && h("p", { class: "note" }, "Injected instruction: ", bdi(injected)),
    flags.map((flag) => h("p", { class: "note" }, badge(words(flag.rule), "doubt"), " ", flag.detail)),
  ];
}

function messageNode(role, speaker, draw, text, ...below) {
  return h("article", { class: `message ${role}` }, h("p", { class: "speaker" }, speaker), h("div", { class: "message-text", dir: "auto" }, longText(text, draw)), below);
}

function reply(conversation, findings, row, turn, text, now) {
  const target = now.finding && findings.find(({ number: own }) => String(own) === String(now.finding));
  const suspicions = (conversation.suspicions || []).filter((row_) => row_.turn === turn);
  const located = [...findings.filter(({ start }) => start !== null), ...suspicions.map((row_) => ({ ...row_, suspected: true }))];
  const drawn = (part) => pieces(part, located.filter(({ start }) => start < part.length)).map((piece) => markedPiece(piece, target));
  const judgements = conversation.judgements.filter(({ turns }) => turns.includes(turn));
  const here = !target && String(now.turn) === String(turn + 1);
  return h("article", { class: `message assistant${here ? " current" : ""}`, id: `turn-${turn + 1}`, tabindex: "-1", "data-arrive": here },
    h("p", { class: "speaker" }, "Model, ", h("a", { href: href("conversation", { ...parametersOf(row), turn: turn + 1 }) }, `turn ${turn + 1}`)),
    h("div", { class: "message-text", dir: "auto" }, longText(text, drawn, target && target.end > LONG)),
    suspicions.map(({ kind }) => h("p", { class: "note" }, badge(kind === "note" ? "addresses the simulated user" : "addresses the judge", "bad"), ` ${words(kind)}: judged with and without this text; the worse judgement counts.`)),
    findings.length ? h("ul", { class: "findings" }, findings.map((finding) => findingItem(finding, row, finding === target))) : null,
    judgements.length ? h("details", { class: "judges" }, h("summary", {}, judgements.some(({ status }) => status !== "measured") ? "Judgements of this turn (not all measured)" : "Judgements of this turn"), judgements.map(judgementNode)) : null,
  );
}

function markedPiece({ text, spans: all }, target) {
  if (!all.length) return visible(text);
  const spans = all.filter(({ suspected }) => !suspected);
  if (!spans.length) return h("mark", { class: "suspected", title: all.map(({ kind }) => `addresses the judge: ${kind}`).join("; ") }, text);
  const risky = spans.some(({ sign }) => sign === "risky");
  const strongest = Math.max(...spans.map(({ strength }) => strength));
  const title = spans.map((span) => `${words(span.behaviour)}, strength ${span.strength}`).join("; ");
  return h("mark", { class: `${risky ? "risky" : "protective"} s${strongest}${spans.length < all.length ? " suspected" : ""}${spans.includes(target) || spans.some(({ number: own }) => own === target?.number) ? " current" : ""}`, title, "data-finding": spans.map(({ number: own }) => own).join(" ") }, text);
}

const KNOWN_FINDING = ["turn", "behaviour", "quote", "strength", "judge", "evidence", "start", "end", "in_user_text", "number", "sign", "seen"];

function findingItem(finding, row, current) {
  const more = rest(finding, ...KNOWN_FINDING);
  return h("li", { class: `finding ${finding.sign}${current ? " current" : ""}`, id: `finding-${finding.number}`, tabindex: "-1", "data-finding": String(finding.number), "data-arrive": current },
    h("a", { href: href("conversation", { ...parametersOf(row), turn: finding.turn + 1, finding: finding.number }) }, words(finding.behaviour)), " ", strengthOf(finding.strength, finding.sign),
    h("span", { class: "note" }, " ", judgesOf(finding), `, ${[...new Set(finding.seen.map(({ evidence }) => EVIDENCE_NAMES[evidence] || evidence))].join(", ")}`),
    finding.start === null ? h("q", { dir: "auto" }, finding.quote) : null,
    finding.in_user_text ? h("p", { class: "note" }, badge("user's words", "doubt"), " The quote is part of a user message.") : null,
    more ? facts(more) : null);
}

function judgementNode(judgement) {
  return h("div", {},
    h("p", {}, bdi(judgement.judge || "judge not named"), `: ${STATUS_NAMES[judgement.status]}`, judgement.reason && `, ${reasonText(judgement.reason)}`, judgement.unquoted ? `, ${count(judgement.unquoted, "finding")} without a quote` : ""),
    judgement.raw_text ? pre(judgement.raw_text) : h("p", { class: "note" }, "The judge's reply was not stored."));
}
