#!/usr/bin/env python3
"""What the pool of threads gives on a busy machine and costs on an idle one.

  busy_machine.py [--build DIR] [--before DIR] [--only busy|idle] [--case gpt-nano] [--minutes 4]
                  [--csv FILE] [--again]

busy  Beside as many busy processes as CPUs: training and decoding at the default number of threads
      and with --threads 1, in turn. The mean of all steps counts, since a step that stands still is
      rare and long. Needs no quiet machine.
idle  This build and the one in DIR (--before), whose loops run on OpenMP, in turn: GPT-2's step and
      decode, and memory-bound ops. Rounds in which other processes use more than 0.1 CPU are
      dropped. docs/lab/threads.md says how to make that build.

Each figure is the median of the rounds, each round a process of its own. Exit 0: the bars are met;
1: one is not; 3: too few rounds were quiet. With --csv the figures are recorded.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

import quiet
import results_csv

ROOT = pathlib.Path(__file__).resolve().parent.parent
LEAST_ROUNDS, MOST_ROUNDS = 3, 9
CPUS = len(os.sched_getaffinity(0))
HOG = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: pass"  # ends with this program


@dataclasses.dataclass(frozen=True)
class Case:
    op: str
    dir: str
    shape: str
    command: tuple  # arguments of tegula, or of bench_ops
    required: float

    @property
    def name(self):
        return f"{self.op} {self.dir} {self.shape}"


@dataclasses.dataclass(frozen=True)
class Side:
    """One of the two that are compared. threads 0: the default number."""
    impl: str
    build: pathlib.Path
    threads: int


def model(op, direction, shape, preset, steps, required):
    mode = "train" if direction == "step" else "decode"
    return Case(op, direction, shape, ("bench", mode, *preset.split(), "--steps", str(steps)), required)


def memory_bound(row, shape, required):
    command = ("--op", row, "--dtype", "f32", "--shape", shape, "--pairs", "5")
    return Case(*row.rsplit("_", 1), shape, command, required)


GPT2, NANO = "--preset gpt2", "--preset gpt_nano --vocab-size 256"
BUSY = [model("gpt2-124m", "step", "b4_s64", GPT2, 2, 0.9),
        model("gpt2-124m", "decode", "b1_s64", GPT2, 30, 0.9),
        model("gpt-nano", "step", "b4_s64", NANO, 200, 0.9),
        model("gpt-nano", "decode", "b1_s64", NANO, 10000, 0.9)]
IDLE = [model("gpt2-124m", "step", "b4_s64", GPT2, 5, 0.98),
        model("gpt2-124m", "decode", "b1_s64", GPT2, 60, 0.98),
        memory_bound("rms_norm_fwd", "16384x4096", 0.98),
        memory_bound("softmax_bwd", "16384x4096", 0.98),
        memory_bound("swiglu_fwd", "4096x12288", 0.98)]


# ---- running ----

def program(build, name):
    return next(path for path in (build / name, build / "src/cli" / name, build / "bench" / name)
                if path.is_file())


def seconds_of(case, side, key):
    """Seconds of a step: `key` of what tegula prints, or the median that bench_ops prints."""
    is_model = case.command[0] == "bench"
    command = [program(side.build, "tegula" if is_model else "bench_ops"), *case.command]
    command += ["--json"] if is_model else []
    command += ["--threads", str(side.threads)] if side.threads else []
    environment = {name: text for name, text in os.environ.items() if name != "OMP_NUM_THREADS"}
    last = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True, env=environment).stdout.splitlines()[-1]
    return 1e-3 * float(json.loads(last)[key] if is_model else last.split()[5])


@contextlib.contextmanager
def busy_processes(count):
    hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(count)]
    try:
        yield
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def take_turns(cases, sides, key, seconds, limit):
    """(case, side) -> seconds in each round, and the greatest load of others in a round that counts.
    A case's round with more load than `limit` is dropped."""
    samples = {(case, side): [] for case in cases for side in sides}
    start, greatest, longest = time.monotonic(), 0.0, 0.0
    for number in range(MOST_ROUNDS):
        begin = time.monotonic()
        if number >= LEAST_ROUNDS and begin - start + longest > seconds:
            break
        for case in cases:
            load = quiet.Load()
            found = [(side, seconds_of(case, side, key)) for side in sides[::-1 if number % 2 else 1]]
            others = load.others()
            if limit is None or others <= limit:
                greatest = max(greatest, others)
                for side, taken in found:
                    samples[case, side].append(taken)
            taken = ", ".join(f"{side.impl} {1e3 * seconds:.3f} ms" for side, seconds in found)
            print(f"# {case.name}: {taken}; load of others {others:.2f}", flush=True)
        longest = max(longest, time.monotonic() - begin)
    return samples, greatest


