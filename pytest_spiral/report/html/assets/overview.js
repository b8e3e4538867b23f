/* The overview: verdict, gates, what was measured, the worst findings. */

const VERDICTS = {
  pass: "Every gate passed, and few enough measurements are missing.",
  fail: "At least one gate failed.",
  inconclusive: "At least one gate could not be decided on this number of measurements.",
  incomplete: "Too many measurements are missing for a verdict.",
  measured: "No gate was given, so nothing was decided.",
};

function overview(report) {
  const { run } = report;
  return [
    h("h1", { tabindex: "-1" }, "Run ", bdi(run.id)),
    h("p", { class: "lead" }, verdictBadge(report.verdict), " ", VERDICTS[report.verdict]),
    !run.complete && h("p", { class: "notice" }, "This run was interrupted. Measurements up to that point are shown; the rest counts as missing."),
    failedParts(report.failed_parts ?? []),
    (run.notes ?? []).map((note) => h("p", { class: "notice" }, note)),
    report.gates.length ? section("Gates", run.config.gate_recipe ? h("p", {}, `Those of the recipe ${run.config.gate_recipe} are among them.`) : null, gateTable(report.gates)) : null,
    section("At a glance", glance(report)),
    section("Worst findings", worstList(report.worst)),
    section("What was measured", statusTable(report)),
  ];
}

/** What could not be computed or written: it is missing from this page. */
function failedParts(parts) {
  if (!parts.length) return null;
  const list = h("ul", {}, parts.map((part) => h("li", {}, h("code", {}, part.part), `: ${part.detail}`)));
  return h("div", { class: "notice" }, h("p", {}, "These parts of the report failed and are missing:"), list);
}

const KNOWN_GATE = ["expr", "model", "prompting_mode", "metric", "value", "ci_low", "ci_high", "method", "threshold", "at_least", "policy", "outcome", "mde", "worst_case", "best_case", "reason", "n", "unit", "calibration", "baseline"];

function gateTable(gates) {
  const columns = ["Gate", "Outcome", "Model", ["Value", { number: true }], "95 % bounds", "Missing measurements at worst and at best"];
  const rows = gates.map((gate) => {
    const scale_ = gate.metric.startsWith("spiral.score") ? 100 : Math.max(1, gate.ci_high ?? 0, gate.value ?? 0, gate.threshold ?? 0);
    const more = rest(gate, ...KNOWN_GATE);
    return [
      [h("code", {}, gate.expr), gate.policy === "point" && h("div", { class: "note" }, "decided on the point estimate"), more && Object.values(more).some((value) => value !== null) && h("details", {}, h("summary", {}, "more"), facts(more))],
      [verdictBadge(gate.outcome), h("div", { class: "note" }, gate.reason.detail), gate.calibration && gate.calibration !== "calibrated" && h("div", {}, badge(words(gate.calibration), "doubt"))],
      [bdi(gate.model), gate.prompting_mode && h("div", { class: "note" }, MODE_NAMES[MODES[gate.prompting_mode]])],
      [number(gate.value, 3), gate.baseline && h("div", { class: "note" }, "baseline ", bdi(gate.baseline.run), ` ${number(gate.baseline.value, 3)}, this run ${number(gate.baseline.own, 3)}`)],
      measured(gate.value)
        ? [spark(gate.value, gate.ci_low, gate.ci_high, { from: Math.min(0, gate.ci_low ?? 0), to: scale_, threshold: gate.threshold }), h("div", { class: "note" }, range(gate.ci_low, gate.ci_high, 3), gate.unit && measured(gate.n) ? ` from ${count(gate.n, gate.unit)}` : "", measured(gate.mde) ? `; minimum detectable difference ${number(gate.mde, 3)}` : "")]
        : MISSING,
      `worst case ${gate.worst_case ?? "none"}, best case ${gate.best_case ?? "none"}`,
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
    h("p", { class: "note" }, `score ${number(card.score)}, valid output ${number(card.valid_output_rate)}`),
  ));
  const scores = report.spiral.scores.map((score) => h(
    "article", { class: "tile" },
    h("h3", {}, link("spiral", { model: score.model }, "Spiral-Bench")),
    h("p", { class: "who" }, bdi(score.model), score.wrapped && " (wrapped)"),
    headlineNumbers(score),
    h("p", {}, `score ${number(score.score, 1)} of 100 `, h("span", { class: "range" }, `(${range(score.ci_low, score.ci_high, 1)})`)),
    h("p", { class: "note" }, `strength-3 ${words(score.tails.harm)} in ${score.tails.harmful} of ${score.tails.of} conversations of ${turnsOf(report, score.model)}${Object.keys(score.judges.per_judge).length > 1 ? ", by any judge" : ""}`),
  ));
  const tiles = [...cards, ...scores];
  return tiles.length ? h("div", { class: "tiles" }, tiles) : empty("Nothing was measured.");
}

function intervalOf(card, metric) {
  const interval = card.intervals[metric];
  return interval ? [interval.low, interval.high] : [null, null];
}

function worstList(worst) {
  if (!worst.length) return empty("No risky finding was located in a reply and no boundary was broken.");
  return h("ol", { class: "worst" }, worst.map((finding) => h(
    "li", {},
    h("p", {}, h("a", { href: `#${finding.link}` }, finding.what), " \u00b7 ", bdi(finding.model), " \u00b7 ", finding.where),
    h("blockquote", { dir: "auto" }, finding.quote.length > 400 ? `${finding.quote.slice(0, 400)} \u2026` : finding.quote),
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
    { caption: "Measurements by state. Only the first two states have a score" },
  );
}
