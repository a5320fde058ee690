"""fsdp, ddp: training steps on several devices, stock and patched. Measures how throughput scales with the number of
devices at a constant batch per device, and compares losses with one device that computes the same global batch."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from .results import results_file
from .gpu_state import visible_gpus, where
from .progress import Progress
from .steps.step_cases import case_of
from .steps.step_providers import PROVIDERS, Entrant
from .steps.step_rows import note_of
from .steps.step_worker import version_of

SUITE = "gpus"
USUAL = {"fsdp": ("qwen3-8b", "b1_s4096"), "ddp": ("qwen3-0.6b", "b4_s4096")}
STEPS = 20


def launch(options, case, entrant, way, parts, processes, log):
    """The results of rank 0."""
    with tempfile.TemporaryDirectory() as folder:
        answer = pathlib.Path(folder) / "answer.json"
        start = [sys.executable, "-m"]
        if way != "one":
            start += ["torch.distributed.run", "--standalone", f"--nproc-per-node={processes}", "-m"]
        command = [
            *start, f"{__package__}.steps.sharded_steps", "--provider", entrant.provider.name, "--optimiser", entrant.optimiser,
            "--model", case.model, "--shape", case.shape, "--dtype", case.dtype, "--device", options.device, "--way", way,
            "--parts", str(parts), "--steps", str(options.count), "--warm-up", str(options.warm_up), "--answer", str(answer),
        ]  # fmt: skip
        environment = {"OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // processes)), **os.environ}
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("wb") as errors:
            try:
                status = subprocess.run(command, stdout=errors, stderr=errors, env=environment, timeout=options.patience)
            except subprocess.TimeoutExpired:
                return {"error": f"no answer within {options.patience:g} s"}
        if answer.exists():
            return json.loads(answer.read_text(encoding="utf-8"))
        lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if "Error" in line]
        return {"error": f"exit {status.returncode}: {lines[0][:160] if lines else f'see {log}'}"}


def difference(losses, others):
    """The largest relative difference over all steps."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, others))


def row_of(case, entrant, version, number, how, found, note=""):
    row = dict(case.identity, shape=f"{case.shape}_x{number}", impl=entrant.provider.name,
               config=f"{how}, {entrant.config}", version=version, note=note or note_of(found))  # fmt: skip
    if "ms" in found:
        row.update(
            ms=found["ms"], ms_min=min(found["steps"]), ms_max=max(found["steps"]), flops=number * case.flops,
            tokens_per_s=1e3 * number * case.tokens / found["ms"], peak_bytes=found["peak_bytes"] or "",
        )  # fmt: skip
    return row


def compared(several, alone, together, number):
    """The note of a run on several devices."""
    pace = alone["ms"] / several["ms"]
    return (f"{pace:.3f} of one GPU's pace on each, loss within {difference(several['losses'], together['losses']):.2g} of "
            "one GPU's with the global batch")  # fmt: skip


def measure(options, command, case, entrant, number, progress):
    """(rows, whether all went well): one device with its own batch, with the global batch, then all devices."""
    said = {}
    log = options.out / "logs"
    for name, (way, parts) in {"alone": ("one", 1), "together": ("one", number), "several": (command, number)}.items():
        what = f"{case.name} {entrant.name} {name}"
        progress.now(what)
        path = log / f"{command}_{entrant.provider.name}_{name}.log"
        said[name] = launch(options, case, entrant, way, parts, number if way != "one" else 1, path)
        progress.ended(f"{what}: {note_of(said[name]) or '%.1f ms' % said[name]['ms']}")
    version = version_of(entrant.provider.name)
    good = all("ms" in found for found in said.values())
    note = compared(said["several"], said["alone"], said["together"], number) if good else ""
    how = f"{command}, gathers by copy engines" if said["several"].get("copy_engines") else command
    return [
        row_of(case, entrant, version, 1, "one GPU", said["alone"]),
        row_of(case, entrant, version, number, how, said["several"], note),
    ], good


def run(options, command):
    """(exit status, rows)"""
    if options.device == "cuda" and visible_gpus() < options.gpus:
        print(f"{command}: left out: expected {options.gpus} GPUs, got {visible_gpus()}", file=sys.stderr)
        return int(options.command == command), []
    options = argparse.Namespace(**{**vars(options), "count": options.count or STEPS})
    model, shape = USUAL[command]
    case = case_of(options.model or model, (options.shape or [shape])[0], options.dtype)
    known = [
        Entrant(PROVIDERS[name], options.optimiser[-1] if PROVIDERS[name].ours else "torch")
        for name in options.providers or ["hf", "tegula"]
    ]
    progress = Progress(3 * len(known))
    run = results_file.Run(options.csv, options.commit, SUITE, **where(options.device))
    rows, good = [], True
    for entrant in known:
        found, well = measure(options, command, case, entrant, options.gpus, progress)
        rows, good = rows + found, good and well
    run.append(rows)
    options.say("\n".join(f"{row['impl']:8} {row['shape']:16} {row.get('tokens_per_s', 0):9.0f} tokens/s "
                          f"{(row.get('peak_bytes') or 0) / 2**30:6.1f} GiB each  {row['note']}" for row in rows))  # fmt: skip
    return 0 if good else 1, rows
