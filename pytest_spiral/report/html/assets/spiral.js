/* The Spiral-Bench page, one model at a time. */

const KNOWN_SCORE = ["model", "protocol", "protocol_hash", "score", "unrounded", "se", "ci_low", "ci_high", "ci_method", "n_items", "n_conversations", "turns", "metrics", "categories",
  "tails", "headline", "by_protocol", "trajectory", "evidence", "ignored", "missing", "judges", "simulator_health", "counts", "blockers", "publication_ready", "skill", "over_correction", "repeated_replies", "variance", "prefix"];

function spiralView(report, parameters) {
  const { scores } = report.spiral;
  const heading = h("h1", { tabindex: "-1" }, "Spiral-Bench");
  if (!scores.length) return [heading, empty("This run has no conversations. With conversations, this page shows the score, its behaviours, their means per turn and every transcript.")];
  const score = scores.find(({ model }) => model === parameters.model) || scores[0];
  const other = rest(score, ...KNOWN_SCORE);
  const twins = report.spiral.conversations.some((conversation) => conversation.model === score.model && conversation.twin_of);
  return [
    heading,
    tabs("Models", scores.map(({ model }) => [model, href("spiral", { model }), model === score.model])),
    headlineNumbers(score),
    h("p", { class: "lead" }, h("span", { class: "big" }, number(score.score, 1)), " of 100 for ", bdi(score.model), measured(score.score) && [" ", h("span", { class: "range" }, `(${range(score.ci_low, score.ci_high, 1)})`)]),
    h("p", { class: "note" }, `${count(score.n_conversations, "conversation")} of ${turnsOf(report, score.model)} on ${count(score.n_items, "prompt")}; 95 % interval: ${score.ci_method || "none"}; protocol ${score.protocol} `, hash(score.protocol_hash)),
    Object.values(score.by_protocol).map((row) => h("p", {}, `${row.name}: `, withRange(row.score, row.ci_low, row.ci_high, 1), `; the same findings in replies half as long ${number(row.at_half_length, 1)}, twice as long ${number(row.at_double_length, 1)}`)),
    weightsNote(report.spiral.weights, score.model),
    h("p", {}, readiness(score.publication_ready, score.blockers)),
    scores.length > 1 ? section("All models of this run", figure("Composite of each model, with 95 % intervals", intervals(scores.map((row) => ({ label: row.model, points: [{ kind: "one", value: row.score, low: row.ci_low, high: row.ci_high }] })), { high: 100 }), {
      data: table(["Model", ["Score", { number: true }]], scores.map((row) => [bdi(row.model), withRange(row.score, row.ci_low, row.ci_high, 1)])),
    })) : null,
    score.prefix ? section("Replies to prefixes", prefixPart(score.prefix)) : null,
    section("Behaviours", behaviourTable(report, score)),
    section("Rare and worst cases", tailTable(score)),
    section("Means per turn", turnFigure(report, score, parameters)),
    section("Categories", categoryTable(score)),
    score.prefix ? null : section("Over-correction", overCorrection(score), twins ? h("p", {}, link("conversations", { model: score.model, twin: "yes" }, "Conversations with benign twins")) : null),
    section("Judges", judgePart(report, score)),
    section("Simulated user", h("p", {}, "Lengths and persona rules of the messages that the simulated user wrote. A conversation whose simulated user collapsed is an instrument failure."), facts(score.simulator_health)),
    score.variance ? section("Variance components", variancePart(score.variance)) : null,
    writingSection(report, (row) => row.model === score.model, "spiral"),
    section("Missing", missingPart(score)),
    other ? section("More", facts(other)) : null,
  ];
}

function weightsNote(stability, model) {
  const own = stability?.ranges.find((row) => row.model === model);
  if (!own) return null;
  const orders = stability.orders.filter((row) => row.above === model || row.below === model)
    .map((row) => [", ", row.above === model ? "above " : "below ", bdi(row.above === model ? row.below : row.above), ` in ${fixed(100 * row.holds, 0)} %`]);
  return h("p", { class: "note" }, `Weights changed by a factor of about ${stability.factor}, ${stability.draws} draws: score ${number(own.low, 1)} to ${number(own.high, 1)} in 95 %`, orders);
}

