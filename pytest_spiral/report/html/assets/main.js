/* From the address to a view, and the header around it. */

const PAGES = [
  ["overview", "Overview"], ["tempaffect", "TempAffect"], ["items", "Items"], ["spiral", "Spiral-Bench"],
  ["conversations", "Conversations"], ["findings", "Findings"], ["compare", "Compare"], ["run", "About"],
];
const VIEWS = {
  overview, tempaffect, items: itemsView, item: itemView, spiral: spiralView, conversations: conversationsView, conversation: conversationView, findings: findingsView,
  compare: compareView, run: runView, leaderboard: leaderboardView,
};
const PARENTS = { item: "items", conversation: "conversations" };
const START = { report: "overview", compare: "compare", leaderboard: "leaderboard" };

let shortcuts = {};
let drawing = 0;
const main = h("main", { id: "main", tabindex: "-1" });
const header = { nav: h("nav", { class: "main", "aria-label": "Views" }), runs: h("div", { class: "runs" }) };

function address() {
  const [view, query] = location.hash.slice(1).split("?");
  return { view: Object.hasOwn(VIEWS, view) && (view !== "leaderboard" || page.leaderboard) ? view : START[page.kind], parameters: Object.fromEntries(new URLSearchParams(query || "")) };
}

function go(view, parameters) {
  location.hash = href(view, parameters);
}

/** With several runs in one page, every link keeps the number of the run. */
function keepRun(run) {
  if (!run) return;
  for (const anchor of main.querySelectorAll('a[href^="#"]')) {
    const target = anchor.getAttribute("href");
    if (!/[?&]run=/.test(target) && !target.startsWith("#compare")) anchor.setAttribute("href", `${target}${target.includes("?") ? "&" : "?"}run=${run}`);
  }
}

async function draw(first = false) {
  const current = ++drawing;
  const { view, parameters } = address();
  const run = Math.min(Math.max(Number(parameters.run) || 0, 0), Math.max((page.reports || []).length - 1, 0));
  const report = (page.reports || [])[run];
  shortcuts = {};
  let content;
  try {
    content = await VIEWS[view](report, parameters);
  } catch (error) {
    console.error(error);
    content = [h("h1", { tabindex: "-1" }, "This view could not be drawn"), empty(String(error))];
  }
  if (current !== drawing) return;
  main.replaceChildren();
  add(main, content);
  keepRun(run);
  drawFrame(view, run);
  const heading = main.querySelector("h1");
  document.title = `${heading?.textContent ?? ""} \u00b7 ${page.title}`;
  const target = main.querySelector("[data-arrive]");
  if (target) {
    target.focus({ preventScroll: true });
    (main.querySelector("mark.current") || target).scrollIntoView({ block: "center" });
  } else if (!first) {
    scrollTo(0, 0);
    heading?.focus({ preventScroll: true });
  }
  document.documentElement.dataset.drawn = String(current);
}

function drawFrame(view, run) {
  const pages = page.kind === "leaderboard" ? [] : PAGES;
  header.nav.replaceChildren();
  add(header.nav, pages.map(([name, text]) => h("a", { href: href(name, run && name !== "compare" ? { run } : {}), "aria-current": (PARENTS[view] || view) === name ? "page" : null }, text)));
  header.runs.replaceChildren();
  if ((page.reports || []).length > 1 && view !== "compare") {
    add(header.runs, [tabs("Runs", page.reports.map((report, index) => [report.run.id, href(view, { run: index }), index === run]))]);
  }
}

const HELP = [
  ["/", "go to the search field"], ["j, k", "next and previous finding of a conversation"],
  ["], [", "next and previous conversation"], ["?", "show this list"], ["Esc", "close this list"],
];
let keysOn = true;

function helpDialog() {
  const box = h("input", { type: "checkbox", id: "keys-on", checked: true, onchange: () => { keysOn = box.checked; } });
  return h("dialog", { "aria-label": "Keyboard shortcuts" }, h("h2", {}, "Keyboard shortcuts"),
    h("dl", { class: "facts" }, HELP.map(([key, meaning]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, meaning)])),
    h("p", {}, h("label", { for: "keys-on" }, box, " single-key shortcuts on")),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
}

function start() {
  const help = helpDialog();
  document.getElementById("page").replaceWith(
    h("header", { class: "top" }, h("p", { class: "brand" }, page.home ? h("a", { href: page.home }, "Leaderboard") : "pytest-spiral", h("span", {}, bdi(page.title))), header.nav, h("button", { type: "button", class: "quiet", onclick: () => help.showModal() }, "Keys")),
    header.runs, main, help,
  );
  document.querySelector(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    main.focus();
  });
  addEventListener("hashchange", () => draw());
  addEventListener("keydown", (event) => {
    if (!keysOn || event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, select, textarea, dialog")) return;
    if (event.key === "?") help.showModal();
    else if (event.key === "/") main.querySelector("[data-search]")?.focus();
    else if (Object.hasOwn(shortcuts, event.key)) shortcuts[event.key]();
    else return;
    event.preventDefault();
  });
  draw(true);
}

start();
