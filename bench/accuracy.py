#!/usr/bin/env python3
"""Records the errors of Tegula's ops and of its peers against f64: on the CPU beside PyTorch, on
GPU 0 beside PyTorch and Liger-Kernel.

  accuracy.py [--device cpu|cuda] [--build DIR] [--op NAME] [--csv FILE]

The exact result is that of the reference backend on copies of the inputs in f64, on the host. An
error is a difference as a share of the largest magnitude of the exact output; the worst of all
draws of the inputs, and the mean of their medians: the worst element of one draw is a matter of
luck. Without --op and --csv the record is bench/results/accuracy_cpu.csv or accuracy_h200.csv, and
docs/accuracy.md is written from both. A case that fails is named, the others go on; exit status 1.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import os
import pathlib
import subprocess
import sys
import threading

import torch

import results_csv
from baselines import DTYPES, ROOT, as_list, build, run_saved
from gpu_providers import own_copy
from pages import accuracy_page
from peers import ACCURACY, liger_peers
from tegula_bench import gpu_state
from tegula_call import Library

DRAWS = 3
INCLUDE = ROOT / "include"


@dataclasses.dataclass(frozen=True)
class Case:
    name: str  # row of the op table
    shape: str
    dtype: str

    def __str__(self):
        return f"{self.name} {self.dtype} {self.shape}"


@dataclasses.dataclass
class Way:
    """A library, called in one way."""
    impl: str
    config: str
    version: str
    outputs: dict  # slot -> tensors on the host


# ---- a draw ----

def on_host(value):
    return [t.detach().to("cpu") for t in as_list(value)]


def widen(value):
    if isinstance(value, list):
        return [widen(v) for v in value]
    if isinstance(value, torch.Tensor):
        dtype = torch.float64 if value.is_floating_point() else value.dtype
        return value.to("cpu", dtype, copy=True)
    return value


def flat(tensors):
    return torch.cat([t.double().reshape(-1) for t in tensors])


def errors(got, exact):
    """(worst, median) over the elements."""
    exact = flat(exact)
    share = (flat(got) - exact).abs() / exact.abs().max().clamp_min(1e-300)
    return share.max().item(), share.median().item()


def liger_ways(case, problem, liger):
    """What Liger-Kernel cannot do is said, and left out."""
    op, direction = case.name.rsplit("_", 1)
    if not liger or not problem.formula:
        return
    # Its cross_entropy gives the gradient where others give the loss alone.
    known = [liger_peers.variants(liger, op, d, case.shape) for d in (direction, "fwd")]
    for config, function, _ in known[0] or known[1]:
        try:
            found = own_copy(problem.formula).caller(function)()
            yield Way("liger", config, liger_peers.version(),
                      {slot: on_host(value) for slot, value in found.items()})
        except Exception as error:  # a compiler's or the library's own: anything
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            print(f"{case}: without liger {config}: {reason[:120]}", file=sys.stderr)


def take_draw(case, seed, library, liger):
    """The fields in f64, and what everyone makes of them; ours first."""
    op, direction = case.name.rsplit("_", 1)
    with torch.device(library.device):
        problem = build(op, direction, case.shape, case.dtype, (), seed)
    if case.name == "attention_bwd":
        run_saved(library, op, problem.fields)
    library.wait()
    fields = {slot: widen(value) for slot, value in problem.fields.items()}
    theirs = (problem.same_rounding or problem.peers[0].run)()
    torch_way = Way("torch", "", torch.__version__,
                    {slot: on_host(value) for slot, value in theirs.items()})
    others = list(liger_ways(case, problem, liger))
    mine = library.call(case.name, problem.fields)
    mine()
    library.wait()
    ours = Way("tegula:" + library.entry, "", library.version,
               {slot: on_host(value) for slot, value in mine.outputs().items()})
    return fields, [ours, torch_way, *others]


# ---- errors, beside the draws ----

class Judge:
    """Computes exact results and errors in other threads, for a call holds no lock of Python's."""

    def __init__(self, path):
        self.path, self.local = path, threading.local()
        self.threads = len(os.sched_getaffinity(0))
        self.pool = concurrent.futures.ThreadPoolExecutor(self.threads)

    def submit(self, case, draws):
        return [self.pool.submit(self.errors_of, case, *draw) for draw in draws]

    def errors_of(self, case, fields, ways):
        """[(slot, impl, config, version, worst, median)], ours before the others' of each slot."""
        if not hasattr(self.local, "reference"):
            self.local.reference = Library(self.path, INCLUDE, 1, "REF")
        exact = self.local.reference.call(case.name, fields)
        exact()
        truth = {slot: as_list(value) for slot, value in exact.outputs().items()}
        return [(slot, way.impl, way.config, way.version, *errors(way.outputs[slot], truth[slot]))
                for slot in ways[0].outputs for way in ways if slot in way.outputs]


