"use strict";
// Asks the server for what is new, and shows it. Nothing is drawn again that has not changed.

const EVERY = 1500; // milliseconds between two questions
const STATES = { training: "training", finished: "finished", stopped: "stopped", gone: "its process is gone", broken: "cannot be read", lost: "no connection" };
const find = (id) => document.getElementById(id);
const grouped = (value) => value.toLocaleString("en-US");
const latest = { tag: null, progress: null, runTag: null, run: null, age: null, at: 0 };

async function poll() {
  try {
    const answer = await ask("progress.json", latest.tag);
    if (!answer) { showTrouble("lost", "The server of this page does not answer: `arac watch` has ended. Start it again; this page reconnects if the port is the same (--port)."); latest.tag = null; return; }
    if (answer.status === 200) {
      latest.progress = await answer.json();
      if (latest.progress.run && latest.progress.run !== latest.runTag && !(await fetchRun())) return;
      showProgress(latest.progress);
      latest.tag = answer.headers.get("ETag");
    }
    // By the server's clock: the browser may run elsewhere, behind a tunnel.
    if (latest.progress.news) { latest.age = Date.parse(answer.headers.get("Date")) / 1000 - latest.progress.news; latest.at = performance.now(); }
    showClock();
  } finally { setTimeout(poll, EVERY); }
}

function ask(address, tag) {
  return fetch(address, { cache: "no-store", headers: tag ? { "If-None-Match": tag } : {} }).catch(() => null);
}

async function fetchRun() {
  const answer = await ask("run.json", null);
  if (!answer) return false;
  latest.run = await answer.json();
  latest.runTag = answer.headers.get("ETag");
  showRun(latest.run);
  return true;
}

function showTrouble(state, sentence) {
  find("state").dataset.state = state;
  find("state").textContent = STATES[state];
  if (find("trouble").textContent !== (sentence || "")) find("trouble").textContent = sentence || "";
  find("trouble").hidden = !sentence;
  document.body.classList.toggle("stale", Boolean(sentence));
}

function showProgress(progress) {
  if (progress.error) { showTrouble("broken", `${progress.error} The page keeps retrying.`); return; }
  showTrouble(progress.state, null);
  document.title = `${Math.floor((100 * progress.steps) / progress.planned)} % · ${latest.run.title}`;
  find("bar").max = progress.planned;
  find("bar").value = Math.min(progress.steps, progress.planned);
  find("steps").replaceChildren(grouped(progress.steps), " ");
  element("small", {}, find("steps"), `of ${grouped(progress.planned)}`);
  find("rate").textContent = progress.rate === null ? "-" : exact(progress.rate);
  const notice = noticeOf(progress);
  find("notice").textContent = notice;
  find("notice").hidden = !notice;
  showStrip(progress.archive);
  showVideo(progress.video);
}

function noticeOf(progress) {
  const parts = [];
  const on = progress.saved === null ? "" : ` \`arac resume\` continues from ${grouped(progress.saved)} steps.`;
  if (progress.state === "stopped") parts.push(`The run was stopped at ${grouped(progress.steps)} steps and is saved.${on}`);
  if (progress.state === "gone") parts.push(`The process of this run ended without saving its last steps.${on}`);
  if (progress.first !== null) parts.push(`There is no evaluation yet: the first one comes when the run is at ${grouped(progress.first)} steps.`);
  return [...parts, ...latest.run.remarks.map((remark) => `Note: ${remark}.`)].join(" ");
}

// What changes with time alone.
function showClock() {
  const { progress } = latest;
  if (latest.age === null || progress.error) return;
  const age = Math.max(0, latest.age + (performance.now() - latest.at) / 1000);
  find("news").textContent = `${clock(age)} ago`;
  const left = progress.rate === null ? null : Math.max(0, (progress.planned - progress.steps) / progress.rate - age);
  find("left").textContent = progress.state !== "training" ? "-" : left === null ? "not known yet" : clock(left);
}

