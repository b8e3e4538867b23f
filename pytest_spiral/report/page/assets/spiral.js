/* The Spiral-Bench page, one model at a time. */

const KNOWN_SCORE = ["model", "protocol", "protocol_hash", "score", "unrounded", "ci_low", "ci_high", "ci_method", "n_items", "n_conversations", "metrics", "categories",
  "tails", "trajectory", "evidence", "ignored", "missing", "judges", "simulator_health", "counts", "blockers", "publication_ready", "over_correction", "judge_health"];

function spiralView(report, parameters) {
  const { scores } = report.spiral;
  const heading = h("h1", { tabindex: "-1" }, "Spiral-Bench");
  if (!scores.length) return [heading, empty("No conversation was held in this run. A score, its behaviours, their course over the turns and every conversation are shown here once there are some.")];
  const score = scores.find(({ model }) => model === parameters.model) || scores[0];
  const other = rest(score, ...KNOWN_SCORE);
  return [
    heading,
    tabs("Models", scores.map(({ model }) => [model, href("spiral", { model }), model === score.model])),
    h("p", { class: "lead" }, h("span", { class: "big" }, number(score.score, 1)), " of 100 for ", bdi(score.model), measured(score.score) && [" ", h("span", { class: "range" }, `(${range(score.ci_low, score.ci_high, 1)})`)]),
    h("p", { class: "note" }, `${count(score.n_conversations, "conversation")} on ${count(score.n_items, "prompt")}; 95 % interval: ${score.ci_method || "none"}; protocol ${score.protocol} `, hash(score.protocol_hash)),
    h("p", {}, readiness(score.publication_ready, score.blockers)),
    scores.length > 1 ? section("All models of this run", figure("Composite of each model, with 95 % intervals", ranges(scores.map((row) => ({ label: row.model, points: [{ kind: "one", value: row.score, low: row.ci_low, high: row.ci_high }] })), { high: 100 }), {
      numbers: table(["Model", ["Score", { number: true }]], scores.map((row) => [bdi(row.model), withRange(row.score, row.ci_low, row.ci_high, 1)])),
    })) : null,
    section("Behaviours", behaviourTable(report, score)),
    section("What a mean hides", tailTable(score)),
    section("Course over the turns", courseFigure(report, score, parameters)),
    section("Categories", categoryTable(score)),
    section("Over-correction", overCorrection(score)),
    section("Judges", judgePart(report, score)),
    section("Simulated user", h("p", {}, "Lengths and habits of the messages that the simulator wrote. A collapsed simulator measures nothing."), facts(score.simulator_health)),
    writingSection(report, (row) => row.model === score.model, "spiral"),
    section("Missing", missingPart(score)),
    other ? section("More", facts(other)) : null,
  ];
}

function behaviourTable(report, score) {
  const scaleOf = (metric) => (metric.kind === "final" ? 10 : Math.max(1, metric.ci_high ?? 0, metric.mean ?? 0));
  return table(
    ["Behaviour", "Counts as", ["Mean", { number: true }], "95 % interval", ["Adds to the score", { number: true }], ["Weight", { number: true }], ["Worst tenth", { number: true }], ["Findings", { number: true }]],
    Object.entries(score.metrics).map(([name, metric]) => [
      metric.kind === "final" ? link("talks", { model: score.model }, words(name)) : link("findings", { model: score.model, behaviour: name }, words(name)),
      metric.sign, number(metric.mean),
      measured(metric.mean) ? [spark(metric.mean, metric.ci_low, metric.ci_high, { to: scaleOf(metric) }), h("div", { class: "note" }, range(metric.ci_low, metric.ci_high))] : MISSING,
      measured(metric.contribution) ? `${number(metric.contribution)} of 1` : MISSING, number(metric.weight, 1), number(metric.worst_decile),
      metric.kind === "final" ? "" : link("findings", { model: score.model, behaviour: name }, String(metric.n_findings)),
    ]),
    { caption: "Behaviours per judged turn in the protocol's unit, final judgements from 0 to 10" },
  );
}

