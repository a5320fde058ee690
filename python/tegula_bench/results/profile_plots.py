"""Plots of the time of a step by kind of kernel."""

from ..kernel_classes import KINDS
from .newest_runs import number
from .step_plots import axis_text, by_model, save

KIND_COLOURS = dict(zip(KINDS, (
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#f0e442", "#56b4e9", "#000000", "#8c564b", "#9467bd", "#7f7f7f",
    "#e5e5e5",
)))  # fmt: skip


def stacked_kinds(plt, rows, title):
    """A bar for each provider, stacked by kind of kernel."""
    impls = list(dict.fromkeys(row["impl"] for row in rows))[::-1]
    figure, axes = plt.subplots(figsize=(8, 1.6 + 0.36 * len(impls)))
    left = dict.fromkeys(impls, 0.0)
    for kind in KINDS:
        pieces = {row["impl"]: number(row, "ms") for row in rows if row["config"] == kind}
        if not pieces:
            continue
        axes.barh(range(len(impls)), [pieces.get(impl, 0.0) for impl in impls], left=[left[impl] for impl in impls],
                  color=KIND_COLOURS[kind], edgecolor="white", linewidth=0.4, label=kind)  # fmt: skip
        for impl, ms in pieces.items():
            left[impl] += ms
    for place, impl in enumerate(impls):
        axes.text(left[impl], place, f" {left[impl]:.1f}", va="center", fontsize=8)
    axes.set_yticks(range(len(impls)), impls)
    axes.grid(axis="x")
    axes.grid(axis="y", visible=False)
    axes.margins(x=0.08)
    axes.set_xlabel("ms of a step")
    axes.set_title(title)
    figure.legend(fontsize=8, ncols=5, loc="outside lower center")
    return figure


def draw_profiles(plt, cases, folder):
    names = []
    for (model, dtype), shapes in by_model(cases, "profile").items():
        for shape, rows in shapes.items():
            stem = f"{model}_{dtype}_{shape}_kernels".replace(".", "_")
            title = f"{model} {dtype}, {axis_text(shape)}, time on the GPU".replace("\n", ", ")
            save(plt, stacked_kinds(plt, rows, title), folder, stem)
            names.append(stem)
    return names
