"""The charts of comparison_dashboard.html, from what tegula.compare found."""

from .chart_data import Chart, Series, worst


def difference(results):
    return Chart(
        "difference", "Largest difference of the logits", "Of the largest logit, beside the bound below which the two agree.", "model",
        "relative difference", list(results),
        [
            Series("difference", [one["difference"] or None for one in results.values()]),
            Series("bound", [one["bound"] for one in results.values()], form="marker"),
        ],
        log_y=True,
    )  # fmt: skip


def gradients(results):
    most = [worst(one["gradients"].values()) or None if one.get("gradients") else None for one in results.values()]
    return Chart("gradients", "Largest difference of a gradient", "Of the largest element of the same gradient.", "model",
                 "relative difference", list(results), [Series("worst gradient", most)], log_y=True)  # fmt: skip


def agreement(results):
    return Chart(
        "agreement", "Agreement on the most probable tokens", "Share of the places where both have the same most probable token, or the same five.",
        "model", "%", list(results),
        [
            Series("most probable", [100 * one["top1"] for one in results.values()]),
            Series("five most probable", [100 * one["top5"] for one in results.values()]),
        ],
    )  # fmt: skip


def latency(results):
    names = dict.fromkeys(name for one in results.values() for name in one.get("times", {}))
    bars = []
    for name in names:
        times = [one.get("times", {}).get(name) for one in results.values()]
        bars.append(Series(name, [t and t["median"] for t in times], [t and t["std"] for t in times]))
    return Chart("latency", "Latency of a forward pass", "Median time, with the standard deviation.", "model", "ms", list(results), bars,
                 log_y=True)  # fmt: skip


def speed(results):
    names = dict.fromkeys(name for one in results.values() for name in one.get("times", {}) if name != "tegula")
    bars = []
    for name in names:
        ratios = []
        for one in results.values():
            times = one.get("times", {})
            ratios.append(times[name]["median"] / times["tegula"]["median"] if name in times else None)
        bars.append(Series(f"{name} / tegula", ratios))
    return Chart("speed", "Time of the peer over Tegula's", "Above 1, Tegula is faster.", "model", "ratio of medians", list(results), bars,
                 line_at=1, log_y=True)  # fmt: skip


def charts_of(results):
    made = [make(results) for make in (difference, gradients, agreement, latency, speed)]
    return [chart for chart in made if any(value is not None for one in chart.series for value in one.values)]
