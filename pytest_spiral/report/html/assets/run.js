/* About a run: configuration, models, usage. */

function runView(report) {
  const { run, integrity, usage } = report;
  const other = rest(report, "schema_version", "verdict", "run", "integrity", "gates", "usage", "tempaffect", "spiral", "worst", "profile");
  return [
    h("h1", { tabindex: "-1" }, "About this run"),
    h("dl", { class: "facts" }, [
      ["id", bdi(run.id)], ["started", when(run.started_at)], ["finished", when(run.finished_at)], ["complete", run.complete ? "yes" : "no, interrupted"], ["seed", String(run.seed)],
      ["command", h("code", {}, ["pytest", ...run.argv].join(" "))],
    ].map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])),
    section("Models", roleTable(run.config.models || [])),
    section("Requests, tokens and cost", usageTable(usage.by_role || {}), rest(usage, "by_role") && facts(rest(usage, "by_role"))),
    section("Hashes", Object.keys(integrity).length ? facts(integrity) : empty("No hashes were recorded.")),
    section("Versions", facts(run.versions)),
    section("Configuration", facts(rest(run.config, "models") || {})),
    other ? section("More", facts(other)) : null,
  ];
}

function roleTable(models) {
  if (!models.length) return empty("No model is recorded.");
  return table(["Role", "Model", "Kind", "Endpoint", "Parameters"], models.map((model) => [model.role, bdi(model.spec ?? model.model_id ?? ""), model.kind ?? "", model.endpoint_name ?? "", h("td", {}, facts(model.params ?? {}))]), { caption: "Models by role" });
}

function usageTable(byRole) {
  const roles = Object.entries(byRole);
  if (!roles.length) return empty("No requests were made.");
  const names = Object.keys(roles[0][1]);
  return table(["Role", ...names.map((name) => [words(name), { number: true }])], roles.map(([role, row]) => [role, ...names.map((name) => {
    if (name.startsWith("cost")) return row[name] === null ? "unknown price" : `$${number(row[name], 4)}`;
    return typeof row[name] === "number" ? row[name].toLocaleString("en") : facts(row[name]);
  })]), { caption: "Usage by role, resumed parts of the run included" });
}
