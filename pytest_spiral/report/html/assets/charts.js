/* Charts as plain SVG, drawn at the available width and again when it changes, each with its data as a table. */

/** A figure. draw(width) gives the SVG's height and children. */
function figure(caption, draw, { data, note, legend } = {}) {
  const canvas = h("div", { class: "canvas" });
  let width = 0;
  new ResizeObserver(([entry]) => {
    const now = Math.floor(entry.contentRect.width);
    if (!now || now === width) return;
    width = now;
    const { height, children } = draw(width);
    canvas.replaceChildren(
      s("svg", { role: "img", "aria-label": caption, width, height, viewBox: `0 0 ${width} ${height}` }, children),
    );
  }).observe(canvas);
  return h(
    "figure", {}, h("figcaption", {}, caption), legend && legendOf(legend), canvas,
    note && h("p", { class: "note" }, note),
    data && h("details", { class: "numbers" }, h("summary", {}, "Data of this chart"), data),
  );
}

/** Entries: [kind, name]; kinds are drawn with their own colour and shape. */
function legendOf(entries) {
  return h("ul", { class: "legend" }, entries.map(([kind, name, asBar]) => h("li", {}, s("svg", { width: 22, height: 14, "aria-hidden": "true" },
    asBar ? s("rect", { x: 0, y: 3, width: 22, height: 8, class: `bar ${kind}` }) : [s("line", { x1: 0, x2: 22, y1: 7, y2: 7, class: `stroke ${kind}` }), marker(kind, 11, 7)]), name)));
}

/** A point in the colour and shape of its kind. */
function marker(kind, x, y, title) {
  const shape = kind.endsWith("raw") || kind.endsWith("b")
    ? s("rect", { x: x - 4.5, y: y - 4.5, width: 9, height: 9, class: `hollow ${kind}` })
    : s("circle", { cx: x, cy: y, r: 5, class: `full ${kind}` });
  if (title) shape.append(s("title", {}, title));
  return shape;
}

function ticks(low, high, target = 5) {
  const raw = (high - low) / target || 1;
  const unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * unit).find((size) => size >= raw * 0.999);
  const values = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) values.push(Number(at.toFixed(10)));
  return values;
}

const tickText = (value) => String(Number(value.toFixed(4))).replace("-", "\u2212");

/** Rows of values with intervals on one scale. rows: [{label, points: [{kind, name, value, low, high, parts}]}]; parts:
 * the components of a value, as bars. */
function intervals(rows, { low = 0, high = 1, zero = low, bars = false, tickCount = 5 } = {}) {
  return (width) => {
    const narrow = width < 560;
    const left = narrow ? 18 : Math.min(260, 20 + 7 * Math.max(...rows.map((row) => row.label.length)));
    const right = width - 16;
    const x = (value) => left + ((value - low) / (high - low || 1)) * (right - left);
    const children = [];
    const headingHeight = narrow ? 18 : 0;
    let y = 4;
    for (const row of rows) {
      const height = headingHeight + 18 * row.points.length + 8;
      children.push(narrow
        ? s("text", { x: 2, y: y + 13, class: "label" }, row.label)
        : s("text", { x: left - 10, y: y + height / 2 + 4, "text-anchor": "end", class: "label" }, row.label));
      row.points.forEach((point, index) => {
        const middle = y + headingHeight + 18 * index + 11;
        if (!measured(point.value)) {
          children.push(s("text", { x: left + 4, y: middle + 4, class: "label muted" }, `${point.name ? `${point.name}: ` : ""}${MISSING}`));
          return;
        }
        const title = `${row.label}${point.name ? `, ${point.name}` : ""}: ${number(point.value)} (${range(point.low, point.high)})`;
        const segments = point.parts || (bars ? [{ kind: point.kind, value: point.value }] : []);
        segments.forEach((part, place) => {
          const [from, to] = [x(zero), x(part.value)].sort((one, other) => one - other);
          const thick = 14 / segments.length;
          children.push(s("rect", { x: from, y: middle - 7 + place * thick, width: Math.max(to - from, 0.5), height: thick, class: `bar ${part.kind}` }, s("title", {}, part.name ? `${row.label}, ${part.name}: ${signed(part.value)}` : title)));
        });
        if (measured(point.low)) children.push(whisker(x(point.low), x(point.high), middle, point.kind));
        children.push(marker(point.kind, x(point.value), middle, title));
      });
      y += height;
    }
    const grid = ticks(low, high, narrow ? Math.min(tickCount, 4) : tickCount).map((value) => [
      s("line", { x1: x(value), x2: x(value), y1: 0, y2: y, class: value === zero && low < zero ? "axis" : "grid" }),
      s("text", { x: x(value), y: y + 15, "text-anchor": "middle", class: "tick" }, tickText(value)),
    ]);
    return { height: y + 20, children: [grid, children] };
  };
}

function whisker(from, to, y, kind) {
  return [
    s("line", { x1: from, x2: to, y1: y, y2: y, class: `stroke ${kind}` }),
    s("line", { x1: from, x2: from, y1: y - 4, y2: y + 4, class: `stroke ${kind}` }),
    s("line", { x1: to, x2: to, y1: y - 4, y2: y + 4, class: `stroke ${kind}` }),
  ];
}

function frame(width, height, xs, ys, { x, y, xText = tickText, xName, yName }) {
  const [left, right, top, bottom] = [x.left, x.right, y.top, y.bottom];
  return [
    ys.map((value) => [
      s("line", { x1: left, x2: right, y1: y(value), y2: y(value), class: "grid" }),
      s("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end", class: "tick" }, tickText(value)),
    ]),
    xs.map((value) => s("text", { x: x(value), y: bottom + 16, "text-anchor": "middle", class: "tick" }, xText(value))),
    s("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }),
    s("line", { x1: left, x2: left, y1: top, y2: bottom, class: "axis" }),
    xName && s("text", { x: right, y: bottom + 33, "text-anchor": "end", class: "tick" }, xName),
    yName && s("text", { x: left - 30, y: top - 8, class: "tick" }, yName),
  ];
}

