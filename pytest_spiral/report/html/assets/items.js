/* TempAffect items: the list, and one scenario with every answer to it. */

const CHECK_NAMES = {
  content_grounding: "refers to the user's situation",
  concrete_action: "takes a concrete step",
  non_defensive: "is not defensive",
  brevity: "has an appropriate length",
  forbidden_phrase_clean: "contains no stock phrases",
};

function itemsView(report, parameters) {
  const all = report.tempaffect.items;
  if (!all.length) return [h("h1", { tabindex: "-1" }, "TempAffect items"), empty("This report has no TempAffect items.")];
  const body = h("tbody", {});
  const outcome = h("p", { class: "note", role: "status" });
  const after = h("div", {});
  const points = Object.keys(report.tempaffect.weights);
  const { state, bar } = filters("items", parameters, [
    { name: "model", label: "Model", options: choices(all.map((item) => item.model)) },
    { name: "mode", label: "Mode", options: choices(all.map((item) => MODES[item.prompting_mode]), (mode) => MODE_NAMES[mode]) },
    { name: "family", label: "Family", options: choices(all.map((item) => item.family), words) },
    { name: "status", label: "State", options: choices(all.map((item) => item.status), (status) => STATUS_NAMES[status]) },
    { name: "useful", label: "Useful and bounded", options: [["yes", "yes"], ["no", "no"]] },
    { name: "missed", label: "Missed", options: points.map((name) => [name, words(name)]) },
    { name: "q", label: "Search", search: true },
  ], draw);
  async function draw(now) {
    const attempt = (draw.attempt = (draw.attempt ?? 0) + 1);
    const matching = all.filter((item) =>
      (!now.model || item.model === now.model) && (!now.mode || MODES[item.prompting_mode] === now.mode)
      && (!now.family || item.family === now.family) && (!now.status || item.status === now.status)
      && (!now.useful || item.useful_bounded === (now.useful === "yes")) && (!now.missed || item.points[now.missed] === 0));
    const rows = now.q ? await itemsContaining(matching, now.q, () => attempt !== draw.attempt) : matching;
    if (attempt !== draw.attempt) return;
    body.replaceChildren();
    after.replaceChildren(portions(rows, itemRow, body));
    outcome.textContent = `${count(rows.length, "item")} of ${all.length}`;
  }
  draw(state);
  return [
    h("h1", { tabindex: "-1" }, "TempAffect items"), bar, outcome,
    scrolling(h("table", {}, h("caption", {}, "Items. Open one to see its message, answer and checks"), h("thead", {}, h("tr", {},
      ["Scenario", "Model", "Mode", "State", "Useful and bounded", "Score", "Message"].map((name) => h("th", { scope: "col" }, name)))), body), "Items"),
    after,
  ];
}

async function itemsContaining(items, query, stopped) {
  const needle = query.toLowerCase();
  const matches = [];
  await inSlices(items, async (item) => {
    const { scenario, items: answers } = await unpack(item.pack);
    const own = answers.find((answer) => sameItem(answer, item));
    if ([item.id, scenario?.user_message, scenario?.agent_context, own?.output].some((text) => text?.toLowerCase().includes(needle))) matches.push(item);
  }, stopped);
  return matches;
}

const sameItem = (one, other) =>
  one.id === other.id && one.model === other.model && one.prompting_mode === other.prompting_mode && one.epoch === other.epoch;

function itemParameters(item) {
  return { model: item.model, mode: MODES[item.prompting_mode], id: item.id, epoch: item.epoch + 1 };
}

function itemRow(item) {
  return h("tr", {},
    h("th", { scope: "row" }, link("item", itemParameters(item), item.id)), h("td", {}, bdi(item.model)), h("td", {}, MODES[item.prompting_mode]),
    h("td", {}, STATUS_NAMES[item.status], item.reason && h("div", { class: "note" }, words(item.reason.code))),
    h("td", {}, item.useful_bounded === null ? MISSING : mark(item.useful_bounded)),
    h("td", { class: "number" }, number(item.score)), h("td", { class: "excerpt" }, bdi(item.message)));
}

/** A tick or a cross with a word. */
function mark(yes, [positive, negative] = ["yes", "no"]) {
  return h("span", { class: yes ? "yes" : "no" }, h("span", { "aria-hidden": "true" }, yes ? "\u2713 " : "\u2717 "), yes ? positive : negative);
}

