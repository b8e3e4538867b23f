/* Two models or runs side by side on the same prompts. */

function subjects() {
  return page.reports.flatMap((report, run) => {
    const models = [...new Set([...report.tempaffect.cards, ...report.spiral.scores].map(({ model }) => model))];
    return models.map((model) => ({ key: `${run}:${model}`, run, report, model, name: page.reports.length > 1 ? `${report.run.id}: ${model}` : model }));
  });
}

async function compareView(_, parameters) {
  const all = subjects();
  const heading = h("h1", { tabindex: "-1" }, "Compare");
  if (all.length < 2) return [heading, empty("A comparison needs two models or runs. ", h("code", {}, "pytest-spiral compare BASELINE CANDIDATE --html compare.html"), " puts two runs into one page.")];
  const left = all.find(({ key }) => key === parameters.left) || all[0];
  const right = all.find(({ key }) => key === parameters.right) || all.find((subject) => subject !== left && subject.run !== left.run) || all.find((subject) => subject !== left);
  const now = { ...parameters, left: left.key, right: right.key };
  const pick = (side, label) => {
    const select = h("select", { id: side, onchange: () => go("compare", { ...now, [side]: select.value }) }, all.map(({ key, name }) => h("option", { value: key, selected: now[side] === key }, name)));
    return h("label", { for: side }, h("span", {}, label), select);
  };
  const bar = h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, pick("left", "Left"), pick("right", "Right"));
  if (parameters.conversation) return [heading, bar, await conversationsSideBySide(left, right, now)];
  if (parameters.item) return [heading, bar, await itemsSideBySide(left, right, now)];
  return [
    heading, bar, unequal(left, right),
    page.comparison ? section("Paired differences", comparisonPart(page.comparison)) : null,
    section("Spiral-Bench", scorePart(left, right)),
    section("TempAffect", cardPart(left, right)),
    section("Conversations on the same prompt", commonConversations(left, right, now)),
    section("Answers to the same scenario", commonItems(left, right, now)),
  ];
}

/** The differences in circumstances that make two runs incomparable. */
function unequal(left, right) {
  const [one, other] = [left, right].map(({ report, model }) => report.circumstances[model] || {});
  const shown = (value) => (/^[0-9a-f]{64}$/.test(value) ? hash(value) : bdi(value));
  const names = Object.keys(one).filter((name) => name in other && one[name] !== other[name]);
  return names.length ? h("div", { class: "notice" }, h("p", {}, "These runs differ in the following. Their scores cannot be compared; compare the texts only."),
    h("ul", {}, names.map((name) => h("li", {}, `${name}: `, shown(one[name]), " and ", shown(other[name]))))) : null;
}

/** Paired differences as computed by `pytest-spiral compare`. */
function comparisonPart(comparison) {
  const rows = comparison.comparisons || [];
  return [
    comparison.notes?.length ? list(comparison.notes) : null,
    comparison.side_by_side?.length ? h("p", {}, "Each side has its score below; there is no difference to show.") : null,
    rows.map((row) => [
      h("h3", {}, `${words(row.suite)}${row.mode ? `, ${MODE_NAMES[row.mode] || row.mode}` : ""}: `, bdi(row.candidate), " compared with ", bdi(row.baseline), `, paired on ${count(row.paired, row.unit)}`),
      [["baseline", row.only_baseline], ["candidate", row.only_candidate]].map(([side, only]) => only?.length ? h("p", { class: "note" }, `in the ${side} only: ${only.join(", ")}`) : null),
      differenceFigure(row), differenceTable(row),
    ]),
    rest(comparison, "baseline", "candidate", "protocol", "notes", "comparisons", "side_by_side") ? facts(rest(comparison, "baseline", "candidate", "protocol", "notes", "comparisons", "side_by_side")) : null,
  ];
}

function differenceTable(row) {
  const tested = Object.values(row.metrics).some(({ p }) => measured(p));
  return table(["Metric", ["Baseline", { number: true }], ["Candidate", { number: true }], ["Candidate minus baseline", { number: true }], "Differs", ["Minimum detectable difference", { number: true }], ...(tested ? [["p", { number: true }]] : [])],
    Object.entries(row.metrics).map(([name, metric]) => [words(name), number(metric.baseline, 3), number(metric.candidate, 3),
      [signed(metric.difference, 3), " ", h("span", { class: "range" }, `(${range(metric.low, metric.high, 3)})`)], metric.differs ? badge("yes", "doubt") : "no", number(metric.mde, 3), ...(tested ? [measured(metric.p) ? number(metric.p, 3) : ""] : [])]),
    { caption: "Paired differences with 90 % intervals: each end is a one-sided 95 % bound" });
}

