#!/usr/bin/env python3
"""Times Tegula's ops on GPU 0 beside a copy of their bytes and beside their peers, in one process.

  gpu_ops.py [--build DIR] [--op NAME] [--dir fwd] [--shape S] [--brief] [--group NAME] [--entry NAME]
             [--overlap] [--peers torch,compile,liger,liger_cutedsl,quack,fa4 | none] [--quick]
             [--minutes N] [--csv FILE] [--again] [--list]

The cases are those of gpu_cases.py; --shape with --op times another shape, --brief times a few that
most peers have, in some 5 minutes, --group those of a group: `quantised`. Results are compared with
PyTorch's first. The time of a call is that on the GPU: of each provider's calls on several sets of
arrays, together several times the L2 cache, in a CUDA graph; medians of samples taken in
turn. `torch` includes the libraries behind it that a case names (attention: cudnn, fa2). A peer whose
package is not installed is left out, with a line on standard error. host_us is what a call costs the
host, issued back to back. With --csv the figures are recorded, and what the file holds for this commit
is not measured again. With --entry the cases are those that are judged at that entry, too (with
--shape: any), and the figures are a suite of their own. So are those with --overlap, which times the
ops whose launches may overlap where the caller allows it (tg_context_allow_overlap), with that allowed.
"""

import argparse
import dataclasses
import gc
import math
import pathlib
import statistics
import subprocess
import sys
import time

import torch

import results_csv
from baselines import ROOT
from gpu_cases import BRIEF, CASES, GROUPS, suite_of
from gpu_providers import PEERS, Providers, load_libraries, variants
from gpu_timing import time_in_turn
from peers import fa4_peer
from quantised_cases import MAY_OVERLAP
from tegula_bench import gpu_state
from tegula_call import Library


SAMPLES, QUICK_SAMPLES = 9, 3
BUSY_SAMPLES = 40  # that keep the GPU busy while its clock is read
UNFINISHED = 3  # exit status: --minutes were over


# ---- cases ----

def cost_of(case, bench_ops):
    """The case with its bytes, and its flops, as bench_ops knows them."""
    if case.bytes:
        return case, 0.0
    known = subprocess.run([bench_ops, "--list", "--op", f"{case.op}_{case.dir}", "--dtype", case.dtype,
                            "--shape", case.shape], capture_output=True, text=True)
    if not known.stdout:
        raise RuntimeError(known.stderr.strip())
    size, flops = map(float, known.stdout.split()[3:5])
    return dataclasses.replace(case, bytes=size), case.flops or flops


def cases_of(options):
    """Those of the list; another shape is timed as the op's cases of the list are."""
    found = [case for case in CASES
             if options.op in (None, case.op, f"{case.op}_{case.dir}")
             and options.dir in (None, case.dir)
             and (not options.brief or (case.op, case.dir, case.shape) in BRIEF)
             and (not options.entry or options.shape or options.entry in case.entries)
             and (not options.overlap or case.op in MAY_OVERLAP)
             and (case.group == options.group or bool(options.op and not options.group))]
    if options.shape and not any(case.shape == options.shape for case in found):
        like = {}
        for case in found:
            like.setdefault((case.op, case.dir), case)
        return [dataclasses.replace(case, shape=options.shape, bytes=0) for case in like.values()]
    found = [case for case in found if options.shape in (None, case.shape)]
    if options.brief:  # in its order
        found.sort(key=lambda case: BRIEF.index((case.op, case.dir, case.shape)))
    return found


def expected_impls(case, wanted, libraries, entry):
    """What a complete run holds, as far as it is known before the run."""
    found = [f"tegula:{entry}"] + ["copy"] * case.copied + ["torch"] * ("torch" in wanted)
    found += [name for name in case.libraries if name != fa4_peer.IMPL] * ("torch" in wanted)
    if fa4_peer.IMPL in wanted and fa4_peer.IMPL in case.libraries and fa4_peer.load():
        found.append(fa4_peer.IMPL)
    found += ["compile"] * (case.compiled and "compile" in wanted)
    return found + [impl for impl, *_ in variants(case, libraries)]


