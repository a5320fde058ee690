"""Tables of a results file for the HTML and the Markdown page: (heading, lines of cells as text)."""

from ..kernel_classes import KINDS
from .newest_runs import is_ours, named, number, peers_of
from ..steps.step_rows import PARTS, PERCENTILES

GIB = 2**30


def words_of(row):
    """(the parts of a step, what else the note says but percentiles)."""
    words = [word for word in row["note"].split("; ") if word]
    parts = [word for word in words if word.split()[0] in PARTS]
    return parts, "; ".join(word for word in words if word.split()[0] not in (*PARTS, *PERCENTILES))


def percentiles_of(row):
    """p95 and p99 of a step in ms; "" where the row was measured before they were recorded."""
    known = dict(word.split()[:2] for word in row["note"].split("; ") if word.split() and word.split()[0] in PERCENTILES)
    return [f"{float(known[name]):.1f}" if name in known else "" for name in PERCENTILES]


def memory(row):
    return f"{number(row, 'peak_bytes') / GIB:.1f}" if row["peak_bytes"] else ""


def steps(rows, percentiles=False):
    """Everyone in one case, beside the best peer."""
    timed = [row for row in rows if row["ms"]]
    best = min((number(row, "ms") for row in peers_of(timed)), default=0)
    lines = []
    for row in rows:
        parts, rest = words_of(row)
        figures = [""] * 6
        if row["ms"]:
            figures = [
                f"{number(row, 'tokens_per_s'):.0f}", f"{number(row, 'ms'):.1f}",
                " + ".join(word.split()[1] for word in parts), memory(row),
                f"{number(row, 'clock_mhz'):.0f}" if row["clock_mhz"] else "", f"{best / number(row, 'ms'):.3f}" if best else "",
            ]  # fmt: skip
        if percentiles:
            figures[2:2] = percentiles_of(row)
        lines.append((named(row), row["config"], *figures, rest))
    more = PERCENTILES if percentiles else ()
    heading = ("provider", "configuration", "tokens/s", "ms", *more, "forward + backward + optimiser", "peak GiB", "MHz",
               "best peer's time over it", "note")  # fmt: skip
    return heading, lines


def kinds(rows):
    """A line for each kind of kernel, a column for each provider: ms, share of the step, share of the roof."""
    impls = list(dict.fromkeys(row["impl"] for row in rows))
    totals = {impl: sum(number(row, "ms") for row in rows if row["impl"] == impl) for impl in impls}
    found = {(row["config"], row["impl"]): row for row in rows}
    lines = []
    for kind in KINDS:
        cells = []
        for impl in impls:
            row = found.get((kind, impl))
            roof = f", {number(row, 'roof_share'):.0%} of roof" if row and row["roof"] else ""
            cells.append(f"{number(row, 'ms'):.1f} ({number(row, 'ms') / totals[impl]:.1%}{roof})" if row else "")
        if any(cells):
            lines.append((kind, *cells))
    lines.append(("all", *(f"{totals[impl]:.1f}" for impl in impls)))
    names = {row["impl"]: named(row) for row in rows}
    return ("ms of a step", *(names[impl] for impl in impls)), lines


def longest(rows, count=10):
    """The kernels that take longest, of the first provider of ours."""
    mine = next(row["impl"] for row in rows if is_ours(row))
    kernels = []
    for row in rows:
        if row["impl"] == mine:
            for word in row["note"].split("; "):
                name, _, ms = word.removesuffix(" ms").rpartition(" ")
                if name:
                    kernels.append((float(ms), name, row["config"]))
    lines = [(name, kind, f"{ms:.2f}") for ms, name, kind in sorted(kernels, reverse=True)[:count]]
    return ("kernel", "kind", "ms"), lines


def losses(rows):
    return ("provider", "configuration", "losses"), [(row["impl"], row["config"], row["note"]) for row in rows]


def devices(rows):
    lines = [
        (row["impl"], row["config"], row["shape"], f"{number(row, 'tokens_per_s'):.0f}" if row["ms"] else "", memory(row),
         row["note"]) for row in rows
    ]  # fmt: skip
    return ("provider", "configuration", "shape x GPUs", "tokens/s", "peak GiB each", "beside one GPU"), lines


def functions(cases):
    """A line for each case; peers with their time over ours."""
    lines = []
    for (_, op, direction, dtype, shape), rows in cases:
        mine = [row for row in rows if is_ours(row) and row["ms"]]
        if not mine:
            continue
        beside = []
        for row in rows:
            if is_ours(row):
                continue
            ratio = f"{1e3 * number(row, 'ms'):.1f} ({number(row, 'ms') / number(mine[0], 'ms'):.2f})" if row["ms"] else ""
            beside.append(f"{named(row)} {' '.join(word for word in (ratio, row['note']) if word)}")
        taken = f"{number(mine[0], 'peak_bytes') / 1e9:.2f}" if mine[0]["peak_bytes"] else ""
        lines.append((f"{op} {direction}", dtype, shape, f"{1e3 * number(mine[0], 'ms'):.1f}",
                      f"{number(mine[0], 'host_us'):.1f}", taken, ", ".join(beside)))  # fmt: skip
    return ("function", "dtype", "shape", "us", "host us", "extra GB", "peers us (over ours)"), lines


def of_suite(cases, suite):
    return sorted((case, rows) for case, rows in cases.items() if case[0] == suite)
