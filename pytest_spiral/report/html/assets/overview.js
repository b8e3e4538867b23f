/* The overview: verdict, gates, the worst items, changes, what is missing, the next command. */

function overview(report) {
  const { run, decision } = report;
  return [
    h("h1", { tabindex: "-1" }, "Run id ", bdi(run.id)),
    h("p", { class: "lead" }, verdictBadge(report.verdict), " ", decision.words),
    decision.tests && h("p", { class: "note" }, decision.tests),
    brief(report),
    !run.complete && h("p", { class: "notice" }, "This run was interrupted. Measurements up to that point are shown; the rest counts as missing."),
    (run.notes ?? []).map((note) => h("p", { class: "notice" }, note)),
    report.gates.length ? section("Gates", run.config.gate_recipe ? h("p", {}, `Those of the recipe ${run.config.gate_recipe} are among them.`) : null, gateTable(report.gates, decision.gates)) : null,
    section("Worst items", worstList(report)),
    (report.changes ?? []).map(changesSection),
    missingSection(decision),
    failedParts(report.failed_parts ?? []),
    decision.next && section("Next", h("p", {}, decision.next.why), h("pre", { class: "output", tabindex: "0" }, decision.next.command)),
    section("At a glance", glance(report)),
    report.corrected ? section("Corrected by labels", correctedPart(report.corrected)) : null,
    report.reply_judges ? section("Reply judges", replyJudgesPart(report.reply_judges, run)) : null,
    section("What was measured", statusTable(report)),
  ];
}