function scale(low, high, from, to) {
  return (value) => from + ((value - low) / (high - low || 1)) * (to - from);
}

function axes(width, height, [xLow, xHigh], [yLow, yHigh], inset = 0) {
  const x = scale(xLow, xHigh, 44 + inset, width - 14 - inset);
  const y = scale(yLow, yHigh, height - 40, 22);
  Object.assign(x, { left: 44, right: width - 14 });
  Object.assign(y, { top: 22, bottom: height - 40 });
  return { x, y };
}

/** Lines over named positions. series: [{name, kind, points: [{value, low, high}]}]. */
function lines(places, series, { yName } = {}) {
  return (width) => {
    const height = 290;
    const { x, y } = axes(width, height, [0, places.length - 1], [0, 1], width < 560 ? 40 : 70);
    const short = (place) => (width < 560 ? places[place].split(" ")[0] : places[place]);
    const spread = (index) => (index - (series.length - 1) / 2) * Math.min(7, 60 / series.length);
    const drawn = series.map(({ name, kind, points }, index) => {
      const known = points.map((point, place) => ({ ...point, x: x(place) + spread(index), place })).filter((point) => measured(point.value));
      return [
        s("polyline", { points: known.map((point) => `${point.x},${y(point.value)}`).join(" "), class: `line ${kind}` }),
        known.map((point) => [
          measured(point.low) && s("line", { x1: point.x, x2: point.x, y1: y(point.low), y2: y(point.high), class: `stroke thin ${kind}` }),
          marker(kind, point.x, y(point.value), `${name}, ${places[point.place]}: ${number(point.value)} (${range(point.low, point.high)})`),
        ]),
      ];
    });
    return { height, children: [frame(width, height, places.map((_, place) => place), ticks(0, 1), { x, y, xText: short, yName }), drawn] };
  };
}

/** Dots with crossed intervals. dots: [{name, kind, x: {value, low, high}, y: {...}}]. */
function scatter(dots, { xName, yName }) {
  return (width) => {
    const height = Math.min(380, Math.max(280, width * 0.6));
    const { x, y } = axes(width, height, [0, 1], [0, 1]);
    const drawn = dots.filter((dot) => measured(dot.x.value) && measured(dot.y.value)).map((dot) => [
      measured(dot.x.low) && s("line", { x1: x(dot.x.low), x2: x(dot.x.high), y1: y(dot.y.value), y2: y(dot.y.value), class: `stroke thin ${dot.kind}` }),
      measured(dot.y.low) && s("line", { x1: x(dot.x.value), x2: x(dot.x.value), y1: y(dot.y.low), y2: y(dot.y.high), class: `stroke thin ${dot.kind}` }),
      marker(dot.kind, x(dot.x.value), y(dot.y.value), `${dot.name}: ${xName} ${number(dot.x.value)}, ${yName} ${number(dot.y.value)}`),
    ]);
    return { height, children: [frame(width, height, ticks(0, 1), ticks(0, 1), { x, y, xName, yName }), drawn] };
  };
}

/** Means per turn with a confidence band. series: [{name, kind, points: [[mean, low, high] or null]}]. */
function turnChart(series, { yName }) {
  return (width) => {
    const height = 260;
    const turns = Math.max(...series.map(({ points }) => points.length), 1);
    const top = 1.08 * Math.max(...series.flatMap(({ points }) => points.map((point) => (point ? point[2] : 0))), 0.1);
    const { x, y } = axes(width, height, [1, Math.max(turns, 2)], [0, top]);
    const places = ticks(1, turns, Math.min(turns, width < 560 ? 5 : 10)).filter(Number.isInteger);
    const drawn = series.map(({ name, kind, points }) => {
      const known = points.map((point, turn) => point && { turn: turn + 1, mean: point[0], low: point[1], high: point[2] }).filter(Boolean);
      const upper = known.map((point) => `${x(point.turn)},${y(point.high)}`);
      const lower = known.map((point) => `${x(point.turn)},${y(point.low)}`).reverse();
      return [
        s("polygon", { points: [...upper, ...lower].join(" "), class: `band ${kind}` }),
        s("polyline", { points: known.map((point) => `${x(point.turn)},${y(point.mean)}`).join(" "), class: `line ${kind}` }),
        known.map((point) => marker(kind, x(point.turn), y(point.mean), `${name}, turn ${point.turn}: ${number(point.mean)} (${range(point.low, point.high)})`)),
      ];
    });
    return { height, children: [frame(width, height, places, ticks(0, top, 4), { x, y, xName: "assistant turn", yName }), drawn] };
  };
}

/** A small interval with its value and, if given, a threshold, for table cells. */
function spark(value, low, high, { from = 0, to = 1, threshold } = {}) {
  const width = 120;
  const x = (number_) => 6 + (Math.min(Math.max((number_ - from) / (to - from || 1), 0), 1)) * (width - 12);
  return s(
    "svg", { width, height: 18, class: "spark", "aria-hidden": "true" },
    s("line", { x1: 6, x2: width - 6, y1: 9, y2: 9, class: "grid" }),
    measured(threshold) && s("line", { x1: x(threshold), x2: x(threshold), y1: 1, y2: 17, class: "threshold" }),
    measured(low) && measured(high) && whisker(x(low), x(high), 9, "one"),
    measured(value) && marker("one", x(value), 9),
  );
}
