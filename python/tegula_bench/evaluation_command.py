"""evaluation: time and peak memory of the loss of a model that is not trained, for each provider."""

import dataclasses
import statistics

from .results import results_file
from .progress import Progress
from .steps.step_cases import StepCase
from .step_command import available, worker_starter
from .steps.step_providers import EVALUATED, entrants
from .steps.step_rows import note_of
from .steps.step_sweep import Sweep

CASE = StepCase("gpt-oss-20b", 1, 8192, layers=6)


def case_of(options):
    return dataclasses.replace(
        CASE, model=options.model or CASE.model, layers=options.layers or CASE.layers, batch=options.batch or CASE.batch,
        seq=(options.seq or [CASE.seq])[0], dtype=options.dtype,
    )  # fmt: skip


def row_of(case, entrant, version, found):
    row = dict(case.identity, dir="evaluation", impl=entrant.provider.name, config=entrant.config_of(case), version=version,
               note=note_of(found))  # fmt: skip
    if "passes" in found:
        ms = statistics.median(found["passes"])
        row.update(ms=ms, ms_min=min(found["passes"]), ms_max=max(found["passes"]), tokens_per_s=1e3 * case.tokens / ms,
                   peak_bytes=found["peak_bytes"] or "", note=f"loss {found['loss']:.4f}")  # fmt: skip
    return row


def line_of(row):
    if not row.get("ms"):
        return f"{row['impl']:17} {row['note']}"
    memory = f"{row['peak_bytes'] / 2**30:7.1f} GiB" if row["peak_bytes"] else ""
    return f"{row['impl']:17} {row['ms']:9.2f} ms {row['tokens_per_s']:9.0f} tokens/s{memory} {row['note']}"


def run(options, command):
    """(exit status, rows)"""
    case = case_of(options)
    known = entrants(available(options.providers or EVALUATED), options.optimiser[:1])
    run = results_file.Run(options.csv, options.commit, "model", device="", driver="")
    sweep = Sweep(worker_starter(options), run, options.out, Progress(len(known)), options.say, 1, options.warm_up, options.steps,
                  options.minutes)  # fmt: skip
    rows = []
    try:
        run.common.update(sweep.where(entrant.provider.name for entrant in known))
        for entrant in known:
            name = entrant.provider.name
            sweep.prepare([name])
            found = sweep.versions[name]
            if name in sweep.workers:
                found = sweep.workers[name].ask(do="evaluate", case=dataclasses.asdict(case), passes=options.steps)
            rows.append(row_of(case, entrant, sweep.versions[name].get("version", ""), found))
            options.say(line_of(rows[-1]))
        run.append(rows)
    finally:
        sweep.end()
    return int(any(row["note"].startswith("failed") for row in rows)), rows