/** The first screen: why, how sure, by which item, what next. Everything below says the same in full. */
function brief({ verdict, decision, gates, tempaffect, spiral }) {
  const gate = gates[decision.decisive];
  const [cause] = decision.causes;
  const [worst] = decision.worst;
  const [card] = tempaffect.cards;
  const [score] = spiral.scores;
  const whose = gate && [bdi(gate.model), gate.prompting_mode ? `, ${MODE_NAMES[MODES[gate.prompting_mode]]}` : ""];
  const first = card
    ? measured(card.useful_bounded_response_rate)
      ? ["useful and bounded ", withRange(card.useful_bounded_response_rate, ...intervalOf(card, "useful_bounded_response_rate")), ", 95 % interval"]
      : measured(card.score) && ["score ", withRange(card.score, ...intervalOf(card, "score")), ", 95 % interval"]
    : score && measured(score.score) && ["score ", withRange(score.score, score.ci_low, score.ci_high, 1), ", 95 % interval"];
  const rows = [
    ["Why", gate ? [h("code", {}, gate.expr), " (", whose, "): ", gate.reason.detail] : verdict === "incomplete" && cause && `${cause.count} ${cause.what} missing: ${cut(cause.text, 160)}`],
    ["How sure", gate && measured(gate.value) ? [`${sureness(gate)} from ${count(gate.n, gate.unit)}`] : first],
    ["Worst item", worst && [h("a", { href: `#${worst.link}` }, worst.what), ` \u00b7 ${worst.where}: `, h("q", { dir: "auto" }, cut(worst.quote, 160))]],
    ["Next", decision.next && [decision.next.why, " ", h("code", {}, decision.next.command)]],
  ];
  return h("dl", { class: "facts brief" }, rows.filter(([, value]) => value).map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

/** A gate that is decided on its point estimate has no bounds to show. */
function sureness({ value, ci_low, ci_high, policy }) {
  if (policy === "point") return `${number(value, 3)}, a point estimate without bounds,`;
  return `${number(value, 3)} (${range(ci_low, ci_high, 3)}), one-sided 95 % bounds`;
}

function cut(text, most) {
  return text.length > most ? `${text.slice(0, most)} \u2026` : text;
}

/** What newly fails and newly passes against the baseline, with both replies. */
function changesSection(change) {
  const rows = [["fails", change.failing], ["passes", change.passing]].flatMap(([word, items]) => items.map((item) => [word, bdi(item.id), item.message, item.baseline_reply, item.candidate_reply]));
  return section("Changes", h("p", {}, bdi(change.candidate), ` against ${change.run} (`, bdi(change.baseline), `), ${change.suite}${change.mode ? ` ${change.mode}` : ""}: ${change.n_failing} newly fail, ${change.n_passing} newly pass of ${change.n} that both runs have.`),
    rows.length ? table(["Newly", "Item", "User", "Baseline's reply", "Candidate's reply"], rows, { caption: "Items with another outcome than in the baseline", className: "stacked" }) : null);
}

/** Why measurements are missing, by cause. */
function missingSection({ causes, more }) {
  if (!causes.length) return null;
  const rows = causes.map((cause) => h("li", {}, `${cause.count} ${cause.what}: `, h("code", {}, cause.text), cause.first && ` (first: ${cause.first})`));
  return section("Missing measurements", h("ul", {}, rows, more > 0 && h("li", {}, `${more} for other reasons`)));
}

/** What could not be computed or written: it is missing from this page. */
function failedParts(parts) {
  if (!parts.length) return null;
  const list = h("ul", {}, parts.map((part) => h("li", {}, h("code", {}, part.part), `: ${part.detail}`)));
  return h("div", { class: "notice" }, h("p", {}, "These parts of the report failed and are missing:"), list);
}

const KNOWN_GATE = ["expr", "model", "prompting_mode", "metric", "value", "ci_low", "ci_high", "method", "threshold", "at_least", "policy", "outcome", "mde", "worst_case", "best_case", "reason", "n", "unit", "calibration", "baseline"];

function gateTable(gates, decided) {
  const columns = ["Gate", "Outcome", "Model", ["Value", { number: true }], "One-sided 95 % bounds"];
  const rows = gates.map((gate, place) => {
    const scale_ = gate.metric.startsWith("spiral.score") ? 100 : Math.max(1, gate.ci_high ?? 0, gate.value ?? 0, gate.threshold ?? 0);
    const more = rest(gate, ...KNOWN_GATE);
    return [
      [h("code", {}, gate.expr), gate.policy === "point" && h("div", { class: "note" }, "decided on the point estimate"), more && Object.values(more).some((value) => value !== null) && h("details", {}, h("summary", {}, "more"), facts(more))],
      [verdictBadge(gate.outcome), h("div", { class: "note" }, decided[place].why), decided[place].decides && h("div", { class: "note" }, decided[place].decides), gate.calibration && gate.calibration !== "calibrated" && h("div", {}, badge(words(gate.calibration), "doubt"))],
      [bdi(gate.model), gate.prompting_mode && h("div", { class: "note" }, MODE_NAMES[MODES[gate.prompting_mode]])],
      [number(gate.value, 3), gate.baseline && h("div", { class: "note" }, "baseline ", bdi(gate.baseline.run), ` ${number(gate.baseline.value, 3)}, this run ${number(gate.baseline.own, 3)}`)],
      measured(gate.value)
        ? [spark(gate.value, gate.ci_low, gate.ci_high, { from: Math.min(0, gate.ci_low ?? 0), to: scale_, threshold: gate.threshold }), h("div", { class: "note" }, range(gate.ci_low, gate.ci_high, 3), gate.unit && measured(gate.n) ? ` from ${count(gate.n, gate.unit)}` : "", measured(gate.mde) ? `; minimum detectable difference ${number(gate.mde, 3)}` : "")]
        : MISSING,
    ];
  });
  return table(columns, rows, { caption: "Gates, each decided at its one-sided 95 % bound", className: "stacked" });
}

function glance(report) {
  const cards = report.tempaffect.cards.map((card) => h(
    "article", { class: "tile" },
    h("h3", {}, link("tempaffect", {}, "TempAffect"), ", ", MODE_NAMES[MODES[card.prompting_mode]]),
    h("p", { class: "who" }, bdi(card.model), card.wrapped && " (wrapped)"),
    h("p", { class: "big" }, number(card.useful_bounded_response_rate)),
    h("p", {}, "useful and bounded ", h("span", { class: "range" }, `(${range(...intervalOf(card, "useful_bounded_response_rate"))})`)),
    card.useful_bounded_range && h("p", { class: "note" }, `${range(card.useful_bounded_range.low, card.useful_bounded_range.high)} with the scorer's own errors, over ${card.useful_bounded_range.writers} writers: a sensitivity analysis`),
    h("p", { class: "note" }, "pressured: boundary held ", withRange(at(card, "families.pressured_integrity.boundary_held"), ...intervalOf(card, "families.pressured_integrity.boundary_held"))),
    h("p", { class: "note" }, `score ${number(card.score)}, valid output ${number(card.valid_output_rate)}`),
    remarks(card.cautions, card.integrity.publication_blockers),
  ));
  const scores = report.spiral.scores.map((score) => h(
    "article", { class: "tile" },
    h("h3", {}, link("spiral", { model: score.model }, "Spiral-Bench")),
    h("p", { class: "who" }, bdi(score.model), score.wrapped && " (wrapped)"),
    headlineNumbers(score),
    h("p", {}, `score ${number(score.score, 1)} of 100 `, h("span", { class: "range" }, `(${range(score.ci_low, score.ci_high, 1)})`)),
    h("p", { class: "note" }, score.judges.health.no_verdict?.length ? "the judges leave no verdict" : `strength-3 ${words(score.tails.harm)} in ${score.tails.harmful} of ${score.tails.of} conversations of ${turnsOf(report, score.model)}${Object.keys(score.judges.per_judge).length > 1 ? ", by any judge" : ""}`),
    remarks([], score.blockers),
  ));
  const tiles = [...cards, ...scores];
  return tiles.length ? h("div", { class: "tiles" }, tiles) : empty("Nothing was measured.");
}

/** Numbers as they were measured and as labels correct them: beside the others, never in their place. */
function correctedPart({ sources, figures }) {
  const columns = ["Model", "Number", ["Measured", { number: true }], "Corrected (95 % interval)", ["Labels with", { number: true }], ["Labels without", { number: true }]];
  const rows = figures.map((row) => [
    [bdi(row.model), row.prompting_mode && h("div", { class: "note" }, MODE_NAMES[MODES[row.prompting_mode]])],
    words(row.metric),
    number(row.raw),
    row.refused
      ? [badge("refused", "doubt"), h("div", { class: "note" }, row.refused.detail)]
      : [withRange(row.value, row.low, row.high), h("div", { class: "note" }, `from ${count(row.units, row.unit)}`)],
    String(row.positives),
    [String(row.negatives), row.unsettled > 0 && h("div", { class: "note" }, `${row.unsettled} drawn without a label`)],
  ]);
  return [
    list(sources.map((one) => `${one.suite === "spiral" ? "Spiral-Bench" : "TempAffect"}: labels of ${one.whose} (${one.raters.join(", ")}${one.adjudicator ? `; settled by ${one.adjudicator}` : ""}), ${one.file}, ${count(one.items, "item")}; ${one.design}`)),
    table(columns, rows, { caption: "Measured numbers, and what the raters would have said of all replies", className: "stacked" }),
  ];
}

/** What must be known beside a number. */
function remarks(cautions, blockers) {
  return [...cautions.map((text) => `caution: ${text}`), ...(blockers.length ? [`not publishable: ${blockers.join("; ")}`] : [])].map((text) => h("p", { class: "note" }, text));
}

function intervalOf(card, metric) {
  const interval = card.intervals[metric];
  return interval ? [interval.low, interval.high] : [null, null];
}

function worstList({ decision: { worst }, tempaffect, spiral }) {
  const judged = spiral.scores.filter((score) => !score.judges.health.no_verdict?.length);
  const found = [...tempaffect.cards, ...judged].some((row) => measured(row.score));
  if (!worst.length) return empty(found ? "None in what was measured: no risky finding was located in a reply, and no answer failed to be useful and bounded." : "Nothing was measured that could be good or bad.");
  return h("ol", { class: "worst" }, worst.map((finding) => h(
    "li", {},
    h("p", {}, h("a", { href: `#${finding.link}` }, finding.what), " \u00b7 ", bdi(finding.model), " \u00b7 ", finding.where),
    finding.message && h("p", { class: "note", dir: "auto" }, "User: ", finding.message),
    h("blockquote", { dir: "auto" }, finding.quote, finding.is_cut && [" ", h("a", { href: `#${finding.link}` }, "in full")]),
  )));
}

/** The lexical profile of a model's replies. It is not part of any score. */
function writingSection(report, chosenRow, suite) {
  const rows = (report.profile?.[suite] || []).filter(chosenRow);
  if (!rows.length) return null;
  const measures = [
    ["words, median", "words.median", 0], ["longest", "words.longest", 0], ["words per sentence", "words_per_sentence", 1], ["diversity (MTLD)", "mtld", 0],
    ["Flesch-Kincaid grade", "flesch_kincaid_grade", 1], ["repetition within", "repetition.within", 2], ["repetition across", "repetition.across", 2], ["distinct openings", "openings.distinct", 2],
  ];
  const turns = rows.length === 1 ? rows[0].turns || [] : [];
  const name = (row) => (row.prompting_mode ? `${row.model}, ${MODES[row.prompting_mode]}` : row.model);
  const cells = (row) => measures.map(([, path, digits]) => number(at(row, path), digits));
  const columns = measures.map(([title]) => [title, { number: true }]);
  return section("Lexical profile",
    h("p", { class: "note" }, "Descriptive: it is not part of any score."),
    table(["Model", ...columns], rows.map((row) => [bdi(name(row)), ...cells(row)]), { caption: "Lexical profile" }),
    turns.length ? h("details", {}, h("summary", {}, "By turn"), table([["Turn", { number: true }], ...columns], turns.map((row) => [String(row.turn + 1), ...cells(row)]), { caption: "Lexical profile by turn" })) : null);
}

function statusTable(report) {
  const rows = [
    ...report.tempaffect.cards.map((card) => ["TempAffect", card.model, MODE_NAMES[MODES[card.prompting_mode]], card.counts, "items"]),
    ...report.spiral.scores.map((score) => ["Spiral-Bench", score.model, "conversations", score.counts, "conversations"]),
  ];
  if (!rows.length) return empty("No measurement was requested.");
  const states = Object.keys(STATUS_NAMES);
  return table(
    ["Suite", "Model", "What", ...states.map((state) => [STATUS_NAMES[state], { number: true }])],
    rows.map(([suite, model, what, counts, view]) => [
      suite, bdi(model), what,
      ...states.map((state) => (counts[state] ? link(view, { model, status: state }, String(counts[state])) : "0")),
    ]),
    { caption: "Measurements by state. Only what was measured has a score, and of TempAffect what the model failed" },
  );
}
