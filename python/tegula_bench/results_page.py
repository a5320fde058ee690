"""One self-contained HTML page of a results file: tables, and plots as embedded SVG."""

import html

from . import result_tables
from .newest_runs import ours_of
from .step_plots import by_model

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0 2rem; font-variant-numeric: tabular-nums; display: block; overflow-x: auto; }
th, td { padding: .25rem .7rem; text-align: left; border-bottom: 1px solid #8884; white-space: nowrap; }
tr.ours { font-weight: 600; }
figure { margin: 0 0 2rem; background: white; border-radius: 6px; padding: .5rem; }
figure svg { max-width: 100%; height: auto; }
"""


def table(found, ours=None):
    """`ours`: number of the highlighted line."""
    heading, lines = found
    yield "<table><tr>" + "".join(f"<th>{html.escape(cell)}</th>" for cell in heading) + "</tr>"
    for number, cells in enumerate(lines):
        kind = ' class="ours"' if number == ours else ""
        yield f"<tr{kind}>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"
    yield "</table>"


def inlined(path):
    """The picture without the lines before <svg, as part of a page."""
    text = path.read_text(encoding="utf-8")
    return f"<figure>{text[text.index('<svg') :]}</figure>"


def steps_part(cases, pictures):
    for (model, dtype), shapes in by_model(cases).items():
        yield f"<h2>Training steps of {html.escape(model)}, {dtype}</h2>"
        stem = f"{model}_{dtype}_".replace(".", "_")
        yield from (inlined(path) for path in pictures if path.stem.startswith(stem) and not path.stem.endswith("kernels"))
        for shape, rows in shapes.items():
            yield f"<h3>{html.escape(shape)}</h3>"
            yield from table(result_tables.steps(rows), rows.index(ours_of([row for row in rows if row["ms"]])))


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
    yield '<!doctype html><html lang="en"><meta charset="utf-8"><title>Tegula benchmarks</title>'
    yield f'<meta name="viewport" content="width=device-width"><style>{STYLE}</style>'
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
    yield "</html>"
