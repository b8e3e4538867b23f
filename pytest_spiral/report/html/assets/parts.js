/* Elements that several views share. */

const TONES = { pass: "good", fail: "bad", inconclusive: "doubt", incomplete: "doubt", measured: "plain" };

function badge(text, tone = "plain") {
  return h("span", { class: `badge ${tone}` }, text);
}

function verdictBadge(verdict) {
  return badge(String(verdict).toUpperCase(), TONES[verdict] || "plain");
}

function readiness(ready, blockers) {
  if (ready) return badge("ready for publication", "good");
  return h("details", { class: "blockers" }, h("summary", {}, `not ready for publication: ${count(blockers.length, "blocker")}`), list(blockers));
}

function list(texts) {
  return h("ul", {}, texts.map((text) => h("li", {}, text)));
}

function empty(...text) {
  return h("p", { class: "empty" }, ...text);
}

function section(title, ...content) {
  return h("section", {}, h("h2", {}, title), ...content);
}

/** Any value as nested lists, for keys that have no view of their own. */
function facts(value, depth = 0) {
  if (value === null || value === undefined) return MISSING;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Number(value.toPrecision(6)));
  if (typeof value !== "object") return bdi(String(value));
  if ("code" in value && "detail" in value) return bdi(reasonText(value));
  const entries = Array.isArray(value) ? value.map((item, index) => [String(index + 1), item]) : Object.entries(value);
  if (!entries.length) return "none";
  if (Array.isArray(value) && value.every((item) => typeof item !== "object" || item === null || "code" in item)) return value.map((item) => [h("div", {}, facts(item))]);
  if (depth > 5) return h("code", {}, JSON.stringify(value));
  return h("dl", { class: depth ? "facts inner" : "facts" }, entries.map(([key, item]) => [h("dt", {}, words(key)), h("dd", {}, facts(item, depth + 1))]));
}

/** The entries of an object that are not among the known keys, or null. */
function rest(object, ...known) {
  const left = Object.entries(object || {}).filter(([key]) => !known.includes(key));
  return left.length ? Object.fromEntries(left) : null;
}

/**
 * Filters over a list. fields: [{name, label, options: [[value, text]]} or {name, label, search: true}].
 * The state is read from the address and written back to it; `changed` receives it.
 */
function filters(view, parameters, fields, changed) {
  const state = { ...parameters };
  let waiting = 0;
  const update = () => {
    history.replaceState(null, "", href(view, state));
    changed(state);
  };
  // A filter with one choice filters nothing, unless the address already uses it.
  const useful = fields.filter((field) => field.search || field.options.length > 1 || state[field.name]);
  const controls = useful.map((field) => {
    const id = `filter-${field.name}`;
    if (field.search) {
      const input = h("input", { id, type: "search", value: state[field.name] || "", "data-search": true, autocomplete: "off", oninput: () => {
        state[field.name] = input.value;
        clearTimeout(waiting);
        waiting = setTimeout(update, 150);
      } });
      return h("label", { for: id, class: "wide" }, h("span", {}, field.label), input);
    }
    const select = h("select", { id, onchange: () => {
      state[field.name] = select.value;
      update();
    } }, [["", "all"], ...field.options].map(([value, text]) => h("option", { value, selected: String(state[field.name] ?? "") === String(value) }, text)));
    return h("label", { for: id }, h("span", {}, field.label), select);
  });
  return { state, bar: h("form", { class: "filters", role: "search", onsubmit: (event) => event.preventDefault() }, controls) };
}

const choices = (values, name = (value) => value) => [...new Set(values)].map((value) => [value, name(value)]);

/** Rows in portions, so that a table of ten thousand rows draws as fast as one of a few hundred. */
function portions(rows, draw, into, size = 200) {
  const more = h("button", { type: "button", class: "more" });
  let drawn = 0;
  const next = () => {
    into.append(...rows.slice(drawn, drawn + size).map(draw));
    drawn = Math.min(drawn + size, rows.length);
    more.textContent = `Show ${count(Math.min(size, rows.length - drawn), "more row")} of ${rows.length - drawn}`;
    more.hidden = drawn >= rows.length;
  };
  more.addEventListener("click", next);
  next();
  return more;
}

const LONG = 20000;

/** A text that may be megabytes: its beginning, and the rest on request. `all`: everything at once. */
function longText(text, draw = (part) => visible(part), all = false) {
  if (text.length <= LONG || all) return [draw(text)];
  const cut = /[\ud800-\udbff]/.test(text[LONG - 1]) ? LONG - 1 : LONG;
  const whole = h("div", {});
  const more = h("button", { type: "button", class: "more", onclick: () => whole.replaceChildren(...[draw(text)].flat(Infinity)) },
    `Show ${(text.length - cut).toLocaleString("en")} more characters`);
  add(whole, [draw(text.slice(0, cut)), more]);
  return [whole];
}

function pre(text) {
  return h("pre", { class: "output", dir: "auto", tabindex: "0" }, longText(text));
}

/** Tabs that are links: one of several models, modes or runs. */
function tabs(name, entries) {
  if (entries.length < 2) return null;
  return h("nav", { class: "tabs", "aria-label": name }, entries.map(([text, target, current]) =>
    h("a", { href: target, "aria-current": current ? "true" : null }, bdi(text)),
  ));
}
