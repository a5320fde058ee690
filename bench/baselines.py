#!/usr/bin/env python3
"""Times Tegula's ops beside their peers (PyTorch, oneDNN through it, OpenBLAS) in one process.

  baselines.py [--build DIR] [--op NAME] [--dtype f32] [--shape S] [--threads N] [--pairs N]
               [--csv FILE] [--again]

Shapes are those of bench_ops. Results are compared before anything is timed; then all take turns,
in an order that changes, and figures are medians. PyTorch gets a tuned allocator (GLIBC_TUNABLES),
which spares it the page faults of fresh result tensors. With --csv the figures are recorded, on a
quiet machine only.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

TUNABLES = ("glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1000000000000:"
            "glibc.malloc.hugetlb=1")
if __name__ == "__main__" and os.environ.get("GLIBC_TUNABLES") != TUNABLES:
    os.environ["GLIBC_TUNABLES"] = TUNABLES  # read by the C library when a process starts
    os.execv(sys.executable, [sys.executable, *sys.argv])

import torch  # noqa: E402

import peers as peers_of  # noqa: E402
from peers.linear_peers import openblas_libraries  # noqa: E402
import quiet  # noqa: E402
import results_csv  # noqa: E402
from shape_words import NotServed, Words  # noqa: E402
from tegula_call import Library  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
# Largest difference over largest value: catches a peer that computes something else. Exact errors
# are docs/accuracy.md's business.
TOLERANCE = {"f32": 1e-4, "f16": 2e-2, "bf16": 6e-2}
SAMPLE = 0.03  # seconds
TRIES = 3


def build(op, direction, shape, dtype, blas, seed=1):
    """By the builder of the row, else of the op."""
    extra = {"blas": blas} if op == "linear" else {}
    builder = peers_of.BUILDERS.get(f"{op}_{direction}") or peers_of.BUILDERS[op]
    torch.manual_seed(seed)
    return builder(Words(shape), direction == "bwd", DTYPES[dtype], **extra)


def as_list(value):
    return value if isinstance(value, list) else [value]


def run_saved(library, op, call_fields):
    """A backward of attention needs what the forward saves; the other ops' builders compute it."""
    wanted = ("q", "k", "v", "sinks", "out", "lse", "scale", "causal", "window", "cu_seqlens_q",
              "cu_seqlens_k")
    library.call(op + "_fwd", {name: call_fields[name] for name in wanted if name in call_fields})()


def compare(case, mine, peer, theirs, tolerance):
    for slot, value in theirs.items():
        if slot not in mine:
            continue
        for a, b in zip(as_list(mine[slot]), as_list(value)):
            a, b = a.double(), b.double()
            error = ((a - b).abs().max() / b.abs().max().clamp_min(1e-30)).item()
            if not error <= tolerance:
                raise RuntimeError(f"{case['op']} {case['dir']} {case['shape']}: {slot} differs "
                                   f"from {peer.impl} {peer.config}: {error:.2g} of the largest")


