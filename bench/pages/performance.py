#!/usr/bin/env python3
"""Writes docs/performance.md from bench/results/cpu.csv and, if it is there, h200.csv: the bars,
met or open, and the figures.

  performance.py [--csv FILE] [--gpu-csv FILE] [--out FILE] [--check]

Each case shows the median run at its newest commit. --check writes nothing and exits 1 if a bar is open.
"""

import argparse
import pathlib
import sys

import results_csv
from pages import gpu_bars, training_page
from pages.bars import by_entry, judge, newest, number, ours_of, peers_of
from pages.markdown_table import table

ROOT = pathlib.Path(__file__).resolve().parents[2]


# ---- tables ----

def bar_section(lines, heading="Bars"):
    met = sum(line[3] for line in lines)
    yield f"## {heading}"
    yield ""
    yield f"{met} of {len(lines)} are met."
    yield ""
    yield from table(("bar", "required", "measured", "met"),
                     [(text, want, got, "yes" if ok else "**no**") for text, want, got, ok in lines])
    open_bars = [line for line in lines if not line[3]]
    if open_bars:
        yield "### Open"
        yield ""
        for text, want, got, _ in open_bars:
            yield f"- {text}: {want} required, {got}."
        yield ""


STEPS = ("Forward, backward and AdamW. Each provider is a process of its own; rounds in changing "
         "order, the first step of each process dropped, medians. bf16: f32 weights are kept "
         "beside; PyTorch runs under autocast.")


def step_section(cases):
    found = sorted((case, rows) for case, rows in cases.items() if case[0] == "model")
    if not found:
        return
    yield "## Training steps"
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
    yield "## Ops beside their roofs"
    yield ""
    yield ("`copy` moves bytes in the op's own mix of reads, writes and updates in place; `read` "
           "writes nothing; `fma_f32` and `dot_bf16` compute on registers. Bytes and flops are the "
           "least that the op can do with.")
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
    yield "## Ops beside their peers"
    yield ""
    yield ("One process, in turn, same threads, results compared first. PyTorch has a tuned "
           "allocator, so its figures hold no page faults of fresh results. Above 1: Tegula is "
           "faster.")
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


def beside(rows):
    """The peers' times in us, and over ours."""
    mine = number(ours_of(rows), "ms")
    return ", ".join(f"{row['impl']} {1e3 * number(row, 'ms'):.1f} "
                     f"({number(row, 'ms') / mine:.2f})" for row in peers_of(rows))


def rates(row):
    """GB/s; TFLOP/s where an op computes more than it moves, so that a copy is no roof."""
    computes = not row["roof"] and number(row, "tflops")
    return f"{number(row, 'gbps'):.0f}", f"{number(row, 'tflops'):.0f}" if computes else ""


def gpu_section(cases):
    yield "## Ops on a GPU beside a copy and their peers"
    yield ""
    yield ("Times on the GPU, in one process and in turn, of calls in a CUDA graph on several sets "
           "of arrays, together larger than its caches; results compared with PyTorch's first. The "
           "share is that of a kernel that copies the same bytes, half read, half written. `host` "
           "is what a call costs the host, ours through Python's ctypes. Above 1: Tegula is "
           "faster. [What each kernel does, its floor, what was tried](kernels/README.md).")
    yield ""
    lines = []
    for case, rows in sorted(item for item in cases.items() if item[0][0].split()[0] == "gpu"):
        mine = ours_of(rows)
        share = f"{number(mine, 'roof_share'):.1%}" if mine["roof"] else ""
        memory = [f"{row['impl']} {number(row, 'peak_bytes') / 1e9:.2f}" for row in rows
                  if row["peak_bytes"]]
        lines.append((f"{case[1]} {case[2]}{by_entry(case[0])}", case[3], case[4], f"{1e3 * number(mine, 'ms'):.1f}",
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
                    .split()[0]) for rows in cases.values() for row in rows})
    yield "## Where and how"
    yield ""
    yield from table(("device", "system", "commit", "date", "threads"),
                     [(a, b, f"`{c}`", d, e.replace("threads=", "")) for a, b, c, d, e in seen])
    yield ("Absolute figures depend on the machine and its neighbours; shares and ratios are of one "
           "run. Recording refuses when other processes use more than 0.1 CPU.")
    yield ""
    yield "```sh"
    yield "LLMC_DIR=... make bench                   # all of this, recorded; a checkout of llm.c"
    yield "build/release/bench/bench_ops --op linear # one op beside its roof"
    yield "export PYTHONPATH=python:bench            # for the programs below"
    yield "bench/baselines.py --op linear            # the same beside its peers"
    yield "bench/train_step.py --llmc DIR            # training steps beside llm.c and PyTorch"
    yield "```"


def document(rows, gpu_rows):
    cases, gpu_cases = newest(rows), newest(gpu_rows)
    files = "`bench/results/cpu.csv`" + (" and `h200.csv`" if gpu_cases else "")
    yield "# Performance"
    yield ""
    yield (f"Generated by `bench/pages/performance.py` from {files}, which the benchmarks "
           "write; do not edit.")
    yield ""
    yield from bar_section(judge(cases))
    if gpu_cases:
        yield from bar_section(judge(gpu_cases, gpu_bars.BARS), "Bars on a GPU")
        yield from gpu_section(gpu_cases)
        yield from training_page.sections(gpu_rows, gpu_cases)
    yield from step_section(cases)
    yield from roof_section(cases)
    yield from peer_section(cases)
    yield from where_section(cases)


def main():
    parser = argparse.ArgumentParser(description="Writes docs/performance.md.")
    parser.add_argument("--csv", type=pathlib.Path, default=ROOT / "bench/results/cpu.csv")
    parser.add_argument("--gpu-csv", type=pathlib.Path, default=ROOT / "bench/results/h200.csv")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/performance.md")
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    rows, gpu_rows = results_csv.read(options.csv), results_csv.read(options.gpu_csv)
    if options.check:
        lines = judge(newest(rows))
        if gpu_rows:
            lines += judge(newest(gpu_rows), gpu_bars.BARS)
        still_open = [line for line in lines if not line[3]]
        for text, want, got, _ in still_open:
            print(f"open: {text}: {want} required, {got}")
        sys.exit(1 if still_open else 0)
    options.out.write_text("\n".join(document(rows, gpu_rows)) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
