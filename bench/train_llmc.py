#!/usr/bin/env python3
"""Times a GPT-2 124M training step (4 x 64 tokens, f32): Tegula beside llm.c and PyTorch.

  train_llmc.py --llmc DIR [--build DIR] [--work DIR] [--rounds N] [--steps N] [--csv FILE]
                [--torch PYTHON]

DIR is a checkout of https://github.com/karpathy/llm.c (or LLMC_DIR names it); its train_gpt2.c is
built in the work folder with gcc -Ofast -march=native -fopenmp -DOMP, with validation and sampling
switched off, and gets random weights and random tokens. Every round starts each provider as a
process of its own, in another order; the first step of each is dropped. --torch names a Python that
has PyTorch ("none": without it). With --csv the figures are recorded, on a quiet machine only.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import quiet
import results_csv

ROOT = pathlib.Path(__file__).resolve().parent.parent
TUNABLES = ("glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000:"
            "glibc.malloc.hugetlb=1")
BATCH, SEQ = 4, 64
LAYERS, HEADS, WIDTH, VOCAB, PADDED, CONTEXT = 12, 12, 768, 50257, 50304, 1024
TRIES = 3


# ---- llm.c ----

def write_blocks(f, count, make):
    """`count` values in pieces, so that the file need not fit in memory twice."""
    while count > 0:
        piece = min(count, 1 << 22)
        f.write(make(piece))
        count -= piece


def write_checkpoint(path):
    """llm.c's format, version 3: 256 int32, then every parameter in f32; random weights."""
    from array import array
    from random import Random
    random = Random(1)
    normal = array("f", (random.gauss(0, 0.02) for _ in range(65521)))  # prime: rows differ
    ones = array("f", [1.0]) * WIDTH
    header = array("i", [20240326, 3, CONTEXT, VOCAB, LAYERS, HEADS, WIDTH, PADDED] + [0] * 248)

    def weights(n):
        return (normal * (n // len(normal) + 1))[:n].tobytes()

    def gains(n):
        return (ones * (n // WIDTH))[:n].tobytes()

    def zeros(n):
        return bytes(4 * n)

    w, deep = WIDTH, LAYERS
    parts = [(PADDED * w, weights), (CONTEXT * w, weights), (deep * w, gains), (deep * w, zeros),
             (deep * 3 * w * w, weights), (deep * 3 * w, zeros), (deep * w * w, weights),
             (deep * w, zeros), (deep * w, gains), (deep * w, zeros), (deep * 4 * w * w, weights),
             (deep * 4 * w, zeros), (deep * 4 * w * w, weights), (deep * w, zeros), (w, gains),
             (w, zeros)]
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as f:
        f.write(header.tobytes())
        for count, make in parts:
            write_blocks(f, count, make)
    unfinished.rename(path)


def write_tokens(path, count, seed):
    """llm.c's format, version 1: 256 int32, then the ids in uint16."""
    from array import array
    from random import Random
    random = Random(seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    header = array("i", [20240520, 1, count] + [0] * 253)
    ids = array("H", (random.randrange(VOCAB) for _ in range(count)))
    path.write_bytes(header.tobytes() + ids.tobytes())


# In main() of train_gpt2.c: how often it validates and samples, and how many steps it takes.
CHANGES = [("if (step % 10 == 0)", "if (0)"), ("if (step > 0 && step % 20 == 0)", "if (0)"),
           ("step <= 40", "step < TIMED_STEPS")]


def build_llmc(source, work, steps):
    text = (source / "train_gpt2.c").read_text()
    for old, new in CHANGES:
        if text.count(old) != 1:
            sys.exit(f"{source}/train_gpt2.c: expected `{old}` once; another version of llm.c?")
        text = text.replace(old, new)
    work.mkdir(parents=True, exist_ok=True)
    (work / "train_gpt2.c").write_text(text)
    flags = ["-Ofast", "-march=native", "-fopenmp", "-DOMP", "-w", f"-DTIMED_STEPS={steps + 1}"]
    subprocess.run(["gcc", *flags, "-I", source, "train_gpt2.c", "-o", "train_gpt2", "-lm"],
                   cwd=work, check=True)
    if not (work / "gpt2_124M.bin").exists():
        print("# writing a random checkpoint for llm.c", file=sys.stderr)
        write_checkpoint(work / "gpt2_124M.bin")
    for name, count, seed in (("train", 200000, 1), ("val", 20000, 2)):
        write_tokens(work / f"dev/data/tinyshakespeare/tiny_shakespeare_{name}.bin", count, seed)


def llmc_version(source):
    for command in (["git", "-C", source, "rev-parse", "--short", "HEAD"],):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        top = subprocess.run(["git", "-C", source, "rev-parse", "--show-toplevel"],
                             capture_output=True, text=True, check=False)
        if done.returncode == 0 and pathlib.Path(top.stdout.strip()) == source.resolve():
            return done.stdout.strip()
    return ""


# ---- providers: a command, and how to read its steps ----

def read_llmc(output):
    times = [float(ms) for ms in re.findall(r"^step \d+: .*\(took ([\d.]+) ms\)", output, re.M)]
    return {"steps": times[1:]}


def read_torch(output):
    lines = [json.loads(line) for line in output.splitlines()]
    return {"steps": [line["ms"] for line in lines], "version": lines[0]["version"]}


def read_tegula(output):
    found = json.loads(output.splitlines()[-1])
    return {"steps": [found["ms"]], "range": (found["ms_min"], found["ms_max"]),
            "flops": found["gflops"] * 1e6 * found["ms"], "peak_bytes": found["peak_bytes"]}


class Provider:
    def __init__(self, impl, config, command, read, cwd=None, version="", environment=None):
        self.impl, self.config, self.command, self.read = impl, config, command, read
        self.cwd, self.version, self.environment = cwd, version, environment or {}
        self.steps, self.least, self.most, self.peak, self.flops = [], [], [], 0, 0

    def run(self, threads):
        """Runs to the end; returns what was read. Peak memory is the kernel's account."""
        environment = dict(os.environ, OMP_NUM_THREADS=str(threads), **self.environment)
        with subprocess.Popen(self.command, cwd=self.cwd, env=environment, text=True,
                              stdout=subprocess.PIPE) as process:
            output = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            sys.exit(f"{self.impl}: {' '.join(map(str, self.command))}: exit {process.returncode}")
        return self.read(output), usage.ru_maxrss * 1024

    def take(self, found, peak):
        steps = found["steps"]
        if not steps:
            sys.exit(f"{self.impl}: no step in its output")
        self.steps += steps
        least, most = found.get("range", (min(steps), max(steps)))
        self.least.append(least)
        self.most.append(most)
        self.peak = max(self.peak, found.get("peak_bytes", peak), peak)
        self.flops = found.get("flops", 0)
        self.version = found.get("version", self.version)


def providers_of(options, version):
    both = ["--batch", str(BATCH), "--seq", str(SEQ), "--steps", str(options.steps)]
    found = [Provider("tegula", "", [options.tegula, "bench", "train", "--preset", "gpt2", *both,
                                     "--threads", str(options.threads), "--json"], read_tegula,
                      version=version)]
    if options.llmc:
        build_llmc(options.llmc, options.work, options.steps)
        found.append(Provider("llm.c", "gcc -Ofast -march=native -fopenmp", ["./train_gpt2"],
                              read_llmc, options.work, llmc_version(options.llmc)))
    if options.torch != "none":
        command = [options.torch, ROOT / "bench/train_torch.py", *both, "--threads",
                   str(options.threads)]
        found.append(Provider("torch", "eager", command, read_torch))
        found.append(Provider("torch", "eager malloc=tuned", command, read_torch,
                              environment={"GLIBC_TUNABLES": TUNABLES}))
    return found


# ---- rounds ----

def run_round(providers, order, options):
    """One process of each; False if others used the machine meanwhile and that matters."""
    results, load = [], quiet.Load()
    for i in order:
        time.sleep(0.5)
        results.append((providers[i], providers[i].run(options.threads)))
    others = load.others()
    if options.csv and others > quiet.LIMIT:
        print(f"# round dropped: other load {others:.2f}", file=sys.stderr)
        return None
    for provider, (found, peak) in results:
        provider.take(found, peak)
    return others


def row_of(provider, flops, threads, loads):
    ms = statistics.median(provider.steps)
    return dict(op="gpt2-124m", dir="step", dtype="f32", shape=f"b{BATCH}_s{SEQ}",
                config=f"threads={threads} adamw {provider.config}".strip(), impl=provider.impl,
                version=provider.version, ms=ms, ms_min=min(provider.least),
                ms_max=max(provider.most), bytes=0, flops=flops,
                tokens_per_s=BATCH * SEQ / ms * 1e3, peak_bytes=provider.peak,
                note=f"other load {max(loads):.2f}")


def parse_options():
    parser = argparse.ArgumentParser(description="GPT-2 124M training step beside its peers.")
    parser.add_argument("--llmc", type=pathlib.Path, default=os.environ.get("LLMC_DIR"),
                        help="checkout of llm.c (LLMC_DIR)")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--work", type=pathlib.Path, help="where llm.c is built and run",
                        default=pathlib.Path.home() / ".cache/tegula/llmc")
    parser.add_argument("--torch", default=sys.executable, help="Python with PyTorch, or none")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each process")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--csv", type=pathlib.Path, help="record the figures here")
    parser.add_argument("--again", action="store_true", help="measure again what is recorded")
    options = parser.parse_args()
    if options.llmc:
        options.llmc = pathlib.Path(options.llmc)
        if not (options.llmc / "train_gpt2.c").exists():
            parser.error(f"--llmc: expected a folder with train_gpt2.c, got {options.llmc}")
    options.tegula = options.build / "tegula"
    if not options.tegula.exists():
        options.tegula = options.build / "src/cli/tegula"
    if not options.tegula.exists():
        parser.error(f"--build: expected a build of tegula, got {options.build}")
    return options


def main():
    options = parse_options()
    commit = subprocess.run([options.build / "bench/bench_ops", "--commit"], check=True,
                            capture_output=True, text=True).stdout.strip()
    version = subprocess.run([options.tegula, "--version"], check=True, capture_output=True,
                             text=True).stdout.split()[-1]
    providers = providers_of(options, version)
    run = results_csv.Run(options.csv, commit, "model")
    case = dict(suite="model", op="gpt2-124m", dir="step", dtype="f32", shape=f"b{BATCH}_s{SEQ}")
    if options.csv and not options.again and results_csv.recorded(
            results_csv.read(options.csv), commit, case, [p.impl for p in providers]):
        print("gpt2-124m step: recorded already")
        return
    load = quiet.wait(20 if options.csv else 0)
    print(f"# {run.common['device']}; {options.threads} threads; commit {commit}; other load "
          f"{load:.2f}")
    if load > quiet.LIMIT and options.csv:
        sys.exit(f"not recorded: other processes use {load:.2f} CPUs, more than {quiet.LIMIT}")
    loads, tries = [], 0
    while len(loads) < options.rounds and tries < options.rounds * TRIES:
        order = [(i + tries) % len(providers) for i in range(len(providers))]
        others = run_round(providers, order if tries % 2 == 0 else order[::-1], options)
        loads += [] if others is None else [others]
        tries += 1
    if len(loads) < options.rounds:
        sys.exit(f"not recorded: other processes use more than {quiet.LIMIT} CPUs")
    flops = next(p.flops for p in providers if p.impl == "tegula")
    rows = [row_of(p, flops, options.threads, loads) for p in providers]
    for row in rows:
        print(f"{row['impl']:8} {row['config']:52} {row['ms']:9.1f} ms {row['tokens_per_s']:7.1f} "
              f"tok/s {row['peak_bytes'] / 1e9:6.2f} GB {row['ms'] / rows[0]['ms']:6.2f}x")
    run.append(rows)


if __name__ == "__main__":
    main()
