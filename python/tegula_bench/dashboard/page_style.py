"""The look that all pages share: light, dark and paper, and colours that the colour-blind tell apart."""

# Okabe and Ito's colours, the strong ones first; the dark ones have a lighter tone on a dark page.
LIGHT = ["#d55e00", "#0072b2", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f", "#8c6d1f"]
DARK = ["#ff8a3d", "#56b4e9", "#2fc79a", "#e29bc5", "#f0c75e", "#9ad0f5", "#b0b0b0", "#d8b860"]

STYLE = """
:root { color-scheme: light dark; --ink: #1a1a1a; --quiet: #555; --page: #fff; --line: #d8d8d8; --card: #fafafa; --strong: #a84600; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --quiet: #aaa; --page: #161616; --line: #3a3a3a; --card: #1e1e1e; --strong: #ff8a3d; }
}
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: var(--ink); background: var(--page); }
h1, h2, h3 { line-height: 1.25; }
a, summary { color: var(--strong); }
a.skip { position: absolute; left: -99rem; }
a.skip:focus { left: 1rem; top: .5rem; background: var(--page); padding: .3rem .6rem; }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
caption { text-align: left; color: var(--quiet); }
th, td { padding: .2rem .7rem; text-align: left; border-bottom: 1px solid var(--line); white-space: nowrap; }
td.number { text-align: right; }
tr.ours { font-weight: 600; }
figure { margin: 0 0 1rem; background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: .5rem; }
figure:focus-visible { outline: 3px solid var(--strong); }
figcaption { color: var(--quiet); }
figure.drawn { background: white; }
figure svg { max-width: 100%; height: auto; }
.chart { width: 100%; height: 24rem; }
.said { min-height: 1.5em; font-variant-numeric: tabular-nums; }
nav ul { columns: 14rem; padding-left: 1.2rem; }
@media print {
  :root { --ink: #000; --quiet: #333; --page: #fff; --card: #fff; --line: #999; --strong: #000; }
  body { max-width: none; margin: 0; font-size: 10pt; }
  nav, .said, a.skip { display: none; }
  section { break-inside: avoid; }
  .chart { height: 17rem; }
  details > *:not(summary) { display: block; }
}
"""
