"""The charts of performance_dashboard.html, from profiling_data.json."""

from .chart_data import Chart, Series

PERCENTILES = ("min", "median", "p95", "p99", "max")


def latency(runs):
    timing = {name: run["timing"] for name, run in runs.items()}
    return Chart(
        "latency", "Latency of a forward pass", "Mean time of a pass with the standard deviation, and the fastest and slowest pass.",
        "model", "ms", list(timing),
        [
            Series("mean", [t["mean"] for t in timing.values()], [t["std"] for t in timing.values()]),
            Series("min", [t["min"] for t in timing.values()], form="marker"),
            Series("max", [t["max"] for t in timing.values()], form="marker"),
        ],
    )  # fmt: skip


def throughput(runs):
    return Chart(
        "throughput", "Throughput", "Tokens of all sequences in a second, by the mean time.", "model", "tokens/s", list(runs),
        [Series("tokens/s", [run["throughput_tokens_per_sec"] for run in runs.values()])],
    )  # fmt: skip


def percentiles(runs):
    lines = [Series(name, [run["timing"][key] for key in PERCENTILES], form="line") for name, run in runs.items()]
    return Chart("percentiles", "Percentiles of the latency", "How far the slow passes are from the fast ones, for each model.",
                 "percentile", "ms", list(PERCENTILES), lines, log_y=True)  # fmt: skip


def sizes(runs):
    keys = {"layers": "n_layer", "heads": "n_head", "width": "n_embd"}
    bars = [Series(word, [run["config"][key] for run in runs.values()]) for word, key in keys.items()]
    return Chart("sizes", "Sizes of the models", "Layers, heads and width of each model, on a logarithmic axis.", "model", "number",
                 list(runs), bars, log_y=True)  # fmt: skip


def efficiency(runs):
    return Chart(
        "efficiency", "Tokens in a second for each layer", "Throughput divided by the number of layers.", "model", "tokens/s per layer",
        list(runs), [Series("tokens/s per layer", [run["throughput_tokens_per_sec"] / run["config"]["n_layer"] for run in runs.values()])],
    )  # fmt: skip


def roof_share(runs):
    return Chart(
        "roof", "Share of the roof", "The least time that memory and arithmetic of this machine allow, as a share of the time it took.",
        "model", "% of the time", list(runs), [Series("share", [100 * run["share"] if run.get("share") else None for run in runs.values()])],
        line_at=100,
    )  # fmt: skip


def op_times(run):
    """op -> ms of a pass."""
    found = {}
    for row in run.get("ops", ()):
        found[row["op"]] = found.get(row["op"], 0.0) + row["ms"]
    return found


def breakdown(runs):
    times = {name: op_times(run) for name, run in runs.items()}
    ops = sorted({op for found in times.values() for op in found}, key=lambda op: -max(found.get(op, 0) for found in times.values()))
    bars = []
    for op in ops:
        bars.append(Series(op, [100 * found.get(op, 0) / sum(found.values()) if found else None for found in times.values()]))
    return Chart("ops", "Where the time goes", "The share of each op in the time of all ops of a pass.", "model", "% of the ops' time",
                 list(runs), bars, stacked=True)  # fmt: skip


def decoding(runs):
    contexts = sorted({point["context"] for run in runs.values() for point in run.get("decode", ())})
    lines = []
    for name, run in runs.items():
        known = {point["context"]: point["tokens_per_sec"] for point in run.get("decode", ())}
        if known:
            lines.append(Series(name, [known.get(context) for context in contexts], form="line"))
    return Chart("decode", "Decoding over the context", "Tokens in a second, one after another, behind so many tokens in the cache.",
                 "tokens in the cache", "tokens/s", contexts, lines, log_x=True, log_y=True)  # fmt: skip


def memory(runs):
    mib = 2.0**20
    return Chart(
        "memory", "Memory", "Bytes of the weights, and the most that a pass needed.", "model", "MiB", list(runs),
        [
            Series("weights", [run["weight_bytes"] / mib for run in runs.values()]),
            Series("peak", [run["peak_bytes"] / mib if run.get("peak_bytes") else None for run in runs.values()]),
        ],
        log_y=True,
    )  # fmt: skip


def peers(runs):
    names = dict.fromkeys(name for run in runs.values() for name in run.get("peers", {}))
    bars = [Series(name, [run.get("peers", {}).get(name, {}).get("median") for run in runs.values()]) for name in names]
    return Chart("peers", "Beside PyTorch", "Median time of a pass called from Python, until its logits are there.", "model", "ms",
                 list(runs), bars, log_y=True)  # fmt: skip


def charts_of(data):
    """Those that the data has numbers for."""
    runs = data["benchmarks"]
    made = [make(runs) for make in (latency, throughput, percentiles, sizes, efficiency, roof_share, breakdown, decoding, memory, peers)]
    return [chart for chart in made if any(value is not None for one in chart.series for value in one.values)]
