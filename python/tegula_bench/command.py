"""The command line of the benchmarks."""

import argparse
import functools
import importlib
import json
import math
import pathlib
import sys

from . import gpu_state
from .steps import step_cases
from .model_sizes import SIZES
from .steps.step_providers import ANY_ORDER, OPTIMISERS, PROVIDERS, USUAL

# Command -> the module with its run(options, command), and a description.
COMMANDS = {
    "small": ("step_command", "training steps of Qwen3-0.6B, 4 x 4096 tokens"),
    "8b": ("step_command", "training steps of Qwen3-8B, 4096 and 8192 tokens"),
    "8b-seq": ("step_command", "the same from 256 to 32768 tokens, the longest with gradient checkpointing"),
    "gpt-oss": ("step_command", "training steps of GPT-OSS 20B with 6 layers, 4096 tokens"),
    "qwen3-moe": ("step_command", "training steps of Qwen3-30B-A3B with 6 layers, 4096 tokens"),
    "evaluation": ("evaluation_command", "time and memory of evaluating that GPT-OSS on 8192 tokens"),
    "profile": ("profile_command", "where the time of a step goes, by kind of kernel"),
    "loss": ("loss_command", "losses of 50 steps on text: patched, stock, stock in f32"),
    "fsdp": ("sharded_command", "Qwen3-8B on several GPUs with FSDP2, beside one"),
    "ddp": ("sharded_command", "Qwen3-0.6B on several GPUs with DDP, beside one"),
    "rmsnorm": ("function_command", "tegula.ops.rms_norm beside PyTorch and Liger-Kernel"),
    "lce": ("function_command", "the head with its loss, 256 to 32768 tokens"),
    "ops": ("function_command", "each function of tegula.ops that a model's step has"),
    "report": ("report_command", "plots and a page of what the results file holds"),
}
FUNCTION_PROVIDERS = ("torch", "compile", "liger", "tegula")
UNFINISHED = 3  # exit status: the time of --minutes ran out


def words(text):
    return [word for word in text.split(",") if word]


def numbers(text):
    return [int(word) for word in words(text)]


def some_of(parser, flag, given, known):
    for name in given:
        if name not in known:
            parser.error(f"{flag}: expected some of {', '.join(known)}, got {name}")


def make_parser():
    listed = "\n".join(f"  {name:9} {what}" for name, (_, what) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="python -m tegula.bench", formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Measures Tegula beside its peers on GPU 0. Every figure goes to the results file; what it holds for "
        "this commit is not measured again.",
        epilog=f"commands:\n{listed}\n  all       everything but report\n\nproviders: {', '.join(PROVIDERS)}\n"
        f"models: {', '.join(SIZES)}\nExit status: 0, 1 if something failed, {UNFINISHED} if --minutes were over.",
    )  # fmt: skip
    parser.add_argument("command", choices=[*COMMANDS, "all"], metavar="COMMAND")
    what = parser.add_argument_group("what is measured")
    what.add_argument("--providers", type=words, help=f"default: {','.join(USUAL)}; steps: {ANY_ORDER}, too")
    what.add_argument("--optimiser", type=words, default=list(OPTIMISERS), help="of our providers: torch,tegula (both)")
    what.add_argument("--model", choices=SIZES, help="default: the command's")
    what.add_argument("--layers", type=int, default=0, help="of the model (all; gpt-oss, qwen3-moe: 6)")
    what.add_argument("--seq", type=numbers, help="lengths of sequences: 4096,8192")
    what.add_argument("--batch", type=int, help="sequences of a step")
    what.add_argument("--shape", type=words, help="the same as words: b1_s4096,b1_s32768_ckpt")
    what.add_argument("--checkpointing", action="store_true", help="gradient checkpointing in each of --seq")
    what.add_argument("--dtype", choices=step_cases.DTYPES, default="bf16")
    what.add_argument("--count", type=int, help="loss: steps (50); fsdp, ddp: steps whose losses are compared (20)")
    what.add_argument("--gpus", type=int, default=2, help="fsdp, ddp: how many (2)")
    what.add_argument("--text", type=pathlib.Path, help="loss: a file to train on (Python's help topics)")
    what.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    how = parser.add_argument_group("how long")
    how.add_argument("--rounds", type=int, default=2, help="in changing order (2)")
    how.add_argument("--steps", type=int, default=5, help="timed steps of a round (5)")
    how.add_argument("--warm-up", type=int, default=3, help="steps before those (3)")
    how.add_argument("--minutes", type=float, default=math.inf, help="begin no round that would end after that")
    how.add_argument("--patience", type=float, default=900, help="seconds for an answer of a provider (900)")
    where = parser.add_argument_group("where it goes")
    where.add_argument("--out", type=pathlib.Path, default=pathlib.Path("tegula-bench"), help="folder (tegula-bench)")
    where.add_argument("--csv", type=pathlib.Path, help="results file (results.csv in --out)")
    where.add_argument("--commit", help="what is measured, as the results file names it (the version)")
    where.add_argument("--again", action="store_true", help="measure what is recorded, too")
    where.add_argument("--json", action="store_true", help="rows as JSON on standard output instead of tables")
    where.add_argument("--no-report", action="store_true", help="draw nothing at the end")
    return parser


def parse(arguments):
    parser = make_parser()
    options = parser.parse_args(arguments)
    functions = COMMANDS.get(options.command, ("",))[0] == "function_command"
    some_of(parser, "--providers", options.providers or [], FUNCTION_PROVIDERS if functions else PROVIDERS)
    some_of(parser, "--optimiser", options.optimiser, OPTIMISERS)
    if min(options.rounds, options.steps) < 1 or options.warm_up < 0:
        parser.error("--rounds, --steps, --warm-up: expected numbers above 0, the last 0 or more")
    if options.layers < 0:
        parser.error(f"--layers: expected a number of at least 0, got {options.layers}")
    for shape in options.shape or []:
        try:
            step_cases.case_of("", shape, options.dtype)
        except ValueError as error:
            parser.error(f"--{error}")
    options.csv = options.csv or options.out / "results.csv"
    if not options.commit:
        import tegula

        options.commit = tegula.__version__
    return options


def main(arguments=None):
    options = parse(arguments)
    options.say = functools.partial(print, flush=True) if not options.json else lambda text: None
    why_not = "" if options.command == "report" else gpu_state.refusal(options.device)
    if why_not:
        sys.exit(f"tegula.bench: expected a GPU that nvidia-smi describes (or --device cpu), got: {why_not}")
    options.out.mkdir(parents=True, exist_ok=True)
    commands = [name for name in COMMANDS if name != "report"] if options.command == "all" else [options.command]
    rows, statuses = [], []
    for command in commands:
        module = importlib.import_module(f".{COMMANDS[command][0]}", __package__)
        status, found = module.run(options, command)
        statuses.append(status)
        rows += found
        if status == UNFINISHED:
            break
    if options.json:
        print(json.dumps(rows, indent=1))
    if not options.no_report and "report" not in commands:
        importlib.import_module(".report_command", __package__).run(options, "report")
    sys.exit(max(statuses))