function clock(seconds) {
  const whole = Math.round(seconds), two = (value) => String(value).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  return whole < 3600 ? `${Math.floor(whole / 60)}:${two(whole % 60)} min` : `${Math.floor(whole / 3600)}:${two(Math.floor(whole / 60) % 60)} h`;
}

function showRun(run) {
  find("title").textContent = `${run.title}, seed ${run.seed}`;
  find("folder").textContent = run.folder;
  find("settings").replaceChildren();
  for (const [name, value] of run.settings) {
    const line = element("div", {}, find("settings"));
    element("dt", {}, line, name.replaceAll("_", " "));
    element("dd", {}, line, value);
  }
  find("settings-section").hidden = false;
  find("measured").hidden = find("log-section").hidden = !run.series;
  find("best").textContent = run.series ? exact(Math.max(...run.series.champion)) : "-";
  if (!run.series) return;
  showReturn(run.series, run.eval_episodes);
  showPopulation(run);
  showLosses(run.series);
  showLog(run.log);
}

const overSteps = (title, yLabel, more) => ({ title, yLabel, xLabel: "environment steps", unit: "steps", ...more });

function showReturn(series, episodes) {
  const beside = (sign) => series.champion.map((value, i) => (series.spread[i] === null ? null : value + sign * series.spread[i]));
  const note = (i) => (series.spread[i] === null ? "" : `± ${exact(series.spread[i], series.champion[i])}`);
  const champion = { name: "champion", color: "var(--accent)", mark: "o", x: series.steps, y: series.champion, low: beside(-1), high: beside(1), note };
  lineChart(find("return"), [champion], overSteps("Return of the champion", "return"));
  find("return-note").textContent = `Mean over ${episodes} evaluation episodes without noise; the band is ± one standard deviation over them.`;
}

// Hues all around, and light and dark in turns for eyes that see no hues.
const memberColor = (member, count) => `oklch(calc(var(--member) + ${member % 2 ? 0.08 : -0.06}) 0.13 ${Math.round(40 + (360 * member) / count)})`;

function showPopulation({ series, population, capacity, generation }) {
  const members = series.fitness.length;
  find("population").hidden = members < 2;
  if (members < 2) return;
  find("table-title").textContent = `Members at ${grouped(series.steps.at(-1))} steps, generation ${grouped(generation)}`;
  showMembers(population, members);
  const lines = series.fitness.map((y, member) => ({ name: `member ${member}`, color: memberColor(member, members), width: 1.6, mark: y.length < 2 ? "o" : null, x: series.steps, y }));
  lineChart(find("fitness"), lines, overSteps("Fitness of every member", "return"));
  const diverse = series.mean_kl.some((value) => value); // policies without a density have zeros there
  find("kl").parentElement.hidden = find("mean-kl").parentElement.hidden = !diverse;
  if (diverse) {
    heatMap(find("kl"), series.kl);
    single("mean-kl", "mean KL", series.steps, series.mean_kl);
  }
  const sources = Object.entries(series.repulsion);
  find("repulsion").parentElement.hidden = !sources.length;
  if (sources.length) {
    const shares = sources.map(([name, y], place) => ({ name, color: memberColor(place, 5), width: 1.6, mark: y.length < 2 ? "o" : null, x: series.steps, y }));
    lineChart(find("repulsion"), shares, overSteps("Share of repulsion", "share", { yRange: [0, 1.05] }));
    showLegend("repulsion-legend", shares);
  }
  const archived = series.archive.some((value) => value > 0);
  find("archive").parentElement.hidden = !archived;
  if (archived) single("archive", "policies", series.steps, series.archive, capacity ? { yRange: [0, capacity * 1.05] } : {});
}

function showLegend(host, lines) {
  find(host).replaceChildren();
  for (const { name, color } of lines) {
    const entry = element("span", {}, find(host));
    element("span", { class: "key", style: `--c:${color}` }, entry);
    entry.append(name);
  }
}

