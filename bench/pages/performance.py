#!/usr/bin/env python3
"""Writes docs/performance.md, the figures, and docs/bars.md, the bars, met or open, from
bench/results/cpu.csv and, where they exist, h200.csv and h100.csv.

  performance.py [--csv FILE] [--gpu-csv FILE...] [--out FILE] [--bars FILE] [--check]

Each case shows the median run at its newest commit, card by card. --check writes nothing and exits
1 if a bar is open.
"""

import argparse
import pathlib
import sys

import results_csv
from pages import decode_page, forward_page, gpu_bars, headline, quantised_page, training_page
from pages.bars import WORDS, how_run, judge, judge_cards, newest, number, ours_of, peers_of
from pages.markdown_table import table
from tegula_bench.results import newest_runs

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(__file__).resolve().relative_to(ROOT)


# ---- tables ----

def bar_section(judged, heading):
    lines = [line for line, _ in judged]
    yield f"## {heading}"
    yield ""
    yield f"{sum(line[3] for line in lines)} of {len(lines)} bars are met."
    yield ""
    yield from table(("bar", "required", "measured", "on", "met"),
                     [(text, want, got, card, "yes" if ok else "**no**")
                      for (text, want, got, ok), card in judged])
    open_bars = [line for line in lines if not line[3]]
    if open_bars:
        yield f"### Open: {heading}"
        yield ""
        for text, want, got, _ in open_bars:
            yield f"- {text}: {want} required, {got}."
        yield ""


STEPS = ("Forward, backward and AdamW. Each provider is a process of its own. Rounds run in changing "
         "order, the first step of each process is dropped, figures are medians. bf16: f32 weights are "
         "kept beside; PyTorch runs under autocast.")


def step_section(cases):
    found = sorted((case, rows) for case, rows in cases.items() if case[0] == "model")
    if not found:
        return
    yield "## Training steps on a CPU"
    yield ""
    yield STEPS
    yield ""
    lines = []
    for case, rows in found:
        mine = number(ours_of(rows), "ms")
        lines += [(" ".join(case[1:2] + case[3:]), f"{row['impl']} {row['version']}".strip(),
                   row["config"], f"{number(row, 'ms'):.0f}",
                   f"{number(row, 'ms_min'):.0f} - {number(row, 'ms_max'):.0f}",
                   f"{number(row, 'tokens_per_s'):.0f}",
                   f"{number(row, 'peak_bytes') / 1e9:.2f}" if number(row, "peak_bytes") else "",
                   f"{number(row, 'ms') / mine:.2f}") for row in rows]
    yield from table(("case", "provider", "configuration", "ms", "range", "tokens/s", "peak GB",
                      "time over ours"), lines)


def roof_section(cases):
    found = sorted((case, rows) for case, rows in cases.items() if case[0] == "ops")
    if not found:
        return
    yield "## Ops on a CPU beside their roofs"
    yield ""
    yield ("Roofs: `copy` moves bytes in the op's own mix of reads, writes and updates in place; `read` "
           "writes nothing; `fma_f32` and `dot_bf16` compute on registers. Bytes and flops are the "
           "minimum that the op needs.")
    yield ""
    lines = []
    for case, rows in found:
        mine = ours_of(rows)
        lines.append((case[1] + " " + case[2], case[3], case[4], mine["impl"].split(":")[1],
                      f"{number(mine, 'ms'):.3f}", f"{number(mine, 'gbps'):.1f}",
                      f"{1e3 * number(mine, 'tflops'):.0f}", mine["roof"],
                      f"{number(mine, 'roof_share'):.1%}"))
    yield from table(("op", "dtype", "shape", "entry", "ms", "GB/s", "GFLOP/s", "roof", "share"),
                     lines)


def peer_section(cases):
    found = sorted((case, rows) for case, rows in cases.items() if case[0] == "peers")
    if not found:
        return
    yield "## Ops on a CPU beside their peers"
    yield ""
    yield ("One process runs all providers in turn, with the same number of threads; results are compared "
           "first. PyTorch's allocator is tuned, so its figures contain no page faults of new results. "
           "Ratios above 1: Tegula is faster.")
    yield ""
    lines = []
    for case, rows in found:
        mine = ours_of(rows)
        for row in peers_of(rows):
            what = " ".join(row["config"].split()[2:])
            lines.append((case[1] + " " + case[2], case[3], case[4], f"{number(mine, 'ms'):.3f}",
                          f"{row['impl']} {row['version']}", what, f"{number(row, 'ms'):.3f}",
                          f"{number(row, 'ms') / number(mine, 'ms'):.2f}"))
    yield from table(("op", "dtype", "shape", "ours ms", "peer", "how", "peer ms", "ratio"), lines)


