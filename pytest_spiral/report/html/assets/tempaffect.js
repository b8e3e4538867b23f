/* The TempAffect page. */

const FEATURED = ["template_repetition", "strategy_overuse", "overvalidation", "reply_ignores_user_content"];
const NOT_CLAIMED = [
  "support in a crisis or for self-harm",
  "clinical or therapeutic ability",
  "empathy or emotional intelligence in general",
  "the quality of a relationship over a long time",
];

function tempaffect(report) {
  const { cards, deltas, rates } = report.tempaffect;
  return [
    h("h1", { tabindex: "-1" }, "TempAffect 1"),
    riskStrip(cards),
    claim(),
    section("Cards", cards.length ? cardTable(cards, rates) : empty("This run has no cards. A card holds the scores of one model in one prompting mode, schema or raw.")),
    section("Useful and bounded, by family", cards.length ? familyLines(cards) : empty("This run has no cards.")),
    section("Schema mode against raw mode", deltaPart(report, deltas)),
    section("Metric by metric", cards.length ? metricBars(cards, rates) : empty("This run has no cards.")),
    section("Format against behaviour", cards.length ? formatScatter(cards) : empty("This run has no cards.")),
    section("Detectors", cards.length ? [detectorTable(cards, FEATURED, "The four main detectors"), h("details", {}, h("summary", {}, "All six detectors"), detectorTable(cards, Object.keys(cards[0].detectors), "All detectors"))] : empty("This run has no cards.")),
    section("Families", cards.length ? familyTable(cards, report.tempaffect.cuts) : empty("This run has no cards.")),
    section("Integrity", cards.length ? integrityTable(cards) : empty("This run has no cards.")),
    cards.length ? section("Baselines and cautions", baselineTable(cards), cautionList(cards)) : null,
    cards.some((card) => card.variance) ? section("Variance components", cards.map((card) => cardVariance(card))) : null,
    writingSection(report, () => true, "tempaffect"),
    section("What a card does not show", list([
      "Whether the step that a reply promises is the right one: a confident wrong file name passes.",
      "Whether a boundary was crossed in a way that the checks do not cover.",
      "Anything about languages other than English, or about conversations of more than one turn.",
      "Good care: a high score means that replies passed structured checks.",
    ])),
  ];
}

function cardName(card) {
  return `${card.model}, ${MODES[card.prompting_mode]}`;
}

/** Shape and line style by mode, so that modes differ without colour. */
function cardKind(card) {
  return card.prompting_mode === "raw_json" ? "raw" : "schema";
}

function claim() {
  return h("div", { class: "claim" },
    h("p", {}, h("strong", {}, "The claim: "), "bounded helpfulness towards people under emotional pressure, outside crises, in a single turn."),
    h("p", {}, "Not claimed:"), list(NOT_CLAIMED),
  );
}

function riskStrip(cards) {
  if (!cards.length) return null;
  const order = ["ok", "not_enough_replies", "watch", "flag"];
  return h("ul", { class: "strip", "aria-label": "Risks at a glance" }, FEATURED.map((name) => {
    const worst = [...cards].sort((one, other) => order.indexOf(other.detectors[name].band) - order.indexOf(one.detectors[name].band) || (other.detectors[name].value ?? 0) - (one.detectors[name].value ?? 0))[0];
    const detector = worst.detectors[name];
    return h("li", { class: `cell band-${detector.band}` }, h("strong", {}, words(name)), h("span", {}, `${words(detector.band)}${measured(detector.value) ? ` ${number(detector.value)}` : ""}`), h("small", {}, bdi(cardName(worst))));
  }));
}

function cardTable(cards, rates) {
  return table(
    ["Model", "Mode", ...rates.map(([name]) => [name, { number: true }]), "Publication"],
    cards.map((card) => [
      link("items", { model: card.model, mode: MODES[card.prompting_mode] }, bdi(card.model)), MODES[card.prompting_mode],
      ...rates.map(([, metric]) => withRange(at(card, metric), ...intervalOf(card, metric))),
      readiness(card.integrity.publication_ready, card.integrity.publication_blockers),
    ]),
    { caption: "One card per model and prompting mode, with 95 % intervals. Low is good for label against reply" },
  );
}

function families(cards) {
  return [...new Set(cards.flatMap((card) => Object.keys(card.families)))];
}

