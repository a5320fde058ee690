#!/usr/bin/env python3
"""Times forward passes of GPTs on GPU 0, logits of all tokens, until they are there.

  forward_passes.py presets|headline|sizes|generate [--csv FILE] [--commit NAME] [--tegula PROGRAM] [--workers N]

presets    six presets, f32, 4 x 64 tokens, 100 passes each, by `tegula bench forward`; on GPU 0 and on the CPU
headline   6 layers of 128, 8 x 128 tokens, bf16 with bf16 logits: by `tegula bench forward`, by tegula.Model, and beside
           torch.compile, also with reduced overhead, and its calls in a CUDA graph
sizes      3 models x 4 batches x 3 lengths in f32 without TF32, tegula.Model beside compiled PyTorch, in turn. Workers compile
           at the same time; when all are done, one after the other measures
generate   256 tokens by tegula.Model beside `tegula generate`
The peer is GPT-2 in plain PyTorch (peers/plain_gpt.py). Medians.
"""

import argparse
import concurrent.futures
import importlib
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time

import torch

import tegula
from peers import plain_gpt
from tegula_bench import gpu_state
from tegula_bench.results import results_file
from tegula_bench.time_spread import spread_of

PRESETS = ("gpt_nano", "gpt_micro", "gpt_mini", "gpt_tile_small", "gpt_tile_medium", "gpt_tile_large")
MODELS = {"gpt-3x48": (3, 3, 48), "gpt-6x384": (6, 6, 384), "gpt-8x512": (8, 8, 512)}
BATCHES, LENGTHS = (1, 4, 8, 16), (64, 128, 256)
VOCABULARY, POSITIONS = 50257, 256
ROUNDS = 30


def options_of():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", choices=("presets", "headline", "sizes", "generate"))
    parser.add_argument("--csv", help="append rows to this results file")
    parser.add_argument("--commit", default=tegula.__version__)
    parser.add_argument("--tegula", default="tegula", help="the program")
    parser.add_argument("--workers", type=int, default=12, help="processes that compile the shapes of sizes")
    return parser.parse_args()


def spread_note(times):
    return "; ".join(f"{key} {times[key]:.4g} ms" for key in ("mean", "std", "p95", "p99"))


def row_of(name, dtype, shape, impl, times, tokens, config="", version="", **more):
    return dict(op=name, dir="fwd", dtype=dtype, shape=shape, config=config, impl=impl, version=version, ms=times["median"],
                ms_min=times["min"], ms_max=times["max"], tokens_per_s=1e3 * tokens / times["median"], note=spread_note(times),
                **more)  # fmt: skip


def bench_program(options, preset, dtype, batch, seq, device="cuda"):
    words = ["--preset", preset, "--dtype", dtype, "--logits-dtype", dtype, "--batch", str(batch), "--seq", str(seq)]
    command = [options.tegula, "bench", "forward", *words, "--iterations", "100", "--device", device, "--ops", "--json"]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    times = {key: said["ms" if key == "median" else f"ms_{key}"] for key in ("mean", "std", "min", "max", "median", "p95", "p99")}
    return times, said


def presets(options, run):
    for name in PRESETS:
        for device, more in (("cuda", {}), ("cpu", {"clock_mhz": ""})):
            times, said = bench_program(options, name, "f32", 4, 64, device)
            yield [row_of(name, "f32", "b4_s64", "tegula", times, 256, "tegula bench forward" + "; cpu" * (device == "cpu"), roof="ops",
                          roof_share=said["ops"]["share"], peak_bytes=said.get("device_peak_bytes", ""), **more)]  # fmt: skip


def in_turn(calls, rounds=ROUNDS, warm=5):
    """name -> spread of milliseconds, each until the GPU is done."""
    spent = {name: [] for name in calls}
    for number in range(rounds + warm):
        for name, call in calls.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            if number >= warm:
                spent[name].append(1e3 * (time.perf_counter() - start))
    return {name: spread_of(times) for name, times in spent.items()}


def replay(model, ids):
    """The compiled model's kernels in a CUDA graph of ours: nothing is left of its host."""
    for _ in range(3):
        model(ids)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = model(ids)
    return lambda: (graph.replay(), kept)


def ours_of(shape, dtype, positions, device="cuda"):
    layers, heads, width = shape
    config = tegula.ModelConfig(n_layer=layers, n_head=heads, n_embd=width, n_positions=positions, vocab_size=VOCABULARY)
    with tempfile.TemporaryDirectory() as folder:
        tegula.Model(config, seed=0).save_pretrained(folder, dtype=dtype)
        return tegula.Model.from_pretrained(folder, device=device)


def headline_peers():
    plain = plain_gpt.PlainGPT(6, 4, 128, POSITIONS, VOCABULARY).cuda().bfloat16().eval()
    ids = torch.randint(VOCABULARY, (8, 128), device="cuda")
    compiled, reduced = torch.compile(plain), torch.compile(plain, mode="reduce-overhead")
    compiled(ids)
    return compiled, reduced, ids


