"""From the rounds of a training step: rows of a results file, a table on standard output, doubts about losses."""

import statistics

from ..results.newest_runs import peers_of
from ..results.results_file import OUT_OF_MEMORY
from ..time_spread import spread_of

PARTS = ("forward", "backward", "optimiser")
PERCENTILES = ("p95", "p99")
CLOSE = 2e-3  # relative tolerance of a loss: 16-bit steps add in another order


def note_of(found):
    """Why there is no figure; "" if there is one."""
    if "oom" in found:
        return f"{OUT_OF_MEMORY} at {found['peak_bytes'] / 2**30:.1f} GiB"
    return f"failed: {found['error']}" if "error" in found else ""


def all_of(rounds, key):
    return [value for found in rounds for value in found[key]]


def split_of(rounds):
    """Medians of the parts, as in the note of a row."""
    return ", ".join(f"{part} {statistics.median(all_of(rounds, part)):.2f} ms" for part in PARTS)


def percentiles_of(rounds):
    """Of the steps of all rounds, as in the note of a row."""
    spread = spread_of(all_of(rounds, "steps"))
    return ", ".join(f"{name} {spread[name]:.2f} ms" for name in PERCENTILES)


def row_of(case, entrant, version, rounds, note):
    row = dict(case.identity, impl=entrant.provider.name, config=entrant.config_of(case), version=version, note=note)
    if rounds:
        steps = all_of(rounds, "steps")
        ms = statistics.median(steps)
        clocks = [found["clock_mhz"] for found in rounds if found["clock_mhz"]]
        row.update(
            ms=ms, ms_min=min(steps), ms_max=max(steps), flops=case.flops, tokens_per_s=1e3 * case.tokens / ms,
            peak_bytes=max(found["peak_bytes"] for found in rounds) or "",
            clock_mhz=statistics.median(clocks) if clocks else "",
            note="; ".join(text for text in (split_of(rounds), percentiles_of(rounds), note) if text),
        )  # fmt: skip
    return row


def doubt(rounds, stock):
    """A note if losses differ from the stock model's, which had the same weights and batches."""
    for theirs, mine in zip(stock[0]["losses"], rounds[0]["losses"]):
        if not abs(mine - theirs) <= CLOSE * abs(theirs):
            return f"loss {mine:.4f} where hf has {theirs:.4f}"
    return ""


def table(rows):
    """Lines of text: one for each row, with the ratio to the best peer."""
    peers = [row["ms"] for row in peers_of(rows) if row.get("ms")]
    for row in rows:
        name = f"{row['impl']:17} {row['config']:56}"
        if not row.get("ms"):
            yield f"{name} {row['note']}"
            continue
        memory = f"{row['peak_bytes'] / 2**30:7.1f} GiB" if row["peak_bytes"] else ""
        ratio = f" {min(peers) / row['ms']:6.3f}x" if peers else ""
        yield f"{name} {row['ms']:9.2f} ms {row['tokens_per_s']:9.0f} tokens/s{memory}{ratio}"
        yield f"{'':17} {row['note']}"