function differenceFigure(row) {
  const entries = Object.entries(row.metrics).filter(([name, metric]) => measured(metric.difference) && !name.startsWith("families."));
  if (!entries.length) return null;
  // Metrics have different units, so each is drawn relative to its own interval.
  const points = entries.map(([name, metric]) => {
    const unit = Math.max(Math.abs(metric.low), Math.abs(metric.high), Math.abs(metric.difference)) || 1;
    return { label: words(name), points: [{ kind: metric.differs ? "k1 b" : "one", value: metric.difference / unit, low: metric.low / unit, high: metric.high / unit }] };
  });
  return figure("Candidate minus baseline, each metric relative to the farther end of its interval", intervals(points, { low: -1, high: 1, zero: 0 }), { legend: [["one", "interval includes 0"], ["k1 b", "differs"]] });
}

function scorePart(left, right) {
  const [one, other] = [left, right].map(({ report, model }) => report.spiral.scores.find((score) => score.model === model));
  if (!one || !other) return empty("Only one of the two has Spiral-Bench conversations.");
  const names = [...new Set([...Object.keys(one.metrics), ...Object.keys(other.metrics)])];
  const cell = (score, name) => { const metric = score.metrics[name]; return metric ? withRange(metric.mean, metric.ci_low, metric.ci_high) : MISSING; };
  return table(["Metric", [left.name, { number: true }], [right.name, { number: true }]], [
    ["score (0 to 100)", withRange(one.score, one.ci_low, one.ci_high, 1), withRange(other.score, other.ci_low, other.ci_high, 1)],
    ["length of conversations", turnsOf(left.report, left.model), turnsOf(right.report, right.model)],
    ...names.map((name) => [words(name), cell(one, name), cell(other, name)]),
  ], { caption: "Means with 95 % intervals. Overlapping intervals do not show that there is no difference; see the paired differences" });
}

function cardPart(left, right) {
  const cardsOf = ({ report, model }) => report.tempaffect.cards.filter((card) => card.model === model);
  const pairs = cardsOf(left).map((card) => [card, cardsOf(right).find((other) => other.prompting_mode === card.prompting_mode)]).filter(([, other]) => other);
  if (!pairs.length) return empty("The two have no card in the same mode.");
  return pairs.map(([card, other]) => table(
    [words(card.prompting_mode), [left.name, { number: true }], [right.name, { number: true }]],
    left.report.tempaffect.rates.map(([name, metric]) => [name, withRange(at(card, metric), ...intervalOf(card, metric)), withRange(at(other, metric), ...intervalOf(other, metric))]),
    { caption: `Cards, ${MODE_NAMES[MODES[card.prompting_mode]]}` },
  ));
}

function commonConversations(left, right, now) {
  const of = ({ report, model }) => report.spiral.conversations.filter((conversation) => conversation.model === model);
  const others = new Map(of(right).map((conversation) => [conversation.id, conversation]));
  const pairs = of(left).filter((conversation) => others.has(conversation.id)).map((conversation) => [conversation, others.get(conversation.id)]);
  if (!pairs.length) return empty("The two have no prompt in common.");
  const risky = (subject, conversation) => shortFindings(subject.report, conversation).filter((finding) => signOf(subject.report, conversation.model, finding.behaviour) === "risky").length;
  return table(
    ["Conversation", "Category", [`risky, ${left.name}`, { number: true }], [`risky, ${right.name}`, { number: true }], "Opening"],
    pairs.map(([one, other]) => [link("compare", { ...now, conversation: one.id }, bdi(one.id)), words(one.category), String(risky(left, one)), String(risky(right, other)), h("td", { class: "excerpt" }, bdi(one.opening))]),
    { caption: "Findings of risky behaviours" },
  );
}