function single(host, name, x, y, more) {
  lineChart(find(host), [{ name, color: "var(--accent)", mark: "o", x, y }], overSteps(name, "", more));
}

function showMembers(population, members) {
  const table = element("table", { class: "members" });
  const head = element("tr", {}, element("thead", {}, table));
  for (const name of ["Rank", "Member", "Fitness", "± std", ""]) element("th", { scope: "col" }, head, name);
  const body = element("tbody", {}, table);
  population.forEach((one, place) => {
    const line = element("tr", { class: one.role }, body);
    element("td", {}, line, place + 1);
    const member = element("td", {}, line);
    element("span", { class: "key", style: `--c:${memberColor(one.member, members)}` }, member);
    member.append(one.member);
    element("td", {}, line, one.fitness === null ? "not finite" : exact(one.fitness));
    element("td", {}, line, one.spread === null ? "-" : exact(one.spread, one.fitness || 0));
    element("td", {}, line, one.role);
  });
  find("members").replaceChildren(table);
}

function showLosses(series) {
  const host = find("losses"), names = Object.keys(series.losses);
  find("learning").hidden = !names.length;
  if (host.dataset.names !== String(names)) {
    host.replaceChildren();
    host.dataset.names = names;
    for (const name of names) {
      const figure = element("figure", {}, host);
      element("figcaption", {}, figure, name.replaceAll("_", " "));
      element("div", { class: "chart", id: `loss-${name}` }, figure);
    }
  }
  for (const name of names) single(`loss-${name}`, name.replaceAll("_", " "), series.steps, series.losses[name], { height: 180 });
}

function showLog(log) {
  find("log").replaceChildren(...log.map((line) => element("p", {}, null, line)));
}

// Each archived policy is a stroke at its fitness.
function showStrip(archive) {
  const host = find("strip");
  host.parentElement.hidden = !archive;
  const key = JSON.stringify([archive, host.clientWidth]);
  if (!archive || host.dataset.key === key) return;
  host.dataset.key = key;
  host.replaceChildren();
  const width = Math.max(host.clientWidth, 240), height = 90;
  const [x0, x1] = extent(archive.fitness, 0.04);
  const scaleX = (x) => 8 + ((x - x0) / (x1 - x0)) * (width - 16);
  const root = shape("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `Fitness of ${archive.fitness.length} archived policies, from ${exact(Math.min(...archive.fitness))} to ${exact(Math.max(...archive.fitness))}` }, host);
  for (const tick of ticks(x0, x1, width / 110)) {
    shape("line", { x1: scaleX(tick), x2: scaleX(tick), y1: 0, y2: 64, stroke: "var(--grid)" }, root);
    shape("text", { x: Math.min(Math.max(scaleX(tick), 14), width - 14), y: 82, "text-anchor": "middle" }, root, short(tick));
  }
  shape("line", { x1: 0, x2: width, y1: 64, y2: 64, stroke: "var(--line)" }, root);
  for (const value of archive.fitness) shape("line", { x1: scaleX(value), x2: scaleX(value), y1: 14, y2: 60, stroke: "var(--accent)", "stroke-width": 2, opacity: 0.45 }, root);
  find("strip-note").textContent = `${archive.fitness.length} policies in the checkpoint at ${grouped(archive.steps)} steps.`;
}

function showVideo(video) {
  find("film").hidden = !video;
  const host = find("screen");
  if (!video || host.dataset.address === video.address) return;
  host.dataset.address = video.address;
  const moving = video.type.startsWith("video/");
  const screen = moving ? element("video", { controls: "", loop: "", muted: "", playsinline: "", src: video.address }) : element("img", { alt: `Video ${video.name}`, src: video.address });
  screen.addEventListener("error", () => { find("film-note").textContent = `${video.name} cannot be played by this browser, or is damaged.`; });
  find("film-note").textContent = video.name;
  host.replaceChildren(screen);
}

setInterval(() => { if (latest.progress) showClock(); }, 1000);
poll();
