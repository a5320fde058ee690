"""Plots of training steps: throughput, memory and time of a step against the length of the sequence, and the parts of a
step; as PNG and SVG. Drawn with matplotlib."""

import re

from .newest_runs import ANY_ORDER, number
from .results_file import OUT_OF_MEMORY
from ..steps.step_cases import case_of

# Okabe and Ito's colours, which colour-blind people tell apart; ours is the strong one.
COLOURS = {
    "hf": "#7f7f7f", "compile": "#0072b2", "compile_kept": "#003f6b", "compile_layers": "#56b4e9", "liger": "#e69f00",
    "liger_noflce": "#f0c75e", "tegula": "#d55e00", ANY_ORDER: "#cc79a7", "tegula+compile": "#009e73",
}  # fmt: skip
PART_COLOURS = {"forward": "#0072b2", "backward": "#d55e00", "optimiser": "#009e73"}
PARTS = re.compile(r"(\w+) ([\d.]+) ms")
SAVED = {"png": dict(dpi=150), "svg": dict(metadata={"Date": None})}


def pyplot():
    """matplotlib.pyplot for files alone, or None if it is not installed."""
    try:
        import matplotlib
    except ModuleNotFoundError:
        return None
    matplotlib.use("Agg")
    matplotlib.rcParams.update({
        "svg.hashsalt": "tegula", "svg.fonttype": "none", "font.size": 9, "axes.spines.top": False,
        "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y", "grid.color": "#dddddd",
        "axes.axisbelow": True, "legend.frameon": False, "figure.constrained_layout.use": True,
    })  # fmt: skip
    from matplotlib import pyplot as plt

    return plt


def save(plt, figure, folder, name):
    """The names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, more in SAVED.items():
        figure.savefig(folder / f"{name}.{kind}", **more)
    plt.close(figure)
    return [f"{name}.{kind}" for kind in SAVED]


def label_of(row):
    optimiser = " + its AdamW" if "tegula.optim" in row["config"] else ""
    return row["impl"] + optimiser


def style_of(row):
    own = "tegula.optim" in row["config"]
    return dict(color=COLOURS.get(row["impl"], "black"), hatch="//" if own else None)


def series_of(cases):
    """(shapes in their order, label -> (style, shape -> row)) of one model's cases."""
    shapes = sorted(cases, key=lambda shape: (case_of("", shape, "").seq, shape))
    series = {}
    for shape in shapes:
        for row in cases[shape]:
            series.setdefault(label_of(row), (style_of(row), {}))[1][shape] = row
    return shapes, series


def axis_text(shape):
    case = case_of("", shape, "")
    return f"{case.batch} x {case.seq}" + "\ncheckpointing" * case.checkpointing


def bars(plt, cases, title, unit, column, scale):
    """A group of bars for each shape, a bar for each provider; what ran out of memory says so."""
    shapes, series = series_of(cases)
    figure, axes = plt.subplots(figsize=(max(6.4, 1.2 + 1.5 * len(shapes)), 4))
    width = 0.8 / len(series)
    for place, (label, (style, rows)) in enumerate(series.items()):
        at = [x - 0.4 + (place + 0.5) * width for x in range(len(shapes))]
        heights = [number(rows[shape], column) / scale if shape in rows and rows[shape]["ms"] else 0.0 for shape in shapes]
        axes.bar(at, heights, width, label=label, edgecolor="white", linewidth=0.5, **style)
        for x, shape in zip(at, shapes):
            note = rows[shape]["note"] if shape in rows and not rows[shape]["ms"] else ""
            if note:
                said = OUT_OF_MEMORY if note.startswith(OUT_OF_MEMORY) else "failed"
                axes.text(x, 0, f" {said}", rotation=90, ha="center", va="bottom", fontsize=7, color=style["color"])
    axes.set_xticks(range(len(shapes)), [axis_text(shape) for shape in shapes])
    axes.set_xlabel("sequences x tokens")
    axes.set_ylabel(unit)
    axes.set_title(title)
    figure.legend(fontsize=8, ncols=4, loc="outside lower center")
    return figure


def short_text(shape):
    """Tokens of a sequence, as a newcomer reads them."""
    case = case_of("", shape, "")
    return f"{case.seq}" + "\n(checkpointing)" * case.checkpointing