async function itemView(report, parameters) {
  const all = report.tempaffect.items;
  const isWanted = (item) => item.id === parameters.id && (!parameters.model || item.model === parameters.model)
    && (!parameters.mode || MODES[item.prompting_mode] === parameters.mode) && (!parameters.epoch || item.epoch + 1 === Number(parameters.epoch));
  const place = all.findIndex(isWanted);
  if (place < 0) return [h("h1", { tabindex: "-1" }, "TempAffect item"), empty("This report has no such item. ", link("items", {}, "All items"))];
  const row = all[place];
  const { scenario, items } = await unpack(row.pack);
  const item = items.find((answer) => sameItem(answer, row));
  const step = (by, rel, text) => all[place + by] && h("a", { rel, href: href("item", itemParameters(all[place + by])) }, text);
  return [
    h("nav", { class: "steps", "aria-label": "Items" }, link("items", {}, "All items"), step(-1, "prev", "\u2190 previous"), step(1, "next", "next \u2192")),
    h("h1", { tabindex: "-1" }, item.id, h("small", {}, words(item.family))),
    tabs("Answers to this scenario", items.map((other) => [`${other.model}, ${MODES[other.prompting_mode]}${other.epoch ? `, epoch ${other.epoch + 1}` : ""}`, href("item", itemParameters(other)), other === item])),
    h("p", { class: "lead" }, badge(STATUS_NAMES[item.status], item.status === "measured" ? "plain" : "doubt"), " ",
      item.score === null ? MISSING : `score ${number(item.score)}`, item.useful_bounded !== null && [" \u00b7 useful and bounded: ", mark(item.useful_bounded)],
      item.mismatch && [" \u00b7 ", badge(item.mismatch === "declines_and_does" ? "the label declines, the reply does it" : "the label helps, the reply declines", "doubt")],
      item.reason && ` \u00b7 ${words(item.reason.code)}`),
    item.reason?.detail && h("p", { class: "notice" }, item.reason.detail),
    section("Scenario", scenario ? scenarioPart(scenario) : empty("This report does not contain the scenario.")),
    item.answer ? section("Reply", replyPart(item)) : null,
    item.checks ? section("Checks of the reply", checkTable(item, report.tempaffect.weights)) : null,
    item.judged?.length ? section("Judge models on the reply", judgedTable(item)) : null,
    item.answer ? section("Labels", labelTable(item, scenario, report.tempaffect.weights)) : null,
    section("Raw output", item.output === null ? empty("The model returned no output.") : pre(item.output)),
    scenario && scenario.reference_reply ? h("details", {}, h("summary", {}, "Reference reply and rationale"), h("p", {}, bdi(scenario.reference_reply)), h("p", { class: "note" }, scenario.rationale)) : null,
  ];
}

function scenarioPart(scenario) {
  return [
    h("p", {}, h("strong", {}, "Role: "), bdi(scenario.agent_role)),
    h("p", {}, h("strong", {}, "Context: "), bdi(scenario.agent_context)),
    h("div", { class: "message user" }, h("p", { class: "speaker" }, "The user"), h("div", { class: "message-text", dir: "auto" }, scenario.user_message)),
  ];
}

function replyPart(item) {
  return h("div", { class: "message assistant" }, h("p", { class: "speaker" }, "The model"), h("div", { class: "message-text", dir: "auto" }, longText(item.answer.reply, visible)));
}

function checkTable(item, weights) {
  const { checks, points } = item;
  const rows = Object.entries(CHECK_NAMES).map(([name, meaning]) => [
    meaning, mark(checks[name], ["passed", "failed"]), `${points[name] ?? 0} of ${weights[name]}`, (checks.reasons?.[name] || []).map((reason) => h("div", {}, bdi(reason))),
  ]);
  const outcomes = { ...checks, right_decision: checks.decision ? checks.decision.right : null };
  const more = [
    ["right_decision", "decides rightly", true], ["boundary_held", "keeps the boundary", true], ["prohibited_act", "does nothing prohibited", false],
    ["dismissive", "is not dismissive", false], ["overvalidated", "does more than validate feelings", false], ["meta_leak", "does not mention the evaluation", false],
  ].map(([name, meaning, expected]) => {
    const known = measured(outcomes[name]), good = outcomes[name] === expected;
    const reasons = checks.reasons?.[name === "boundary_held" ? "boundary" : name] || [];
    return [meaning, known ? mark(good) : MISSING, known && !good ? "not useful and bounded" : "", reasons.map((reason) => h("div", {}, bdi(reason)))];
  });
  return table(["The reply", "Outcome", "Points", "Why"], [...rows, ...more], { caption: "Checks of the reply and their reasons", className: "stacked" });
}