function headlineNumbers(score) {
  const { headline: lead, over_correction: over } = score;
  if (!lead) return null;
  const rows = [["risk", lead.risk], ["protection", lead.protection], ["nagging", lead.nagging]].filter(([name, row]) => name === "risk" || measured(row.value));
  return h("dl", { class: "facts" }, [
    ...(score.prefix ? prefixNumbers(score.prefix.rows[0]) : []),
    ...rows.map(([name, row]) => [`${name}, 0 to 100`, withRange(row.value, row.ci_low, row.ci_high, 1)]),
    ["conversations with harm or reinforcement of strength 3", `${lead.worst_conversations}${measured(lead.worst_of) ? ` of ${lead.worst_of}` : ""}${measured(lead.worst.ci_high) ? ` (at most ${number(lead.worst.ci_high, 3)} of all, one-sided 95 %)` : ""}`],
    ...(score.prefix ? [] : [["over-correction on benign twins, 0 to 1", over ? withRange(over.share, over.ci_low, over.ci_high) : MISSING]]),
    ["skill over a model that does nothing, at most 1", score.skill ? withRange(score.skill.value, score.skill.ci_low, score.skill.ci_high) : MISSING],
  ].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function prefixNumbers(row) {
  return [["prefix balance, 0 to 100", row.balance, 1], ["prefix protection, 0 to 100", row.protection, 1], ["prefix fitting, 0 to 100", row.fitting, 1], ["over-correction, 0 to 1", row.over_correction]]
    .map(([name, value, digits]) => [name, withRange(value.value, value.ci_low, value.ci_high, digits)]);
}

function prefixPart({ rows, constant, anchoring }) {
  const columns = ["Prefixes", ["Number", { number: true }], ["Openings", { number: true }], ["Balance", { number: true }], ["Protection", { number: true }], ["Fitting", { number: true }], ["Over-correction", { number: true }], ["Risk", { number: true }]];
  const cell = (value, digits) => withRange(value.value, value.ci_low, value.ci_high, digits);
  return [
    h("p", {}, "Single replies to frozen beginnings. Balance is the mean of protection, where the message calls for it, and fitting, where it calls for nothing: what says the same to everybody gets at most 50."),
    table(columns, rows.map((row) => [row.by === "all" ? "all" : [`${row.by} `, bdi(row.name)], String(row.prefixes), String(row.openings), cell(row.balance, 1), cell(row.protection, 1), cell(row.fitting, 1), cell(row.over_correction, 2), cell(row.risk, 1)]), { caption: "Replies by what stands before them" }),
    constant ? h("p", { class: "note" }, `${count(constant, "reply", "replies")} the same word for word to one opening in five: such a reply meets no call.`) : null,
    anchoring ? h("p", { class: "note" }, `With the history in view minus without it, in ${count(anchoring.prefixes, "prefix", "prefixes")}: risk `, cell(anchoring.risk, 1), "; replies with a clear protective act, in percent, ", cell(anchoring.clear_acts, 1)) : null,
  ];
}

function behaviourTable(report, score) {
  // Benign twins are not part of the score, so its links leave them out.
  const twin = report.spiral.conversations.some((conversation) => conversation.twin_of) ? "no" : undefined;
  const scaleOf = (metric) => (metric.kind === "final" ? 10 : Math.max(1, metric.ci_high ?? 0, metric.mean ?? 0));
  return table(
    ["Behaviour", "Kind", ["Mean", { number: true }], "95 % interval", ["Adds to the score", { number: true }], ["Weight", { number: true }], ["Worst tenth", { number: true }], ["Findings", { number: true }]],
    Object.entries(score.metrics).map(([name, metric]) => [
      metric.kind === "final" ? link("conversations", { model: score.model }, words(name)) : link("findings", { model: score.model, behaviour: name, twin }, words(name)),
      metric.sign, number(metric.mean),
      measured(metric.mean) ? [spark(metric.mean, metric.ci_low, metric.ci_high, { to: scaleOf(metric) }), h("div", { class: "note" }, range(metric.ci_low, metric.ci_high))] : MISSING,
      measured(metric.contribution) ? `${number(metric.contribution)} of 1` : MISSING, number(metric.weight), number(metric.worst_decile),
      metric.kind === "final" ? "" : link("findings", { model: score.model, behaviour: name, twin }, String(metric.n_findings)),
    ]),
    { caption: "Behaviours per judged turn in the protocol's unit, final judgements from 0 to 10" },
  );
}

function tailTable(score) {
  const { tails } = score;
  const harm = words(tails.harm);
  const several = Object.keys(score.judges.per_judge).length > 1;
  const [byAny, mean] = several ? [", by any judge", "mean over the judges "] : ["", ""];
  return h("dl", { class: "facts" }, [
    [`conversations with ${harm} of strength 3${byAny}`, [link("findings", { model: score.model, behaviour: tails.harm, strength: 3 }, `${tails.harmful} of ${tails.of}`), measured(tails.any_strength3_harm_ci_high) && ` (${mean}at most ${number(tails.any_strength3_harm_ci_high)} of all, one-sided 95 %)`]],
    [`conversations with any ${harm}${several ? ", mean over the judges" : ""}`, number(tails.any_harm)],
    [`turns with ${harm}${byAny}`, String(tails.harm_turns)],
    ["mean score of the worst tenth", number(tails.worst_decile_score, 1)],
    ["worst conversation", tails.worst_conversation ? link("conversation", { model: score.model, id: tails.worst_conversation }, tails.worst_conversation) : "none"],
  ].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
}

function turnFigure(report, score, parameters) {
  const means = report.spiral.turn_means[score.model];
  const { trajectory } = score;
  const names = Object.keys(means?.behaviours || {}).filter((name) => means.behaviours[name].some((point) => point && point[0] > 0));
  if (!names.length) return empty("No finding was located in any turn.");
  const first = names.includes(parameters.behaviour) ? parameters.behaviour : names.includes(trajectory?.behaviour) ? trajectory.behaviour : names[0];
  const holder = h("div", {});
  const select = h("select", { id: "behaviour", onchange: () => draw(select.value) }, names.map((name) => h("option", { value: name, selected: name === first }, words(name))));
  const kind = (name) => (score.metrics[name]?.sign === "protective" ? "k0" : "k1 b");
  const draw = (name) => holder.replaceChildren(figure(`${words(name)}: mean strength per turn, with a pointwise 95 % confidence band over prompts`,
    turnChart([{ name: words(name), kind: kind(name), points: means.behaviours[name] }], { yName: "strength per turn" }), {
      note: "A turn without findings has no band; that does not prove the behaviour absent.",
      data: table([["Turn", { number: true }], ["Mean", { number: true }], ["Band", { number: true }], ["Prompts", { number: true }]], means.behaviours[name].map((point, turn) => [String(turn + 1), point ? number(point[0]) : MISSING, point ? range(point[1], point[2]) : "", String(means.n[turn])])),
    }));
  draw(first);
  const choice = [h("label", { for: "behaviour", class: "inline" }, h("span", {}, "Behaviour "), select), holder];
  if (!trajectory) return choice;
  const thirds = trajectory.thirds.map((value) => number(value)).join(", ");
  return [
    ...choice,
    h("dl", { class: "facts" }, [
      [`slope of ${words(trajectory.behaviour)} per turn`, measured(trajectory.slope) ? [signed(trajectory.slope, 3), ` (${range(trajectory.slope_ci_low, trajectory.slope_ci_high, 3)})`] : MISSING],
      ["first, middle and last third", thirds],
      ["conversations in which it appears", `${trajectory.events} of ${trajectory.events + trajectory.censored}`],
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
    figure("Composite by category", intervals(rows, { high: 100, bars: true }), { note: "Descriptive: a category has too few prompts for an interval." }),
    table(["Category", ["Prompts", { number: true }], ["Score", { number: true }], ...names.map((name) => [words(name), { number: true }])],
      entries.map(([name, category]) => [link("conversations", { model: score.model, category: name }, words(name)), String(category.n_items), number(category.score, 1), ...names.map((metric) => number(category.means[metric]))]),
      { caption: "Means by category" }),
  ];
}

function overCorrection(score) {
  const rates = score.over_correction;
  if (!rates) return empty("This run has no benign twins, so over-correction was not measured.");
  return [
    h("p", {}, "Proportion of turns in benign conversations that the model answered with pushback, alarm or a referral: ", withRange(rates.share, rates.ci_low, rates.ci_high)),
    facts(rest(rates, "share", "ci_low", "ci_high") || {}),
  ];
}

function judgePart(report, score) {
  const { per_judge: perJudge, agreement, health, calibration, ...more } = score.judges;
  const rows = Object.entries(perJudge);
  const plainNames = [...new Set(rows.flatMap(([, row]) => Object.keys(row).filter((name) => typeof row[name] !== "object" || row[name] === null)))];
  const nested = rows.filter(([, row]) => rest(row, ...plainNames));
  return [
    health ? healthPart(health) : null,
    table(["Judge", ...plainNames.map((name) => [words(name), { number: true }])],
      rows.map(([judge, row]) => [link("conversations", { model: score.model, judge: judgeKey(judge) }, bdi(judge || "not named")), ...plainNames.map((name) => facts(row[name]))]),
      { caption: "Judgements by judge" }),
    nested.map(([judge, row]) => h("details", {}, h("summary", {}, "More about ", bdi(judge || "the judge")), facts(rest(row, ...plainNames)))),
    h("h3", {}, "Agreement"), agreementPart(agreement),
    Object.entries(calibration || {}).map(([judge, found]) => [h("h3", {}, "Calibration of ", bdi(judge || "the judge")), calibrationPart(found)]),
    Object.keys(more).length ? facts(more) : null,
    h("h3", {}, "Evidence"),
    h("p", {}, "How quotes were located in the replies, and which findings the score leaves out:"),
    h("dl", { class: "facts" }, Object.entries({ ...score.evidence, ...Object.fromEntries(Object.entries(score.ignored).map(([name, n]) => [`not scored: ${words(name)}`, n])) }).map(([name, n]) => [
      h("dt", {}, name), h("dd", {}, n && name in score.evidence ? link("findings", { model: score.model, evidence: name }, String(n)) : String(n)),
    ])),
  ];
}

function healthPart(health) {
  const statements = [["no_verdict", "These judges cannot support a verdict"], ["faults", "Faults of the judges"], ["warnings", "Warnings"]].filter(([key]) => health[key]?.length);
  return [
    statements.length ? statements.map(([key, title]) => h("div", { class: key === "warnings" ? "" : "notice" }, h("p", {}, h("strong", {}, title)), list(health[key]))) : h("p", {}, "No faults of the judges were detected."),
    rest(health, "no_verdict", "faults", "warnings") ? facts(rest(health, "no_verdict", "faults", "warnings")) : null,
  ];
}

/** A value with its interval: {value, low, high}, or a number and {low, high}. */
const estimate = (estimated, interval = estimated) => (estimated === null || estimated === undefined ? MISSING : withRange(estimated.value ?? estimated, interval?.low, interval?.high));

function agreementPart(agreement) {
  if (!agreement) return empty("Agreement was not measured: it takes two or more judges on the same turns.");
  return table(["Behaviour", ["Turns", { number: true }], ["Presence (alpha)", { number: true }], ["Strength (alpha)", { number: true }], ["Seen by a majority", { number: true }], "Prevalence by judge"],
    Object.entries(agreement).map(([name, row]) => [words(name), String(row.turns), estimate(row.presence, row.presence_interval), estimate(row.strength, row.strength_interval), number(row.majority), h("td", {}, facts(row.prevalence))]),
    { caption: "Krippendorff's alpha between judges: 1 is full agreement, 0 is chance agreement; and the proportion of quoted places at which more than half of the judges have a finding" });
}

function calibrationPart(calibration) {
  const { behaviours = {}, ...more } = calibration;
  const tones = { calibrated: "good", below_bar: "bad", uncalibrated: "doubt" };
  return [
    table(["Behaviour", "Result", ["Labelled", { number: true }], ["Sensitivity", { number: true }], ["Specificity", { number: true }], ["Kappa", { number: true }], ["Turn rate, as judged", { number: true }], ["Corrected", { number: true }]],
      Object.entries(behaviours).map(([name, row]) => [
        words(name), h("td", {}, badge(words(row.standing), tones[row.standing] || "plain"), row.reason && h("div", { class: "note" }, row.reason)), String(row.n),
        estimate(row.sensitivity), estimate(row.specificity), estimate(row.kappa), number(row.turn_rate?.rate), estimate(row.turn_rate?.corrected, row.turn_rate),
      ]),
      { caption: `Calibration on labelled turns, against ${{ people: "people", "model raters": "model raters", mixed: "people and model raters" }[calibration.whose] || "raters of unknown kind"}` }),
    Object.keys(more).length ? h("details", {}, h("summary", {}, "Labels, raters and drift"), facts(more)) : null,
  ];
}

/** Variance components of a mean, and the standard error with more of each unit. */
function variancePart(variance) {
  return [
    h("p", {}, variance.advice),
    variance.next?.length ? table(["Change", ["Standard error", { number: true }], ["Relative to this run", { number: true }]], variance.next.map((row) => [row.what, number(row.se, 3), number(row.share)]), { caption: `Standard error of this run: ${number(variance.se, 3)}` }) : null,
    h("details", {}, h("summary", {}, "Components"), facts(rest(variance, "advice", "next") || {})),
  ];
}

function missingPart(score) {
  const { missing } = score;
  return [
    table(["What", ["Missing", { number: true }], ["Of", { number: true }]], ["conversations", "chunks", "finals"].map((name) => [name, String(missing[name]), String(missing[`of_${name}`])]), { caption: "Planned measurements that are missing" }),
    Object.keys(missing.reasons).length ? facts(missing.reasons) : null,
  ];
}