OVERVIEW = (("thousand tokens/s", "tokens_per_s", 1e3, 1), ("GiB at the peak", "peak_bytes", 2**30, 0))


def overview_panel(axes, cases, names, column, scale, digits):
    """A group of bars for each shape, with its value on each bar."""
    width = 0.84 / len(names)
    for place, (impl, label) in enumerate(names.items()):
        for group, rows in enumerate(cases.values()):
            x, row = group - 0.42 + (place + 0.5) * width, rows.get(impl)
            height = number(row, column) / scale if row else 0.0
            axes.bar(x, height, width, label=label if group == 0 else None, color=COLOURS[impl], edgecolor="white", linewidth=0.5)
            if row:
                weight = "bold" if impl == "tegula" else "normal"
                axes.text(x, height, f"{height:.{digits}f}", ha="center", va="bottom", fontsize=6.5, fontweight=weight)
            elif impl in rows:
                axes.text(x, 0, f" {OUT_OF_MEMORY}", rotation=90, ha="center", va="bottom", fontsize=7)
    axes.set_xticks(range(len(cases)), [short_text(shape) for shape in cases])


def overview(plt, cases, names, title):
    """Throughput and memory side by side. cases: shape -> impl -> row, None for out of memory; names: impl -> label."""
    figure, panels = plt.subplots(1, 2, figsize=(10, 3.8))
    for axes, (unit, column, scale, digits) in zip(panels, OVERVIEW):
        overview_panel(axes, cases, names, column, scale, digits)
        axes.set_xlabel("tokens in the sequence")
        axes.set_title(unit)
    figure.suptitle(title)
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=8, ncols=len(names), loc="outside lower center")
    return figure


def parts_of(row):
    return {name: float(ms) for name, ms in PARTS.findall(row["note"]) if name in PART_COLOURS}


def split_bars(plt, rows, title):
    """Forward, backward and optimiser of every provider in one case."""
    timed = [row for row in rows if row["ms"] and parts_of(row)][::-1]
    figure, axes = plt.subplots(figsize=(7, 1.3 + 0.34 * len(timed)))
    for place, row in enumerate(timed):
        left = 0.0
        for name, ms in parts_of(row).items():
            axes.barh(place, ms, left=left, color=PART_COLOURS[name], label=name if place == 0 else None)
            left += ms
        axes.text(left, place, f" {number(row, 'ms'):.1f}", va="center", fontsize=8)
    axes.set_yticks(range(len(timed)), [label_of(row) for row in timed])
    axes.grid(axis="x")
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("ms")
    axes.set_title(title)
    axes.margins(x=0.08)
    figure.legend(fontsize=8, ncols=3, loc="outside lower center")
    return figure


def by_model(cases, suite="model"):
    """(model, dtype) -> shape -> rows."""
    found = {}
    for (case_suite, model, _, dtype, shape), rows in sorted(cases.items()):
        if case_suite == suite:
            found.setdefault((model, dtype), {})[shape] = rows
    return found


def draw_steps(plt, cases, folder):
    """Names of the files without their ends, by what they show."""
    names = []
    for (model, dtype), shapes in by_model(cases).items():
        what = f"{model} {dtype}, training step"
        stem = f"{model}_{dtype}".replace(".", "_")
        timed = [row for rows in shapes.values() for row in rows if row["ms"]]
        for kind, unit, column, scale in (
            ("throughput", "tokens/s", "tokens_per_s", 1),
            ("memory", "GiB at the peak", "peak_bytes", 2**30),
            ("latency", "ms of a step", "ms", 1),
        ):
            if not all(row[column] for row in timed):  # not everyone says it
                continue
            save(plt, bars(plt, shapes, what, unit, column, scale), folder, f"{stem}_{kind}")
            names.append(f"{stem}_{kind}")
        for shape, rows in shapes.items():
            if not any(parts_of(row) for row in rows):
                continue
            name, title = f"{stem}_{shape}_parts", f"{what}, {axis_text(shape)}".replace("\n", ", ")
            save(plt, split_bars(plt, rows, title), folder, name)
            names.append(name)
    return names
