"use strict";
// What the page shows of its data, and what its controls change.

const data = JSON.parse(document.getElementById("data").textContent);
const find = (id) => document.getElementById(id);
const color = (variant) => `var(--s${variant})`;
const hidden = new Set();

function fill(select, names) {
  names.forEach((name, place) => element("option", { value: place }, select, name));
  if (names.length < 2) select.disabled = true;
}

function chosen(list, select) { return list[+select.value || 0]; }

function showChips() {
  const there = new Set((chosen(data.tasks, find("task")) || { curves: [] }).curves.map((curve) => curve.variant));
  find("variants").replaceChildren();
  data.variants.forEach((variant, index) => {
    if (!there.has(index)) return;
    const button = element("button", { type: "button", "aria-pressed": !hidden.has(index), "data-variant": index }, find("variants"));
    const icon = shape("svg", { width: 16, height: 16, viewBox: "-8 -8 16 16", "aria-hidden": "true" }, button);
    mark(variant.mark, 0, 0, 5.5, color(index), icon);
    button.append(variant.label);
    button.addEventListener("click", () => {
      if (!hidden.delete(index)) hidden.add(index);
      button.setAttribute("aria-pressed", !hidden.has(index));
      showCurves();
    });
  });
}

function spreadNote(curve, band, style) {
  return (i) => {
    const alone = curve.count[i] < 2;
    const spread = alone || band.low[i] === null ? "" : style !== "robust" ? `± ${exact((band.high[i] - band.low[i]) / 2, band.value[i])}` : `[${exact(band.low[i])}, ${exact(band.high[i])}]`;
    const runs = curve.count[i] === 1 ? "1 run" : `${curve.count[i]} runs`;
    return `${spread} ${curve.count[i] < curve.total || alone ? `· ${runs}` : ""}`.trim();
  };
}

function showCurves() {
  const task = chosen(data.tasks, find("task"));
  if (!task) { find("curve-note").textContent = "No run has an evaluation yet."; find("curve").replaceChildren(); return; }
  const style = document.querySelector("input[name=style]:checked").value;
  const curves = task.curves.filter((curve) => !hidden.has(curve.variant));
  const series = curves.map((curve) => {
    const band = curve[style], partial = curve.count.some((count) => count < curve.total);
    return {
      name: data.variants[curve.variant].label, color: color(curve.variant), mark: data.variants[curve.variant].mark,
      x: curve.steps, y: band.value, low: band.low, high: band.high,
      solid: partial ? (i) => curve.count[i] === curve.total : null,
      thin: find("seeds").checked ? curve.runs : [], note: spreadNote(curve, band, style),
    };
  });
  const references = find("published").checked ? task.references.filter((one) => !hidden.has(one.variant)) : [];
  series.push(...references.map(published));
  lineChart(find("curve"), series, { title: `Learning curves on ${task.name}`, xLabel: "environment steps", yLabel: "return of the champion", unit: "steps" });
  find("published").parentElement.hidden = !task.references.length;
  find("curve-note").textContent = curveNote(curves, style, references);
}

function published(one) {
  return {
    ...one, points: true, color: one.variant === null ? "var(--soft)" : color(one.variant), mark: one.variant === null ? "X" : "*",
    note: (i) => (one.low[i] === null ? "" : `± ${exact(one.high[i] - one.y[i], one.y[i])}`),
  };
}

function curveNote(curves, style, references) {
  const label = (curve) => data.variants[curve.variant].label;
  const rough = curves.filter((curve) => !curve.smoothed).map(label), partial = curves.filter((curve) => curve.count.some((count) => count < curve.total)).map(label);
  const parts = [{
    mean: "Mean ± one standard deviation over seeds, as measured.",
    paper: `As in the paper: mean ± one standard deviation over seeds, Savitzky–Golay filter with window ${data.window}, narrower towards the ends.`,
    robust: "Robust: interquartile mean over seeds, as measured, with its 95 % interval from three seeds on.",
  }[style]];
  if (style === "paper" && rough.length) parts.push(`Not smoothed, for having fewer than ${data.window} evaluations: ${rough.join("; ")}.`);
  if (partial.length) parts.push(`Dotted where not all runs are there yet: ${partial.join("; ")}.`);
  parts.push(`Seeds: ${new Set(curves.map((curve) => curve.total)).size === 1 ? `${curves[0].total} each` : curves.map((curve) => `${label(curve)}: ${curve.total}`).join("; ") || "none shown"}.`);
  if (references.some((one) => one.variant === null)) parts.push("Crosses: public returns of SAC, on the v4 tasks.");
  if (references.some((one) => one.variant !== null)) parts.push("Stars: the paper's maxima.");
  return parts.join(" ");
}

function detailsOf(row, one) {
  const some = one.tasks > 1 && row.tasks < one.tasks ? `${row.tasks} of ${one.tasks} tasks` : "";
  return [...data.variants[row.variant].settings, some].filter(Boolean).join(", ");
}

