#!/usr/bin/env python3
"""Decoding through layers of GPT-OSS 20B's geometry from MXFP4 on the CPU, as a share of the rate at which memory is read.

  expert_decode.py [--build DIR] [--layers 4] [--rounds 5] [--threads N] [--csv FILE] [--busy]

A directory with random blocks and a small vocabulary is written, `tegula bench decode` times a token on it, and in turn
bench_ops times the reading of 512 MiB of weights and a bare reading of as many. The share is the bytes that a token
needs at least (the weights of attention, router and head in bf16, and four experts of a layer in MXFP4) over the time of a
token, over the rate of the bare reading. Figures are medians of the rounds. With --csv the figures are recorded, on a quiet
machine only, or with --busy on any, which their configuration then says. It needs 2 GB of disk and 4 GB of memory.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "python"))
sys.path.insert(0, str(ROOT / "tests" / "python" / "runtime"))

import quiet  # noqa: E402
import results_csv  # noqa: E402
import tiny_gpt_oss  # noqa: E402

HIDDEN, INNER, HEADS, KV_HEADS, HEAD, EXPERTS, ACTIVE, VOCAB = 2880, 2880, 64, 8, 64, 32, 4, 1024
READ = "1x65536x8192"  # 512 MiB in int8, more than caches hold
MXFP4_BYTES = 17 / 32  # of a weight: half a byte, and a byte for 32


def make(directory, layers):
    tiny_gpt_oss.make(
        directory, hidden_size=HIDDEN, intermediate_size=INNER, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS, head_dim=HEAD,
        num_local_experts=EXPERTS, num_experts_per_tok=ACTIVE, num_hidden_layers=layers, vocab_size=VOCAB, sliding_window=128,
        max_position_embeddings=4096, layer_types=["sliding_attention", "full_attention"] * (layers // 2) + ["sliding_attention"] * (layers % 2),
    )  # fmt: skip


def bytes_of_token(layers):
    """Of the weights, which are all but everything at short lengths."""
    heads = HEAD * (2 * HEADS + 2 * KV_HEADS) * HIDDEN  # q and o, k and v
    experts = ACTIVE * 3 * HIDDEN * INNER * MXFP4_BYTES
    return layers * (2 * (heads + EXPERTS * HIDDEN) + experts) + 2 * VOCAB * HIDDEN


def token_seconds(build, directory, threads):
    command = [build / "src/cli/tegula", "bench", "decode", "--model", directory, "--steps", "20", "--threads", str(threads), "--json"]
    return 1e-3 * json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["ms"]


def read_rate(build, threads):
    """Bytes a second of the bare reading: bench_ops prints a product's rate and its share of that."""
    command = [build / "bench/bench_ops", "-o", "linear_int8", "-d", "f32", "-s", READ, "-t", str(threads), "-p", "3"]
    words = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()[-1].split()
    if words[8] != "read":
        raise RuntimeError(f"bench_ops: expected a share of read, got: {' '.join(words)}")
    return 1e9 * float(words[6]) / (1e-2 * float(words[9].rstrip("%")))


def commit_of(build):
    return subprocess.run([build / "bench/bench_ops", "--commit"], check=True, capture_output=True, text=True).stdout.strip()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "release")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--busy", action="store_true", help="measure and record although other processes run")
    options = parser.parse_args()
    tokens, rates = [], []
    with tempfile.TemporaryDirectory() as folder:
        directory = pathlib.Path(folder) / "model"
        make(directory, options.layers)
        load = quiet.Load()
        for _ in range(options.rounds):
            rates.append(read_rate(options.build, options.threads))
            tokens.append(token_seconds(options.build, directory, options.threads))
        others = load.others()
    moved, rate = bytes_of_token(options.layers), statistics.median(rates)
    share = moved / statistics.median(tokens) / rate
    case = {"op": "gpt-oss-20b", "dir": "decode", "dtype": "mxfp4", "shape": f"b1_layers{options.layers}"}
    config = f"threads={options.threads}{' busy' if others > quiet.LIMIT else ''}"
    row = dict(results_csv.row_of(case, "tegula", "0.1.0", config, tokens), bytes=int(moved), roof="read", roof_share=share,
               tokens_per_s=1 / statistics.median(tokens), note=f"other load {others:.2f}")  # fmt: skip
    print(f"{row['ms']:.2f} ms a token, {moved / 1e6:.0f} MB, reading at {rate / 1e9:.1f} GB/s: {share:.1%}; other load {others:.2f}")
    if options.csv and others > quiet.LIMIT and not options.busy:
        parser.exit(3, "not recorded: other processes are busy; stop them, or give --busy\n")
    results_csv.Run(options.csv, commit_of(options.build), "model").append([row])


if __name__ == "__main__":
    main()
