"""small, 8b, 8b-seq: training steps of all providers."""

import sys

from . import liger_package
from .results import results_file
from .command import UNFINISHED
from .progress import Progress
from .steps.step_cases import LAYERS, SWEEPS, StepCase, case_of
from .steps.step_providers import SPARSE_TIMED, TIMED, entrants
from .steps.step_sweep import Sweep
from .steps.worker_process import WorkerProcess


def cases_of(options, command):
    """The command's cases, changed by the options."""
    model, shapes = SWEEPS[command]
    model, shapes = options.model or model, options.shape or shapes
    cases = [case_of(model, shape, options.dtype) for shape in shapes]
    if options.seq:
        batch = options.batch or cases[0].batch
        cases = [StepCase(model, batch, seq) for seq in options.seq]
    return [
        StepCase(model, options.batch or case.batch, case.seq, options.checkpointing or case.checkpointing, options.dtype,
                 options.layers or LAYERS.get(command, 0))
        for case in cases
    ]  # fmt: skip


def available(names):
    """Without Liger-Kernel where it is not installed."""
    if not liger_package.find():
        left_out = [name for name in names if name.startswith("liger")]
        if left_out:
            print(f"{', '.join(left_out)}: left out: no Liger-Kernel, and no LIGER_DIR", file=sys.stderr)
        return [name for name in names if name not in left_out]
    return names


def worker_starter(options):
    """Starts the process of a provider, by its name."""

    def start(name):
        return WorkerProcess(name, options.device, options.out / "logs" / f"{name}.log", options.patience)

    return start


def run(options, command):
    """(exit status, rows)"""
    cases = cases_of(options, command)
    known = entrants(available(options.providers or SPARSE_TIMED.get(command, TIMED)), options.optimiser)
    progress = Progress(options.rounds * len(known) * len(cases))

    run = results_file.Run(options.csv, options.commit, "model", device="", driver="")
    lengths = options.rounds, options.warm_up, options.steps, options.minutes
    sweep = Sweep(worker_starter(options), run, options.out, progress, options.say, *lengths)
    try:
        missing = [case for case in cases if options.again or not sweep.is_recorded(case, known)]
        if missing:
            run.common.update(sweep.where(entrant.provider.name for entrant in known))
        failed, left = sweep.go(cases, known, options.again)
    finally:
        sweep.end()
    return 1 if failed else UNFINISHED if left else 0, sweep.rows