function showComparison() {
  const one = chosen(data.comparisons, find("scope"));
  if (!one) { find("scope-note").textContent = "Nothing to compare yet."; return; }
  find("scope-note").textContent = one.note;
  find("iqm-title").textContent = one.tasks > 1 ? "Interquartile mean of normalised scores" : "Interquartile mean of returns";
  forest(find("iqm"), one.interquartile.map((row) => ({ ...row, name: data.variants[row.variant].name, details: detailsOf(row, one), color: color(row.variant), mark: data.variants[row.variant].mark })), "Interquartile mean");
  lineChart(find("profile"), one.profile.map((line) => ({ name: data.variants[line.variant].label, color: color(line.variant), mark: data.variants[line.variant].mark, x: data.thresholds, y: line.values })),
    { title: "Performance profile", xLabel: "normalised score", yLabel: "fraction of runs above it", yRange: [0, 1.04], exactX: (x) => `above ${x.toFixed(2)}`, height: Math.max(230, 46 * one.interquartile.length + 26) });
  showImprovement(one);
}

function named(id, head) {
  const label = element("span", { class: "label" }, head);
  element("span", { class: "key", style: `--c:${color(id)}` }, label);
  label.append(data.variants[id].name);
}

function showImprovement(one) {
  const host = find("improvement");
  host.replaceChildren();
  if (one.improvement.length < 2) { element("p", { class: "note" }, host, "There is only one algorithm to compare."); return; }
  const table = element("table", { class: "heat" }, host), ids = one.improvement.map((row) => row.variant);
  const head = element("tr", {}, element("thead", {}, table));
  element("td", {}, head).className = "self";
  for (const id of ids) {
    const column = element("th", { scope: "col", title: data.variants[id].label }, head);
    named(id, column);
    element("small", {}, column, data.variants[id].settings.join(", "));
  }
  const body = element("tbody", {}, table);
  for (const row of one.improvement) {
    const line = element("tr", {}, body), name = element("th", { scope: "row" }, line);
    named(row.variant, name);
    const small = element("small", {}, name), settings = data.variants[row.variant].settings;
    settings.forEach((text, place) => { element("span", { class: "setting" }, small, text + (place < settings.length - 1 ? "," : "")); small.append(" "); });
    for (const id of ids) {
      const cell = row.over[id];
      if (!cell) { element("td", { class: "self" }, line, id === row.variant ? "" : "no task in common"); continue; }
      const td = element("td", { style: `--p:${Math.abs(cell.value - 0.5) * 2};--hue:var(${cell.value < 0.5 ? "--warm" : "--accent"})` }, line, cell.value.toFixed(2));
      element("small", {}, td, cell.low === null ? "too few runs" : `${cell.low.toFixed(2)} to ${cell.high.toFixed(2)}`);
    }
  }
}

function showRun() {
  const run = chosen(data.runs, find("run"));
  find("population-charts").hidden = !run;
  if (!run) { find("run-note").textContent = "No run has an evaluation yet."; return; }
  const members = run.fitness.length;
  find("run-note").textContent = members < 2 ? "A single agent: there is no population to compare." : `${members} members; the thick line is the champion.`;
  const lines = run.fitness.map((y, member) => ({ name: `member ${member}`, color: "var(--soft)", width: 1, mark: run.steps.length < 2 ? "o" : null, x: run.steps, y }));
  const best = { name: "champion", color: color(run.variant), mark: data.variants[run.variant].mark, x: run.steps, y: run.champion };
  lineChart(find("fitness"), members > 1 ? [...lines, best] : [best], { title: `Fitness of every member of ${run.name}`, xLabel: "environment steps", yLabel: "return", unit: "steps" });
  const single = (host, name, y, shown) => {
    find(host).parentElement.hidden = !shown;
    if (shown) lineChart(find(host), [{ name, color: color(run.variant), mark: data.variants[run.variant].mark, x: run.steps, y }], { title: `${name} of ${run.name}`, xLabel: "environment steps", yLabel: name, unit: "steps" });
  };
  single("mean-kl", "mean KL", run.mean_kl, run.mean_kl.some((value) => value !== null));
  single("archive", "policies", run.archive, run.archive.some((value) => value > 0));
  find("kl").parentElement.hidden = run.kl.length < 2;
  heatMap(find("kl"), run.kl);
}

fill(find("task"), data.tasks.map((task) => task.name));
fill(find("scope"), data.comparisons.map((one) => one.scope));
fill(find("run"), data.runs.map((run) => run.name));
find("task").addEventListener("change", () => { showChips(); showCurves(); });
for (const id of ["seeds", "published"]) find(id).addEventListener("change", showCurves);
document.querySelectorAll("input[name=style]").forEach((input) => input.addEventListener("change", showCurves));
find("scope").addEventListener("change", showComparison);
find("run").addEventListener("change", showRun);
showChips(); showCurves(); showComparison(); showRun();
