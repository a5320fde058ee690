#!/usr/bin/env python3
"""Times whole training steps: Tegula beside llm.c and PyTorch.

  train_step.py [--device cuda] [--llmc DIR] [--llmc-cuda PROGRAM] [--case NAME] [--build DIR]
                [--work DIR] [--rounds N] [--steps N] [--csv FILE] [--torch PYTHON]

DIR is a checkout of https://github.com/karpathy/llm.c (or LLMC_DIR names it); its train_gpt2.c is
built in the work folder with gcc -Ofast -march=native -fopenmp -DOMP, with validation and sampling
switched off, and gets random weights and random tokens. PROGRAM is its train_gpt2cu in bf16 with
cuDNN (or LLMC_CUDA names it). Every round starts each provider as a process of its own, in another
order; the first step of each is dropped. --torch names a Python that has PyTorch ("none": without
it). With --csv the figures are recorded, on a quiet machine only.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import llmc
import quiet
import results_csv
from tegula_bench import gpu_state

ROOT = pathlib.Path(__file__).resolve().parent.parent
TUNABLES = ("glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000:"
            "glibc.malloc.hugetlb=1")
TRIES = 3


@dataclasses.dataclass
class Case:
    """A step: the row's name, what to train, and who else can."""
    op: str
    dtype: str
    batch: int
    seq: int
    model: list  # options of tegula bench
    torch: list  # options of train_torch.py
    llmc: bool = False
    device: str = "cpu"

    @property
    def shape(self):
        return f"b{self.batch}_s{self.seq}"

    @property
    def name(self):
        return f"{self.op}:{self.shape}:{self.dtype}"


GPT2 = (["--preset", "gpt2"], [])
BYTES = (["--preset", "gpt_mini", "--vocab-size", "256"],
         ["--layers", "6", "--heads", "6", "--width", "192", "--vocab", "256", "--context", "256"])
CASES = [Case("gpt2-124m", "f32", 4, 64, *GPT2, llmc=True),
         Case("gpt2-124m", "bf16", 4, 64, *GPT2),
         Case("gpt-bytes", "f32", 16, 128, *BYTES),
         Case("gpt2-124m", "f32", 4, 256, *GPT2, llmc=True),
         Case("gpt2-124m", "bf16", 64, 1024, ["--preset", "gpt2", "--vocab-size", "50304"],
              ["--vocab", "50304", "--clip", "1"], device="cuda")]


# ---- providers: a command, and how to read its steps ----

def read_llmc(output):
    times = [float(ms) for ms in re.findall(r"^step \d+: .*\(took ([\d.]+) ms\)", output, re.M)]
    return {"steps": times[1:]}


def read_llmc_cuda(output):
    times = [float(ms) for ms in re.findall(r"^step +\d+/.*\| ([\d.]+) ms \|", output, re.M)]
    return {"steps": times[1:]}


def read_torch(output):
    lines = [json.loads(line) for line in output.splitlines()]
    return {"steps": [line["ms"] for line in lines], "version": lines[0]["version"],
            "peak_bytes": lines[-1].get("peak_bytes")}


def read_tegula(output):
    found = json.loads(output.splitlines()[-1])
    return {"steps": [found["ms"]], "range": (found["ms_min"], found["ms_max"]),
            "flops": found["gflops"] * 1e6 * found["ms"],
            "peak_bytes": found.get("device_peak_bytes")}


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
        self.peak = max(self.peak, found.get("peak_bytes") or peak)
        self.flops = found.get("flops", 0)
        self.version = found.get("version", self.version)


def torch_providers(case, options):
    command = [options.torch, ROOT / "bench/train_torch.py", *size_options(case, options),
               *case.torch]
    if case.device == "cuda":
        return [Provider("compile", "autocast", command + ["--bf16", "--compile"], read_torch)]
    tuned = {"GLIBC_TUNABLES": TUNABLES}
    if case.dtype == "f32":
        return [Provider("torch", "eager", command, read_torch),
                Provider("torch", "eager malloc=tuned", command, read_torch, environment=tuned)]
    command.append("--bf16")
    return [Provider("torch", "autocast malloc=tuned", command, read_torch, environment=tuned),
            Provider("compile", "autocast malloc=tuned", command + ["--compile"], read_torch,
                     environment=tuned)]


def size_options(case, options):
    return ["--batch", str(case.batch), "--seq", str(case.seq), "--steps", str(options.steps),
            "--threads", str(options.threads), "--device", case.device]


def providers_of(case, options, version):
    command = [options.tegula, "bench", "train", *case.model, *size_options(case, options),
               "--dtype", case.dtype, "--json"]
    found = [Provider("tegula", "", command, read_tegula, version=version)]
    if options.llmc and case.llmc:
        command = llmc.build_llmc(options.llmc, options.work, options.steps, case.seq)
        found.append(Provider("llm.c", "gcc -Ofast -march=native -fopenmp", command, read_llmc,
                              options.work, llmc.llmc_version(options.llmc)))
    if options.llmc_cuda and case.device == "cuda":
        command = llmc.cuda_command(options.llmc_cuda, options.work, options.steps, case.batch,
                                    case.seq)
        found.append(Provider("llm.c", "cudnn", command, read_llmc_cuda, options.work))
    if options.torch != "none":
        found += torch_providers(case, options)
    return found


# ---- rounds ----