def is_recorded(options, run, case, impls):
    identity = dict(op=case.op, dir=case.dir, dtype=case.dtype, shape=case.shape,
                    suite=run.common["suite"])
    return bool(options.csv) and not options.again and results_csv.recorded(
        results_csv.read(options.csv), run.common["commit"], identity, impls)


# ---- a case ----

def share_of_copy(ours, copy):
    """Median of the samples' shares, taken in turn: the clock is the same for both."""
    return statistics.median(c / o for o, c in zip(ours.samples, copy.samples))


def row_of(case, flops, provider, sets, clock):
    how = "graph" if provider.graph else "events"
    words = [f"sets={sets}", how, provider.config]
    if case.in_place and provider.impl.startswith("tegula"):
        words.append("in place")
    row = dict(op=case.op, dir=case.dir, dtype=case.dtype, shape=case.shape, impl=provider.impl,
               version=provider.version, config=" ".join(word for word in words if word),
               bytes=case.bytes, flops=0 if provider.impl == "copy" else flops, clock_mhz=clock,
               peak_bytes=provider.peak_bytes or "", note=provider.note)
    if provider.samples:
        row.update(ms=provider.ms, ms_min=min(provider.samples), ms_max=max(provider.samples),
                   host_us=provider.host_us)
    return row


def clock_under(work, times):
    """The SM clock while the GPU does `work`, which only issues it, so many times."""
    for _ in range(times):
        work()
    found = gpu_state.clock_mhz()
    torch.cuda.synchronize()
    return found


def measure(case, flops, library, options, libraries, stream):
    """Rows of the case, ours first."""
    providers = Providers(case, library, options.peers, libraries)
    time_in_turn(providers.list, QUICK_SAMPLES if options.quick else SAMPLES, stream)
    library.wait()
    ours = providers.list[0]
    clock = clock_under(ours.round, BUSY_SAMPLES * ours.rounds)
    rows = [row_of(case, flops, provider, providers.sets, clock)
            for provider in providers.list + providers.failed]
    if case.copied:
        rows[0].update(roof="copy", roof_share=share_of_copy(*providers.list[:2]))
    return rows


def peers_of(rows):
    return [row for row in rows[1:] if row["impl"] != "copy" and row.get("ms")]


def line_of(rows):
    mine = rows[0]
    share = f"{mine['roof_share']:6.1%}" if "roof_share" in mine else "      "
    text = (f"{mine['op'] + ' ' + mine['dir']:27} {mine['shape']:34} {1e3 * mine['ms']:10.1f} us "
            f"{share}")
    if peers_of(rows):
        best = min(peers_of(rows), key=lambda row: row["ms"])
        text += f"  {best['impl']:8} {1e3 * best['ms']:10.1f} us {best['ms'] / mine['ms']:6.2f}x"
    return text


def print_summary(found):
    print(f"\n{'op':27} {'shape':34} {'ours':>13} {'copy':>6}  best peer {'':11} ratio")
    for rows in found:
        print(line_of(rows))
    ratios = [min(row["ms"] for row in peers_of(rows)) / rows[0]["ms"]
              for rows in found if peers_of(rows)]
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean of {len(ratios)} ratios: {mean:.3f}")


def print_case(rows):
    print(line_of(rows))
    for row in rows[1:]:
        what = f"{row['impl']} {row['config']}"
        ms = f"{1e3 * row['ms']:10.1f} us  host {row['host_us']:.1f} us" if row.get("ms") else ""
        memory = f"  {row['peak_bytes'] / 1e9:.2f} GB" if row["peak_bytes"] else ""
        print(f"    {what:58} {ms}{memory} {row['note']}".rstrip())
    sys.stdout.flush()


# ---- the command ----