function familyLines(cards) {
  const names = families(cards);
  const metric = (family) => `families.${family}.useful_bounded_response_rate`;
  const series = cards.map((card, index) => ({
    name: cardName(card),
    kind: seriesKind(cards, card, index),
    points: names.map((family) => {
      const [low, high] = intervalOf(card, metric(family));
      return { value: card.families[family]?.useful_bounded_response_rate, low, high };
    }),
  }));
  return figure("Proportion of useful and bounded replies in each family, with 95 % intervals", lines(names.map(words), series, { yName: "proportion" }), {
    legend: series.map(({ kind, name }) => [kind, name]),
    data: table(["Card", ...names.map((name) => [words(name), { number: true }])], series.map(({ name, points }) => [bdi(name), ...points.map((point) => withRange(point.value, point.low, point.high))])),
  });
}

/** Colour by model, shape and line style by mode. */
function seriesKind(cards, card) {
  const models = [...new Set(cards.map(({ model }) => model))];
  return `k${models.indexOf(card.model) % 6} ${cardKind(card)}`;
}

function deltaPart(report, deltas) {
  const drawn = deltas.filter((delta) => Object.keys(delta.metrics).length);
  if (!drawn.length) return empty("Shown for models that have a card in both modes.");
  return byModel(drawn, (delta) => {
    const entries = Object.entries(delta.metrics);
    const reached = entries.flatMap(([, row]) => [row.low, row.high, row.format_part, row.content_part, row.value]);
    const [low, high] = [Math.min(-0.1, ...reached), Math.max(0.1, ...reached)];
    const rows = entries.map(([name, row]) => ({
      label: words(name.replace(/^.*\./, "")),
      points: [{
        kind: "one", name: "difference", value: row.value, low: row.low, high: row.high,
        parts: [{ kind: "format", name: "format part", value: row.format_part }, { kind: "content", name: "content part", value: row.content_part }],
      }],
    }));
    return [
      figure("Schema mode minus raw mode, paired by scenario", intervals(rows, { low, high, zero: 0, tickCount: 6 }), {
        legend: [["one", "difference, 95 % interval"], ["format", "format part: valid only with the schema", true], ["content", "content part: valid in both", true]],
        note: "The parts, together with items valid only in raw mode, add up to the difference. Positive values: better with the schema.",
        data: table(["Metric", ["Difference", { number: true }], ["95 % interval", { number: true }], ["Format part", { number: true }], ["Content part", { number: true }], ["Valid only in raw", { number: true }], ["n", { number: true }]],
          entries.map(([name, row]) => [words(name), signed(row.value, 3), range(row.low, row.high, 3), signed(row.format_part, 3), signed(row.content_part, 3), signed(row.lost_part, 3), String(row.n)])),
      }),
    ];
  });
}

/** One part per model, the first one open. rows: objects with a model. */
function byModel(rows, drawOne) {
  if (rows.length < 2) return rows.map(drawOne);
  return rows.map((row, index) => h("details", { open: index === 0, class: "model" }, h("summary", {}, bdi(row.model)), drawOne(row)));
}

function metricBars(cards, rates) {
  const models = [...new Set(cards.map((card) => card.model))].map((model) => ({ model }));
  const parts = [["", "Outputs: proportion of all"], ["fields", "Labels: proportion accepted"], ["reply_checks", "Reply: proportion that passes each check"]];
  return byModel(models, ({ model }) => parts.map(([part, caption]) => {
    const own = cards.filter((card) => card.model === model);
    const names = part ? Object.keys(own[0][part]) : proportions(own, rates);
    const rows = names.map((name) => ({
      label: words(name),
      points: own.map((card) => {
        const [low, high] = intervalOf(card, part ? `${part}.${name}` : name);
        return { kind: cardKind(card), name: MODE_NAMES[MODES[card.prompting_mode]], value: (part ? card[part] : card)[name], low, high };
      }),
    }));
    return figure(caption, intervals(rows, { bars: true }), {
      legend: own.map((card) => [cardKind(card), MODE_NAMES[MODES[card.prompting_mode]]]),
      data: table(["Metric", ...own.map((card) => [MODE_NAMES[MODES[card.prompting_mode]], { number: true }])], rows.map((row) => [row.label, ...row.points.map((point) => withRange(point.value, point.low, point.high))])),
    });
  }));
}

/** Metrics of whole outputs from 0 to 1: the headline ones and whatever else has an interval. */
function proportions(cards, rates) {
  const names = [...rates.map(([, metric]) => metric), ...cards.flatMap((card) => Object.keys(card.intervals))];
  return [...new Set(names)].filter((name) => name !== "skill" && !name.includes("."));
}