def run_round(providers, order, options):
    """One process of each; False if others used the machine meanwhile and that matters."""
    results, load = [], quiet.Load()
    for i in order:
        time.sleep(0.5)
        found, peak = providers[i].run(options.threads)
        # of a process on a GPU the kernel's account does not hold what counts
        results.append((providers[i], (found, peak if options.device == "cpu" else 0)))
    others = load.others()
    if options.csv and options.device == "cpu" and others > quiet.LIMIT:
        print(f"# round dropped: other load {others:.2f}", file=sys.stderr)
        return None
    for provider, (found, peak) in results:
        provider.take(found, peak)
    return others


def row_of(case, provider, flops, threads, loads):
    ms = statistics.median(provider.steps)
    on_cpu = case.device == "cpu"
    where = f"threads={threads}" if on_cpu else ""
    clock = {} if on_cpu else {"clock_mhz": ""}  # that of the CPU would be meant
    return dict(op=case.op, dir="step", dtype=case.dtype, shape=case.shape,
                config=" ".join(filter(None, (where, "adamw", provider.config))), impl=provider.impl,
                version=provider.version, ms=ms, ms_min=min(provider.least),
                ms_max=max(provider.most), bytes=0, flops=flops,
                tokens_per_s=case.batch * case.seq / ms * 1e3, peak_bytes=provider.peak or "",
                note=f"other load {max(loads):.2f}" if on_cpu else "", **clock)


def parse_options():
    parser = argparse.ArgumentParser(description="Whole training steps beside their peers.")
    parser.add_argument("--case", help="only this one: " + ", ".join(case.name for case in CASES))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--llmc", type=pathlib.Path, default=os.environ.get("LLMC_DIR"),
                        help="checkout of llm.c (LLMC_DIR)")
    parser.add_argument("--llmc-cuda", type=pathlib.Path, default=os.environ.get("LLMC_CUDA"),
                        help="its train_gpt2cu, with cuDNN (LLMC_CUDA)")
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
    if options.case and options.case not in [case.name for case in CASES]:
        parser.error(f"--case: no case {options.case}")
    if options.llmc:
        options.llmc = pathlib.Path(options.llmc)
        if not (options.llmc / "train_gpt2.c").exists():
            parser.error(f"--llmc: expected a folder with train_gpt2.c, got {options.llmc}")
    if options.llmc_cuda:
        options.llmc_cuda = pathlib.Path(options.llmc_cuda).resolve()
        if not options.llmc_cuda.is_file():
            parser.error(f"--llmc-cuda: expected a program, got {options.llmc_cuda}")
    options.tegula = options.build / "tegula"
    if not options.tegula.exists():
        options.tegula = options.build / "src/cli/tegula"
    if not options.tegula.exists():
        parser.error(f"--build: expected a build of tegula, got {options.build}")
    return options


def time_case(case, options, run, version, commit):
    """Measures one case and prints it; recorded once all rounds were quiet."""
    providers = providers_of(case, options, version)
    identity = dict(suite="model", op=case.op, dir="step", dtype=case.dtype, shape=case.shape)
    if options.csv and not options.again and results_csv.recorded(
            results_csv.read(options.csv), commit, identity, [p.impl for p in providers]):
        print(f"{case.name}: recorded already")
        return
    loads, tries = [], 0
    while len(loads) < options.rounds and tries < options.rounds * TRIES:
        order = [(i + tries) % len(providers) for i in range(len(providers))]
        others = run_round(providers, order if tries % 2 == 0 else order[::-1], options)
        loads += [] if others is None else [others]
        tries += 1
    if len(loads) < options.rounds:
        sys.exit(f"{case.name}: not recorded: other processes use more than {quiet.LIMIT} CPUs")
    flops = next(p.flops for p in providers if p.impl == "tegula")
    rows = [row_of(case, p, flops, options.threads, loads) for p in providers]
    print(f"## {case.name}")
    for row in rows:
        memory = f"{row['peak_bytes'] / 1e9:6.2f} GB" if row["peak_bytes"] else " " * 9
        print(f"{row['impl']:8} {row['config']:52} {row['ms']:9.1f} ms {row['tokens_per_s']:9.1f} "
              f"tok/s {memory} {row['ms'] / rows[0]['ms']:6.2f}x")
    sys.stdout.flush()
    run.append(rows)


def main():
    options = parse_options()
    commit = subprocess.run([options.build / "bench/bench_ops", "--commit"], check=True,
                            capture_output=True, text=True).stdout.strip()
    version = subprocess.run([options.tegula, "--version"], check=True, capture_output=True,
                             text=True).stdout.split()[-1]
    on_cpu, load, where = options.device == "cpu", 0.0, {}
    if on_cpu:
        load = quiet.wait(20 if options.csv else 0)
        if load > quiet.LIMIT and options.csv:
            sys.exit(f"not recorded: other processes use {load:.2f} CPUs, more than {quiet.LIMIT}")
    else:
        where = gpu_state.where("cuda")
    for case in CASES:
        if case.device == options.device and options.case in (None, case.name):
            run = results_csv.Run(options.csv, commit, "model", **where)
            print(f"# {run.common['device']}; {options.threads} threads; commit {commit}; other "
                  f"load {load:.2f}")
            time_case(case, options, run, version, commit)


if __name__ == "__main__":
    main()