function tailTable(score) {
  const { tails } = score;
  const harm = words(tails.harm);
  return h("dl", { class: "facts" }, [
    [`conversations with ${harm} of strength 3`, [link("findings", { model: score.model, behaviour: tails.harm, strength: 3 }, `${tails.harmful} of ${tails.of}`), measured(tails.any_strength3_harm_ci_high) && ` (at most ${number(tails.any_strength3_harm_ci_high)} of all, one-sided 95 %)`]],
    [`conversations with any ${harm}`, number(tails.any_harm)],
    [`turns with ${harm}`, String(tails.harm_turns)],
    ["mean score of the worst tenth", number(tails.worst_decile_score, 1)],
    ["worst conversation", tails.worst_conversation ? link("talk", { model: score.model, id: tails.worst_conversation }, tails.worst_conversation) : "none"],
  ].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function courseFigure(report, score, parameters) {
  const found = report.spiral.courses[score.model];
  const { trajectory } = score;
  const names = Object.keys(found?.behaviours || {}).filter((name) => found.behaviours[name].some((point) => point && point[0] > 0));
  if (!names.length) return empty("No finding was located in any turn, so there is no course to draw.");
  const first = names.includes(parameters.behaviour) ? parameters.behaviour : names.includes(trajectory.behaviour) ? trajectory.behaviour : names[0];
  const holder = h("div", {});
  const select = h("select", { id: "course", onchange: () => draw(select.value) }, names.map((name) => h("option", { value: name, selected: name === first }, words(name))));
  const kind = (name) => (score.metrics[name]?.sign === "protective" ? "k0" : "k1 b");
  const draw = (name) => holder.replaceChildren(figure(`${words(name)} over the turns: mean strength per turn, with a pointwise 95 % band over prompts`,
    course([{ name: words(name), kind: kind(name), points: found.behaviours[name] }], { yName: "strength per turn" }), {
      note: "A turn on which nothing was found has no band to show: it is no proof of absence.",
      numbers: table([["Turn", { number: true }], ["Mean", { number: true }], ["Band", { number: true }], ["Prompts", { number: true }]], found.behaviours[name].map((point, turn) => [String(turn + 1), point ? number(point[0]) : MISSING, point ? range(point[1], point[2]) : "", String(found.n[turn])])),
    }));
  draw(first);
  const thirds = trajectory.thirds.map((value) => number(value)).join(", ");
  return [
    h("label", { for: "course", class: "inline" }, h("span", {}, "Behaviour "), select), holder,
    h("dl", { class: "facts" }, [
      [`slope of ${words(trajectory.behaviour)} per turn`, measured(trajectory.slope) ? [signed(trajectory.slope, 3), ` (${range(trajectory.slope_ci_low, trajectory.slope_ci_high, 3)})`] : MISSING],
      ["first, middle and last third", thirds],
      ["conversations in which it ever appears", `${trajectory.events} of ${trajectory.events + trajectory.censored}`],
      ["turn by which half of them show it", measured(trajectory.median_turn) ? String(trajectory.median_turn + 1) : "never"],
    ].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    rest(trajectory, "behaviour", "slope", "slope_ci_low", "slope_ci_high", "thirds", "first", "events", "censored", "median_turn") ? facts(rest(trajectory, "behaviour", "slope", "slope_ci_low", "slope_ci_high", "thirds", "first", "events", "censored", "median_turn")) : null,
  ];
}

function categoryTable(score) {
  const entries = Object.entries(score.categories);
  if (!entries.length) return empty("No category was measured.");
  const names = Object.keys(entries[0][1].means);
  const rows = entries.map(([name, category]) => ({ label: words(name), points: [{ kind: "one", value: category.score }] }));
  return [
    figure("Composite by category", ranges(rows, { high: 100, bars: true }), { note: "Descriptive: a category has too few prompts for an interval." }),
    table(["Category", ["Prompts", { number: true }], ["Score", { number: true }], ...names.map((name) => [words(name), { number: true }])],
      entries.map(([name, category]) => [link("talks", { model: score.model, category: name }, words(name)), String(category.n_items), number(category.score, 1), ...names.map((metric) => number(category.means[metric]))]),
      { caption: "Means by category" }),
  ];
}

function overCorrection(score) {
  return score.over_correction ? facts(score.over_correction) : empty("No benign twin was held in this run, so over-correction was not measured.");
}

function judgePart(report, score) {
  const { per_judge: perJudge, agreement, ...more } = score.judges;
  return [
    table(["Judge", ...Object.keys(Object.values(perJudge)[0] || {}).map((name) => [words(name), { number: true }])],
      Object.entries(perJudge).map(([judge, row]) => [link("talks", { model: score.model, judge: judgeKey(judge) }, bdi(judge || "not named")), ...Object.values(row).map((value) => facts(value))]),
      { caption: "What each judge returned" }),
    h("h3", {}, "Agreement"),
    agreement ? facts(agreement) : empty("Agreement between judges was not measured: that takes two or more on the same turns."),
    Object.keys(more).length ? facts(more) : null,
    score.judge_health ? [h("h3", {}, "Judge health"), facts(score.judge_health)] : null,
    h("h3", {}, "Evidence"),
    h("p", {}, "How the quotes of findings were located in the replies, and what was left out of the score:"),
    h("dl", { class: "facts" }, Object.entries({ ...score.evidence, ...Object.fromEntries(Object.entries(score.ignored).map(([name, n]) => [`left out: ${words(name)}`, n])) }).map(([name, n]) => [
      h("dt", {}, name), h("dd", {}, n && name in score.evidence ? link("findings", { model: score.model, evidence: name }, String(n)) : String(n)),
    ])),
  ];
}

function missingPart(score) {
  const { missing } = score;
  return [
    table(["What", ["Missing", { number: true }], ["Of", { number: true }]], ["conversations", "chunks", "finals"].map((name) => [name, String(missing[name]), String(missing[`of_${name}`])]), { caption: "What was to be measured and is not" }),
    Object.keys(missing.reasons).length ? facts(missing.reasons) : null,
  ];
}
