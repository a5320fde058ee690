#!/usr/bin/env python3
"""A training step of the runtime on a GPU as it is, and where no cublasLt can be opened: what a machine without it loses.

  without_cublaslt.py --build DIR [--preset qwen3-0.6b] [--model DIR] [--batch 4] [--seq 1024] [--rounds 3] [--csv FILE]
                      [--commit C]

--model names a directory with weights of the preset's shape, which are read in less time than new ones take to draw. Both
take turns, each round a process of its own. cublasLt is hidden by a library that is loaded first and whose dlopen finds
no such name; cc compiles it. Rows have the columns of bench/results: suite `runtime`, impl `tegula` and `no_cublaslt`."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import tempfile

import results_csv
from tegula_bench import gpu_state

HIDE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
void *dlopen(const char *name, int flags)
{
  static void *(*real)(const char *, int);
  if (!real) {
    real = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
  }
  return name && strstr(name, "cublasLt") ? NULL : real(name, flags);
}
"""


def hiding_library(folder):
    source, library = folder / "hide.c", folder / "hide.so"
    source.write_text(HIDE)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


def step_ms(options, preload):
    model = ["--model", options.model] if options.model else ["--preset", options.preset, "--vocab-size", "151936"]
    command = [options.build / "src/cli/tegula", "bench", "train", *model, "--dtype", "bf16", "--device", "cuda", "--batch", str(options.batch), "--seq", str(options.seq), "--steps", "10", "--json"]  # fmt: skip
    environment = {**os.environ, **({"LD_PRELOAD": str(preload)} if preload else {})}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])["ms"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--preset", default="qwen3-0.6b")
    parser.add_argument("--model")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    times = {"tegula": [], "no_cublaslt": []}
    with tempfile.TemporaryDirectory() as folder:
        library = hiding_library(pathlib.Path(folder))
        for number in range(options.rounds):
            for impl in sorted(times, reverse=number % 2 == 0):
                times[impl].append(step_ms(options, library if impl == "no_cublaslt" else None))
    median = {impl: statistics.median(found) for impl, found in times.items()}
    tokens = options.batch * options.seq
    rows = [dict(op=options.preset, dir="step", dtype="bf16", shape=f"b{options.batch}_s{options.seq}", impl=impl, version="0.1.0",
                 config="tegula bench train", ms=median[impl], ms_min=min(found), ms_max=max(found),
                 tokens_per_s=1e3 * tokens / median[impl]) for impl, found in times.items()]  # fmt: skip
    for row in rows:
        print(f"{row['op']} {row['shape']} {row['impl']:12} {row['ms']:8.2f} ms {row['tokens_per_s']:9.0f} tokens/s")
    print(f"without cublasLt at {median['tegula'] / median['no_cublaslt']:.3f} of the rate with it")
    results_csv.Run(options.csv, options.commit, "runtime", **gpu_state.where("cuda")).append(rows)


if __name__ == "__main__":
    main()
