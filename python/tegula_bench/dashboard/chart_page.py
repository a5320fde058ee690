"""A page of charts in one file: Plotly and all numbers are in it, and a table stands under each chart."""

import html
import json
import math
import os
import pathlib

from .page_style import DARK, LIGHT, STYLE

# Nothing is fetched, whatever a library would do.
POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"


def plotly_source():
    """The text of plotly.min.js, from the package plotly."""
    try:
        from plotly.offline import get_plotlyjs
    except ModuleNotFoundError:
        raise ModuleNotFoundError("expected the package plotly (pip install tegula[report]), or --svg; got neither") from None
    return get_plotlyjs()


def check(folder, svg=False):
    """Makes the folder, and raises what would keep a page from being written there: better before hours of measuring."""
    folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"expected a folder that can be written to, got {folder}")
    if svg:
        from .svg_drawing import plotter

        plotter()
    else:
        plotly_source()


def number_text(value):
    if value is None:
        return ""
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer() and abs(value) < 1e15):
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def cell(value):
    if isinstance(value, str) or value is None:
        return f"<td>{html.escape(value or '')}</td>"
    if not math.isfinite(value):
        return f'<td class="number">{"NaN" if math.isnan(value) else value}</td>'
    return f'<td class="number" data-value="{value!r}">{number_text(value)}</td>'


def table(heading, rows, caption="", ours=None):
    """Cells of text, or numbers. ours: number of the highlighted line."""
    yield "<table>" + (f"<caption>{html.escape(caption)}</caption>" if caption else "")
    yield "<thead><tr>" + "".join(f'<th scope="col">{html.escape(word)}</th>' for word in heading) + "</tr></thead><tbody>"
    for number, row in enumerate(rows):
        first = f'<th scope="row">{html.escape(str(row[0]))}</th>'
        kind = ' class="ours"' if number == ours else ""
        yield f"<tr{kind}>{first}" + "".join(map(cell, row[1:])) + "</tr>"
    yield "</tbody></table>"


def section(chart, drawing):
    """drawing: an <svg>, or None where a script draws."""
    key, title, about = chart.key, html.escape(chart.title), html.escape(chart.about)
    yield f'<section aria-labelledby="title-{key}"><h2 id="title-{key}">{title}</h2>'
    names = f'aria-labelledby="title-{key}" aria-describedby="about-{key} table-{key}"'
    if drawing:
        yield f'<figure id="figure-{key}" class="drawn" role="img" {names}>{drawing}'
    else:
        yield f'<figure id="figure-{key}" tabindex="0" role="application" aria-roledescription="chart" {names}>'
        yield f'<div class="chart" id="chart-{key}" aria-hidden="true"></div>'
        yield f'<div class="said" id="said-{key}" role="status" aria-live="polite"></div>'
    hint = "" if drawing else " Arrow keys read the values."
    yield f'<figcaption id="about-{key}">{about}{hint}</figcaption></figure>'
    yield f'<details open id="table-{key}"><summary>Numbers of this chart ({html.escape(chart.y_title)})</summary>'
    yield from table(chart.heading(), chart.rows())
    yield "</details></section>"


def page(title, lines, charts, svg=False):
    """lines: HTML between the title and the charts."""
    yield f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
    yield f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    yield f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
    yield f'<a class="skip" href="#content">To the charts</a><h1>{html.escape(title)}</h1>'
    yield from lines
    links = "".join(f'<li><a href="#title-{chart.key}">{html.escape(chart.title)}</a></li>' for chart in charts)
    yield f'<nav aria-label="Charts"><ul>{links}</ul></nav><main id="content">'
    drawings = [None] * len(charts)
    if svg:
        from .svg_drawing import draw

        drawings = [draw(chart) for chart in charts]
    for chart, drawing in zip(charts, drawings):
        yield from section(chart, drawing)
    yield "</main>"
    if not svg:
        yield from scripts(charts)
    yield "</body></html>"


def embedded(name, value):
    text = json.dumps(value, allow_nan=False).replace("<", "\\u003c")
    return f'<script type="application/json" id="{name}">{text}</script>'


def scripts(charts):
    yield embedded("charts", [chart.as_json() for chart in charts])
    yield embedded("palettes", {"light": LIGHT, "dark": DARK})
    yield f"<script>{plotly_source()}</script>"
    drawing = pathlib.Path(__file__).with_name("plotly_drawing.js").read_text(encoding="utf-8")
    yield f"<script>{drawing}</script>"


def write(path, title, lines, charts, svg=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(page(title, lines, charts, svg)) + "\n", encoding="utf-8")
    return path