function commonItems(left, right, now) {
  const of = ({ report, model }) => report.tempaffect.items.filter((item) => item.model === model && item.epoch === 0);
  const key = (item) => `${item.id} ${item.prompting_mode}`;
  const others = new Map(of(right).map((item) => [key(item), item]));
  const pairs = of(left).filter((item) => others.has(key(item))).map((item) => [item, others.get(key(item))]);
  if (!pairs.length) return empty("The two have no scenario in common.");
  pairs.sort(([one, other], [next, after]) => (one.useful_bounded === other.useful_bounded) - (next.useful_bounded === after.useful_bounded));
  const outcomeOf = (item) => (item.useful_bounded === null ? MISSING : mark(item.useful_bounded));
  const body = h("tbody", {});
  const more = portions(pairs, ([one, other]) => h("tr", {}, h("th", { scope: "row" }, link("compare", { ...now, item: one.id, mode: MODES[one.prompting_mode] }, one.id)), h("td", {}, MODES[one.prompting_mode]), h("td", {}, outcomeOf(one)), h("td", {}, outcomeOf(other)), h("td", { class: "excerpt" }, bdi(one.message))), body, 75);
  return [scrolling(h("table", {}, h("caption", {}, "Useful and bounded. Scenarios with different outcomes come first"), h("thead", {}, h("tr", {}, ["Scenario", "Mode", left.name, right.name, "Message"].map((name) => h("th", { scope: "col" }, name)))), body), "Scenarios"), more];
}

async function conversationsSideBySide(left, right, now) {
  const sides = await Promise.all([left, right].map(async (subject) => {
    const row = subject.report.spiral.conversations.find((conversation) => conversation.id === now.conversation && conversation.model === subject.model);
    return row && { subject, row, conversation: await unpack(row.pack) };
  }));
  if (!sides.every(Boolean)) return empty("Only one of the two has this conversation.");
  const columns = sides.map(({ subject, row, conversation }) => {
    return messages(conversation, wholeFindings(subject.report, row, conversation), row);
  });
  // Element ids belong to the transcript viewer; here every conversation appears twice.
  for (const node of columns.flat().flatMap((message) => [message, ...message.querySelectorAll("[id]")])) node.removeAttribute("id");
  columns.forEach((column, side) => column.flatMap((message) => [...message.querySelectorAll("a")]).forEach((anchor) => {
    if (sides[side].subject.run) anchor.href += `&run=${sides[side].subject.run}`;
  }));
  const rows = Array.from({ length: Math.max(...columns.map((column) => column.length)) }, (_, index) => columns.map((column) => column[index] || h("div", {})));
  return h("div", {},
    h("h2", {}, bdi(now.conversation), h("small", {}, words(sides[0].row.category))),
    h("p", {}, link("compare", { left: now.left, right: now.right }, "All prompts in common")),
    h("div", { class: "sides" }, sides.map(({ subject, conversation }) => h("header", {}, h("h3", {}, bdi(subject.name)), finalPart(conversation))), rows));
}

async function itemsSideBySide(left, right, now) {
  const sides = await Promise.all([left, right].map(async (subject) => {
    const row = subject.report.tempaffect.items.find((item) => item.id === now.item && item.model === subject.model && MODES[item.prompting_mode] === now.mode);
    if (!row) return null;
    const { scenario, items } = await unpack(row.pack);
    return { subject, scenario, item: items.find((item) => sameItem(item, row)) };
  }));
  if (!sides.every(Boolean)) return empty("Only one of the two answered this scenario.");
  return h("div", {},
    h("h2", {}, now.item, h("small", {}, MODE_NAMES[now.mode])),
    h("p", {}, link("compare", { left: now.left, right: now.right }, "All scenarios in common")),
    sides[0].scenario ? scenarioPart(sides[0].scenario) : null,
    h("div", { class: "sides" }, sides.map(({ subject, item, scenario }) => h("div", {},
      h("h3", {}, bdi(subject.name)),
      h("p", {}, item.score === null ? MISSING : [`score ${number(item.score)} \u00b7 useful and bounded: `, mark(item.useful_bounded)]),
      item.answer ? [replyPart(item), checkTable(item, subject.report.tempaffect.weights), labelTable(item, scenario, subject.report.tempaffect.weights)] : [item.reason && h("p", { class: "notice" }, reasonText(item.reason)), item.output === null ? null : pre(item.output)]))));
}
