/* The leaderboard: a table for every set of runs that may be compared, never one for all. */

function boardView() {
  const { groups } = given.board;
  return [
    h("h1", { tabindex: "-1" }, "Leaderboard"),
    h("p", { class: "lead" }, "Models stand in one table only where suite, protocol, prompts, judges and simulated user are the same. Nothing can be said across tables."),
    groups.length ? groups.map(boardGroup) : empty("No run has a score yet."),
  ];
}

function boardGroup(group, index) {
  const holder = h("div", {});
  let by = group.columns.find((column) => column.main).key;
  let upwards = false;
  const draw = () => holder.replaceChildren(boardTable(group, by, upwards, (key) => {
    upwards = key === by ? !upwards : key === "model";
    by = key;
    draw();
    holder.querySelector("[aria-sort] button").focus();
  }));
  draw();
  return h("section", { id: `group-${index + 1}` },
    h("h2", {}, group.title),
    h("dl", { class: "facts" }, group.same.map(([name, value]) => [h("dt", {}, name), h("dd", {}, /^[0-9a-f]{64}$/.test(value) ? hash(value) : bdi(value))])),
    holder,
    h("p", { class: "note" }, "Rank: one more than the number of models that are surely better, that is, whose whole 95 % interval lies above. Runs that are not ready to publish have none."));
}

function boardTable(group, by, upwards, sort) {
  const value = (row) => (by === "model" ? row.model.toLowerCase() : by === "rank" ? row.rank : row.values[by]?.value);
  const rows = [...group.rows].sort((one, other) => {
    const [a, b] = [value(one), value(other)];
    if (a === b || (!measuredOrText(a) && !measuredOrText(b))) return 0;
    if (!measuredOrText(a)) return 1;
    if (!measuredOrText(b)) return -1;
    return (a < b ? -1 : 1) * (upwards ? 1 : -1);
  });
  const first = group.columns.find((column) => column.main);
  const others = group.columns.filter((column) => !column.main);
  const header = (key, name, isNumber) => h("th", { scope: "col", class: isNumber ? "number" : null, "aria-sort": key === by ? (upwards ? "ascending" : "descending") : null },
    h("button", { type: "button", class: "sort", onclick: () => sort(key) }, name, h("span", { "aria-hidden": "true" }, key === by ? (upwards ? " \u25b2" : " \u25bc") : "")));
  return scrolling(h("table", { class: "board" },
    h("caption", {}, group.title),
    h("thead", {}, h("tr", {}, header("rank", "Rank", true), header("model", "Model"), header(first.key, first.name, true), h("th", { scope: "col" }, "Run"), h("th", { scope: "col" }, "Publication"), others.map((column) => header(column.key, column.name, true)))),
    h("tbody", {}, rows.map((row) => h("tr", {},
      h("td", { class: "number" }, measured(row.rank) ? String(row.rank) : "\u2013"), h("th", { scope: "row" }, bdi(row.model)),
      boardCell(row, first),
      h("td", { class: "run" }, h("a", { href: row.href }, bdi(row.run)), h("div", { class: "note" }, when(row.finished_at), `, version ${row.version}`)),
      h("td", {}, readiness(row.ready, row.blockers)),
      others.map((column) => boardCell(row, column)))))), group.title);
}

function boardCell(row, column) {
  const cell = row.values[column.key];
  return h("td", { class: "number" }, cell ? [withRange(cell.value, cell.low, cell.high, column.digits), column.main && measured(cell.value) && spark(cell.value, cell.low, cell.high, { from: column.from, to: column.to })] : MISSING);
}

const measuredOrText = (value) => typeof value === "string" || measured(value);
