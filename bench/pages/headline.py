#!/usr/bin/env python3
"""Writes the caption of README.md's chart from bench/results/h200.csv, between the lines

  <!-- headline -->
  <!-- end of headline -->

and draws the chart above it, docs/performance/plots/qwen3-8b_overview.svg and .png, if matplotlib
is installed. Nothing stands there where the record holds no step of Qwen3-8B.

  headline.py [--csv FILE] [--readme FILE] [--plots DIR]
"""

import argparse
import pathlib
import re
import sys

import results_csv
from pages import decode_page
from pages.bars import newest, number, ours_of, peers_of
from pages.training_bars import GIB
from tegula_bench.results import newest_runs, step_plots

ROOT = pathlib.Path(__file__).resolve().parents[2]
BLOCK = re.compile(r"(<!-- headline -->\n).*?(<!-- end of headline -->)", re.S)
CASES = [("qwen3-0.6b", "b4_s4096", "Qwen3-0.6B, 4 x 4096 tokens"),
         ("qwen3-8b", "b1_s4096", "Qwen3-8B, 1 x 4096"), ("qwen3-8b", "b1_s8192", "1 x 8192"),
         ("qwen3-8b", "b1_s16384", "1 x 16384"),
         ("qwen3-8b", "b1_s32768_ckpt", "1 x 32768, gradient checkpointing")]
NAMES = {"hf": "transformers", "torch": "PyTorch", "cudnn": "cuDNN", "fa2": "FlashAttention-2", "compile": "torch.compile",
         "compile_kept": "torch.compile with attention's outputs kept", "liger": "Liger-Kernel",
         "liger_noflce": "Liger-Kernel without its fused loss"}

# ---- the chart ----

CHART = "qwen3-8b_overview"
CHART_MODEL = "qwen3-8b"
CHART_NAMES = {"hf": "transformers", "liger": "Liger-Kernel", "liger_noflce": "Liger-Kernel, loss not fused",
               "compile": "torch.compile", "tegula": "Tegula"}


def charted(cases):
    """shape -> impl -> the fastest row, or None for out of memory; torch.compile in the better of its forms."""
    found = {}
    for model, shape, _ in CASES:
        rows = cases.get(("model", model, "step", "bf16", shape))
        if model != CHART_MODEL or not rows:
            continue
        best = found[shape] = {}
        for row in rows:
            impl = "compile" if row["impl"] == "compile_kept" else row["impl"]
            impl = "tegula" if impl == "tegula+compile" else impl
            if not row["ms"]:
                best.setdefault(impl, None)
            elif impl in CHART_NAMES and (not best.get(impl) or number(row, "ms") < number(best[impl], "ms")):
                best[impl] = row
    return found


def draw(cases, folder):
    """Whether the chart was drawn."""
    plt, found = step_plots.pyplot(), charted(cases)
    if not plt or not found:
        return False
    mine = next(iter(found.values()))["tegula"]
    title = f"Training Qwen3-8B on one {mine['device']}: bf16, AdamW, one sequence a step"
    step_plots.save(plt, step_plots.overview(plt, found, CHART_NAMES, title), folder, CHART)
    return True


# ---- the figures ----


def figures(row):
    return (f"{number(row, 'tokens_per_s'):.0f} tokens/s, "
            f"{number(row, 'peak_bytes') / GIB:.1f} GiB")


def name_of(row):
    """In words, Liger-Kernel with its version."""
    name, version = NAMES.get(row["impl"], row["impl"]), row["version"].split()
    return name.replace("Liger-Kernel", f"Liger-Kernel {version[0]}") if version else name


def best_of(rows):
    """Peer -> its fastest row, the fastest peer first."""
    found = {}
    for row in sorted(peers_of(rows), key=lambda row: number(row, "ms")):
        found.setdefault(row["impl"], row)
    return found


def line_of(what, rows):
    """Ours, and each peer's best."""
    beside = "; ".join(f"{name_of(row)} {figures(row)}" for row in best_of(rows).values())
    return what, figures(ours_of(rows)), beside


def versions(cases):
    """Card, commit and versions of everyone in these cases."""
    rows = [row for found in cases for row in found]
    words = [row["version"].split() for row in rows]
    named = {"PyTorch": "torch", "transformers": "transformers"}
    said = {name: {after for own in words for word, after in zip(own, own[1:]) if word == key}
            for name, key in named.items()}
    said["Liger-Kernel"] = {row["version"].split()[0] for row in rows
                            if row["impl"].startswith("liger") and row["version"]}
    parts = [f"{name} {' and '.join(sorted(found))}" for name, found in said.items() if found]
    commits = {}
    for found in cases:
        commits.setdefault(ours_of(found)["device"], set()).add(ours_of(found)["commit"][:7])
    where = " and ".join(f"one {device} at commit{'s' * (len(own) > 1)} {decode_page.words(sorted(own))}" for device, own in sorted(commits.items()))
    return ", ".join([where, *parts])


def on(rows):
    mine = ours_of(rows)
    return f"{mine['device']}, `{mine['commit'][:7]}`"


def step_figures(cases):
    for model, shape, what in CASES:
        rows = cases.get(("model", model, "step", "bf16", shape))
        if rows:
            yield (*line_of(f"Qwen3-8B, {what}" if what[0] == "1" else what, rows), on(rows))


def pace_of(row):
    said = re.search(r"([\d.]+) of one GPU's pace", row["note"])
    return f"{number(row, 'tokens_per_s'):.0f} tokens/s, {said[1] if said else 'unknown'}"