def time_calls(function, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return (time.perf_counter() - start) / calls


def time_in_turn(functions, pairs):
    """Samples of each function; who begins changes. A pause lets the others' threads go to sleep."""
    calls = []
    for function in functions:
        function()
        calls.append(max(1, round(SAMPLE / max(time_calls(function, 1), 1e-7))))
    samples = [[] for _ in functions]
    for pair in range(pairs):
        for step in range(len(functions)):
            i = (pair + step) % len(functions)
            time.sleep(0.005)
            if calls[i] > 1:
                functions[i]()
            samples[i].append(time_calls(functions[i], calls[i]))
    return samples


def measure(case, problem, library, pairs, config):
    call = library.call(f"{case['op']}_{case['dir']}", problem.fields)
    load = quiet.Load()
    call()
    mine = {slot: [t.clone() for t in as_list(v)] for slot, v in call.outputs().items()}
    for peer in problem.peers:
        compare(case, mine, peer, peer.run(), problem.tolerance or TOLERANCE[case["dtype"]])
    del mine
    samples = time_in_turn([call] + [peer.run for peer in problem.peers], pairs)
    rows = [results_csv.row_of(case, f"tegula:{library.entry}", library.version, config, samples[0])]
    for peer, taken in zip(problem.peers, samples[1:]):
        full = f"{config} {peer.config}".strip()
        rows.append(results_csv.row_of(case, peer.impl, peer.version, full, taken))
        if peer.extra_bytes:
            rows[0]["peak_bytes"], rows[-1]["peak_bytes"] = call.workspace_bytes, peer.extra_bytes()
    others = load.others()
    for row in rows:
        row["note"] = f"other load {others:.2f}"
    return rows, others


def report(case, rows):
    ours = rows[0]["ms"]
    name = f"{case['op']} {case['dir']} {case['dtype']} {case['shape']}"
    print(f"{name:48} {rows[0]['impl']:16} {ours:10.3f} ms")
    if rows[0].get("peak_bytes"):
        print(f"{'':48} extra memory: " + ", ".join(
            f"{row['impl']} {row['peak_bytes'] / 1e6:.0f} MB" for row in rows
            if row.get("peak_bytes")))
    for row in rows[1:]:
        what = row["config"].split(" ", 2)
        what = f"{row['impl']} {what[2] if len(what) > 2 else ''}".strip()
        print(f"{'':48} {what:40} {row['ms']:10.3f} ms   {row['ms'] / ours:6.2f}x")
    sys.stdout.flush()


def cases_of(options, bench_ops):
    command = [bench_ops, "--list"]
    for flag in ("op", "dtype", "shape"):
        if getattr(options, flag):
            command += ["--" + flag, getattr(options, flag)]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for line in listed.splitlines():
        name, shape, dtype, size, flops = line.split()
        op, direction = name.rsplit("_", 1)
        if op in peers_of.BUILDERS:
            yield dict(op=op, dir=direction, dtype=dtype, shape=shape, bytes=float(size),
                       flops=float(flops))


def parse_options():
    parser = argparse.ArgumentParser(description="Times Tegula's ops beside their peers.")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path,
                        help="build folder (build/release)")
    parser.add_argument("--op", help="only this op (linear) or row (linear_bwd)")
    parser.add_argument("--dtype", choices=DTYPES)
    parser.add_argument("--shape")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--csv", type=pathlib.Path, help="record the figures here")
    parser.add_argument("--again", action="store_true", help="measure recorded cases again, too")
    options = parser.parse_args()
    if options.threads < 1 or options.pairs < 1:
        parser.error("--threads, --pairs: expected a number above 0")
    return options


def run_case(case, library, blas, options, run, config):
    """False: the machine was busy, nothing was recorded."""
    try:
        problem = build(case["op"], case["dir"], case["shape"], case["dtype"], blas)
    except NotServed as error:
        print(f"{case['op']} {case['dir']}: no peer for {error}", file=sys.stderr)
        return True
    identity = {key: case[key] for key in ("op", "dir", "dtype", "shape")}
    impls = [f"tegula:{library.entry}"] + [peer.impl for peer in problem.peers]
    if options.csv and not options.again and results_csv.recorded(
            results_csv.read(options.csv), run.common["commit"],
            dict(identity, suite=run.common["suite"]), impls):
        print(f"{case['op']} {case['dir']} {case['dtype']} {case['shape']}: recorded already")
        return True
    if case["op"] == "attention" and case["dir"] == "bwd":
        run_saved(library, case["op"], problem.fields)
    for _ in range(TRIES):
        rows, others = measure(case, problem, library, options.pairs, config)
        if not options.csv or others <= quiet.LIMIT:
            report(case, rows)
            run.append(rows)
            return True
        if quiet.wait(20) > quiet.LIMIT:
            break
    print(f"{case['op']} {case['dir']} {case['shape']}: not recorded: other processes use "
          f"{others:.2f} CPUs, more than {quiet.LIMIT}", file=sys.stderr)
    return False


def main():
    options = parse_options()
    torch.set_num_threads(options.threads)
    bench_ops = options.build / "bench/bench_ops"
    library = Library(options.build / "src/libtegula.so", ROOT / "include", options.threads)
    blas = openblas_libraries(options.threads)
    commit = subprocess.run([bench_ops, "--commit"], check=True, capture_output=True,
                            text=True).stdout.strip()
    run = results_csv.Run(options.csv, commit, "peers")
    load = quiet.wait(20 if options.csv else 0)
    cores = ", ".join(lib.core for lib in blas) or "not installed"
    print(f"# {run.common['device']}; {options.threads} threads; commit {commit}; torch "
          f"{torch.__version__}; OpenBLAS {cores}; other load {load:.2f}")
    if load > quiet.LIMIT and options.csv:
        sys.exit(f"not recorded: other processes use {load:.2f} CPUs, more than {quiet.LIMIT}; "
                 "stop them, or leave --csv away")
    if load > quiet.LIMIT:
        print(f"warning: other processes use {load:.2f} CPUs: these figures mean little",
              file=sys.stderr)
    config = f"threads={options.threads} malloc=tuned"
    for case in cases_of(options, bench_ops):
        if not run_case(case, library, blas, options, run, config):
            sys.exit(1)


if __name__ == "__main__":
    main()
