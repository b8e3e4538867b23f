/* The data of the page: `page` at once, packs when they are opened. */

const page = JSON.parse(document.getElementById("data").textContent);
const unpacked = new Map();

/** The content of a pack, which was compressed after a line that all packs share. */
function unpack(name) {
  if (!unpacked.has(name)) unpacked.set(name, inflate("head", name).then((text) => JSON.parse(text.slice(text.indexOf("\n")))));
  return unpacked.get(name);
}

/** A function from code point offsets of a text to UTF-16 offsets: reports count code points, JavaScript counts units. */
function offsetsIn(text) {
  if (!/[\u{10000}-\u{10ffff}]/u.test(text)) return (point) => point;
  const units = [];
  let unit = 0;
  for (const character of text) {
    units.push(unit);
    unit += character.length;
  }
  units.push(unit);
  return (point) => units[Math.min(point, units.length - 1)];
}

/** A text split at the ends of spans: [{text, from, spans: the spans that cover the piece}]. */
function pieces(text, spans) {
  const offset = offsetsIn(text);
  const located = spans.map((span) => ({ ...span, from: offset(span.start), to: offset(span.end) }));
  const cuts = [...new Set([0, text.length, ...located.flatMap((span) => [span.from, span.to])])]
    .filter((cut) => cut >= 0 && cut <= text.length)
    .sort((one, other) => one - other);
  return cuts.slice(1).map((cut, index) => ({
    text: text.slice(cuts[index], cut),
    from: cuts[index],
    spans: located.filter((span) => span.from <= cuts[index] && span.to >= cut),
  }));
}

/** Apply a slow step to every row without blocking the page: it yields every few milliseconds. */
async function inSlices(rows, each, stopped) {
  let pause = performance.now() + 12;
  for (const [index, row] of rows.entries()) {
    if (stopped()) return;
    await each(row, index);
    if (performance.now() > pause) {
      await new Promise((resume) => setTimeout(resume));
      pause = performance.now() + 12;
    }
  }
}