def headline(options, run):
    times, said = bench_program(options, "gpt_tile_medium", "bf16", 8, 128)
    common = dict(name="gpt_tile_medium", dtype="bf16", shape="b8_s128", tokens=1024)
    yield [row_of(impl="tegula", times=times, config="tegula bench forward", roof="ops", roof_share=said["ops"]["share"], **common)]
    for row in said["ops"]["rows"]:
        print("   ", row["op"], row["shape"], row["calls"], f"{1e3 * row['ms']:.1f} us", f"{100 * row['share']:.0f}%")
    with torch.inference_mode():
        compiled, reduced, ids = headline_peers()
        model = ours_of((6, 4, 128), "bfloat16", POSITIONS)
        out = torch.empty(8, 128, VOCABULARY, device="cuda", dtype=torch.bfloat16)
        calls = {
            "tegula": lambda: model(ids, out=out), "compile": lambda: compiled(ids), "reduce-overhead": lambda: reduced(ids),
            "compile+graph": replay(compiled, ids),
        }  # fmt: skip
        found = in_turn(calls, rounds=100)
    again, _ = bench_program(options, "gpt_tile_medium", "bf16", 8, 128)
    rows = [row_of(impl=name, times=times, config="from Python", version="" if name == "tegula" else torch.__version__, **common)
            for name, times in found.items()]  # fmt: skip
    yield [*rows, row_of(impl="tegula", times=again, config="tegula bench forward", **common)]


def size_calls(name, batch, seq):
    """The case's two passes, compiled. The peer's code is its own, so that no other case's guards are looked at in its calls."""
    plain = importlib.reload(plain_gpt).PlainGPT(*MODELS[name], POSITIONS, VOCABULARY).cuda().eval()
    ids = torch.randint(VOCABULARY, (batch, seq), device="cuda")
    compiled = torch.compile(plain, dynamic=False)
    compiled(ids)
    model, out = ours_of(MODELS[name], "float32", POSITIONS), torch.empty(batch, seq, VOCABULARY, device="cuda")
    return {"tegula": lambda: model(ids, out=out), "compile": lambda: compiled(ids)}


def begin_worker(ready, turn):
    begin_worker.ready, begin_worker.turn = ready, turn
    torch.backends.cuda.matmul.allow_tf32 = False


def run_sizes(cases):
    """Rows of the cases, which are compiled beside other workers' and measured alone."""
    try:
        with torch.inference_mode():
            calls = [size_calls(*case) for case in cases]
    except BaseException as error:
        print(f"{cases}: {error!r}", file=sys.stderr)  # the others' broken barrier may come first
        begin_worker.ready.abort()
        raise
    begin_worker.ready.wait()
    rows = []
    with begin_worker.turn, torch.inference_mode():
        for (name, batch, seq), passes in zip(cases, calls, strict=True):
            found, clock = in_turn(passes), gpu_state.clock_mhz()
            rows.append([row_of(name, "f32", f"b{batch}_s{seq}", impl, times, batch * seq, "from Python; no TF32",
                                "" if impl == "tegula" else torch.__version__, clock_mhz=clock) for impl, times in found.items()])  # fmt: skip
    return rows


def sizes(options, run):
    cases = [(name, batch, seq) for name in MODELS for batch in BATCHES for seq in LENGTHS]
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    processes = multiprocessing.get_context("spawn")
    ready, turn = processes.Barrier(options.workers), processes.Lock()
    with concurrent.futures.ProcessPoolExecutor(options.workers, processes, begin_worker, (ready, turn)) as pool:
        for rows in pool.map(run_sizes, (cases[i :: options.workers] for i in range(options.workers))):
            yield from rows


def generate(options, run):
    """Milliseconds of 256 tokens behind a prompt of 8, in turn; whole calls by the program's and the package's own clocks."""
    for device in ("cuda", "cpu") if torch.cuda.is_available() else ("cpu",):
        with tempfile.TemporaryDirectory() as folder:
            config = tegula.ModelConfig(n_layer=6, n_head=6, n_embd=384, n_positions=512, vocab_size=5000)
            tegula.Model(config).save_pretrained(folder)
            model = tegula.Model.from_pretrained(folder, device=device)
            ids = list(range(1, 9))
            spent = {"tegula": [], "tegula generate": []}
            for _ in range(5):
                said = model.generate(ids, 256, temperature=0, return_dict=True)["timings"][0]
                spent["tegula"].append(1e3 * said["token_seconds"])
                command = [options.tegula, "generate", folder, "--tokens", ",".join(map(str, ids)), "-n", "256", "--temperature", "0",
                           "--json", "--quiet", "--device", device]  # fmt: skip
                done = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
                spent["tegula generate"].append(done["timings"]["predicted_ms"])
            yield [row_of("gpt-6x384", "f32", "b1_s8_n256", impl, spread_of(times), 256, device) for impl, times in spent.items()]


def main():
    options = options_of()
    torch.backends.cuda.matmul.allow_tf32 = False
    name, driver = gpu_state.name_and_driver()
    run = results_file.Run(options.csv, options.commit, "forward", device=name, driver=driver)
    for rows in globals()[options.what](options, run):
        run.append([{"clock_mhz": gpu_state.clock_mhz(), **row} for row in rows])
        for row in rows:
            print(row["op"], row["dtype"], row["shape"], row["impl"], row["config"], f"{row['ms']:.4f} ms", row["note"], flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
