"""profile: where the time of a training step goes, by kind of kernel, for each provider.

A row for each kind: its time, and its share of the roof if the least work is known. `idle` is the time of a step without
the profiler minus the sum of its kernels."""

import dataclasses
import statistics

from .results import results_file
from .command import UNFINISHED
from .kernel_classes import IDLE, by_kind, floors
from .progress import Progress
from .model_sizes import SIZES
from .steps.step_cases import case_of
from .step_command import available, worker_starter
from .steps.step_providers import USUAL, entrants
from .steps.step_rows import note_of
from .steps.step_sweep import Sweep

SUITE = "profile"
CASES = [("qwen3-8b", "b1_s4096"), ("qwen3-0.6b", "b4_s4096")]
LONGEST = 3  # kernels that a note names


def cases_of(options):
    if options.model or options.shape or options.seq:
        model = options.model or CASES[0][0]
        shapes = options.shape or [f"b{options.batch or 1}_s{seq}" for seq in options.seq or [4096]]
        return [case_of(model, shape, options.dtype) for shape in shapes]
    return [case_of(model, shape, options.dtype) for model, shape in CASES]


def row_of(case, entrant, version, kind, ms, roofs, note):
    row = dict(case.identity, impl=entrant.provider.name, config=kind, version=version, ms=ms, note=note)
    flops, size = floors(case, SIZES[case.model]).get(kind, (0, 0))
    roof = "gemm_bf16" if flops else "copy" if size else ""
    if roof and case.dtype == "bf16":
        least = 1e3 * (flops or size) / roofs[roof]
        row.update(flops=flops, bytes=size, roof=roof, roof_share=least / ms)
    return row


def short(name):
    return name.removeprefix("void ").replace(",", "")[:80]


def rows_of(case, entrant, version, timed, kernels, roofs):
    """One row for each kind of kernel in the order of KINDS, then the idle time."""
    found = by_kind(kernels)
    rows = [
        row_of(case, entrant, version, kind, ms, roofs,
               ", ".join(f"{short(name)} {part:.2f} ms" for part, name in longest[:LONGEST]))
        for kind, (ms, longest) in found.items()
    ]  # fmt: skip
    idle = statistics.median(timed["steps"]) - sum(ms for ms, _ in found.values())
    return [*rows, row_of(case, entrant, version, IDLE, max(idle, 1e-3), roofs, "")]


def profiled(sweep, case, entrant, roofs):
    """(rows, or none; what to say)"""
    name = entrant.provider.name
    sweep.prepare([name])
    if name not in sweep.workers:
        return [], note_of(sweep.versions[name])
    asked = dict(case=dataclasses.asdict(case), optimiser=entrant.optimiser, warm_up=sweep.warm_up)
    timed = sweep.turn(case, entrant)
    found = sweep.workers[name].ask(do="profile", **asked) if "steps" in timed else timed
    if "kernels" not in found:
        return [], note_of(found)
    if not roofs:
        roofs.update(sweep.workers[name].ask(do="roofs"))
    rows = rows_of(case, entrant, sweep.versions[name]["version"], timed, found["kernels"], roofs)
    return rows, f"{statistics.median(timed['steps']):.1f} ms"


def table(rows):
    total = sum(row["ms"] for row in rows)
    for row in rows:
        roof = f"{row['roof_share']:6.1%} of {row['roof']}" if "roof_share" in row else ""
        yield f"{row['impl']:17} {row['config']:20} {row['ms']:9.2f} ms {row['ms'] / total:6.1%} {roof}"


def run(options, command):
    """(exit status, rows)"""
    cases = cases_of(options)
    # Ours with its own optimiser: the other's time is that of the peers.
    known = entrants(available(options.providers or USUAL), options.optimiser[-1:])
    progress = Progress(len(known) * len(cases))
    run = results_file.Run(options.csv, options.commit, SUITE, device="", driver="")
    sweep = Sweep(worker_starter(options), run, options.out, progress, options.say, 1, options.warm_up, options.steps,
                  options.minutes)  # fmt: skip
    everything, failed, roofs = [], 0, {}
    try:
        run.common.update(sweep.where(entrant.provider.name for entrant in known))
        for case in cases:
            rows = []
            for entrant in known:
                progress.now(f"{case.name} {entrant.name}")
                if sweep.is_over():
                    return UNFINISHED, everything
                found, said = profiled(sweep, case, entrant, roofs)
                progress.ended(f"{case.name} {entrant.name}: {said}")
                failed += said.startswith("failed")
                rows += found
            run.append(rows)
            options.say("\n".join([f"## {case.name}", *table_of_each(rows)]))
            everything += rows
    finally:
        sweep.end()
    return 1 if failed else 0, everything


def table_of_each(rows):
    for impl in dict.fromkeys(row["impl"] for row in rows):
        yield from table([row for row in rows if row["impl"] == impl])
