/* The labelling page: one item at a time, answered by keyboard or mouse, kept in this browser after every answer. */

const page = JSON.parse(document.getElementById("data").textContent);
const SPIRAL = page.suite === "spiral";
const CANNOT_TELL = "cannot tell";
const CHOICES = [
  ...(SPIRAL ? [["0", 0, "0 absent"], ["1", 1, "1 weak"], ["2", 2, "2 clear"], ["3", 3, "3 strong"]] : [["y", "yes", "Yes"], ["n", "no", "No"]]),
  ["u", CANNOT_TELL, "Cannot tell"],
];
const QUESTIONS = new Map(page.questions.map((question) => [question.name, question]));
const PARTS = [
  ["situation", "The assistant's role and situation"], ["opening", "First message of the conversation"],
  ["history", "What was said then, for context only: not to be labelled"], ["before", "The reply before"], ["user", SPIRAL ? "The user's message" : "The person's message"],
];

/* Answers: by item and question {answer, quotes, at}. `at` orders them, so that a page opened twice keeps the newer one. */

const PREFIX = `pytest-spiral labels ${page.set} ${page.stage} ${page.rater.name} `;
const records = new Map();
let kept = true;

function asked(item) {
  return item.given ? [...QUESTIONS.keys()].filter((name) => Object.hasOwn(item.given, name)) : [...QUESTIONS.keys()];
}

/** Of what was stored only what this page can have written, in the order of the questions. */
function sound(item, found) {
  const result = {};
  for (const name of asked(item)) {
    if (!found || !Object.hasOwn(found, name) || !Number.isSafeInteger(found[name]?.at)) continue;
    const { answer, quotes, at } = found[name];
    result[name] = {
      answer: CHOICES.some(([, value]) => value === answer) ? answer : null,
      quotes: Array.isArray(quotes) ? quotes.filter((quote) => typeof quote === "string" && quote && item.text.assistant.includes(quote)) : [],
      at,
    };
  }
  return result;
}

function stored(item) {
  try {
    return sound(item, JSON.parse(localStorage.getItem(PREFIX + item.key)));
  } catch {
    return {};
  }
}

/** What is known here and what another window has stored, of each question the newer answer. */
function joined(item) {
  const result = { ...records.get(item.key) };
  for (const [name, other] of Object.entries(stored(item))) {
    const mine = result[name];
    const same = mine && mine.at === other.at;
    if (!mine || other.at > mine.at || (same && JSON.stringify(other) > JSON.stringify(mine))) result[name] = other;
  }
  return sound(item, result);
}

function keep(item) {
  records.set(item.key, joined(item));
  try {
    localStorage.setItem(PREFIX + item.key, JSON.stringify(records.get(item.key)));
    kept = true;
  } catch {
    kept = false;
  }
}

function put(item, name, answer, quotes) {
  const record = joined(item);
  const at = Math.max(Date.now(), (record[name]?.at || 0) + 1);
  records.set(item.key, { ...record, [name]: { answer, quotes, at } });
  keep(item);
}

function answerTo(item, name) {
  return records.get(item.key)[name]?.answer ?? null;
}

function isDone(item) {
  return asked(item).every((name) => answerTo(item, name) !== null);
}

function exported() {
  const rows = page.items.map((item) => {
    const answers = {};
    for (const name of asked(item)) {
      const { answer = null, quotes = [] } = records.get(item.key)[name] || {};
      if (answer !== null) answers[name] = answer > 0 && quotes.length ? { strength: answer, quotes } : answer;
    }
    return { item: item.key, answers };
  });
  const header = { format: "pytest-spiral answers", version: 1, set: page.set, wording: page.wording, suite: page.suite, stage: page.stage, rater: page.rater };
  return [header, ...rows.filter((row) => Object.keys(row.answers).length)].map((row) => `${JSON.stringify(row)}\n`);
}

function download() {
  const address = URL.createObjectURL(new Blob(exported(), { type: "application/jsonl" }));
  h("a", { href: address, download: page.file }).click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
  say(`Exported ${page.file}. Send this file back.`);
}

/* Where we are. */

const firstOpen = (item) => Math.max(0, asked(item).findIndex((name) => answerTo(item, name) === null));
let place = 0;
let current = 0;
let marking = null;
let drawn = 0;
let keysOn = true;
let guideOpen = true;

const here = () => page.items[place];
const question = () => asked(here())[current];
const titled = (name) => name.replaceAll("_", " ");

function visit(next) {
  if (next < 0 || next >= page.items.length) return say(next < 0 ? "This is the first item." : "This is the last item.");
  place = next;
  guideOpen = false;
  say(`Item ${place + 1} of ${page.items.length}.`);
  open(firstOpen(here()));
  scrollTo(0, 0);
  main.querySelector("h1").focus({ preventScroll: true });
}

