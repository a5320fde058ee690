"""loss: trains on text, patched and stock, from the same weights. The yardstick for a patched model's distance from the
stock model in bf16 is the stock model's own distance between bf16 and f32."""

import argparse
import dataclasses
import json
import statistics

from .results import results_file
from .command import UNFINISHED
from .progress import Progress
from .steps.step_cases import StepCase, case_of
from .step_command import worker_starter
from .steps.step_providers import PROVIDERS, Entrant, entrants
from .steps.step_rows import note_of
from .steps.step_sweep import Sweep

SUITE = "loss"
MODEL, SHAPE, STEPS = "qwen3-0.6b", "b4_s1024", 50
LAST = 10  # number of last steps whose mean counts as the final loss; a single step is noisy
IN_F32 = "hf_f32"  # impl of the stock model in f32


@dataclasses.dataclass(frozen=True)
class Training:
    impl: str
    config: str
    entrant: Entrant
    case: StepCase


def trainings(options):
    """The stock model first, then itself in f32, then ours."""
    case = case_of(options.model or MODEL, (options.shape or [SHAPE])[0], options.dtype)
    stock = Entrant(PROVIDERS["hf"])
    wide = dataclasses.replace(case, dtype="f32")
    found = [Training("hf", stock.config, stock, case), Training(IN_F32, stock.config, stock, wide)]
    names = [name for name in options.providers or ["tegula"] if PROVIDERS[name].ours]
    return found + [Training(e.provider.name, e.config, e, case) for e in entrants(names, options.optimiser)]


def distances(losses, stock):
    """Mean over all steps, and over the last ones."""
    each = [abs(mine - theirs) for mine, theirs in zip(losses, stock)]
    return statistics.mean(each), statistics.mean(each[-LAST:])


def row_of(training, count, version, found, stock):
    case, ms = training.case, statistics.median(found["steps"])
    mean, last = distances(found["losses"], stock["losses"])
    note = f"loss {found['losses'][-1]:.5f}, unseen text {found['unseen']:.5f}"
    if found is not stock:
        note += f", from hf {mean:.3g} on average, {last:.3g} in the last {LAST} steps"
    return dict(
        op=case.model, dir="step", dtype="bf16", shape=f"{case.shape}_n{count}", impl=training.impl,
        config=training.config, version=version, ms=ms, ms_min=min(found["steps"]), ms_max=max(found["steps"]),
        tokens_per_s=1e3 * case.tokens / ms, peak_bytes=found["peak_bytes"] or "", note=note,
    )  # fmt: skip


def train(sweep, training, options):
    name = training.entrant.provider.name
    sweep.prepare([name])
    if name not in sweep.workers:
        return sweep.versions[name]
    return sweep.workers[name].ask(
        do="losses", case=dataclasses.asdict(training.case), optimiser=training.entrant.optimiser,
        steps=options.count, text=str(options.text) if options.text else None,
    )  # fmt: skip


def run(options, command):
    """(exit status, rows)"""
    options = argparse.Namespace(**{**vars(options), "count": options.count or STEPS})
    todo = trainings(options)
    progress = Progress(len(todo))
    run = results_file.Run(options.csv, options.commit, SUITE, device="", driver="")
    sweep = Sweep(worker_starter(options), run, options.out, progress, options.say, minutes=options.minutes)
    rows, stock, record = [], None, []
    try:
        run.common.update(sweep.where(training.entrant.provider.name for training in todo))
        for training in todo:
            what = f"{training.case.name} {training.impl} ({training.config})"
            progress.now(what)
            if sweep.is_over():
                return UNFINISHED, []
            found = train(sweep, training, options)
            if "losses" not in found:
                progress.ended(f"{what}: {note_of(found)}")
                return 1, []
            stock = stock or found
            version = sweep.versions[training.entrant.provider.name]["version"]
            rows.append(row_of(training, options.count, version, found, stock))
            record.append({"impl": training.impl, "config": training.config, **found})
            progress.ended(f"{what}: {rows[-1]['note']}")
    finally:
        sweep.end()
    run.append(rows)
    path = options.out / f"loss-{run.common['run']}.json"
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    options.say("\n".join(f"{row['impl']:10} {row['config']:24} {row['note']}" for row in rows))
    return 0, rows
