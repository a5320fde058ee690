"""One HTML page of a results file: tables and the plots as SVG inside it; it loads nothing."""

import html

from .newest_runs import number, ours_of, peers_of
from .step_plots import by_model

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid #8884; white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
tr.ours { font-weight: 600; }
figure { margin: 0 0 2rem; background: white; border-radius: 6px; padding: .5rem; }
figure svg { max-width: 100%; height: auto; }
code { font-size: .92em; }
"""


def table(heading, lines):
    """lines: (class of the row, cells)."""
    yield "<table><tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in heading) + "</tr>"
    for kind, cells in lines:
        yield f'<tr class="{kind}">' + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in cells) + "</tr>"
    yield "</table>"


def step_lines(rows):
    """A line for each provider, beside the best peer."""
    theirs = [number(row, "ms") for row in peers_of(rows) if row["ms"]]
    best = min(theirs, default=0)
    for row in rows:
        kind = "ours" if row is ours_of([row for row in rows if row["ms"]]) else ""
        figures = ["", "", "", ""]
        if row["ms"]:
            ratio = f"{best / number(row, 'ms'):.3f}" if best else ""
            memory = f"{number(row, 'peak_bytes') / 2**30:.1f}" if row["peak_bytes"] else ""
            figures = [f"{number(row, 'tokens_per_s'):.0f}", f"{number(row, 'ms'):.1f}", memory, ratio]
        yield kind, (row["impl"], row["config"], *figures, row["note"])


STEP_HEADING = ("provider", "configuration", "tokens/s", "ms", "peak GiB", "best peer's time over it", "parts, notes")


def inlined(path):
    """The picture without the lines before <svg, as part of a page."""
    text = path.read_text(encoding="utf-8")
    return text[text.index("<svg") :]


def page(cases, pictures):
    """pictures: paths of SVG files, in the order of their names."""
    seen = sorted({(row["device"], row["driver"], row["commit"], row["date"][:10]) for rows in cases.values() for row in rows})
    yield '<!doctype html><html lang="en"><meta charset="utf-8"><title>Tegula benchmarks</title>'
    yield f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
    yield "<h1>Tegula beside its peers</h1>"
    yield from table(("device", "driver", "commit", "date"), [("", line) for line in seen])
    for (model, dtype), shapes in by_model(cases).items():
        yield f"<h2>Training steps of {html.escape(model)}, {dtype}</h2>"
        for path in pictures:
            if path.stem.startswith(f"{model}_{dtype}_".replace(".", "_")):
                yield f"<figure>{inlined(path)}</figure>"
        for shape, rows in shapes.items():
            yield f"<h3>{html.escape(shape)}</h3>"
            yield from table(STEP_HEADING, step_lines(rows))
    yield "</html>"
