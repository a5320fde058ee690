"use strict";
const charts = JSON.parse(document.getElementById("charts").textContent);
const palettes = JSON.parse(document.getElementById("palettes").textContent);
const dark = matchMedia("(prefers-color-scheme: dark)");
const narrow = matchMedia("(max-width: 40rem)");
const PATTERNS = ["", "/", "\\", "x", ".", "+", "-", "|"];
const SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "cross", "star", "pentagon"];
const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
let onPaper = false;

function isDark() { return dark.matches && !onPaper; }

function traceOf(chart, series, number) {
  const colour = palettes[isDark() ? "dark" : "light"][number % 8];
  const trace = { name: series.name, x: chart.x, y: series.values };
  if (series.spread) trace.error_y = { type: "data", array: series.spread, thickness: 1.5, width: 4 };
  if (series.form === "bar") {
    const pattern = { shape: PATTERNS[number % 8], fillmode: "overlay", fgcolor: isDark() ? "#161616" : "#fff", size: 6 };
    return { ...trace, type: "bar", marker: { color: colour, pattern } };
  }
  const marker = { color: colour, symbol: SYMBOLS[number % 8], size: 9 };
  const mode = series.form === "line" ? "lines+markers" : "markers";
  return { ...trace, type: "scatter", connectgaps: true, mode, marker, line: { color: colour, dash: DASHES[number % 6], width: 2 } };
}

function layoutOf(chart) {
  const ink = isDark() ? "#e8e8e8" : "#1a1a1a", grid = isDark() ? "#3a3a3a" : "#e0e0e0";
  const axis = { gridcolor: grid, linecolor: ink, zerolinecolor: grid, automargin: true };
  const numbers = typeof chart.x[0] === "number";
  const ticks = numbers ? { type: chart.log_x ? "log" : "linear", tickvals: chart.x, ticktext: chart.x.map(String) } : { type: "category" };
  const shapes = chart.line_at === null ? [] : [{
    type: "line", xref: "paper", x0: 0, x1: 1, y0: chart.line_at, y1: chart.line_at, line: { color: ink, dash: "dot", width: 1.5 },
  }];
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: ink, family: "system-ui, sans-serif", size: 12 },
    barmode: chart.stacked ? "stack" : "group", margin: { t: 10, r: 10, b: 40, l: 60 }, shapes,
    xaxis: { ...axis, ...ticks, title: { text: chart.x_title } },
    yaxis: { ...axis, title: { text: chart.y_title }, rangemode: "tozero", exponentformat: "power",
             ...(chart.log_y ? { type: "log", dtick: "D2" } : { type: "linear" }) },
    showlegend: chart.series.length > 1, legend: narrow.matches ? { orientation: "h", y: -0.35 } : { orientation: "v" },
  };
}

function draw() {
  for (const chart of charts) {
    const traces = chart.series.map((series, number) => traceOf(chart, series, number));
    Plotly.react("chart-" + chart.key, traces, layoutOf(chart), { responsive: true, displaylogo: false, displayModeBar: false });
  }
}

function text(value) { return value === null ? "none" : Number(value.toPrecision(4)).toLocaleString("en"); }

/* Left and right: the places of a chart; up and down: its series. What is there is said below the chart. */
function listen(chart) {
  const figure = document.getElementById("figure-" + chart.key), said = document.getElementById("said-" + chart.key);
  let place = -1, row = 0;
  figure.addEventListener("keydown", (event) => {
    const step = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key];
    if (!step) return;
    event.preventDefault();
    place = Math.min(Math.max(place + step[0], 0), chart.x.length - 1);
    row = Math.min(Math.max(row + step[1], 0), chart.series.length - 1);
    const series = chart.series[row];
    const spread = series.spread ? " ± " + text(series.spread[place]) : "";
    said.textContent = `${chart.x[place]}, ${series.name}: ${text(series.values[place])}${spread} (${chart.y_title})`;
    if (series.values[place] !== null) Plotly.Fx.hover("chart-" + chart.key, [{ curveNumber: row, pointNumber: place }]);
  });
}

function paper(isPrinted) { onPaper = isPrinted; draw(); }

draw();
charts.forEach(listen);
dark.addEventListener("change", draw);
narrow.addEventListener("change", draw);
addEventListener("beforeprint", () => paper(true));
addEventListener("afterprint", () => paper(false));
document.body.dataset.drawn = charts.length;
