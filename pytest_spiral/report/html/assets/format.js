/* Formats of numbers and names. A number that was not measured is shown as text, never as 0. */

const MISSING = "not measured";
const MODES = { schema_assisted: "schema", raw_json: "raw" };
const MODE_NAMES = { schema: "schema mode", raw: "raw mode" };
const STATUS_NAMES = {
  measured: "measured",
  model_failed: "model failed",
  instrument_failed: "instrument failed",
  not_run: "not run",
};

const measured = (value) => value !== null && value !== undefined && Number.isFinite(value);

/** Rounded as everywhere else in the report: what lies exactly between two texts becomes the even one, 0.125 to 0.12. */
function fixed(value, digits) {
  const exact = value.toFixed(60), end = exact.length - 60 + digits;
  const kept = exact.slice(0, end).replace(/\.$/, "");
  return /^50*$/.test(exact.slice(end)) && /[02468]$/.test(kept) ? kept : value.toFixed(digits);
}

function number(value, digits = 2) {
  return measured(value) ? fixed(value, digits).replace("-", "\u2212") : MISSING;
}

function signed(value, digits = 2) {
  if (!measured(value)) return MISSING;
  const text = fixed(Math.abs(value), digits);
  return Number(text) === 0 ? text : `${value < 0 ? "\u2212" : "+"}${text}`;
}

function range(low, high, digits = 2) {
  return measured(low) && measured(high) ? `${number(low, digits)} to ${number(high, digits)}` : "no interval";
}

/** A value with its interval; a value is never shown without one. */
function withRange(value, low, high, digits = 2) {
  return measured(value) ? [number(value, digits), " ", h("span", { class: "range" }, `(${range(low, high, digits)})`)] : MISSING;
}

function words(name) {
  return String(name).replace(/[_.]/g, " ");
}

function count(amount, one, many = `${one}s`) {
  return `${amount.toLocaleString("en")} ${amount === 1 ? one : many}`;
}

/** The value at a path of keys, undefined where there is none. */
function at(object, path) {
  return path.split(".").reduce((value, key) => (value === null || value === undefined ? undefined : value[key]), object);
}

/** Why something has its state: a code and free detail. */
function reasonText(reason) {
  return reason ? `${words(reason.code)}${reason.detail ? `: ${reason.detail}` : ""}` : "";
}

function hash(text) {
  return h("code", { title: text }, String(text ?? "").slice(0, 12) || "none");
}

function when(text) {
  const date = new Date(text);
  return Number.isNaN(date.getTime()) ? String(text) : `${date.toISOString().slice(0, 16).replace("T", " ")} UTC`;
}

/** The number of turns in a model's conversations, which belongs beside its score. */
function turnsOf(report, model) {
  return report.circumstances[model]["Spiral-Bench turns"];
}
