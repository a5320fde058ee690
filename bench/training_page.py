"""The sections of docs/performance.md about training steps of Hugging Face models on a GPU."""

import pathlib

import package_module
from bars import number, ours_of, peers_of
from markdown_table import table

newest_runs = package_module.load("newest_runs")
PLOTS = pathlib.Path(__file__).resolve().parent.parent / "docs/performance/plots"
GIB = 2**30
PARTS = ("forward ", "backward ", "optimiser ")

STEPS = """\
Models of transformers with random bf16 weights in Qwen3's exact sizes, random ids as their own labels, AdamW with its \
moments in bf16. Each provider is a process that lives through the sweep; one at a time holds the GPU: between its turns \
a model gives back the memory of its weights, and draws them again from the same seed, so that all see the same \
weights and batches (losses are compared). Rounds in changing order, three steps dropped in each, then five that follow \
each other without the host waiting; medians over all rounds; times of the GPU between the starts of two steps; memory \
as PyTorch counts it. Out of memory counts only for a process that had the GPU to itself. `compile` is torch.compile of \
the whole model with fixed shapes; since transformers then makes a dense mask, it is given \
`attention_mask={'full_attention': None}`, which keeps attention causal. Hatched and `tegula.optim.AdamW`: with \
Tegula's optimiser. `tegula` is the default, deterministic mode; `tegula_any_order` lets backwards add in any order."""


def command_of(model, shape):
    """What measures a case again."""
    target = {"qwen3-0.6b": "bench-small", "qwen3-8b": "bench-8b-seq"}.get(model, "bench-small")
    other = "" if target != "bench-small" or model == "qwen3-0.6b" else f"--model {model} "
    return f'make {target} BENCH_FLAGS="{other}--shape {shape}"'


def line_of(row, best):
    words = row["note"].split("; ")
    parts = [word for word in words if word.startswith(PARTS)]
    figures = [""] * 5
    if row["ms"]:
        figures = [f"{number(row, 'tokens_per_s'):.0f}", f"{number(row, 'ms'):.1f}",
                   " + ".join(word.split()[1] for word in parts),
                   f"{number(row, 'peak_bytes') / GIB:.1f}",
                   f"{best / number(row, 'ms'):.3f}" if best else ""]
    return row["impl"], row["config"], *figures, "; ".join(w for w in words if w not in parts)


def pictures(stem):
    """Those that were drawn."""
    return [f"![{path.stem}](performance/plots/{path.name})"
            for path in sorted(PLOTS.glob(f"{stem}_*.svg"))]


def steps_section(rows, cases):
    found = sorted((case, lines) for case, lines in newest_runs.with_failures(rows, cases).items()
                   if case[0] == "model")
    if not found:
        return
    yield "## Training steps on a GPU"
    yield ""
    yield STEPS
    yield ""
    for model in dict.fromkeys(case[1] for case, _ in found):
        yield f"### {model}"
        yield ""
        for picture in pictures(f"{model}_bf16".replace(".", "_")):
            yield picture
            yield ""
        for case, lines in ((case, lines) for case, lines in found if case[1] == model):
            timed = [row for row in lines if row["ms"]]
            best = min((number(row, "ms") for row in peers_of(timed)), default=0)
            mine = ours_of(timed)
            yield (f"{case[3]} `{case[4]}`, {mine['device']}, commit `{mine['commit']}`, "
                   f"{mine['date'][:10]}, {number(mine, 'tflops'):.0f} TFLOP/s: "
                   f"`{command_of(case[1], case[4])}`")
            yield ""
            yield from table(("provider", "configuration", "tokens/s", "ms",
                              "forward + backward + optimiser", "peak GiB",
                              "best peer's time over it", "note"),
                             [line_of(row, best) for row in lines])
    versions = sorted({(row["impl"], row["version"]) for _, lines in found for row in lines})
    yield "Versions: " + "; ".join(f"{impl}: {version}" for impl, version in versions if version) + "."
    yield ""