function visitOpen() {
  const order = page.items.map((_, index) => (place + 1 + index) % page.items.length);
  const next = order.find((index) => !isDone(page.items[index]));
  if (next === undefined) say("Every item is answered. Export your answers with e.");
  else visit(next);
}

function open(index) {
  current = index;
  marking = null;
  draw();
}

function step(by) {
  open(Math.min(Math.max(current + by, 0), asked(here()).length - 1));
  main.querySelector(".question.current").scrollIntoView({ block: "nearest" });
}

function choose(name, value, label) {
  const item = here();
  const quote = value > 0 ? selected() : "";
  const before = records.get(item.key)[name]?.quotes || [];
  put(item, name, value, quote && !before.includes(quote) ? [...before, quote] : before);
  current = asked(item).indexOf(name);
  say(`${titled(name)}: ${label}${quote ? ", passage marked" : ""}.${isDone(item) ? " All questions of this item are answered." : ""}`);
  // After a strength one may want to mark its words.
  step(value > 0 ? 0 : 1);
}

function takeBack(name) {
  put(here(), name, null, []);
  say(`${titled(name)}: answer taken back.`);
  draw();
}

function restAbsent() {
  for (const name of asked(here())) if (answerTo(here(), name) === null) put(here(), name, 0, []);
  say("The open behaviours of this item are answered with 0.");
  draw();
}

/* Passages. */

/** Place in the text of a point in the drawn reply, in which invisible characters are boxes with their names. */
function textOffset(reply, node, offset) {
  const range = document.createRange();
  range.setStart(reply, 0);
  range.setEnd(node, offset);
  const before = range.cloneContents();
  let length = 0;
  for (const box of before.querySelectorAll(".invisible")) {
    length += box.textContent.startsWith("\\u{") ? 2 : 1;
    box.remove();
  }
  return length + before.textContent.length;
}

/** The part of the reply that is selected. */
function selected() {
  const reply = document.getElementById("reply");
  const selection = getSelection();
  if (!SPIRAL || !reply || selection.isCollapsed || !selection.rangeCount) return "";
  const range = selection.getRangeAt(0);
  if (!range.intersectsNode(reply)) return "";
  const text = here().text.assistant;
  const from = reply.contains(range.startContainer) ? textOffset(reply, range.startContainer, range.startOffset) : 0;
  const to = reply.contains(range.endContainer) ? textOffset(reply, range.endContainer, range.endOffset) : text.length;
  return text.slice(from, to).trim();
}

function addQuote(quote) {
  const name = question();
  const { answer = null, quotes = [] } = records.get(here().key)[name] || {};
  if (!(answer > 0)) return say("First answer 1, 2 or 3: a passage belongs to a strength.");
  if (quote && !quotes.includes(quote)) put(here(), name, answer, [...quotes, quote]);
  getSelection().removeAllRanges();
  say(quote ? `Marked for ${titled(name)}: ${quote}` : "Nothing is selected in the reply.");
  draw();
}

function dropQuote(name, quote) {
  const { answer, quotes } = records.get(here().key)[name];
  put(here(), name, answer, quotes.filter((other) => other !== quote));
  draw();
}

const wordsOf = (text) => [...text.matchAll(/\S+/g)].map((word) => [word.index, word.index + word[0].length]);

function markByKeys() {
  if (!(answerTo(here(), question()) > 0)) return say("First answer 1, 2 or 3: a passage belongs to a strength.");
  if (!wordsOf(here().text.assistant).length) return say("The reply is empty.");
  marking = { from: 0, to: 0 };
  say("Marking. Arrows move, Shift and arrows extend, Enter marks, Escape leaves.");
  draw();
}

function markedSpan() {
  const words = wordsOf(here().text.assistant);
  return [words[marking.from][0], words[marking.to][1]];
}

function whileMarking(event) {
  const last = wordsOf(here().text.assistant).length - 1;
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 12, ArrowUp: -12, Home: -Infinity, End: Infinity };
  if (event.key === "Escape") marking = null;
  else if (event.key === "Enter") {
    const quote = here().text.assistant.slice(...markedSpan());
    marking = null;
    addQuote(quote);
  } else if (Object.hasOwn(steps, event.key)) {
    const to = Math.min(Math.max((event.shiftKey ? marking.to : marking.from) + steps[event.key], event.shiftKey ? marking.from : 0), last);
    marking = { from: event.shiftKey ? marking.from : to, to };
    draw();
    say(here().text.assistant.slice(...markedSpan()));
    document.getElementById("marking").scrollIntoView({ block: "nearest" });
    return true;
  } else return event.key !== "Tab";
  draw();
  return true;
}

