"""The sections of docs/performance.md about training Hugging Face models on GPUs: what
`python -m tegula.bench` measured."""

import pathlib

from pages.bars import number, ours_of
from pages.markdown_table import table
from tegula_bench import newest_runs, qwen3_sizes, result_tables, step_cases

of_suite = result_tables.of_suite
PLOTS = pathlib.Path(__file__).resolve().parents[2] / "docs/performance/plots"

STEPS = """\
Models of transformers in Qwen3's exact sizes, random weights in bf16, random ids as their own \
labels, AdamW with its moments in bf16. Each provider is a process that lives through the sweep, \
and one at a time has the GPU: between its turns a model gives back the memory of its weights, \
and draws them again from the same seed, so that all see the same weights and batches; losses \
are compared: a note names the first that is 0.2 % off. Rounds in changing order; in each one to \
three steps are dropped, then two to five follow each other without the host waiting. Medians \
over all rounds; times of the GPU from the start of a \
step to the next one's; memory as PyTorch counts it. MHz: the clock while the last steps ran. \
An H200 that multiplies all the time is at the limit of its power, and clocks down: whoever \
leaves it fewer pauses has the lower clock, and gains less than the time of its kernels \
promises. Out of memory counts only for a process \
that had the GPU to itself. `compile` is torch.compile of the whole model for fixed shapes; \
transformers would then make a dense mask, so it is given `attention_mask={'full_attention': \
None}`, which keeps attention causal. `tegula` is the default, deterministic mode; \
`tegula_any_order` lets backwards add in any order. The bars judge the best of ours in the \
default mode."""

RUNTIME = """\
The runtime's own training beside a plain PyTorch model under autocast, f32 master weights and \
clipping for both; each a process of its own, in turn, the first step dropped."""

PROFILE = """\
Time of the kernels of one step (torch.profiler), by what their names say; `idle` is what a step \
takes without the profiler over their sum. Roofs: the flops or bytes that the step needs at \
least, at the rate of a bf16 product of 8192 x 8192 x 8192 or of a copy of 1 GiB, measured in \
the same run. Shares above 100 %: a kernel that reads more than it writes, or finds inputs in the \
L2 cache, outruns a copy; and a peer may do part of that work in kernels of another kind, as \
transformers multiplies after its activation among `other element-wise`."""

LOSS = """\
Training on text (bytes as ids), from the same weights on the same batches. What bf16 alone does \
to the stock model, the distance of its losses to those of the same training in f32 (`hf_f32`), \
is the measure for ours."""

DEVICES = """\
The batch of each GPU stays the same; beside one GPU with that batch, and with losses beside \
those of one GPU that takes the global batch in pieces."""

FUNCTIONS = """\
Functions of `tegula.ops` as a program calls them, one call after the other, on several sets of \
inputs; `fwdbwd` with all gradients by autograd. Small ones therefore show the host. Kernels \
alone stand above."""


def command_of(model, shape):
    """What measures a case again."""
    if model not in qwen3_sizes.SIZES:
        return "bench/train_step.py --device cuda"
    names = {command: model for command, (model, _) in step_cases.SWEEPS.items()}
    target = "8b-seq" if model == names["8b-seq"] else "small"
    other = "" if names[target] == model else f"--model {model} "
    return f'make bench-{target} BENCH_FLAGS="{other}--shape {shape}"'


def by_length(item):
    """Order of a case: its model, then batch and tokens."""
    case, _ = item
    shape = step_cases.case_of("", case[4].split("_n")[0].split("_x")[0], "")
    return case[1], case[3], shape.checkpointing, shape.seq, shape.batch, case[4]


def pictures(stem):
    """Those that were drawn."""
    for path in sorted(PLOTS.glob(f"{stem}.svg")):
        yield f"![{path.stem}](performance/plots/{path.name})"
        yield ""


def where(rows):
    mine = ours_of([row for row in rows if row["ms"]])
    return f"{mine['device']}, commit `{mine['commit']}`, {mine['date'][:10]}"


def section(heading, text):
    yield f"## {heading}"
    yield ""
    yield text
    yield ""


def steps_section(cases):
    found = sorted(of_suite(cases, "model"), key=by_length)
    if not found:
        return
    yield from section("Training steps on a GPU", STEPS)
    for model in dict.fromkeys(case[1] for case, _ in found):
        yield f"### {model}"
        yield ""
        if model not in qwen3_sizes.SIZES:
            yield RUNTIME
            yield ""
        stem = f"{model}_*_".replace(".", "_")
        for kind in ("throughput", "memory", "latency"):
            yield from pictures(stem + kind)
        for case, rows in ((case, rows) for case, rows in found if case[1] == model):
            rate = number(ours_of([row for row in rows if row["ms"]]), "tflops")
            yield (f"{case[3]} `{case[4]}`: {where(rows)}, {rate:.0f} TFLOP/s; "
                   f"`{command_of(case[1], case[4])}`")
            yield ""
            yield from table(*result_tables.steps(rows))
    versions = sorted({(row["impl"], row["version"]) for _, rows in found for row in rows})
    yield "Versions: " + "; ".join(f"{impl}: {version}" for impl, version in versions if version)
    yield ""


def profile_section(cases):
    found = sorted(of_suite(cases, "profile"), key=by_length)
    if not found:
        return
    yield from section("Where a step's time goes", PROFILE)
    for case, rows in found:
        yield f"### {case[1]} {case[4]}"
        yield ""
        flags = f'BENCH_FLAGS="--model {case[1]} --shape {case[4]}"'
        yield f"{where(rows)}; `make bench-profile {flags}`"
        yield ""
        yield from pictures(f"{case[1]}_{case[3]}_{case[4]}_kernels".replace(".", "_"))
        yield from table(*result_tables.kinds(rows))
        yield from table(*result_tables.longest(rows))


def loss_section(cases):
    found = sorted(of_suite(cases, "loss"), key=by_length)
    if not found:
        return
    yield from section("Losses of training on text", LOSS)
    for case, rows in found:
        yield f"{case[1]} `{case[4]}`: {where(rows)}; `make bench-loss`"
        yield ""
        yield from table(*result_tables.losses(rows))


def devices_section(cases):
    found = sorted(of_suite(cases, "gpus"), key=by_length)
    if not found:
        return
    yield from section("Several GPUs", DEVICES)
    for case, rows in found:
        gpus = case[4].rpartition("_x")[2]
        way = "ddp" if any(row["config"].startswith("ddp") for row in rows) else "fsdp"
        command = f'; `make bench-{way} BENCH_FLAGS="--gpus {gpus}"`' if gpus != "1" else ""
        yield f"{case[1]} `{case[4]}`: {where(rows)}{command}"
        yield ""
        yield from table(*result_tables.devices(rows))


def functions_section(cases):
    found = of_suite(cases, "functions")
    if not found:
        return
    yield from section("Functions of the Python package on a GPU", FUNCTIONS)
    yield (f"{where(found[0][1])}; `make bench-ops`, `make bench-rmsnorm`, `make bench-lce`")
    yield ""
    yield from table(*result_tables.functions(found))


def sections(rows, cases):
    """cases: the runs that count; what they could not measure comes from `rows`."""
    whole = newest_runs.with_failures(rows, cases)
    for part in (steps_section, profile_section, loss_section, devices_section, functions_section):
        yield from part(whole)
