/* From the address to a view, and the frame around it. */

const PAGES = [
  ["overview", "Overview"], ["tempaffect", "TempAffect"], ["items", "Items"], ["spiral", "Spiral-Bench"],
  ["talks", "Conversations"], ["findings", "Findings"], ["compare", "Compare"], ["run", "About"],
];
const VIEWS = {
  overview, tempaffect, items: itemsView, item: itemView, spiral: spiralView, talks: talksView, talk: talkView, findings: findingsView,
  compare: compareView, run: runView, board: boardView,
};
const HOMES = { item: "items", talk: "talks" };
const FIRST = { report: "overview", compare: "compare", board: "board" };

let shortcuts = {};
let drawing = 0;
const main = h("main", { id: "main", tabindex: "-1" });
const frame_ = { nav: h("nav", { class: "main", "aria-label": "Views" }), runs: h("div", { class: "runs" }) };

function address() {
  const [view, query] = location.hash.slice(1).split("?");
  return { view: Object.hasOwn(VIEWS, view) && (view !== "board" || given.board) ? view : FIRST[given.kind], parameters: Object.fromEntries(new URLSearchParams(query || "")) };
}

function go(view, parameters) {
  location.hash = href(view, parameters);
}

/** Several runs in one page: the number of the run is carried from link to link. */
function carryRun(run) {
  if (!run) return;
  for (const anchor of main.querySelectorAll('a[href^="#"]')) {
    const target = anchor.getAttribute("href");
    if (!/[?&]run=/.test(target) && !target.startsWith("#compare")) anchor.setAttribute("href", `${target}${target.includes("?") ? "&" : "?"}run=${run}`);
  }
}

async function draw(first = false) {
  const mine = ++drawing;
  const { view, parameters } = address();
  const run = Math.min(Math.max(Number(parameters.run) || 0, 0), Math.max((given.reports || []).length - 1, 0));
  const report = (given.reports || [])[run];
  shortcuts = {};
  let content;
  try {
    content = await VIEWS[view](report, parameters);
  } catch (error) {
    console.error(error);
    content = [h("h1", { tabindex: "-1" }, "This view cannot be drawn"), empty(String(error))];
  }
  if (mine !== drawing) return;
  main.replaceChildren();
  add(main, content);
  carryRun(run);
  drawFrame(view, run);
  const heading = main.querySelector("h1");
  document.title = `${heading?.textContent ?? ""} \u00b7 ${given.title}`;
  const target = main.querySelector("[data-arrive]");
  if (target) {
    target.focus({ preventScroll: true });
    (main.querySelector("mark.current") || target).scrollIntoView({ block: "center" });
  } else if (!first) {
    scrollTo(0, 0);
    heading?.focus({ preventScroll: true });
  }
  document.documentElement.dataset.drawn = String(mine);
}

function drawFrame(view, run) {
  const pages = given.kind === "board" ? [] : PAGES;
  frame_.nav.replaceChildren();
  add(frame_.nav, pages.map(([name, text]) => h("a", { href: href(name, run && name !== "compare" ? { run } : {}), "aria-current": (HOMES[view] || view) === name ? "page" : null }, text)));
  frame_.runs.replaceChildren();
  if ((given.reports || []).length > 1 && view !== "compare") {
    add(frame_.runs, [tabs("Runs", given.reports.map((report, index) => [report.run.id, href(view, { run: index }), index === run]))]);
  }
}

const HELP = [
  ["/", "go to the search field of the view"], ["j, k", "next and previous finding of a conversation"],
  ["], [", "next and previous conversation"], ["?", "this list"], ["Esc", "close it"],
];
let keysOn = true;

function helpDialog() {
  const box = h("input", { type: "checkbox", id: "keys-on", checked: true, onchange: () => { keysOn = box.checked; } });
  return h("dialog", { "aria-label": "Keys" }, h("h2", {}, "Keys"),
    h("dl", { class: "facts" }, HELP.map(([key, says]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, says)])),
    h("p", {}, h("label", { for: "keys-on" }, box, " single-key shortcuts are on")),
    h("form", { method: "dialog" }, h("button", {}, "Close")));
}

function start() {
  const help = helpDialog();
  document.getElementById("page").replaceWith(
    h("header", { class: "top" }, h("p", { class: "brand" }, given.home ? h("a", { href: given.home }, "Leaderboard") : "pytest-spiral", h("span", {}, bdi(given.title))), frame_.nav, h("button", { type: "button", class: "quiet", onclick: () => help.showModal() }, "Keys")),
    frame_.runs, main, help,
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