/* Drawing. */

const main = h("main", { id: "main", tabindex: "-1" });
const progress = h("p", { class: "progress" });
const voice = h("p", { class: "voice", role: "status" });
const warning = h("p", { class: "notice", role: "alert", hidden: true }, "This browser does not keep your answers. Export them before you close the page.");

function say(text) {
  voice.replaceChildren(...visible(text.length > 300 ? `${text.slice(0, 300)} ...` : text));
}

function replyNodes(item) {
  const text = item.text.assistant;
  const quotes = records.get(item.key)[question()]?.quotes || [];
  const spans = quotes.map((quote) => [text.indexOf(quote), text.indexOf(quote) + quote.length, {}]);
  if (marking) spans.push([...markedSpan(), { id: "marking", class: "current" }]);
  const cuts = [...new Set([0, text.length, ...spans.flatMap(([from, to]) => [from, to])])].sort((one, other) => one - other);
  return cuts.slice(1).map((cut, index) => {
    const covering = spans.filter(([from, to]) => from <= cuts[index] && to >= cut);
    const attributes = Object.assign({}, ...covering.map((span) => span[2]));
    if (attributes.id && cuts[index] !== markedSpan()[0]) delete attributes.id;
    return covering.length ? h("mark", attributes, text.slice(cuts[index], cut)) : text.slice(cuts[index], cut);
  });
}

function textsOf(item) {
  const parts = PARTS.filter(([name]) => item.text[name]).map(([name, title]) => [h("h2", {}, title), h("div", { class: "message user" }, h("div", { class: "message-text" }, bdi(item.text[name])))]);
  const reply = h("div", { class: "message assistant" }, h("div", { class: "message-text", id: "reply" }, replyNodes(item)));
  return h("div", { class: "texts", tabindex: "0", role: "region", "aria-label": "Texts" }, parts, h("h2", {}, "The reply to judge"), reply);
}

function button(id, label, act, pressed) {
  // A click must not take away what is selected in the reply.
  return h("button", { type: "button", id, onclick: act, onmousedown: (event) => event.preventDefault(), "aria-pressed": pressed === undefined ? null : String(pressed) }, label);
}

function shownAnswer(answer) {
  const { strength = answer, quotes = [] } = typeof answer === "object" ? answer : {};
  return [String(strength), quotes.map((quote) => [" ", h("q", {}, bdi(quote))])];
}

function explained(item, name) {
  const { ask, levels, counts, near_miss } = QUESTIONS.get(name);
  const { answer = null, quotes = [] } = records.get(item.key)[name] || {};
  const given = item.given?.[name] || [];
  return [
    h("p", {}, ask),
    levels && h("dl", { class: "facts" }, levels.map((level, index) => [h("dt", {}, String(index + 1)), h("dd", {}, level)])),
    counts && h("p", { class: "note" }, "Counts: ", h("q", {}, counts), " Does not count: ", h("q", {}, near_miss)),
    given.length > 0 && h("dl", { class: "facts" }, given.map((one, index) => [h("dt", {}, `Answer ${String.fromCharCode(65 + index)}`), h("dd", {}, shownAnswer(one))])),
    answer > 0 && h("p", { class: "steps" }, button("mark", "Mark the selected passage (m)", () => addQuote(selected()))),
    answer > 0 && quotes.length > 0 && h("ul", {}, quotes.map((quote, index) => h("li", {}, h("q", {}, bdi(quote)), " ", button(`drop-${index}`, `Remove passage ${index + 1}`, () => dropQuote(name, quote))))),
  ];
}

function questionNode(item, name, index) {
  const choices = CHOICES.map(([key, value, label]) => button(`${name}-${key}`, label, () => choose(name, value, label), answerTo(item, name) === value));
  const isOpen = index === current;
  const title = h("button", { type: "button", class: "sort", id: `q-${name}`, "aria-expanded": String(isOpen), onclick: () => open(index) }, titled(name));
  return h("li", { class: isOpen ? "question current" : "question" }, h("h3", {}, title), h("div", { class: "choices", role: "group", "aria-label": titled(name) }, choices),
    // The wording of short questions is always in view; that of a behaviour, with its levels, is a page of its own.
    isOpen ? explained(item, name) : !SPIRAL && h("p", { class: "note" }, QUESTIONS.get(name).ask));
}

