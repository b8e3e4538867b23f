/* Building the page. Every text becomes a text node, so nothing in a report is interpreted as markup. */

const SVG = "http://www.w3.org/2000/svg";

// Invisible characters that change how a text reads: controls, bidi and other format characters, lone surrogates,
// unusual line separators. Joiners stay, because scripts and emoji need them; so do line breaks and tabs.
const INVISIBLE = /[\p{Cc}\p{Cf}\p{Cs}\u2028\u2029]/u;
const ALL_INVISIBLE = new RegExp(INVISIBLE.source, "gu");
const HARMLESS = new Set(["\n", "\t", "\u200c", "\u200d"]);

function escapeName(character) {
  const code = character.codePointAt(0);
  return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

/** `text` with invisible characters as escapes, for attributes. */
function escaped(text) {
  return String(text).replace(ALL_INVISIBLE, (character) => (HARMLESS.has(character) ? character : escapeName(character)));
}

/** `text` as nodes, invisible characters as boxed escapes. */
function visible(text) {
  text = String(text);
  if (!INVISIBLE.test(text)) return [document.createTextNode(text)];
  const nodes = [];
  let from = 0;
  for (const match of text.matchAll(ALL_INVISIBLE)) {
    if (HARMLESS.has(match[0])) continue;
    nodes.push(document.createTextNode(text.slice(from, match.index)));
    const box = document.createElement("span");
    box.className = "invisible";
    box.textContent = escapeName(match[0]);
    nodes.push(box);
    from = match.index + match[0].length;
  }
  nodes.push(document.createTextNode(text.slice(from)));
  return nodes;
}

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "vars") for (const [key, set] of Object.entries(value)) node.style.setProperty(`--${key}`, set);
    else node.setAttribute(name, value === true ? "" : escaped(value));
  }
  add(node, children);
  return node;
}

function add(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(node, child);
    else if (child instanceof Node) node.append(child);
    else node.append(...visible(child));
  }
}

/** An HTML element. Attributes `on...` are listeners, `vars` custom properties. */
function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** An SVG element. */
function s(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** The address of a view within the page. */
function href(view, parameters = {}) {
  const kept = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const query = new URLSearchParams(kept).toString();
  return `#${view}${query ? `?${query}` : ""}`;
}

function link(view, parameters, ...children) {
  return h("a", { href: href(view, parameters) }, ...children);
}

/** A table that scrolls inside itself. columns: [name, {number}]; rows: arrays of cells or row elements. */
function table(columns, rows, { caption, className } = {}) {
  const head = columns.map((column) => {
    const [name, options = {}] = Array.isArray(column) ? column : [column];
    return h("th", { scope: "col", class: options.number ? "number" : null }, name);
  });
  const body = rows.map((row) => (row instanceof Node ? row : tableRow(row, columns)));
  return scrolling(
    h("table", { class: className }, caption && h("caption", {}, caption), h("thead", {}, h("tr", {}, head)), h("tbody", {}, body)),
    caption,
  );
}

function tableRow(cells, columns) {
  return h("tr", {}, cells.map((cell, place) => {
    if (cell instanceof HTMLTableCellElement) return cell;
    const number = Array.isArray(columns[place]) && columns[place][1]?.number;
    return place === 0 ? h("th", { scope: "row" }, cell) : h("td", { class: number ? "number" : null }, cell);
  }));
}

/** A region that scrolls sideways and can be reached by keyboard. */
function scrolling(node, name) {
  return h("div", { class: "scrolling", tabindex: "0", role: "region", "aria-label": name || "table" }, node);
}

/** Text from outside, isolated in its own direction. */
function bdi(text) {
  return h("bdi", {}, text);
}