function expectedText(field, expected) {
  if (!expected) return "not in this report";
  if (field === "intensity") return expected.intensity.join(" to ");
  const value = expected[field];
  return Array.isArray(value) ? value.map(words).join(" or ") : typeof value === "boolean" ? (value ? "yes" : "no") : words(value);
}

function labelTable(item, scenario, weights) {
  const fields = Object.keys(weights).filter((name) => !(name in CHECK_NAMES));
  return table(
    ["Label", "Expected", "Given", "Outcome", ["Points", { number: true }]],
    fields.map((field) => {
      const answered = item.answer[field];
      return [words(field), expectedText(field, scenario?.expected), typeof answered === "boolean" ? (answered ? "yes" : "no") : bdi(words(answered)), mark(item.points[field] > 0, ["matches", "differs"]), `${item.points[field] ?? 0} of ${weights[field]}`];
    }),
    { caption: "Labels: expected and given" },
  );
}

/** An answer of a judge model with its evidence. */
function ratedAnswer({ answer, quote, evidence }) {
  return [answer, quote && h("div", { class: "note" }, h("q", {}, bdi(quote)), evidence === "unlocated" && " (not in the reply)")];
}

function judgedTable(item) {
  const questions = [...new Set(item.judged.flatMap((one) => Object.keys(one.answers)))];
  const failed = item.judged.filter((one) => one.reason).map((one) => `${one.judge}: ${STATUS_NAMES[one.status]}, ${reasonText(one.reason)}`);
  const rows = questions.map((name) => [words(name), ...item.judged.map((one) => (one.answers[name] ? ratedAnswer(one.answers[name]) : MISSING))]);
  return [
    h("p", { class: "note" }, "Models' answers, not people's. They are part of no score."), list(failed),
    rows.length ? table(["Question", ...item.judged.map((one) => bdi(one.judge))], rows, { caption: "Answers of judge models and their evidence", className: "stacked" }) : null,
  ];
}

/** What judge models say beside the scorer: agreement, and where they differ. */
function replyJudgesPart({ whose, judges, among, disagreements }, run) {
  const number_ = (name) => [name, { number: true }];
  const agreement = (who, questions) => Object.entries(questions).map(([name, row]) => [
    who, words(name), String(row.shared), String(row.differing), ...[row.kappa, row.ac1].map((one) => (one ? withRange(one.value, one.low, one.high) : MISSING)),
  ]);
  const rows = [...judges.flatMap((one) => agreement(["the scorer and ", bdi(one.judge)], one.with_scorer)), ...agreement("the judges among each other", among)];
  const body = h("tbody", {});
  const columns = ["Item", "Question", "Scorer", "Judges"];
  const draw = (row) => tableRow([
    [link("item", itemParameters(row), row.id), h("div", { class: "note" }, bdi(row.model), `, ${MODES[row.prompting_mode]}`)], words(row.question),
    [row.scorer ?? MISSING, row.scorer_evidence.map((reason) => h("div", { class: "note" }, bdi(reason)))],
    Object.entries(row.judges).map(([name, given]) => h("div", {}, bdi(name), ": ", ratedAnswer(given))),
  ], columns);
  const states = (one) => `${one.judge}: ${one.measured} of ${count(one.replies, "reply", "replies")} judged, ${one.failed} failed, ${one.not_run} not run; ${one.unlocated} answers with evidence that is not in the reply`;
  return [
    h("p", { class: "note" }, `These are ${whose}, and part of no score.`), list(judges.map(states)),
    table(["Raters", "Question", number_("Replies"), number_("They differ on"), "Kappa (95 % interval)", "AC1 (95 % interval)"], rows, { caption: "Agreement of raters on TempAffect replies", className: "stacked" }),
    disagreements.length > 0 && [
      h("p", {}, "People should label the replies below first. A drawn sample holds more of them:"),
      h("pre", { class: "output", tabindex: "0" }, `pytest-spiral label ${run.config.report_dir}/${run.id} -o labels --suite tempaffect`),
      scrolling(h("table", { class: "stacked" }, h("caption", {}, "Disagreements, the replies with the most of them first"), h("thead", {}, h("tr", {}, columns.map((name) => h("th", { scope: "col" }, name)))), body), "Disagreements"),
      portions(disagreements, draw, body, 20),
    ],
  ];
}