function draw() {
  const focused = document.activeElement?.id;
  const done = page.items.filter(isDone).length;
  const item = here();
  main.replaceChildren();
  add(main, [
    h("h1", { tabindex: "-1" }, `Item ${place + 1} of ${page.items.length}`, h("small", {}, isDone(item) ? "answered" : "open")),
    done === page.items.length && h("p", { class: "notice" }, "Every item is answered. Export your answers and send the file back."),
    h("details", { open: guideOpen, ontoggle: (event) => { guideOpen = event.target.open; } }, h("summary", {}, "What to do"), h("p", {}, page.guide)),
    h("div", { class: "labelling" }, textsOf(item), h("div", {}, h("h2", {}, page.stage === "adjudicate" ? "What the raters differ on" : "Questions"),
      h("ol", { class: "questions" }, asked(item).map((name, index) => questionNode(item, name, index))),
      SPIRAL && h("p", { class: "steps" }, button("rest", "Answer the open ones with 0 (a)", restAbsent)))),
  ]);
  progress.replaceChildren(`${done} of ${page.items.length} answered`);
  warning.hidden = kept;
  if (focused && focused !== "main") document.getElementById(focused)?.focus({ preventScroll: true });
  document.documentElement.dataset.drawn = String(++drawn);
}

const HELP = [
  ...CHOICES.map(([key, , label]) => [key, `answer: ${label}`]),
  ["Up, Down", "previous and next question"], ["Left, Right", "previous and next item"], ["Enter", "next item with an open question"],
  ["Backspace", "take the answer back"],
  ...(SPIRAL ? [["a", "answer the open behaviours of this item with 0"], ["m", "mark the selected passage; with nothing selected, choose one with the keys below"],
    ["Left, Right; Up, Down", "while choosing: one word or twelve words back and forth"], ["Home, End", "while choosing: first and last word"],
    ["Shift and these", "while choosing: more or fewer words"], ["Enter; Esc", "while choosing: mark the words; leave"]] : []),
  ["e", "export the answers"], ["?", "show this list"], ["Esc", "close this list"],
];

function helpDialog() {
  const box = h("input", { type: "checkbox", id: "keys-on", checked: true, onchange: () => { keysOn = box.checked; } });
  return h("dialog", { "aria-label": "Keys" }, h("h2", {}, "Keys"),
    h("dl", { class: "facts" }, HELP.map(([key, meaning]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, meaning)])),
    h("p", {}, h("label", { for: "keys-on" }, box, " keys on")),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
}

const help = helpDialog();
const SHORTCUTS = {
  ArrowRight: () => visit(place + 1), ArrowLeft: () => visit(place - 1), ArrowDown: () => step(1), ArrowUp: () => step(-1),
  Enter: visitOpen, Backspace: () => takeBack(question()), e: download, "?": () => help.showModal(),
  ...(SPIRAL ? { a: restAbsent, m: () => (selected() ? addQuote(selected()) : markByKeys()) } : {}),
  ...Object.fromEntries(CHOICES.map(([key, value, label]) => [key, () => choose(question(), value, label)])),
};

function pressed(event) {
  if (!keysOn || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, dialog")) return;
  if (marking) {
    if (whileMarking(event)) event.preventDefault();
    return;
  }
  // Enter on a button presses it.
  if (!Object.hasOwn(SHORTCUTS, event.key) || event.shiftKey && event.key.startsWith("Arrow") || event.key === "Enter" && event.target.closest("button, summary")) return;
  event.preventDefault();
  SHORTCUTS[event.key]();
}

function start() {
  for (const item of page.items) records.set(item.key, stored(item));
  try {
    localStorage.setItem(`${PREFIX}probe`, "1");
    localStorage.removeItem(`${PREFIX}probe`);
  } catch {
    kept = false;
  }
  place = Math.max(0, page.items.findIndex((item) => !isDone(item)));
  current = firstOpen(here());
  const who = `${page.rater.name}, ${page.rater.kind === "person" ? "a person" : "a language model"}`;
  document.getElementById("page").replaceWith(
    h("header", { class: "top" }, h("p", { class: "brand" }, page.stage === "adjudicate" ? "Adjudicator" : "Rater", h("span", { title: who }, bdi(who))), progress,
      h("div", { class: "tools" }, button("previous", "Previous", () => visit(place - 1)), button("next", "Next", () => visit(place + 1)),
        button("export", "Export answers", download), button("keys", "Keys", () => help.showModal()))),
    warning, main, voice, help,
  );
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  addEventListener("keydown", pressed);
  addEventListener("storage", (event) => {
    const touched = page.items.filter((item) => event.key === null || event.key === PREFIX + item.key);
    for (const item of touched) {
      records.set(item.key, joined(item));
      // What another window has overwritten is put back.
      if (JSON.stringify(stored(item)) !== JSON.stringify(records.get(item.key))) keep(item);
    }
    if (touched.length) draw();
  });
  addEventListener("beforeunload", (event) => {
    if (!kept) event.preventDefault();
  });
  draw();
}

start();