TOKENIZERS = """\
One thread; all take turns in one process, and ids are compared first. `english` is a text of one megabyte, `mixed` \
has code and twenty scripts too. Ratios above 1: Tegula is faster."""


def tokenizer_section(cases):
    found = sorted((case, rows) for case, rows in cases.items() if case[0] == "text")
    if not found:
        return
    yield "## Tokenizers"
    yield ""
    yield TOKENIZERS
    yield ""
    lines = []
    for case, rows in found:
        mine = number(ours_of(rows), "ms")
        for row in rows:
            rate = f"{1e3 * number(row, 'gbps'):.1f}" if case[2] == "encode" else ""
            lines.append((f"{WORDS[case[2]]} {case[4]}", f"{row['impl']} {row['version']}", f"{number(row, 'ms'):.1f}", rate,
                          f"{number(row, 'ms') / mine:.2f}"))
    yield from table(("case", "by", "ms", "MB/s", "time over ours"), lines)


def setting_of(row):
    """How a peer was called, where its configuration says more than sets of arrays and how they were timed."""
    words = " ".join(row["config"].split()[2:])
    return f" ({words})" if words else ""


def with_settings(rows, name_of):
    """(name, row); a name that stands more than once says the setting, too."""
    names = [name_of(row) for row in rows]
    return [(name + (setting_of(row) if names.count(name) > 1 else ""), row) for name, row in zip(names, rows)]


def beside(rows):
    """The peers' times in us, and over ours."""
    mine = number(ours_of(rows), "ms")
    return ", ".join(f"{name} {1e3 * number(row, 'ms'):.1f} ({number(row, 'ms') / mine:.2f})"
                     for name, row in with_settings(peers_of(rows), newest_runs.named))


def rates(row):
    """GB/s; TFLOP/s where an op computes more than it moves, so that a copy is no roof."""
    computes = not row["roof"] and number(row, "tflops")
    return f"{number(row, 'gbps'):.0f}", f"{number(row, 'tflops'):.0f}" if computes else ""


GPU = """\
Times on the GPU, in one process and in turn, of calls in a CUDA graph on several sets of arrays, \
together larger than its caches; results are compared with PyTorch's first. `of copy` is the share \
of a kernel that copies the same bytes, half read, half written. `host us` is the time of a call \
on the host, ours through Python's ctypes. Ratios above 1: Tegula is faster. [How the kernels \
work](kernels/README.md)."""


def gpu_section(cases, card):
    found = sorted(item for item in cases.items() if item[0][0].split()[0] == "gpu")
    if not found:
        return
    yield f"## Ops on a GPU beside a copy and their peers{card}"
    yield ""
    yield GPU
    yield ""
    lines = []
    for case, rows in found:
        mine = ours_of(rows)
        share = f"{number(mine, 'roof_share'):.1%}" if mine["roof"] else ""
        memory = [f"{name} {number(row, 'peak_bytes') / 1e9:.2f}"
                  for name, row in with_settings([row for row in rows if row["peak_bytes"]], lambda row: row["impl"])]
        lines.append((f"{case[1]} {case[2]}{how_run(case[0])}", case[3], case[4], f"{1e3 * number(mine, 'ms'):.1f}",
                      *rates(mine), share, f"{number(mine, 'host_us'):.1f}", beside(rows),
                      ", ".join(memory)))
    yield from table(("op", "dtype", "shape", "us", "GB/s", "TFLOP/s", "of copy", "host us",
                      "peers us (over ours)", "extra GB"), lines)
    seen = sorted({(row["device"], row["driver"], row["commit"], row["date"][:10],
                    f"torch {row['version']}") for rows in cases.values() for row in rows
                   if row["impl"] == "torch"})
    yield from table(("device", "driver", "commit", "date", "peers"),
                     [(a, b, f"`{c}`", d, e) for a, b, c, d, e in seen])