# ---- judging ----

def report(heading, cases, sides, samples):
    """Prints a line for each case; the exit status."""
    ours, theirs = sides
    print(f"\n{heading}: {ours.impl} beside {theirs.impl}")
    status = 0
    for case in cases:
        mine, other = samples[case, ours], samples[case, theirs]
        if len(mine) < LEAST_ROUNDS:
            print(f"{case.name:32} {len(mine)} quiet rounds of {LEAST_ROUNDS}")
            status = status or 3
            continue
        a, b = statistics.median(mine), statistics.median(other)
        met = b / a >= case.required
        print(f"{case.name:32} {1e3 * a:10.3f} ms {1e3 * b:10.3f} ms {b / a:7.3f}x of "
              f"{case.required}x, {len(mine)} rounds: {'met' if met else 'NOT MET'}")
        status = status if met else 1
    return status


def commit_of(build):
    return subprocess.run([program(build, "bench_ops"), "--commit"], check=True, text=True,
                          capture_output=True).stdout.strip()


def identity(case):
    return dict(op=case.op, dir=case.dir, dtype="f32", shape=case.shape)


def is_recorded(options, suite, cases, sides):
    """Whether the file holds all cases for this commit already."""
    rows = results_csv.read(options.csv) if options.csv and not options.again else []
    wanted = [side.impl for side in sides]
    commit = commit_of(options.build)
    return all(results_csv.recorded(rows, commit, {**identity(case), "suite": suite}, wanted)
               for case in cases)


def record(path, suite, cases, sides, samples, config, note):
    commits = [commit_of(side.build) for side in sides]
    run = results_csv.Run(path, commits[0], suite)
    for case in cases:
        if len(samples[case, sides[0]]) >= LEAST_ROUNDS:
            run.append([{**results_csv.row_of(identity(case), side.impl, commit,
                                              f"threads={side.threads or CPUS}{config}",
                                              samples[case, side]), "note": note}
                        for side, commit in zip(sides, commits)])


def measure_busy(options):
    cases = [case for case in BUSY if options.case in case.name]
    sides = [Side("tegula", options.build, 0), Side("one_thread", options.build, 1)]
    if is_recorded(options, "busy", cases, sides):
        print("busy: recorded already")
        return 0
    load = quiet.wait(0)
    with busy_processes(CPUS):
        samples, _ = take_turns(cases, sides, "ms_mean", options.seconds, None)
    status = report(f"Beside {CPUS} busy processes, load of others {load:.2f}", cases, sides, samples)
    if options.csv:
        record(options.csv, "busy", cases, sides, samples, f" busy={CPUS}", f"other load {load:.2f}")
    return status


def measure_idle(options):
    cases = [case for case in IDLE if options.case in case.name]
    sides = [Side("tegula", options.build, CPUS), Side("libgomp", options.before, CPUS)]
    if is_recorded(options, "pool", cases, sides):
        print("idle: recorded already")
        return 0
    load = quiet.wait(10)
    if load > quiet.LIMIT:
        print(f"\nidle: not measured: other processes use {load:.2f} CPUs, more than {quiet.LIMIT}")
        return 3
    samples, load = take_turns(cases, sides, "ms", options.seconds, quiet.LIMIT)
    status = report(f"Idle, load of others {load:.2f}", cases, sides, samples)
    if options.csv:
        record(options.csv, "pool", cases, sides, samples, "", f"other load {load:.2f}")
    return status


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--before", type=pathlib.Path, help="a build whose loops run on OpenMP")
    parser.add_argument("--only", choices=("busy", "idle"))
    parser.add_argument("--case", default="", help="only cases with this in their names")
    parser.add_argument("--minutes", type=float, default=4, help="for both parts together")
    parser.add_argument("--csv", type=pathlib.Path, help="record the figures here")
    parser.add_argument("--again", action="store_true", help="measure again what is recorded")
    options = parser.parse_args()
    options.parts = [options.only] if options.only else ["busy", "idle"]
    options.seconds = 60 * options.minutes / len(options.parts)
    if not any(options.case in case.name for case in BUSY + IDLE):
        parser.error(f"--case: expected one of {', '.join(case.name for case in BUSY + IDLE)}, got {options.case}")
    builds = [("--build", options.build)] + [("--before", options.before)] * ("idle" in options.parts)
    for flag, build in builds:
        if build is None or not (build / "bench/bench_ops").is_file():
            parser.error(f"{flag}: expected a build with bench_ops, got {build}")
    return options


def main():
    options = parse_options()
    measure = {"busy": measure_busy, "idle": measure_idle}
    found = [measure[part](options) for part in options.parts]
    sys.exit(1 if 1 in found else max(found))


if __name__ == "__main__":
    main()
