"use strict";
// Draws the plots of the page from the JSON in #data. Times are ms, sizes bytes.
const data = JSON.parse(document.getElementById("data").textContent);
// Okabe and Ito's palette: told apart by colour-blind readers, too.
const COLOURS = {
  "compute": "#0072b2", "issue": "#56b4e9", "transfer": "#009e73",
  "exposed communication": "#d55e00", "waiting for peers": "#f0e442",
};
const FONT = { family: getComputedStyle(document.body).fontFamily, size: 12, color: "#1b2733" };
const CONFIG = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
const MANY = 40; // ranks whose numbers can all be written

function layout(height, more) {
  return {
    height, font: FONT, paper_bgcolor: "#fff", plot_bgcolor: "#fff", margin: { l: 64, r: 16, t: 34, b: 46 },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal" }, hoverlabel: { font: FONT }, ...more,
  };
}
const axis = (title, more) => ({
  title: { text: title, standoff: 8 }, gridcolor: "#e8edf1", zerolinecolor: "#c3ccd4", ticks: "outside", tickcolor: "#c3ccd4",
  automargin: true, ...more,
});
const rankAxis = (title, ranks, more) =>
  axis(title, ranks.length <= MANY ? { tickvals: ranks, ticktext: ranks.map(String), tickangle: 0, ...more } : { ...more });

function unpack(text, type) {
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  return new type(bytes.buffer);
}
function time(ms) {
  for (const [scale, unit] of [[1e-3, "s"], [1, "ms"], [1e3, "µs"]])
    if (Math.abs(ms) * scale >= 1) return `${(ms * scale).toPrecision(4)} ${unit}`;
  return `${(ms * 1e6).toFixed(0)} ns`;
}
// One unit for a whole axis.
function timeUnit(longest) {
  return longest >= 2000 ? [1e-3, "s"] : longest >= 1 ? [1, "ms"] : [1e3, "µs"];
}
function sizeUnit(most) {
  let scale = 1, unit = "B";
  for (const next of ["KiB", "MiB", "GiB", "TiB"]) if (most * scale >= 1024) { scale /= 1024; unit = next; }
  return [scale, unit];
}

// ---- timeline

const timeline = data.timeline;
const rowsOf = (rank) => timeline.rows[rank].length;
// Where a row of a rank lies: lanes share the upper part of the rank's band, transfers have the lower third.
function place(rank, row) {
  const lanes = rowsOf(rank) - 1, top = rank - 0.42;
  if (row === lanes) return [top + 0.60, top + 0.84];
  return [top + 0.58 * row / lanes, top + 0.58 * (row + 1) / lanes];
}
let spans; // of the iteration that is shown

// What held the iteration up, from its end back to its beginning: through the middle of each span, and from rank to rank.
function pathLine(it, scale) {
  const rank = unpack(it.path.rank, Uint16Array), row = unpack(it.path.row, Uint8Array);
  const start = unpack(it.path.start, Float32Array), end = unpack(it.path.end, Float32Array);
  const line = { x: [], y: [], name: "critical path", type: "scatter", mode: "lines", line: { color: "#1b2733", width: 2 },
    hoverinfo: "skip", showlegend: true };
  for (let i = 0; i < rank.length; i++) {
    const [low, high] = place(rank[i], row[i]), y = (low + high) / 2;
    // Where a hop is not drawn the line has a gap.
    if (i > 0 && start[i] - end[i - 1] > 1e-3 * it.length_ms) { line.x.push(null); line.y.push(null); }
    line.x.push(start[i] * scale, end[i] * scale);
    line.y.push(y, y);
  }
  return line;
}

function drawTimeline(number) {
  const it = timeline.iterations[number];
  spans = {
    rank: unpack(it.rank, Uint16Array), row: unpack(it.row, Uint8Array), kind: unpack(it.kind, Uint8Array),
    label: unpack(it.label, Uint16Array), start: unpack(it.start, Float32Array), end: unpack(it.end, Float32Array),
    merged: unpack(it.merged, Uint16Array),
  };
  const [scale, unit] = timeUnit(it.length_ms);
  // One shape for each kind: thousands of rectangles at the cost of one.
  const traces = timeline.kinds.map((name) => ({
    x: [], y: [], name, type: "scatter", mode: "lines", fill: "toself", fillcolor: COLOURS[name], line: { width: 0 },
    hoverinfo: "skip", showlegend: true,
  }));
  for (let i = 0; i < spans.rank.length; i++) {
    const t = traces[spans.kind[i]], a = spans.start[i] * scale, b = spans.end[i] * scale;
    const [low, high] = place(spans.rank[i], spans.row[i]);
    t.x.push(a, b, b, a, a, null);
    t.y.push(low, low, high, high, low, null);
  }
  traces.push(pathLine(it, scale));
  for (const t of traces) if (!t.x.length) { t.x.push(null); t.y.push(null); }
  const count = timeline.ranks.length, step = Math.ceil(count / MANY);
  const shown = timeline.ranks.map((_, i) => i).filter((i) => i % step === 0);
  Plotly.react("timeline", traces, layout(110 + Math.max(160, Math.min(900, count * (count > 8 ? 34 : 52))), {
    xaxis: axis(`time since the iteration began [${unit}]`, { range: [0, it.length_ms * scale], zeroline: false }),
    yaxis: axis("rank", {
      range: [count - 0.5, -0.5], tickvals: shown, ticktext: shown.map((i) => String(timeline.ranks[i])), showgrid: false,
      zeroline: false,
    }),
    dragmode: "zoom", uirevision: number,
  }), CONFIG);
}

