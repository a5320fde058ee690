"""Charts as SVG by matplotlib, for pages that stay small."""

import io

from ..results.step_plots import pyplot
from .page_style import LIGHT

HATCHES = ("", "//", "\\\\", "xx", "..", "++", "--", "||")
MARKERS = "osD^xP*p"
DASHES = ("-", "--", ":", "-.")


def draw_bars(axes, chart, bars):
    bottoms = [0.0] * len(chart.x)
    width = 0.8 if chart.stacked else 0.8 / len(bars)
    for place, (number, one) in enumerate(bars):
        at = [x if chart.stacked else x - 0.4 + (place + 0.5) * width for x in range(len(chart.x))]
        heights = [value or 0.0 for value in one.values]
        errors = [value or 0.0 for value in one.spread] if one.spread else None
        axes.bar(at, heights, width, bottoms if chart.stacked else 0, yerr=errors, capsize=2, label=one.name, color=LIGHT[number % 8],
                 hatch=HATCHES[number % 8], edgecolor="white", linewidth=0.5)  # fmt: skip
        bottoms = [bottom + height for bottom, height in zip(bottoms, heights)]


def plotter():
    plt = pyplot()
    if plt is None:
        raise ModuleNotFoundError("--svg: expected matplotlib (pip install tegula[report]), got none")
    return plt


def draw(chart):
    """The text of an <svg>."""
    plt = plotter()
    chart = chart.drawable()
    figure, axes = plt.subplots(figsize=(8.5, 3.6))
    numbers = not isinstance(chart.x[0], str)
    at = chart.x if numbers else range(len(chart.x))
    bars = [(number, one) for number, one in enumerate(chart.series) if one.form == "bar"]
    if bars:
        draw_bars(axes, chart, bars)
    for number, one in enumerate(chart.series):
        if one.form != "bar":
            known = [(x, value) for x, value in zip(at, one.values) if value is not None]
            axes.plot([x for x, _ in known], [value for _, value in known], DASHES[number % 4] if one.form == "line" else "", marker=MARKERS[number % 8], color=LIGHT[number % 8],
                      label=one.name)  # fmt: skip
    if chart.log_x:
        axes.set_xscale("log")
    if chart.log_y:
        axes.set_yscale("log")
    if chart.line_at is not None:
        axes.axhline(chart.line_at, color="black", linestyle=":", linewidth=1)
    axes.set_xticks(list(at), [str(one) for one in chart.x], rotation=20 if len(chart.x) > 6 else 0)
    axes.set_xlabel(chart.x_title)
    axes.set_ylabel(chart.y_title)
    if len(chart.series) > 1:
        figure.legend(fontsize=8, ncols=1, loc="outside right upper")
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    plt.close(figure)
    drawn = text.getvalue()
    # Ids of one drawing must not be those of another in the same page.
    drawn = drawn[drawn.index("<svg") :]
    return drawn.replace('id="', f'id="{chart.key}-').replace("url(#", f"url(#{chart.key}-").replace('href="#', f'href="#{chart.key}-')
