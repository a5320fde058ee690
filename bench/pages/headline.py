#!/usr/bin/env python3
"""Writes README.md's table of training steps from bench/results/h200.csv, between the lines

  <!-- headline -->
  <!-- end of headline -->

Nothing stands there where the record holds no step of Qwen3-0.6B or 8B.

  headline.py [--csv FILE] [--readme FILE]
"""

import argparse
import pathlib
import re

import results_csv
from pages.bars import newest, number, ours_of, peers_of
from pages.markdown_table import table
from pages.training_bars import GIB

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- headline -->\n).*?(<!-- end of headline -->)", re.S)
CASES = [("qwen3-0.6b", "b4_s4096", "Qwen3-0.6B, 4 x 4096 tokens"),
         ("qwen3-8b", "b1_s4096", "Qwen3-8B, 1 x 4096"), ("qwen3-8b", "b1_s8192", "1 x 8192"),
         ("qwen3-8b", "b1_s16384", "1 x 16384"),
         ("qwen3-8b", "b1_s32768_ckpt", "1 x 32768, gradient checkpointing")]
NAMES = {"hf": "transformers", "compile": "torch.compile",
         "compile_kept": "torch.compile with attention's outputs kept", "liger": "Liger-Kernel",
         "liger_noflce": "Liger-Kernel without its fused loss"}


def figures(row):
    return (f"{number(row, 'tokens_per_s'):.0f} tokens/s, "
            f"{number(row, 'peak_bytes') / GIB:.1f} GiB")


def line_of(what, rows):
    """Ours, and each peer's best."""
    mine, theirs = ours_of(rows), {}
    for row in sorted(peers_of(rows), key=lambda row: -number(row, "ms")):
        theirs[row["impl"]] = row
    beside = "; ".join(f"{NAMES.get(impl, impl)} {figures(row)}" for impl, row in theirs.items())
    return what, figures(mine), beside


def lines(cases):
    found = [(what, cases[key]) for model, shape, what in CASES
             if (key := ("model", model, "step", "bf16", shape)) in cases]
    if not found:
        return
    device = ours_of(found[0][1])["device"]
    yield ""
    yield (f"Training steps of Hugging Face models on one {device}, bf16, AdamW, random weights, "
           "providers in turn in one run (`make bench-small`, `make bench-8b-seq`; [all of them, "
           "and plots](docs/performance.md#training-steps-on-a-gpu)):")
    yield ""
    yield from table(("step", "Tegula", "beside"), [line_of(*item) for item in found])


def filled(text, cases):
    block = "\n".join(lines(cases))
    return BLOCK.sub(lambda match: match.group(1) + block + "\n" * bool(block) + match.group(2),
                     text)


def main():
    parser = argparse.ArgumentParser(description="Writes README.md's table of training steps.")
    parser.add_argument("--csv", type=pathlib.Path, default=ROOT / "bench/results/h200.csv")
    parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "README.md")
    options = parser.parse_args()
    text = options.readme.read_text(encoding="utf-8")
    if not BLOCK.search(text):
        parser.error(f"{options.readme}: expected <!-- headline --> and <!-- end of headline -->")
    cases = newest(results_csv.read(options.csv))
    options.readme.write_text(filled(text, cases), encoding="utf-8")


if __name__ == "__main__":
    main()