const tip = document.getElementById("tip");
function showTip(event) {
  const plot = document.getElementById("timeline"), { xaxis, yaxis } = plot._fullLayout;
  const box = plot.getBoundingClientRect(), it = timeline.iterations[select.value], [scale] = timeUnit(it.length_ms);
  const x = xaxis.p2d(event.clientX - box.left - xaxis._offset) / scale, y = yaxis.p2d(event.clientY - box.top - yaxis._offset);
  const rank = Math.round(y), near = 2 * Math.abs(xaxis.p2d(1) - xaxis.p2d(0)) / scale;
  let best = -1;
  for (let i = 0; i < spans.rank.length; i++) {
    if (spans.rank[i] !== rank || x < spans.start[i] - near || x > spans.end[i] + near) continue;
    const [low, high] = place(rank, spans.row[i]);
    // Of several under the pointer, the shortest can be hit in no other place.
    const shorter = best < 0 || spans.end[i] - spans.start[i] < spans.end[best] - spans.start[best];
    if (y >= low && y <= high && shorter) best = i;
  }
  tip.style.display = best < 0 ? "none" : "block";
  if (best < 0) return;
  const kind = timeline.kinds[spans.kind[best]], label = timeline.labels[spans.label[best]], merged = spans.merged[best];
  const lines = [
    `rank ${timeline.ranks[rank]}, ${timeline.rows[rank][spans.row[best]]}`,
    merged > 1 ? `${merged} short spans, mostly ${kind}` : label ? `${kind}: ${label}` : kind,
    `${time(spans.end[best] - spans.start[best])}, from ${time(spans.start[best])}`,
  ];
  tip.replaceChildren(...lines.map((line) => Object.assign(document.createElement("div"), { textContent: line })));
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)}px`;
  tip.style.top = `${event.clientY + 16}px`;
}

function timelineNote() {
  const parts = [];
  if (timeline.ranks.length < data.ranks.length)
    parts.push(`${timeline.ranks.length} of ${data.ranks.length} ranks are drawn: one of each class, others evenly, ` +
      "the one most waited for and the one with the highest memory peak");
  const all = data.iterations.slowest.length, drawn = timeline.iterations.length;
  if (drawn < all) parts.push(`${drawn} of ${all} iterations can be chosen, evenly and with the slowest`);
  parts.push(timeline.merged
    ? `${timeline.merged.toLocaleString("en")} spans shorter than ${timeline.pixel} are merged with their neighbours and drawn ` +
      "as the kind that takes most of their time"
    : "no spans are merged");
  return "Upper part of each rank: its threads; lower: its transfers. The line is the critical path. Drag to zoom, double-click for all. " +
    parts.map((p) => p[0].toUpperCase() + p.slice(1)).join(". ") + ".";
}

// ---- the other plots

function drawUsage(number) {
  const u = data.usage, [scale, unit] = timeUnit(Math.max(...data.ranks.map((_, i) =>
    u.busy[number][i] + u.exposed[number][i] + u.waiting[number][i]), 0));
  const bar = (name, values, colour) => ({
    type: "bar", name, x: data.ranks, y: values.map((v) => v * scale), marker: { color: COLOURS[colour] },
    hovertemplate: `rank %{x}: %{y:.4~g} ${unit}<extra>${name}</extra>`,
  });
  Plotly.react("usage", [
    bar("busy", u.busy[number], "compute"),
    bar("exposed communication", u.exposed[number], "exposed communication"),
    bar("waiting for peers", u.waiting[number], "waiting for peers"),
  ], layout(320, {
    barmode: "stack", bargap: data.ranks.length > 200 ? 0 : 0.25,
    xaxis: rankAxis("rank", data.ranks), yaxis: axis(`time [${unit}]`, { rangemode: "tozero" }),
  }), CONFIG);
}

function drawIterations() {
  const curves = [["", data.iterations, "#0072b2", "rgba(0,114,178,0.18)"]];
  if (data.other) curves.push(["other trace: ", data.other.iterations, "#d55e00", "rgba(213,94,0,0.18)"]);
  const [scale, unit] = timeUnit(Math.max(0, ...curves.flatMap((c) => c[1].slowest)));
  const traces = [];
  for (const [prefix, c, colour, band] of curves) {
    const x = c.slowest.map((_, i) => i);
    traces.push({
      x, y: c.fastest.map((v) => v * scale), mode: "lines", line: { width: 0 }, showlegend: false, hoverinfo: "skip",
    }, {
      x, y: c.slowest.map((v) => v * scale), name: `${prefix}slowest rank`, mode: x.length > 60 ? "lines" : "lines+markers",
      line: { color: colour, width: 2 }, fill: "tonexty", fillcolor: band,
      hovertemplate: `iteration %{x}: %{y:.4~g} ${unit}<extra></extra>`,
    });
  }
  const few = Math.max(...curves.map((c) => c[1].slowest.length)) <= 20;
  Plotly.react("iterations", traces, layout(260, {
    showlegend: Boolean(data.other),
    xaxis: axis("iteration", few ? { dtick: 1 } : {}), yaxis: axis(`time [${unit}]`, { rangemode: "tozero" }),
  }), CONFIG);
}

function drawMemory() {
  const m = data.memory, [scale, unit] = sizeUnit(Math.max(0, ...m.peaks));
  const end = Math.max(0, ...m.series.map((s) => s.at_ms[s.at_ms.length - 1])), [per, timeName] = timeUnit(end);
  Plotly.react("memory", m.series.map((s, i) => ({
    x: s.at_ms.map((v) => v * per), y: s.bytes.map((v) => v * scale), name: `rank ${s.rank}`, mode: "lines",
    line: { width: 1.5, shape: "hv", color: `hsl(${200 + 150 * i / Math.max(1, m.series.length - 1)}, 65%, ${35 + 25 * (i % 2)}%)` },
    hovertemplate: `%{y:.4~g} ${unit} at %{x:.4~g} ${timeName}<extra>rank ${s.rank}</extra>`,
  })), layout(320, {
    legend: { font: { size: 11 }, itemwidth: 30 },
    xaxis: axis(`time since the first start [${timeName}]`, { zeroline: false }),
    yaxis: axis(`in use [${unit}]`, { rangemode: "tozero" }),
  }), CONFIG);
  Plotly.react("peaks", [{
    type: "bar", x: data.ranks, y: m.peaks.map((v) => v * scale), marker: { color: "#0072b2" },
    hovertemplate: `rank %{x}: %{y:.4~g} ${unit}<extra></extra>`,
  }], layout(320, {
    bargap: data.ranks.length > 200 ? 0 : 0.25, xaxis: rankAxis("rank", data.ranks),
    yaxis: axis(`peak [${unit}]`, { rangemode: "tozero" }),
  }), CONFIG);
  const some = m.series.length < data.ranks.length ? ` The course of ${m.series.length} of ${data.ranks.length} ranks is shown.` : "";
  document.getElementById("memory-note").textContent = m.peaks.some((p) => p > 0)
    ? `Bytes requested from the allocator, with every peak kept.${some}` : "No memory was recorded.";
}

function drawDifference() {
  const d = data.other, most = Math.max(0, ...["busy", "exposed", "waiting"].flatMap((k) => d[k].map(Math.abs)));
  const [scale, unit] = timeUnit(most);
  const bar = (name, key, colour) => ({
    type: "bar", name, x: d.ranks, y: d[key].map((v) => v * scale), marker: { color: COLOURS[colour] },
    hovertemplate: `rank %{x}: %{y:+.4~g} ${unit}<extra>${name}</extra>`,
  });
  Plotly.react("difference", [
    bar("busy", "busy", "compute"), bar("exposed communication", "exposed", "exposed communication"),
    bar("waiting for peers", "waiting", "waiting for peers"),
  ], layout(280, {
    barmode: "relative", xaxis: rankAxis("rank", d.ranks),
    yaxis: axis(`second minus first [${unit}]`),
  }), CONFIG);
}

const select = document.getElementById("iteration");
timeline.iterations.forEach((it, i) => {
  const name = it.index === null ? "whole trace" : `${it.index} (${time(data.iterations.slowest[it.index])})`;
  select.add(new Option(name, i));
});
function choose() {
  drawTimeline(Number(select.value));
  drawUsage(timeline.iterations[select.value].index === null ? data.usage.busy.length - 1 : Number(select.value));
}
select.addEventListener("change", choose);
// The first iteration warms up; show a later one.
select.value = timeline.iterations.length > 1 ? timeline.iterations.length >> 1 : 0;
document.getElementById("timeline-note").textContent = timelineNote();
choose();
drawIterations();
drawMemory();
if (data.other) drawDifference();
document.getElementById("timeline").addEventListener("mousemove", showTip);
document.getElementById("timeline").addEventListener("mouseleave", () => { tip.style.display = "none"; });
