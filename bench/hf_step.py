#!/usr/bin/env python3
"""Times training steps of Hugging Face models on GPU 0: stock, patched by Tegula, Liger-Kernel,
torch.compile; each provider in processes of its own (hf_train.py), in turn.

  hf_step.py [--model qwen3-0.6b] [--shape b4_s4096] [--providers stock,liger,tegula]
             [--rounds 2] [--steps 12] [--build DIR] [--csv FILE] [--device cpu]

PYTHONPATH names the folder of the tegula package (build/release/python). Losses of the first steps
are compared with the stock model's. With --csv the figures are recorded; a provider that fails is
shown with its reason.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys

import gpu_device
import results_csv
from hf_train import MODELS, PROVIDERS

ROOT = pathlib.Path(__file__).resolve().parent.parent
IMPLS = {"stock": "torch", "tegula-adamw": "tegula"}
CONFIGS = {"stock": "sdpa, torch AdamW", "compile": "sdpa, torch AdamW",
           "liger": "with its fused loss, torch AdamW", "tegula": "torch AdamW",
           "tegula-adamw": "tegula.optim.AdamW"}
CLOSE = 2e-3  # of a loss, relative: bf16 steps in another order


def run(provider, options, batch, seq):
    """What a process printed, or why it failed."""
    command = [sys.executable, ROOT / "bench/hf_train.py", provider, "--model", options.model,
               "--batch", str(batch), "--seq", str(seq), "--steps", str(options.steps),
               "--device", options.device]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        return None, lines[-1][:160]
    return json.loads(done.stdout.splitlines()[-1]), ""


def compare_losses(found):
    """Each provider's losses beside the stock model's."""
    if not found.get("stock"):
        return
    for provider, runs in found.items():
        for theirs, mine in zip(found["stock"][0]["losses"], runs[0]["losses"] if runs else []):
            if not abs(mine - theirs) <= CLOSE * abs(theirs):
                print(f"{provider}: losses {runs[0]['losses'][:4]}, expected those of the stock "
                      f"model, {found['stock'][0]['losses'][:4]}", file=sys.stderr)
                break


def row_of(provider, runs, options, tokens, reason):
    row = dict(op=options.model, dir="step", dtype="bf16", shape=options.shape,
               impl=IMPLS.get(provider, provider), config=CONFIGS[provider], clock_mhz="",
               note=reason)
    if runs:
        steps = [ms for found in runs for ms in found["steps"]]
        ms = statistics.median(steps)
        row.update(version=runs[0]["version"], ms=ms, ms_min=min(steps), ms_max=max(steps),
                   tokens_per_s=1e3 * tokens / ms,
                   peak_bytes=max(found["peak_bytes"] for found in runs))
    return row


def parse_options():
    parser = argparse.ArgumentParser(description="Times training steps of Hugging Face models.")
    parser.add_argument("--model", choices=MODELS, default="qwen3-0.6b")
    parser.add_argument("--shape", default="b4_s4096", help="b BATCH _s TOKENS")
    parser.add_argument("--providers", default="tegula,tegula-adamw,stock,liger")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/release")
    parser.add_argument("--csv", type=pathlib.Path)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    options.providers = options.providers.split(",")
    for provider in options.providers:
        if provider not in PROVIDERS:
            parser.error(f"--providers: expected some of {','.join(PROVIDERS)}, got {provider}")
    if not re.fullmatch(r"b[1-9]\d*_s[1-9]\d*", options.shape):
        parser.error(f"--shape: expected b4_s4096, got {options.shape}")
    return options


def main():
    options = parse_options()
    batch, seq = map(int, re.findall(r"\d+", options.shape))
    commit = subprocess.run([options.build / "bench/bench_ops", "--commit"], check=True,
                            capture_output=True, text=True).stdout.strip()
    device, driver = gpu_device.name_and_driver() if options.device == "cuda" else ("", "")
    recorder = results_csv.Run(options.csv, commit, "model", device=device, driver=driver)
    found, reasons = {provider: [] for provider in options.providers}, {}
    for number in range(options.rounds):
        for step in range(len(options.providers)):
            provider = options.providers[(number + step) % len(options.providers)]
            if provider in reasons:
                continue
            result, reason = run(provider, options, batch, seq)
            if result:
                found[provider].append(result)
            else:
                reasons[provider] = f"failed: {reason}"
    compare_losses(found)
    rows = [row_of(provider, found[provider], options, batch * seq, reasons.get(provider, ""))
            for provider in options.providers]
    for row in rows:
        figures = (f"{row['ms']:9.1f} ms {row['tokens_per_s']:9.0f} tokens/s "
                   f"{row['peak_bytes'] / 2**30:6.1f} GiB" if row.get("ms") else row["note"])
        print(f"{row['impl']:8} {row['config']:34} {figures}")
    recorder.append(rows)
    sys.exit(1 if reasons else 0)


if __name__ == "__main__":
    main()
