"""One self-contained HTML page of a results file: tables, and plots as embedded SVG."""

import html

from . import result_tables
from ..dashboard import chart_page
from ..dashboard.page_style import STYLE
from .newest_runs import ours_of
from .step_plots import by_model

def table(found, ours=None):
    """`ours`: number of the highlighted line."""
    yield from chart_page.table(*found, ours=ours)


def inlined(path):
    """The picture without the lines before <svg, as part of a page."""
    text = path.read_text(encoding="utf-8")
    label = html.escape(path.stem.replace("_", " "))
    return f'<figure class="drawn" role="img" aria-label="{label}">{text[text.index("<svg") :]}</figure>'


def steps_part(cases, pictures):
    for (model, dtype), shapes in by_model(cases).items():
        yield f"<h2>Training steps of {html.escape(model)}, {dtype}</h2>"
        stem = f"{model}_{dtype}_".replace(".", "_")
        yield from (inlined(path) for path in pictures if path.stem.startswith(stem) and not path.stem.endswith("kernels"))
        for shape, rows in shapes.items():
            yield f"<h3>{html.escape(shape)}</h3>"
            yield from table(result_tables.steps(rows, percentiles=True), rows.index(ours_of([row for row in rows if row["ms"]])))


def profile_part(cases, pictures):
    for case, rows in result_tables.of_suite(cases, "profile"):
        _, model, _, dtype, shape = case
        yield f"<h2>Where a step's time goes: {html.escape(model)}, {dtype}, {html.escape(shape)}</h2>"
        stem = f"{model}_{dtype}_{shape}_kernels".replace(".", "_")
        yield from (inlined(path) for path in pictures if path.stem == stem)
        yield from table(result_tables.kinds(rows))
        yield from table(result_tables.longest(rows))


def page(cases, pictures):
    """pictures: paths of SVG files."""
    seen = sorted({(row["device"], row["driver"], row["commit"], row["date"][:10]) for rows in cases.values() for row in rows})
    yield '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Tegula benchmarks</title>'
    yield f'<meta name="viewport" content="width=device-width, initial-scale=1"><style>{STYLE}</style></head><body>'
    yield "<h1>Tegula beside its peers</h1>"
    yield from table((("device", "driver", "commit", "date"), seen))
    yield from steps_part(cases, pictures)
    yield from profile_part(cases, pictures)
    for suite, title, form in (
        ("loss", "Losses of training on text", result_tables.losses), ("gpus", "Several GPUs", result_tables.devices),
    ):  # fmt: skip
        for case, rows in result_tables.of_suite(cases, suite):
            yield f"<h2>{title}: {html.escape(' '.join((case[1], *case[3:])))}</h2>"
            yield from table(form(rows))
    functions = result_tables.of_suite(cases, "functions")
    if functions:
        yield "<h2>Functions, as a program calls them</h2>"
        yield from table(result_tables.functions(functions))
    yield "</body></html>"
