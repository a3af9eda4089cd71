"use strict";
// Line charts by hand: SVG at the size of its place, a crosshair that the pointer or the arrow keys move, a table of values.

const MARKS = {
  o: "M1 0A1 1 0 1 1-1 0A1 1 0 1 1 1 0Z", s: "M-.9-.9H.9V.9H-.9Z", D: "M0-1.2 1.2 0 0 1.2-1.2 0Z", d: "M0-1.3.8 0 0 1.3-.8 0Z",
  "^": "M0-1.1 1.1.9H-1.1Z", v: "M0 1.1 1.1-.9H-1.1Z", "<": "M-1.1 0 .9-1.1V1.1Z", ">": "M1.1 0-.9-1.1V1.1Z",
  P: "M-.4-1.1H.4V-.4H1.1V.4H.4V1.1H-.4V.4H-1.1V-.4H-.4Z", X: "M-1-.5-.5-1 0-.5.5-1 1-.5.5 0 1 .5.5 1 0 .5-.5 1-1 .5-.5 0Z",
  "*": "M0-1.3.35-.4 1.25-.4.5.15.8 1.1 0 .5-.8 1.1-.5.15-1.25-.4-.35-.4Z", p: "M0-1.1 1.05-.35.65.9H-.65L-1.05-.35Z",
  h: "M0-1.1.95-.55V.55L0 1.1-.95.55V-.55Z",
};

function element(tag, attributes, parent, text) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (name === "style") node.style.cssText = value; // as an attribute, a strict policy for contents forbids it
    else node.setAttribute(name, value);
  }
  if (text !== undefined) node.textContent = text;
  if (parent) parent.append(node);
  return node;
}