def pace_figures(cases):
    rows = cases.get(("gpus", "qwen3-8b", "step", "bf16", "b1_s4096_x2"))
    if rows:
        yield ("Qwen3-8B on two GPUs, FSDP2, 1 x 4096 each; share of one GPU's throughput", pace_of(ours_of(rows)),
               "; ".join(f"{name_of(row)} {pace_of(row)}" for row in peers_of(rows)), on(rows))


def decode_figures(cases):
    for name, rows in decode_page.decoded(cases):
        beside = [f"{decode_page.BY[row['impl']]} {decode_page.rate(row)} tokens/s" for row in peers_of(rows)]
        yield (f"{name}, decoding one sequence behind 512 tokens, bf16", f"{decode_page.rate(ours_of(rows))} tokens/s",
               "; ".join(beside), on(rows))


CPU_STEP = ("model", "gpt2-124m", "step", "f32", "b4_s64")
OPS = [("attention", "fwd", "b1_h32_kv8_s4096_d128_causal", "attention forward, 32/8 heads of 128, 4096 tokens, causal"),
       ("attention", "bwd", "b1_h32_kv8_s4096_d128_causal", "its backward, sums in order"),
       ("linear_cross_entropy", "fwdbwd", "8192x4096x151936_nodbias_overwrite", "head with its loss, 8192 x 4096 x 151936, all gradients")]


def op_figures(cases):
    for op, direction, shape, what in OPS:
        rows = cases.get(("gpu", op, direction, "bf16", shape))
        if rows:
            said = [f"{name_of(row)} {number(row, 'ms'):.3g} ms" for row in best_of(rows).values()]
            yield what, f"{number(ours_of(rows), 'ms'):.3g} ms", "; ".join(said), on(rows)


def main_figures(cpu_cases, cases):
    """(what, ours, beside, where): what a user asks first. What was not measured is left out."""
    yield from step_figures(cases)
    yield from pace_figures(cases)
    yield from decode_figures(cases)
    rows = cpu_cases.get(CPU_STEP)
    if rows:
        beside = [f"{name_of(row)} {number(row, 'tokens_per_s'):.0f} tokens/s" for row in best_of(rows).values()]
        yield ("GPT-2 124M on the CPU, f32, 4 x 64 tokens", f"{number(ours_of(rows), 'tokens_per_s'):.0f} tokens/s",
               "; ".join(beside), on(rows))
    yield from op_figures(cases)


def gain(rows):
    """What ours gains in one case, peer by peer, the fastest first."""
    mine, theirs = ours_of(rows), best_of(rows)
    beside = [f"{number(row, 'ms') / number(mine, 'ms'):.2f} times {NAMES.get(impl, impl)} "
              f"({number(row, 'peak_bytes') / GIB:.1f} GiB)" for impl, row in theirs.items()]
    return (f"{number(mine, 'tokens_per_s'):.0f} tokens/s in {number(mine, 'peak_bytes') / GIB:.1f} GiB, "
            f"{', '.join(beside)}")


def with_torch_adamw(rows):
    """The same step of ours with PyTorch's optimiser, as the peers have it; "" where ours_of is that, or it was not measured."""
    mine = ours_of(rows)
    other = [row for row in rows if row["impl"] == mine["impl"] and "torch AdamW" in row["config"]]
    if not other or "torch AdamW" in mine["config"]:
        return ""
    impl, fastest = next(iter(best_of(rows).items()))
    return (f"That is with `tegula.optim.AdamW`; with PyTorch's fused AdamW, which the others have, it is {number(other[0], 'tokens_per_s'):.0f} "
            f"tokens/s, {number(fastest, 'ms') / number(other[0], 'ms'):.2f} times {NAMES.get(impl, impl)}.")


def lines(cases):
    """The caption of README's chart."""
    keys = [("model", model, "step", "bf16", shape) for model, shape, _ in CASES if model == CHART_MODEL]
    found = [cases[key] for key in keys if key in cases]
    if not found:
        return
    yield ""
    tokens = int(found[0][0]["shape"].partition("_s")[2])
    yield f"Training Qwen3-8B on {tokens} tokens, Tegula processes {gain(found[0])}."
    yield ""
    said = with_torch_adamw(found[0])
    if said:
        yield said
        yield ""
    told = decode_page.sentence(cases)
    if told:
        yield told
        found += [rows for _, rows in decode_page.decoded(cases)]
    yield (f"Random weights; {versions(found)}; all libraries of one figure were measured alternately in one run. "
           "[All figures](docs/performance.md).")
    yield ""


def filled(text, cases):
    block = "\n".join(lines(cases))
    return BLOCK.sub(lambda match: match.group(1) + block + "\n" * bool(block) + match.group(2),
                     text)


def main():
    parser = argparse.ArgumentParser(description="Writes README.md's figures of training steps and decoding.")
    parser.add_argument("--csv", type=pathlib.Path, default=ROOT / "bench/results/h200.csv")
    parser.add_argument("--readme", type=pathlib.Path, default=ROOT / "README.md")
    parser.add_argument("--plots", type=pathlib.Path, default=ROOT / "docs/performance/plots")
    options = parser.parse_args()
    text = options.readme.read_text(encoding="utf-8")
    if not BLOCK.search(text):
        parser.error(f"{options.readme}: expected <!-- headline --> and <!-- end of headline -->")
    rows = results_csv.read(options.csv)
    cases = newest(rows)
    options.readme.write_text(filled(text, cases), encoding="utf-8")
    if not draw(newest_runs.with_failures(rows, cases), options.plots):
        print("headline.py: no chart: expected matplotlib and steps of Qwen3-8B", file=sys.stderr)


if __name__ == "__main__":
    main()
