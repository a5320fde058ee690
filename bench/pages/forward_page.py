"""Sections of docs/performance.md: attention over lengths, and whole forward passes."""

import re

from pages.bars import number
from pages.markdown_table import table
from pages.training_page import section, where
from tegula_bench.results.newest_runs import is_ours

ATTENTION = ("4 sequences of 8 heads, f16, forward, beside cuDNN through PyTorch in turn (`bench/attention_sizes.py`). A causal call counts half "
             "of the flops. The peak is that of a product of f16 matrices of 8192 x 8192 by cuBLAS in the same run.")  # fmt: skip
FORWARD = ("Logits of every token, until they are there (`bench/forward_passes.py`). `tegula bench forward` calls the C library; the others are "
           "called from Python. The peer is GPT-2 in plain PyTorch without a cache, compiled for fixed shapes.")  # fmt: skip
SPREAD = ("mean", "std", "p95", "p99")


def cases_of(cases, suite, *ops):
    return {case: rows for case, rows in cases.items() if case[0] == suite and (not ops or case[1] in ops)}


def sizes_of(shape):
    """dim, causal, tokens of "b4_h8_s128_d64_causal"."""
    tokens, dim = map(int, re.search(r"_s(\d+)_d(\d+)", shape).groups())
    return dim, shape.endswith("_causal"), tokens


def times_of(rows):
    """(ours, the peer's)"""
    ours = [row for row in rows if is_ours(row)]
    return ours[0], next(row for row in rows if row not in ours)


def attention_section(cases, card=""):
    found = cases_of(cases, "attention_sizes")
    if not found:
        return
    yield from section(f"Attention over lengths{card}", ATTENTION)
    yield f"{where(next(iter(found.values())))}."
    yield ""
    lines = []
    for case, rows in sorted(found.items(), key=lambda item: (item[0][1], sizes_of(item[0][4]))):
        dim, causal, tokens = sizes_of(case[4])
        ours, peer = times_of(rows)
        lines.append((case[1], str(dim), "causal" if causal else "all", f"{tokens:,}", f"{number(ours, 'ms'):.4g}", f"{number(ours, 'tflops'):.1f}",
                      f"{100 * number(ours, 'roof_share'):.1f}", f"{number(peer, 'ms'):.4g}", f"{100 * number(peer, 'roof_share'):.1f}",
                      f"{number(peer, 'ms') / number(ours, 'ms'):.2f}"))  # fmt: skip
    yield from table(("op", "head", "keys", "tokens", "ms", "TFLOP/s", "% of the peak", "peer ms", "peer %", "peer / ours"), lines)


def spread_of(row):
    found = dict(re.findall(r"(\w+) ([\d.]+) ms", row["note"]))
    return [found.get(key, "") for key in SPREAD]


def every_line(found):
    """A line for each row: the case, who, and the spread of the times."""
    for case, rows in found.items():
        for row in rows:
            yield (case[1], case[3], case[4], row["impl"], row["config"], f"{number(row, 'ms'):.4g}", *spread_of(row),
                   f"{number(row, 'tokens_per_s'):,.0f}")  # fmt: skip


def is_peer_case(rows):
    return len(rows) == 2 and {row["impl"] for row in rows} == {"tegula", "compile"}


def forward_section(cases, card=""):
    found = cases_of(cases, "forward")
    if not found:
        return
    yield from section(f"Forward passes{card}", FORWARD)
    yield f"{'; '.join(dict.fromkeys(map(where, found.values())))}."
    yield ""
    pairs = {case: rows for case, rows in found.items() if is_peer_case(rows)}
    others = {case: rows for case, rows in found.items() if case not in pairs}
    yield from table(("model", "dtype", "shape", "who", "how", "ms", *(f"{key}, ms" for key in SPREAD), "tokens/s"), list(every_line(others)))
    if not pairs:
        return
    yield f"The predecessor's comparison: f32, no TF32 on either side, vocabulary 50,257; {len(pairs)} of its 36 shapes are measured."
    yield ""
    lines = []
    for case, rows in pairs.items():
        ours, peer = times_of(rows)
        lines.append((case[1], case[4], f"{number(ours, 'ms'):.3f}", f"{number(peer, 'ms'):.3f}", f"{number(peer, 'ms') / number(ours, 'ms'):.2f}"))
    yield from table(("model", "shape", "tegula.Model, ms", "compiled PyTorch, ms", "ratio"), lines)