function shape(tag, attributes, parent, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function mark(kind, x, y, size, color, parent) {
  return shape("path", { d: MARKS[kind] || MARKS.o, transform: `translate(${x} ${y}) scale(${size})`, fill: color }, parent);
}

// For an axis whose ticks are `step` apart.
function short(value, step = 1) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${+(value / 1e6).toPrecision(4)}M`;
  if (size >= 1e4) return `${+(value / 1e3).toPrecision(4)}k`;
  return value.toLocaleString("en-US", { maximumFractionDigits: size >= 10 && step >= 1 ? 0 : 2 });
}

// With the digits that suit its size, or that of `like`, which is shown beside it.
function exact(value, like = value) {
  const size = Math.abs(like);
  const digits = size >= 1000 ? 0 : size >= 100 ? 1 : 2;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((one) => one * power >= rough);
  const found = [];
  for (let at = Math.ceil(low / step); at * step <= high + step * 1e-9; at++) found.push(+(at * step).toPrecision(12));
  return found;
}

const stepOf = (found) => (found.length > 1 ? found[1] - found[0] : 1);

function extent(values, pad) {
  let low = Infinity, high = -Infinity;
  for (const value of values) if (value !== null) { low = Math.min(low, value); high = Math.max(high, value); }
  if (!(low <= high)) return [0, 1];
  if (low === high) { const room = Math.abs(low) * 0.1 || 1; return [low - room, high + room]; }
  return [low - pad * (high - low), high + pad * (high - low)];
}

function path(xs, ys, scaleX, scaleY, keep) {
  let text = "", pen = false;
  xs.forEach((x, i) => {
    if (ys[i] === null || (keep && !keep(i))) { pen = false; return; }
    text += `${pen ? "L" : "M"}${scaleX(x).toFixed(2)} ${scaleY(ys[i]).toFixed(2)}`;
    pen = true;
  });
  return text;
}

// A series: {name, color, mark, x, y, low, high, solid(i), thin: [{x, y}], note(i), points}; with `points`, marks without a line. Options: xLabel, yLabel, title, yRange, height, unit, exactX.
function lineChart(host, series, options) {
  const draw = () => {
    const at = host.chart ? host.chart.at : null; // where the pointer or the keyboard is
    const focused = host.chart && document.activeElement === host.chart.root;
    host.replaceChildren();
    host.chart = build(host, series, options);
    if (focused) host.chart.root.focus({ preventScroll: true });
    if (at !== null) host.chart.show(at);
  };
  draw();
  if (host.observer) host.observer.disconnect();
  let width = host.clientWidth;
  host.observer = new ResizeObserver(() => { if (host.clientWidth !== width) { width = host.clientWidth; draw(); } });
  host.observer.observe(host);
}

function build(host, series, options) {
  const width = Math.max(host.clientWidth, 240), height = host.classList.contains("tall") ? (width < 600 ? 320 : 400) : options.height || 230;
  const all = (name) => series.flatMap((one) => [...(one[name] || []), ...(one.thin || []).flatMap((line) => line[name] || [])]);
  const [x0, x1] = extent(all("x"), 0.015);
  const [y0, y1] = options.yRange || extent([...all("y"), ...all("low"), ...all("high")], 0.06);
  const yTicks = ticks(y0, y1, height / 70);
  const left = 14 + 7.6 * Math.max(...yTicks.map((tick) => short(tick, stepOf(yTicks)).length)), right = 14, top = 20, bottom = 42;
  const scaleX = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const scaleY = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - top - bottom);
  const root = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": `${options.title}. Left and right arrow keys move through the values.` }, host);
  axes(root, { width, height, left, right, top, bottom, scaleX, scaleY, x0, x1, yTicks }, options);
  for (const draw of [drawBand, drawThin, drawLine]) for (const one of series) draw(shape("g", { "data-series": one.name }, root), one, scaleX, scaleY);
  if (!series.length) shape("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, root, "nothing to show");
  return crosshair(host, root, series, options, { width, height, top, bottom, scaleX, scaleY, left, right, x0, x1 });
}

function axes(root, frame, options) {
  const { width, height, left, right, top, bottom, scaleX, scaleY, x0, x1, yTicks } = frame;
  for (const tick of yTicks) {
    shape("line", { x1: left, x2: width - right, y1: scaleY(tick), y2: scaleY(tick), stroke: "var(--grid)" }, root);
    shape("text", { x: left - 8, y: scaleY(tick) + 4, "text-anchor": "end" }, root, short(tick, stepOf(yTicks)));
  }
  for (const tick of ticks(x0, x1, width / 110)) {
    shape("line", { x1: scaleX(tick), x2: scaleX(tick), y1: height - bottom, y2: height - bottom + 5, stroke: "var(--line)" }, root);
    shape("text", { x: scaleX(tick), y: height - bottom + 19, "text-anchor": "middle" }, root, short(tick));
  }
  shape("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, stroke: "var(--line)" }, root);
  shape("text", { x: width - right, y: height - 6, "text-anchor": "end" }, root, options.xLabel);
  shape("text", { x: 0, y: top - 8 }, root, options.yLabel);
}

function drawThin(group, one, scaleX, scaleY) {
  for (const line of one.thin || []) {
    shape("path", { d: path(line.x, line.y, scaleX, scaleY), fill: "none", stroke: one.color, "stroke-width": 1, opacity: 0.55 }, group);
    if (line.x.length === 1) mark("o", scaleX(line.x[0]), scaleY(line.y[0]), 2.5, one.color, group);
  }
}

function drawBand(group, one, scaleX, scaleY) {
  if (one.points) {
    one.x.forEach((x, i) => {
      if (one.low[i] !== null) shape("line", { x1: scaleX(x), x2: scaleX(x), y1: scaleY(one.low[i]), y2: scaleY(one.high[i]), stroke: one.color }, group);
    });
  } else if (one.low && one.x.length > 1) {
    const there = one.x.map((_, i) => i).filter((i) => one.low[i] !== null && one.high[i] !== null);
    const edge = (values, order) => order.map((i) => `${scaleX(one.x[i]).toFixed(2)} ${scaleY(values[i]).toFixed(2)}`).join("L");
    if (there.length) shape("path", { d: `M${edge(one.high, there)}L${edge(one.low, [...there].reverse())}Z`, fill: one.color, opacity: (one.thin || []).length ? 0.07 : 0.15 }, group);
  } else if (one.low && one.low[0] !== null) {
    shape("line", { x1: scaleX(one.x[0]), x2: scaleX(one.x[0]), y1: scaleY(one.low[0]), y2: scaleY(one.high[0]), stroke: one.color, "stroke-width": 2 }, group);
  }
}

function drawLine(group, one, scaleX, scaleY) {
  const pen = { fill: "none", stroke: one.color, "stroke-width": one.width || 2.2, "stroke-linejoin": "round", "stroke-linecap": "round" };
  if (one.points) { one.x.forEach((x, i) => mark(one.mark, scaleX(x), scaleY(one.y[i]), 6, one.color, group)); return; }
  if (one.solid) shape("path", { ...pen, d: path(one.x, one.y, scaleX, scaleY), "stroke-dasharray": "2 5", "stroke-width": 1.6 }, group);
  shape("path", { ...pen, d: path(one.x, one.y, scaleX, scaleY, one.solid) }, group);
  const every = Math.ceil(one.x.length / 14);
  one.x.forEach((x, i) => {
    const last = i === one.x.length - 1;
    if (one.mark && one.y[i] !== null && (i % every === 0 || last)) mark(one.mark, scaleX(x), scaleY(one.y[i]), 4.2, one.color, group);
  });
}

function nearest(xs, ys, x) {
  let best = -1;
  xs.forEach((one, i) => { if (ys[i] !== null && (best < 0 || Math.abs(one - x) < Math.abs(xs[best] - x))) best = i; });
  return best;
}

const gapOf = (one) => (one.x.length > 1 ? (one.x[one.x.length - 1] - one.x[0]) / (one.x.length - 1) : 0);

// What each series has near x: nothing where that is further off than half of the distance between its points; for a
// single point that of the others counts.
function valuesAt(series, x) {
  const usual = Math.max(0, ...series.filter((one) => !one.points).map(gapOf));
  return series.map((one) => {
    const i = nearest(one.x, one.y, x);
    if (i < 0) return { one, i: -1 };
    const gap = one.points ? usual : gapOf(one) || usual;
    return { one, i: Math.abs(one.x[i] - x) <= 0.5 * gap + 1e-9 ? i : -1 };
  });
}

function crosshair(host, root, series, options, frame) {
  const { width, height, top, bottom, scaleX, scaleY, left, right, x0, x1 } = frame;
  const stops = [...new Set(series.flatMap((one) => one.x.filter((_, i) => one.y[i] !== null)))].sort((a, b) => a - b);
  const line = shape("line", { y1: top, y2: height - bottom, stroke: "var(--soft)", "stroke-dasharray": "3 3", visibility: "hidden" }, root);
  const dots = shape("g", {}, root);
  const tip = element("div", { class: "tip", role: "status", "aria-live": "polite", hidden: "" }, host);
  const state = { root, at: null, show, hide };
  function hide() { state.at = null; tip.hidden = true; line.setAttribute("visibility", "hidden"); dots.replaceChildren(); }
  function show(x) {
    if (!stops.length) return;
    state.at = stops.reduce((best, stop) => (Math.abs(stop - x) < Math.abs(best - x) ? stop : best));
    const place = scaleX(state.at);
    line.setAttribute("x1", place); line.setAttribute("x2", place); line.setAttribute("visibility", "visible");
    dots.replaceChildren(); tip.replaceChildren(); tip.hidden = false;
    element("div", { class: "when" }, tip, options.exactX ? options.exactX(state.at) : `${state.at.toLocaleString("en-US")} ${options.unit || ""}`);
    const rows = element("tbody", {}, element("table", {}, tip));
    for (const { one, i } of valuesAt(series, state.at)) {
      const row = element("tr", {}, rows), head = element("th", { scope: "row" }, row);
      element("span", { class: "key", style: `--c:${one.color}` }, head); head.append(one.name);
      element("td", { "data-value": i < 0 ? "" : one.y[i] }, row, i < 0 ? "-" : exact(one.y[i]));
      element("td", {}, row, i < 0 || !one.note ? "" : one.note(i));
      if (i >= 0) shape("circle", { cx: scaleX(one.x[i]), cy: scaleY(one.y[i]), r: 5.5, fill: "none", stroke: one.color, "stroke-width": 2 }, dots);
    }
    const wide = tip.offsetWidth;
    tip.style.left = `${Math.max(0, Math.min(place + 14 + wide > width ? place - 14 - wide : place + 14, width - wide))}px`;
    tip.style.top = `${top + 4}px`;
  }
  const over = (event) => {
    const box = root.getBoundingClientRect();
    show(x0 + ((event.clientX - box.left - left) / (width - left - right)) * (x1 - x0));
  };
  root.addEventListener("pointermove", over);
  root.addEventListener("pointerdown", over);
  root.addEventListener("pointerleave", hide);
  root.addEventListener("blur", hide);
  root.addEventListener("keydown", (event) => {
    const here = state.at === null ? -1 : stops.indexOf(state.at);
    const next = { ArrowRight: Math.min(here + 1, stops.length - 1), ArrowLeft: Math.max(here - 1, 0), Home: 0, End: stops.length - 1 }[event.key];
    if (event.key === "Escape") hide();
    else if (next !== undefined) { event.preventDefault(); show(stops[next]); }
  });
  return state;
}

// Rows of {name, details, color, mark, value, low, high}: a name, a number, and below them the details and the interval;
// a dash without a value.
function forest(host, rows, title) {
  const draw = () => {
    host.replaceChildren();
    const whole = (row) => (row.details ? `${row.name}, ${row.details}` : row.name);
    const width = Math.max(host.clientWidth, 240), pitch = rows.some((row) => row.details) ? 60 : 46, height = rows.length * pitch + 26;
    const [x0, x1] = extent(rows.flatMap((row) => [row.value, row.low, row.high]), 0.06);
    const scaleX = (x) => 8 + ((x - x0) / (x1 - x0)) * (width - 16);
    const between = (row) => (row.low === null ? "" : ` [${exact(row.low)}, ${exact(row.high)}]`);
    const value = (row) => (row.value === null ? "-" : exact(row.value) + between(row));
    const said = rows.map((row) => whole(row) + " " + value(row)).join("; ");
    const root = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${said}` }, host);
    for (const tick of ticks(x0, x1, width / 110)) {
      shape("line", { x1: scaleX(tick), x2: scaleX(tick), y1: 0, y2: height - 20, stroke: "var(--grid)" }, root);
      shape("text", { x: Math.min(Math.max(scaleX(tick), 14), width - 14), y: height - 4, "text-anchor": "middle" }, root, short(tick));
    }
    rows.forEach((row, place) => {
      const y = (place + 1) * pitch - 14, top = place * pitch + 18, room = Math.floor(width / 6.5), below = row.details;
      shape("text", { x: 0, y: top, class: "strong" }, root, row.name);
      shape("text", { x: width, y: top, "text-anchor": "end" }, root, value(row));
      if (below) shape("title", {}, shape("text", { x: 0, y: top + 15, class: "details" }, root, below.length > room ? `${below.slice(0, room - 1)}…` : below), whole(row));
      if (row.low !== null) shape("line", { x1: scaleX(row.low), x2: scaleX(row.high), y1: y, y2: y, stroke: row.color, "stroke-width": 5, opacity: 0.4, "stroke-linecap": "round" }, root);
      if (row.value !== null) mark(row.mark, scaleX(row.value), y, 5.5, row.color, root);
    });
  };
  draw();
  if (host.observer) host.observer.disconnect();
  let width = host.clientWidth;
  host.observer = new ResizeObserver(() => { if (host.clientWidth !== width) { width = host.clientWidth; draw(); } });
  host.observer.observe(host);
}

// A square of numbers, none on its diagonal; the darker, the larger.
function heatMap(host, matrix) {
  const largest = Math.max(1e-9, ...matrix.flat().filter((value) => value !== null));
  host.replaceChildren();
  const table = element("table", { class: "heat" }, host), head = element("tr", {}, element("thead", {}, table));
  element("td", { class: "self" }, head);
  matrix.forEach((_, member) => element("th", { scope: "col" }, head, member));
  const body = element("tbody", {}, table);
  matrix.forEach((values, member) => {
    const line = element("tr", {}, body);
    element("th", { scope: "row" }, line, `member ${member}`);
    values.forEach((value, other) => {
      if (member === other) element("td", { class: "self" }, line, "");
      else element("td", { style: `--p:${Math.max(0, value || 0) / largest}` }, line, value === null ? "not finite" : value.toFixed(2));
    });
  });
}
