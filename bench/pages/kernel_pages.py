#!/usr/bin/env python3
"""Writes the figures on the pages of docs/kernels/: between the lines

  <!-- figures: rms_norm add_rms_norm -->
  <!-- end of figures -->

stands what bench/results/h200.csv and h100.csv hold of these ops, card by card, each case beside
its floor.

  kernel_pages.py [--csv FILE...] [--pages DIR]
"""

import argparse
import pathlib
import re

import results_csv
from pages.bars import how_run, newest, number, ours_of
from pages.markdown_table import table
from pages.performance import ROOT, beside
from tegula_bench.results import newest_runs

BYTES_PER_S = 4.2e12  # of a kernel that copies, on an H200
FLOPS_PER_S = 790e12  # of dense bf16 products, on an H200
FLOPS_PER_S_OF_8_BITS = 1390e12  # of products of two 8-bit operands: the fastest in the record, e4m3 by cuBLAS
FIGURES = re.compile(r"(<!-- figures: ([\w ]+) -->\n).*?(<!-- end of figures -->)", re.S)


def flops_per_s(row):
    """The rate at which tensor cores multiply what the op multiplies."""
    of_8_bits = row["op"] == "linear_fp8_fp8" or (row["op"] == "linear_int8" and "dynamic" in row["shape"].split("_"))
    return FLOPS_PER_S_OF_8_BITS if of_8_bits else FLOPS_PER_S


def floor_us(row):
    """The least time for the fewest bytes and flops that the op can do with; None on an H100, whose rates are others."""
    if "H100" in row["device"]:
        return None
    return 1e6 * max(number(row, "bytes") / BYTES_PER_S, number(row, "flops") / flops_per_s(row))


def amount(value, digits):
    """Without an exponent: so many digits of it, or all before the point."""
    return f"{value:.0f}" if value >= 1000 else f"{value:.{digits}g}"


def line_of(case, rows):
    mine = ours_of(rows)
    us, floor = 1e3 * number(mine, "ms"), floor_us(mine)
    share = f"{number(mine, 'roof_share'):.1%}" if mine["roof"] else ""
    return (" ".join(case[1:]) + how_run(case[0]), amount(number(mine, "bytes") / 1e6, 4),
            amount(number(mine, "flops") / 1e9, 3), f"{floor:.1f}" if floor else "", f"{us:.1f}",
            f"{floor / us:.0%}" if floor else "", share, beside(rows))


def figures(cards, ops):
    """Lines for the ops, card by card, in the record's order."""
    yield ""
    for op in ops:
        if not any(case[1] == op for cases in cards for case in cases):
            yield f"Of `{op}` the record holds nothing on a GPU."
            yield ""
    for cases in cards:
        found = [(case, rows) for case, rows in cases.items() if case[1] in ops]
        if not found:
            continue
        yield from table(("case", "MB", "GFLOP", "floor us", "us", "of floor", "of copy",
                          "peers us (over ours)"), [line_of(case, rows) for case, rows in found])
        seen = sorted({(mine["device"], mine["commit"]) for mine in (ours_of(r) for _, r in found)})
        yield "; ".join(f"{device}, commit `{commit}`" for device, commit in seen) + "."
        yield ""


def times_of_the_gpu(cases):
    """Those of the suites "gpu", "gpu ENTRY" and "gpu overlap"; another one, "host", has times of the host."""
    return {case: rows for case, rows in cases.items() if case[0].split()[0] == "gpu"}


def page_with_figures(text, *cards):
    """cards: the cases of each."""
    on_gpu = [times_of_the_gpu(cases) for cases in cards]

    def filled(match):
        lines = "\n".join(figures(on_gpu, match.group(2).split()))
        return f"{match.group(1)}{lines}\n{match.group(3)}"
    return FIGURES.sub(filled, text)


def main():
    parser = argparse.ArgumentParser(description="Writes the figures of docs/kernels/.")
    parser.add_argument("--csv", type=pathlib.Path, nargs="*", default=results_csv.cards(ROOT / "bench/results"))
    parser.add_argument("--pages", type=pathlib.Path, default=ROOT / "docs/kernels")
    options = parser.parse_args()
    rows = [row for path in options.csv for row in results_csv.read(path)]
    cards = [newest(own) for own in newest_runs.of_cards(rows).values()]
    for page in sorted(options.pages.glob("*.md")):
        page.write_text(page_with_figures(page.read_text(encoding="utf-8"), *cards),
                        encoding="utf-8")


if __name__ == "__main__":
    main()
