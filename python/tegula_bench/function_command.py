"""rmsnorm, lce, ops: functions of tegula.ops beside PyTorch, torch.compile and Liger-Kernel, called as a program calls
them. The repository's bench/gpu_ops.py times the kernels alone."""

import gc
import statistics
import sys
import time

from . import liger_package
from .results import results_file
from .command import FUNCTION_PROVIDERS, UNFINISHED
from .function_cases import COMMANDS, FUNCTIONS, SMALL, functions_of
from .gpu_state import where
from .progress import Progress
from .steps.step_rows import note_of

SUITE = "functions"
SAMPLES = 9


def row_of(case, impl, version, timed, note, spec):
    row = dict(case.identity, impl=impl, version=version, note=note)
    if timed and timed.samples:
        flops = spec.flops(*case.extents) * (1 if case.dir == "fwd" else 3)
        row.update(
            ms=statistics.median(timed.samples), ms_min=min(timed.samples), ms_max=max(timed.samples),
            host_us=timed.host_us, peak_bytes=timed.peak_bytes or "", flops=flops, bytes="" if flops else timed.bytes(),
        )  # fmt: skip
    return row


def measure(case, wanted, device, versions, samples):
    """Rows of all implementations of the op, ours included."""
    import torch

    from .function_timing import Timed, differs, number_of_sets, time_in_turn

    spec = FUNCTIONS[case.op]
    sets, timed, notes, first = number_of_sets(spec, case, device), {}, {}, None
    for impl, function in functions_of(case, wanted).items():
        try:
            one = Timed(function, spec, case, device, sets)
            results = [t.detach() for t in one.call()]
            one.prepare()
        except torch.OutOfMemoryError:
            notes[impl] = note_of({"oom": "", "peak_bytes": torch.cuda.max_memory_allocated()})
            continue
        except Exception as error:  # compilers and libraries raise exceptions of any class
            notes[impl] = note_of({"error": f"{type(error).__name__}: {(str(error).splitlines() or [''])[0][:120]}"})
            continue
        first = first or results
        timed[impl], notes[impl] = one, differs(results, first, case.dtype)
    time_in_turn(list(timed.values()), samples)
    rows = [row_of(case, impl, versions[impl], timed.get(impl), note, spec) for impl, note in notes.items()]
    timed.clear()
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()
        torch._dynamo.reset()
    return rows


def lines(rows):
    mine = next((row for row in rows if row["impl"] == "tegula"), {})
    for row in rows:
        if not row.get("ms"):
            yield f"    {row['impl']:9} {row['note']}"
            continue
        memory = f" {row['peak_bytes'] / 1e9:7.3f} GB" if row["peak_bytes"] else ""
        ratio = f" {row['ms'] / mine['ms']:6.2f} times ours" if mine.get("ms") and row is not mine else ""
        yield (f"    {row['impl']:9} {1e3 * row['ms']:10.1f} us, host {row['host_us']:7.1f} us{memory}{ratio} "
               f"{row['note']}").rstrip()  # fmt: skip


def versions_of():
    import torch

    import tegula

    return {"torch": torch.__version__, "compile": torch.__version__, "tegula": tegula.__version__,
            "liger": liger_package.version() if liger_package.find() else ""}  # fmt: skip


def expected(case, wanted):
    spec = FUNCTIONS[case.op]
    return [impl for impl in wanted if impl != "liger" or spec.liger and liger_package.find()]


def run(options, command):
    """(exit status, rows)"""
    start = time.monotonic()
    wanted = [name for name in options.providers or FUNCTION_PROVIDERS if name in FUNCTION_PROVIDERS]
    if options.device == "cpu":
        import torch

        torch.set_num_threads(1)  # both then use one: PyTorch's spin on the CPUs that Tegula's need
    cases = (COMMANDS if options.device == "cuda" else SMALL)[command]
    run = results_file.Run(options.csv, options.commit, SUITE, **where(options.device))
    progress, versions, rows, failed = Progress(len(cases)), versions_of(), [], 0
    for case in cases:
        known = [row for row in results_file.read(options.csv) if results_file.is_result(row)]
        identity = {**case.identity, "suite": SUITE}
        if not options.again and results_file.recorded(known, options.commit, identity, expected(case, wanted)):
            options.say(f"{case.name}: recorded already")
            progress.skipped(1)
            continue
        if time.monotonic() - start > 60 * options.minutes:
            print(f"{case.name}: minutes are over", file=sys.stderr)
            return UNFINISHED, rows
        progress.now(case.name)
        found = measure(case, wanted, options.device, versions, SAMPLES)
        run.append(found)
        progress.ended(case.name)
        options.say("\n".join([case.name, *lines(found)]))
        rows += found
        failed += any("failed" in row["note"] for row in found)
    return 1 if failed else 0, rows