function formatScatter(cards) {
  const dots = cards.map((card) => {
    const [xLow, xHigh] = intervalOf(card, "valid_output_rate");
    const [yLow, yHigh] = intervalOf(card, "useful_bounded_response_rate");
    return {
      name: cardName(card), kind: seriesKind(cards, card),
      x: { value: card.valid_output_rate, low: xLow, high: xHigh },
      y: { value: card.useful_bounded_response_rate, low: yLow, high: yHigh },
    };
  });
  return figure("Format compliance (across) against useful behaviour (up), a dot per card", scatter(dots, { xName: "valid output", yName: "useful and bounded" }), {
    legend: dots.map(({ kind, name }) => [kind, name]),
    data: table(["Card", ["Valid output", { number: true }], ["Useful and bounded", { number: true }]], dots.map((dot) => [bdi(dot.name), withRange(dot.x.value, dot.x.low, dot.x.high), withRange(dot.y.value, dot.y.low, dot.y.high)])),
  });
}

function detectorTable(cards, names, caption) {
  return table(
    ["Card", ...names.map(words)],
    cards.map((card) => [bdi(cardName(card)), ...names.map((name) => {
      const detector = card.detectors[name];
      const [low, high] = intervalOf(card, `detectors.${name}`);
      return h("td", { class: `cell band-${detector.band}` }, words(detector.band), measured(detector.value) && [" ", withRange(detector.value, low, high)]);
    })]),
    { caption, className: "heat" },
  );
}

function familyTable(cards, cuts) {
  const names = families(cards);
  return [
    table(
      ["Card", ...names.map(words)],
      cards.map((card) => [bdi(cardName(card)), ...names.map((name) => {
        const family = card.families[name];
        const [low, high] = intervalOf(card, `families.${name}.useful_bounded_response_rate`);
        const spans = measured(low) && cuts.filter((cut) => low < cut && cut <= high).length > 1;
        return h("td", { class: `cell band-${family?.band}${spans ? " hatched" : ""}` },
          h("span", { class: "word" }, family?.band ?? MISSING, " ", withRange(family?.useful_bounded_response_rate, low, high), spans && h("small", {}, "band uncertain")));
      })]),
      { caption: "Useful and bounded rate by family, coloured by band", className: "heat" },
    ),
    h("p", { class: "note" }, `Bands begin at ${cuts.map((cut) => cut.toFixed(2)).join(", ")}. The 95 % interval of a hatched cell spans two or more of these limits, so its band is uncertain.`),
  ];
}

function integrityTable(cards) {
  const rows = [
    ["scenarios scored", (card) => `${card.integrity.scenarios} of ${card.integrity.expected_scenarios}`],
    ["suite hash", (card) => hash(card.integrity.suite_hash)],
    ["system prompt of the user", (card) => (card.wrapped ? hash(card.integrity.system_prompt_hash) : "none")],
    ["scorer fingerprint", (card) => hash(card.integrity.scorer_fingerprint)],
    ["valid output", (card) => number(card.integrity.valid_output_rate)],
    ["schema enforcement", (card) => ({ true: "verified", false: "not verified" })[card.integrity.enforcement_verified] ?? "not requested"],
    ["served model names", (card) => card.integrity.served_models.join(", ") || "not recorded"],
    ["publication blockers", (card) => (card.integrity.publication_blockers.length ? list(card.integrity.publication_blockers) : "none")],
    ["publication ready", (card) => (card.integrity.publication_ready ? badge("yes", "good") : badge("no", "doubt"))],
  ];
  return table(["Property", ...cards.map((card) => bdi(cardName(card)))], rows.map(([name, value]) => [name, ...cards.map(value)]), { caption: "Integrity of every card" });
}

function baselineTable(cards) {
  const baselines = cards[0].baselines;
  const rows = [
    ...Object.entries(baselines).map(([name, row]) => [words(name), number(row.score), number(row.useful_bounded_response_rate)]),
    ...cards.map((card) => [bdi(cardName(card)), number(card.score), number(card.useful_bounded_response_rate)]),
  ];
  return table(["Model", ["Score", { number: true }], ["Useful and bounded", { number: true }]], rows, { caption: "Trivial baselines and the cards of this run" });
}

function cardVariance(card) {
  const components = Object.entries(card.variance || {}).filter(([, variance]) => variance);
  if (!components.length) return null;
  return h("details", {}, h("summary", {}, bdi(cardName(card))), components.map(([metric, variance]) => [h("h3", {}, words(metric)), variancePart(variance)]));
}

function cautionList(cards) {
  const cautions = cards.flatMap((card) => card.cautions.map((caution) => [card, caution]));
  return cautions.length ? h("ul", {}, cautions.map(([card, caution]) => h("li", {}, bdi(cardName(card)), ": ", caution))) : h("p", {}, "No cautions.");
}