def where_section(cases):
    seen = sorted({(row["device"], row["driver"], row["commit"], row["date"][:10], row["config"]
                    .split()[0]) for case, rows in cases.items() if case[0] != "busy" for row in rows})
    yield "## The CPU machine"
    yield ""
    yield from table(("device", "system", "commit", "date", "threads"),
                     [(a, b, f"`{c}`", d, e.replace("threads=", "")) for a, b, c, d, e in seen])
    yield ("Absolute figures depend on the machine and its other load; shares and ratios are of one "
           "run. Nothing is recorded while other processes use more than 0.1 CPU, but for what is "
           "measured on a busy machine.")
    yield ""
    yield "```sh"
    yield "LLMC_DIR=... make bench                   # all of this, recorded; a checkout of llm.c"
    yield "build/release/bench/bench_ops --op linear # one op beside its roof"
    yield "export PYTHONPATH=python:bench            # for the programs below"
    yield "bench/baselines.py --op linear            # the same beside its peers"
    yield "bench/train_step.py --llmc DIR            # training steps beside llm.c and PyTorch"
    yield "bench/busy_machine.py --before DIR        # the pool of threads on a busy and an idle machine"
    yield "```"


CHARTS = (headline.CHART, "qwen3-0_6b_bf16_throughput", "qwen3-0_6b_bf16_memory")


def first_section(cases, gpu_cases):
    """What a user asks first: charts, then the main figures."""
    if gpu_cases:
        for name in CHARTS:
            yield from training_page.pictures(name)
    found = list(headline.main_figures(cases, gpu_cases))
    if found:
        yield "## Main figures"
        yield ""
        yield ("Training steps are forward, backward and AdamW; memory is the peak. Peers stand in "
               "the order of their time, each measured in the same run as ours.")
        yield ""
        yield from table(("what", "Tegula", "beside", "on, at commit"), found)


def files_of(gpu_rows):
    names = sorted({"h100" if "H100" in device else "h200" for device in newest_runs.of_cards(gpu_rows)}, reverse=True)
    return ", ".join(["`bench/results/cpu.csv`", *(f"`{name}.csv`" for name in names)])


def document(rows, gpu_rows):
    cases, gpu_cases = newest(rows), newest(gpu_rows)
    yield "# Performance"
    yield ""
    yield (f"`{PROGRAM}` writes this page from {files_of(gpu_rows)}, which the benchmarks "
           "append to; do not edit it. [How to run them](benchmarks.md); [targets, met and open](bars.md); "
           "[errors](accuracy.md).")
    yield ""
    yield from first_section(cases, gpu_cases)
    for number_of, (device, own) in enumerate(newest_runs.of_cards(gpu_rows).items()):
        card = f": {device}" if number_of else ""  # the first card's headings are what links name
        yield from training_page.sections(own, newest(own), card)
        yield from gpu_section(newest(own), card)
        yield from quantised_page.section(newest(own), card)
        yield from forward_page.attention_section(newest(own), card)
        yield from forward_page.forward_section(newest(own), card)
        yield from decode_page.section(newest(own), card)
    yield from step_section(cases)
    yield from roof_section(cases)
    yield from peer_section(cases)
    yield from tokenizer_section(cases)
    yield from where_section(cases)


def bars_document(rows, gpu_rows):
    yield "# Bars"
    yield ""
    yield (f"`{PROGRAM}` writes this page from {files_of(gpu_rows)}; do not edit it. A bar is "
           "a ratio within one run: ours beside a peer, or beside a roof, both measured in turn on one "
           "machine. It holds on any card; the newest run of any card judges it, and `on` names the card. "
           "An open bar stays here until it is met.")
    yield ""
    yield from bar_section(judge_cards(rows), "Bars on a CPU")
    if gpu_rows:
        yield from bar_section(judge_cards(gpu_rows, gpu_bars.BARS), "Bars on a GPU")


def main():
    parser = argparse.ArgumentParser(description="Writes docs/performance.md and docs/bars.md.")
    results = ROOT / "bench/results"
    parser.add_argument("--csv", type=pathlib.Path, default=results / "cpu.csv")
    parser.add_argument("--gpu-csv", type=pathlib.Path, nargs="*", default=results_csv.cards(results))
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/performance.md")
    parser.add_argument("--bars", type=pathlib.Path, default=ROOT / "docs/bars.md")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows = results_csv.read(options.csv)
    gpu_rows = [row for path in options.gpu_csv for row in results_csv.read(path)]
    if options.check:
        judged = judge_cards(rows) + (judge_cards(gpu_rows, gpu_bars.BARS) if gpu_rows else [])
        still_open = [line for line, _ in judged if not line[3]]
        for text, want, got, _ in still_open:
            print(f"open: {text}: {want} required, {got}")
        sys.exit(1 if still_open else 0)
    for path, page in ((options.out, document), (options.bars, bars_document)):
        path.write_text("\n".join(page(rows, gpu_rows)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