def rows_of(case, found, common):
    """Rows of a case from the errors of its draws."""
    both = {}
    for draw in found:
        for *key, worst, median in draw:
            both.setdefault(tuple(key), []).append((worst, median))
    return [dict(common, op=case.name, dtype=case.dtype, shape=case.shape, output=slot, impl=impl,
                 config=config, version=version, draws=len(values),
                 worst=max(worst for worst, _ in values),
                 median=sum(median for _, median in values) / len(values))
            for (slot, impl, config, version), values in both.items()]


def is_lost(library):
    """True if nothing more can be done on the device."""
    try:
        if library.device == "cuda":
            torch.cuda.synchronize()
    except RuntimeError as error:
        print(f"the device is lost: {error}", file=sys.stderr)
        return True
    return False


def measure(cases, library, liger, judge, common):
    """Yields the rows of each case, or None for one that failed."""
    waiting = collections.deque()

    def next_rows():
        case, futures = waiting.popleft()
        try:
            return rows_of(case, [future.result() for future in futures], common)
        except Exception as error:
            print(f"{case}: FAILED: {error}", file=sys.stderr)
            return None

    for case in cases:
        try:
            draws = [take_draw(case, seed, library, liger) for seed in range(1, 1 + DRAWS)]
        except Exception as error:  # ours, PyTorch's: anything
            print(f"{case}: FAILED: {error}", file=sys.stderr)
            yield None
            if is_lost(library):
                break
            continue
        waiting.append((case, judge.submit(case, draws)))
        if len(waiting) > 2 * judge.threads:
            yield next_rows()
    while waiting:
        yield next_rows()


# ---- the command ----

def cases_of(library, only):
    for name in library.names():
        op = name.rsplit("_", 1)[0]
        if only in (None, op, name):
            for shape in ACCURACY.get(name, ACCURACY.get(op, [])):
                for dtype in DTYPES:
                    yield Case(name, shape, dtype)


def commit_of(folder):
    try:
        return subprocess.run([folder / "bench/bench_ops", "--commit"], check=True,
                              capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def parse_options():
    parser = argparse.ArgumentParser(description="Records errors against f64.")
    parser.add_argument("--device", choices=accuracy_page.RECORDS, default="cpu")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--op", help="only this op (linear) or row (linear_bwd), printed alone")
    parser.add_argument("--csv", type=pathlib.Path, help="record here, and write no page")
    options = parser.parse_args()
    options.page = not options.op and not options.csv
    if options.page:
        options.csv = accuracy_page.RECORDS[options.device]
    return options


def print_rows(rows):
    for row in rows:
        print(f"{row['op']:28} {row['dtype']:4} {row['shape']:28} {row['output']:12} "
              f"{row['impl']:14} {row['worst']:8.2g} {row['median']:8.2g} {row['config']}".rstrip())
    sys.stdout.flush()


def main():
    options = parse_options()
    path, on_gpu = options.build / "src/libtegula.so", options.device == "cuda"
    try:
        library = Library(path, INCLUDE, 1 if on_gpu else 2, options.device.upper())
    except RuntimeError as error:  # no GPU, or a build without CUDA
        sys.exit(str(error))
    liger = liger_peers.load() if on_gpu else None
    device = gpu_state.name_and_driver()[0] if on_gpu else results_csv.device()
    common = dict(commit=commit_of(options.build), device=device)
    record = accuracy_page.Record(options.csv) if options.csv else None
    cases = list(cases_of(library, options.op))
    good = 0
    try:
        for rows in measure(cases, library, liger, Judge(path), common):
            if rows:
                good += 1
                if record:
                    record.put(rows)
                else:
                    print_rows(rows)
    finally:
        if options.page:
            accuracy_page.write_page()
    print(f"accuracy: {good} of {len(cases)} cases")
    sys.exit(0 if good == len(cases) else 1)


if __name__ == "__main__":
    main()
