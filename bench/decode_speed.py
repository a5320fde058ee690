#!/usr/bin/env python3
"""Decoding and prefill on a GPU, beside transformers with a static cache and torch.compile.

    bench/decode_speed.py [--build DIR] [--model qwen3-0.6b ...] [--batch 1 32] [--csv FILE]

bf16, random weights. Decoding is 128 tokens behind 512, prefill a prompt of 2048. Ours is `tegula bench
table`. Peers are processes of their own (decode_peer.py): they compile together before anything is timed,
then wait, and each is timed before and after ours. A prompt stands beside the forward pass of training
over as many tokens. Rows have the columns of bench/results."""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import results_csv
from baselines import ROOT
from decode_peer import DEPTH, PROMPT, TOKENS, vocabulary
from tegula_bench import gpu_state
from tegula_bench.steps.worker_process import WorkerProcess

BATCHES = {"gpt2": [1], "qwen3-0.6b": [1], "qwen3-8b": [1, 32]}
PREFILLED = ("qwen3-0.6b", "qwen3-8b")
READY_SECONDS = 10  # for a peer that has compiled, when the others took all of the patience
DECODED = f"tg{TOKENS}@d{DEPTH}"


# ---- ours ----

def run_ours(options, model, batch, *arguments):
    """The row that `tegula bench table` prints for one test."""
    command = [f"{options.build}/src/cli/tegula", "bench", "table", "--preset", model, "--vocab-size",
               str(vocabulary(model)), "--dtype", "bf16", "--device", "cuda", "--batch", str(batch),
               "--steps", str(options.runs), "--json", *map(str, arguments)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def version_of_ours(build):
    told = subprocess.run([f"{build}/src/cli/tegula", "--version"], check=True, capture_output=True,
                          text=True).stdout
    return told.split()[1]


def our_row(options, case, row, tokens):
    """tokens: of a sample, whose time a row has. The rate is that of all sequences."""
    seconds = [tokens / rate for rate in row["rates"]]
    return {**results_csv.row_of(case, "tegula", options.version, row["plan"], seconds),
            "tokens_per_s": statistics.median(row["rates"])}


# ---- peers ----

class Peers:
    """kind:model -> a process, of those that are wanted."""

    def __init__(self, wanted, folder, patience):
        program = (str(pathlib.Path(__file__).with_name("decode_peer.py")),)
        self.worker = {name: WorkerProcess(name, "cuda", folder / f"{name.replace(':', '_')}.log",
                                           patience, program) for name in wanted}

    def wait(self, patience):
        """Until all have compiled; those that take longer than so many seconds, all together, end."""
        last = time.monotonic() + patience
        for name, worker in self.worker.items():
            worker.patience = max(READY_SECONDS, last - time.monotonic())
            self.time(name, 1)
            worker.patience = patience

    def time(self, name, runs):
        """Its answer; None if it is not wanted or has ended."""
        worker = self.worker.get(name)
        if not worker or not worker.alive:
            return None
        found = worker.ask(runs=runs)
        if "error" in found:
            print(f"{name}: not run: {found['error']}", flush=True)
            worker.end(kill=True)
            return None
        return found

    def end(self, *names):
        """These, which need not be there; without names all."""
        for name in names or list(self.worker):
            worker = self.worker.pop(name, None)
            if worker:
                worker.end()


def beside(peers, name, runs, ours):
    """(what ours() returns, the peer's answer with its samples of before and after)."""
    before = peers.time(name, runs // 2 + 1)
    mine = ours()
    after = peers.time(name, runs // 2 + 1) if before else None
    if after:
        after["seconds"] = before["seconds"] + after["seconds"]
    return mine, after


def peer_row(case, impl, found, tokens):
    return {**results_csv.row_of(case, impl, found["version"], found["config"], found["seconds"]),
            "tokens_per_s": tokens / statistics.median(found["seconds"])}


# ---- the cases ----

def measure(options, peers, case, batch, tokens, name, arguments):
    """Rows of a case. tokens: of a sample of the peer named `name`, and of ours with one sequence."""
    mine, found = beside(peers, name, options.runs,
                         lambda: run_ours(options, case["op"], batch, *arguments))
    rows = [our_row(options, case, mine, tokens * batch)]
    if found:
        impl = name.partition(":")[0]
        rows.append(peer_row(case, "hf" if impl == "hf" else "training_forward", found, tokens))
    clock = gpu_state.clock_mhz()
    return [{**row, "clock_mhz": clock} for row in rows]


def print_rows(rows):
    for row in rows:
        print(f"{row['op']:12} {row['dir']:8} {row['shape']:16} {row['impl']:18}"
              f"{row['tokens_per_s']:9.0f} tok/s  {row['config']}", flush=True)


def cases_of(options, model):
    """(case, sequences, tokens of a sample of one sequence, its peer, arguments of ours)"""
    case = dict(op=model, dtype="bf16")
    for batch in options.batch or BATCHES[model]:
        yield (dict(case, dir="decode", shape=f"b{batch}_{DECODED}"), batch, 1,
               f"hf:{model}" if batch == 1 else "", ["-p", 0, "-n", TOKENS, "-d", DEPTH])
    if model in PREFILLED:
        yield (dict(case, dir="prefill", shape=f"b1_pp{PROMPT}"), 1, PROMPT, f"training:{model}",
               ["-p", PROMPT, "-n", 0])


def run_model(options, peers, run, model):
    """How many cases failed."""
    failed = 0
    for case, batch, tokens, name, arguments in cases_of(options, model):
        try:
            rows = measure(options, peers, case, batch, tokens, name, arguments)
        except subprocess.CalledProcessError as error:
            print(f"{model} {case['shape']}: FAILED: {error.stderr.strip()}", flush=True)
            failed += 1
        else:
            run.append(rows)
            print_rows(rows)
        peers.end(name)  # its memory
    return failed


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default=ROOT / "build/release", type=pathlib.Path)
    parser.add_argument("--model", nargs="+", choices=list(BATCHES), default=list(BATCHES))
    parser.add_argument("--batch", nargs="+", type=int, help="sequences (1; of Qwen3-8B 32, too)")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--patience", type=float, default=150, help="seconds that the peers may compile, all at once")
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--commit", help="of the binaries, where those do not know theirs")
    parser.add_argument("--logs", type=pathlib.Path, help="folder of the peers' messages")
    parser.add_argument("--no-peer", dest="peer", action="store_false")
    return parser.parse_args()


def main():
    options = parse_options()
    wanted = [f"hf:{model}" for model in options.model]
    wanted += [f"training:{model}" for model in options.model if model in PREFILLED]
    device, driver = gpu_state.name_and_driver()
    commit = options.commit or subprocess.run(
        [f"{options.build}/bench/bench_ops", "--commit"], check=True, capture_output=True,
        text=True).stdout.strip()
    options.version = version_of_ours(options.build)
    run = results_csv.Run(options.csv, commit, "engine", device=device, driver=driver)
    print(f"# {device}; {driver}; commit {commit}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        peers = Peers(wanted if options.peer else [], options.logs or pathlib.Path(folder),
                      options.patience)
        peers.wait(options.patience)
        failed = sum(run_model(options, peers, run, model) for model in options.model)
        peers.end()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
