/* The leaderboard: one table for each group of comparable runs. */

function leaderboardView() {
  const { groups } = page.leaderboard;
  return [
    h("h1", { tabindex: "-1" }, "Leaderboard"),
    h("p", { class: "lead" }, "Each table contains results with the same suite, protocol, prompts, judges, simulated user, seed and number of turns. Results in different tables cannot be compared."),
    groups.length ? groups.map(leaderboardGroup) : empty("No run has a score."),
  ];
}

function leaderboardGroup(group, index) {
  const holder = h("div", {});
  let by = group.columns.find((column) => column.better).key;
  let ascending = group.columns.find((column) => column.better).better < 0;
  const ranking = group.columns.filter((column) => column.better).map((column) => column.name).join(" or ");
  const draw = () => holder.replaceChildren(leaderboardTable(group, by, ascending, (key) => {
    ascending = key === by ? !ascending : key === "model";
    by = key;
    draw();
    holder.querySelector("[aria-sort] button").focus();
  }));
  draw();
  return h("section", { id: `group-${index + 1}` },
    h("h2", {}, group.title),
    h("dl", { class: "facts" }, group.same.map(([name, value]) => [h("dt", {}, name), h("dd", {}, /^[0-9a-f]{64}$/.test(value) ? hash(value) : bdi(value))])),
    group.apart.length ? h("p", { class: "note" }, `Not ranked with other tables of this suite: they differ in ${group.apart.join(", ")}.`) : null,
    holder,
    group.note ? h("p", { class: "note" }, group.note) : null,
    h("p", { class: "note" }, `Rank: 1 plus the number of models that are surely better by ${ranking} and surely worse by none of them: their 95 % intervals do not overlap. Runs that are not ready for publication are not ranked.`));
}

function leaderboardTable(group, by, ascending, sort) {
  const value = (row) => (by === "model" ? row.model.toLowerCase() : by === "rank" ? row.rank : row.values[by]?.[0]);
  const rows = [...group.rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === b || (!isKnown(a) && !isKnown(b))) return 0;
    if (!isKnown(a)) return 1;
    if (!isKnown(b)) return -1;
    return (a < b ? -1 : 1) * (ascending ? 1 : -1);
  });
  const first = group.columns.filter((column) => column.first);
  const others = group.columns.filter((column) => !column.first);
  const header = (key, name, isNumber) => h("th", { scope: "col", class: isNumber ? "number" : null, "aria-sort": key === by ? (ascending ? "ascending" : "descending") : null },
    h("button", { type: "button", class: "sort", onclick: () => sort(key) }, name, h("span", { "aria-hidden": "true" }, key === by ? (ascending ? " \u25b2" : " \u25bc") : "")));
  return scrolling(h("table", { class: "board" },
    h("caption", {}, group.title),
    h("thead", {}, h("tr", {}, header("rank", "Rank", true), header("model", "Model"), first.map((column) => header(column.key, column.name, true)), h("th", { scope: "col" }, "Run"), h("th", { scope: "col" }, "Publication"), others.map((column) => header(column.key, column.name, true)))),
    h("tbody", {}, rows.map((row) => h("tr", {},
      h("td", { class: "number" }, measured(row.rank) ? String(row.rank) : "\u2013"), h("th", { scope: "row" }, bdi(row.model)),
      first.map((column) => leaderboardCell(row, column)),
      h("td", { class: "run" }, h("a", { href: row.href }, bdi(row.run)), h("div", { class: "note" }, when(row.finished_at), `, version ${row.version}`)),
      h("td", {}, readiness(!row.blockers.length, row.blockers)),
      others.map((column) => leaderboardCell(row, column)))))), group.title);
}

function leaderboardCell(row, column) {
  const cell = row.values[column.key];
  return h("td", { class: "number" }, cell ? [withRange(...cell, column.digits), column.first && measured(cell[0]) && spark(...cell, { from: 0, to: column.high })] : MISSING);
}

const isKnown = (value) => typeof value === "string" || measured(value);