def parse_options():
    parser = argparse.ArgumentParser(description="Times Tegula's ops on a GPU beside their peers.")
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path,
                        help="build folder (build/release)")
    parser.add_argument("--op", help="only this op (softmax) or row (softmax_bwd)")
    parser.add_argument("--dir", choices=("fwd", "bwd", "fwdbwd", "step"))
    parser.add_argument("--shape", help="only this shape; one that is not listed replaces the list")
    parser.add_argument("--brief", action="store_true",
                        help=f"{len(BRIEF)} cases of the list, which most peers have")
    parser.add_argument("--group", choices=GROUPS, default="", help="cases of this group alone")
    parser.add_argument("--entry", help="start the chain at this entry: sm90, sm80, any")
    parser.add_argument("--overlap", action="store_true",
                        help=f"allow our launches to overlap; cases of {', '.join(MAY_OVERLAP)}")
    parser.add_argument("--peers", default=",".join(PEERS), help="of %(default)s; or none")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_SAMPLES} samples")
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="begin no case after that; exit status 3 if some are left")
    parser.add_argument("--csv", type=pathlib.Path, help="record the figures here")
    parser.add_argument("--again", action="store_true", help="measure recorded cases again, too")
    parser.add_argument("--commit", help="of the binaries, where those do not know theirs")
    parser.add_argument("--list", action="store_true", help="print the cases with their bytes")
    options = parser.parse_args()
    options.peers = [] if options.peers == "none" else options.peers.split(",")
    unknown = set(options.peers) - set(PEERS)
    if unknown:
        parser.error(f"--peers: expected some of {', '.join(PEERS)}, got {', '.join(unknown)}")
    options.cases = cases_of(options)
    if not options.cases:
        parser.error("--op, --dir, --shape, --group: no such case; see --list")
    return options


def run_cases(options, library, run, bench_ops, stream):
    """(rows of the cases measured, number that failed, number left)"""
    libraries = load_libraries(options.peers)
    start, found, failed = time.monotonic(), [], 0
    for number, case in enumerate(options.cases):
        if is_recorded(options, run, case,
                       expected_impls(case, options.peers, libraries, library.entry)):
            print(f"{case.op} {case.dir} {case.shape}: recorded already")
            continue
        if time.monotonic() - start > 60 * options.minutes:
            return found, failed, len(options.cases) - number
        try:
            case, flops = cost_of(case, bench_ops)
            rows = measure(case, flops, library, options, libraries, stream)
        except (RuntimeError, KeyError) as error:
            print(f"{case.op} {case.dir} {case.shape}: FAILED: {error}", file=sys.stderr)
            failed += 1
            torch.cuda.synchronize()  # raises if the device is lost: nothing more can be measured
        else:
            run.append(rows)
            print_case(rows)
            found.append(rows)
        gc.collect()
        torch.cuda.empty_cache()
    return found, failed, 0


def main():
    options = parse_options()
    bench_ops = options.build / "bench/bench_ops"
    if options.list:
        for case in options.cases:
            known, flops = cost_of(case, bench_ops)
            print(case.op, case.dir, case.shape, f"{known.bytes:.0f} {flops:.0f}")
        return
    try:
        library = Library(options.build / "src/libtegula.so", ROOT / "include", 1, "CUDA",
                          options.entry)
    except RuntimeError as error:  # no GPU, or a build without CUDA
        sys.exit(str(error))
    if options.overlap:
        library.allow_overlap()
    commit = options.commit or subprocess.run([bench_ops, "--commit"], check=True, capture_output=True,
                                              text=True).stdout.strip()
    device, driver = gpu_state.name_and_driver()
    run = results_csv.Run(options.csv, commit, suite_of(options.entry, options.overlap), device=device,
                          driver=driver)
    print(f"# {device}; {driver}; commit {commit}; torch {torch.__version__}; first entry "
          f"{library.entry}{'; launches may overlap' * options.overlap}")
    if options.csv and ("dirty" in commit or commit == "unknown"):
        print("warning: the binaries are not those of a commit: commit, build and measure again",
              file=sys.stderr)
    # Graphs are captured on another stream than the default one, and a backward runs on the stream
    # of its forward: everything is on this one.
    stream = torch.cuda.Stream()
    library.use_stream(stream)
    with torch.cuda.stream(stream):
        found, failed, left = run_cases(options, library, run, bench_ops, stream)
    print_summary(found)
    if left:
        print(f"{left} cases are left", file=sys.stderr)
    sys.exit(1 if failed else UNFINISHED if left else 0)


if __name__ == "__main__":
    main()
