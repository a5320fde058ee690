"""The sections of docs/performance.md about training Hugging Face models on GPUs: what
`python -m tegula.bench` measured."""

import pathlib

from pages.bars import number, ours_of
from pages.markdown_table import table
from tegula_bench import model_sizes
from tegula_bench.results import newest_runs, result_tables
from tegula_bench.steps import step_cases

of_suite = result_tables.of_suite
PLOTS = pathlib.Path(__file__).resolve().parents[2] / "docs/performance/plots"

STEPS = """\
Models of transformers in Qwen3's exact sizes, with random weights in bf16, random ids that are \
their own labels, and AdamW with its moments in bf16.

- **Order.** Each provider is a process that lives through the sweep; one at a time uses the GPU. \
Rounds run in changing order. Each round drops one to three steps and times two to five that follow \
each other without synchronisation.
- **Same data.** Between its turns a process frees the memory of its weights and draws them again \
from the same seed, so all providers see the same weights and batches. A note names the first loss \
that differs by 0.2 %.
- **Figures.** Medians over all rounds; GPU time from the start of a step to the start of the next; \
memory as PyTorch counts it; MHz is the clock during the last steps.
- **Clocks.** An H200 that multiplies all the time reaches its power limit and lowers its clock. A \
provider with fewer pauses has the lower clock, so it gains less than its kernel times promise.
- **Out of memory** counts only for a process that had the GPU to itself.
- `compile` is torch.compile of the whole model for fixed shapes. transformers would then make a \
dense mask, so it is given `attention_mask={'full_attention': None}`, which keeps attention causal.
- `tegula` is the default, deterministic mode; `tegula_any_order` lets backwards add in any order. \
The bars judge the best of ours in the default mode."""

RUNTIME = """\
The runtime's own training beside a plain PyTorch model under autocast. Both keep f32 master weights \
and clip gradients; each is a process of its own, in turn, and its first step is dropped."""

PROFILE = """\
Time of the kernels of one step (torch.profiler), classified by name. `idle` is the time of a step \
without the profiler less the sum of its kernels.

Roofs: the least flops or bytes of the step, at the rate of a bf16 product of 8192 x 8192 x 8192 or \
of a copy of 1 GiB, measured in the same run. A share exceeds 100 % where a kernel reads more than \
it writes or finds inputs in the L2 cache, both faster than a copy. It also does where a peer \
does part of the work in kernels of another kind: transformers multiplies after its activation among \
`other element-wise`."""

LOSS = """\
Training on text (bytes as ids), from the same weights on the same batches. The measure is what bf16 \
alone does to the stock model: the distance of its losses to those of the same training in f32 \
(`hf_f32`)."""

DEVICES = """\
The batch of each GPU stays the same. Throughput is compared with one GPU and that batch, losses with \
one GPU that processes the global batch in pieces."""

FUNCTIONS = """\
Functions of `tegula.ops` as a program calls them, one call after the other, on several sets of \
inputs; `fwdbwd` computes all gradients by autograd. Small cases therefore show the time of the host. \
Times of the kernels alone are in the section on ops on a GPU."""


def command_of(model, shape):
    """What measures a case again."""
    if model not in model_sizes.SIZES:
        return "bench/train_step.py --device cuda"
    exact = [name for name, case in step_cases.SWEEPS.items() if case == (model, [shape])]
    if exact:
        return f"make bench-{exact[0]}"
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
        if model not in model_sizes.SIZES:
            yield RUNTIME
            yield ""
        stem = f"{model}_*_".replace(".", "_")
        for kind in ("throughput", "memory", "latency"):
            yield from pictures(stem + kind)
        for case, rows in ((case, rows) for case, rows in found if case[1] == model):
            if case[2] == "evaluation":
                yield f"Evaluation, {case[3]} `{case[4]}`: {where(rows)}; `make bench-evaluation`"
            else:
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


def sections(rows, cases, card=""):
    """cases: the runs that count; what they could not measure comes from `rows`. `card` ends the headings of a further
    card, which has no pictures: those are drawn from the first one's record."""
    whole = newest_runs.with_failures(rows, cases)
    for part in (steps_section, profile_section, loss_section, devices_section, functions_section):
        for line in part(whole):
            if not (card and line.startswith("![")):
                yield line + card if line.startswith("#") else line
