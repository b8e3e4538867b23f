/* What the page was given: `shown` at once, packs when they are asked for. */

const given = JSON.parse(document.getElementById("shown").textContent);
const opened = new Map();

/** The content of a pack. */
function unpack(name) {
  if (!opened.has(name)) opened.set(name, inflate(document.getElementById(`pack-${name}`).textContent));
  return opened.get(name);
}

async function inflate(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

/** UTF-16 places of code point places in a text, as a function: reports count code points, scripts count units. */
function placesIn(text) {
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

/** A text cut at the ends of spans: [{text, from, spans: the spans that cover the piece}]. */
function pieces(text, spans) {
  const place = placesIn(text);
  const located = spans.map((span) => ({ ...span, from: place(span.start), to: place(span.end) }));
  const cuts = [...new Set([0, text.length, ...located.flatMap((span) => [span.from, span.to])])]
    .filter((cut) => cut >= 0 && cut <= text.length)
    .sort((one, other) => one - other);
  return cuts.slice(1).map((cut, index) => ({
    text: text.slice(cuts[index], cut),
    from: cuts[index],
    spans: located.filter((span) => span.from <= cuts[index] && span.to >= cut),
  }));
}

/** Rows passing through a slow step without blocking the page: `each` for every row, a pause every few milliseconds. */
async function unhurried(rows, each, stopped) {
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
