"""A model beside transformers: `python -m tegula.compare --model tile-medium --batch-size 2 --seq-len 32`.

Both have the same weights: ours are saved, and transformers loads them. Logits are compared, with --grad every gradient, and
with --benchmark the times of a forward pass, ours and theirs in turn in one process. The exit code is 1 where they disagree.

In f32 the largest difference may be 1e-5 of the largest logit. In 16 bits, ours may differ from f32 by twice as much as
transformers does. --all takes the small presets, GPT-2, and a tiny shape of every family; with --output-dir it leaves
comparison_data.json and comparison_dashboard.html, which need no network.
"""

from __future__ import annotations

import argparse
import json
import math
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from typing import Any

import tegula

_F32_BOUND = 1e-5
_DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_PEERS = ("eager", "compile", "reduce-overhead")
# A tiny shape of each family, by its name on the command line.
_LLAMAS = dict(
    hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=128, initializer_range=0.1,
)  # fmt: skip
_TINY: dict[str, dict[str, Any]] = {
    "gpt2-tiny": dict(n_layer=2, n_head=4, n_embd=64, n_positions=128, initializer_range=0.1),
    "qwen3-tiny": dict(**_LLAMAS, head_dim=16),
    "qwen2-tiny": dict(**_LLAMAS),
    "llama-tiny": dict(**_LLAMAS),
    "gpt_oss-tiny": dict(
        **_LLAMAS, head_dim=16, num_local_experts=4, num_experts_per_tok=2, sliding_window=8,
        rope_parameters=dict(
            rope_type="yarn", rope_theta=150000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
            original_max_position_embeddings=32,
        ),
    ),
    "qwen3_moe-tiny": dict(**_LLAMAS, head_dim=16, moe_intermediate_size=48, num_experts=4, num_experts_per_tok=2, norm_topk_prob=True),
    "mixtral-tiny": dict(**_LLAMAS, num_local_experts=4, num_experts_per_tok=2),
}  # fmt: skip
_TINY_VOCAB = 257
# transformers' Conv1D has [in, out].
_TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m tegula.compare", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--model", default="nano", help='a preset ("nano", "tile-medium", ...), "qwen3-tiny" or another family\'s tiny shape, a directory, or "all"')
    parser.add_argument("--all", action="store_true", help="the small presets, gpt2, and the tiny shapes")
    parser.add_argument("--batch-size", type=int, default=2)
    parser.add_argument("--seq-len", type=int, default=32)
    parser.add_argument("--vocab-size", type=int, default=0, help="of a preset; 0: its family's")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default="cpu", help="cpu, cuda or cuda:N")
    parser.add_argument("--dtype", choices=_DTYPES, default="f32", help="of the weights")
    parser.add_argument("--grad", action="store_true", help="compare every gradient, too (f32)")
    parser.add_argument("--benchmark", action="store_true", help="time both")
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--peers", default=",".join(_PEERS), help=f"of the benchmark: some of {', '.join(_PEERS)}")
    parser.add_argument("--json", action="store_true", help="print one JSON object for each model")
    parser.add_argument("--output-dir", type=pathlib.Path, help="for comparison_data.json and comparison_dashboard.html")
    parser.add_argument("--svg", action="store_true", help="a small page: charts drawn by matplotlib, not by Plotly")
    chosen = parser.parse_args(arguments)
    if min(chosen.batch_size, chosen.seq_len, chosen.iterations) < 1:
        parser.error("--batch-size, --seq-len, --iterations: expected 1 or more")
    if set(chosen.peers.split(",")) - set(_PEERS):
        parser.error(f"--peers: expected some of {', '.join(_PEERS)}, got {chosen.peers}")
    if chosen.grad and chosen.dtype != "f32":
        parser.error("--grad: expected --dtype f32")
    return chosen


def _names(options: argparse.Namespace) -> list[str]:
    if not options.all and options.model != "all":
        return [options.model]
    return [*(preset["name"] for preset in tegula.presets() if preset["hidden_size"] <= 256), "gpt2", *_TINY]


def _config(name: str, options: argparse.Namespace) -> tegula.ModelConfig:
    if name in _TINY:
        return tegula.ModelConfig(name.removesuffix("-tiny"), vocab_size=options.vocab_size or _TINY_VOCAB, **_TINY[name])
    if "/" in name or name.startswith("."):
        return tegula.ModelConfig.from_pretrained(name)
    return tegula.ModelConfig.preset(name, options.vocab_size or None)


def check(names: list[str], options: argparse.Namespace) -> None:
    """Raises what can be known to be wrong before anything is measured."""
    for name in names:
        longest = _config(name, options).max_position_embeddings
        if options.seq_len > longest:
            raise ValueError(f"--seq-len: expected at most {longest} (the positions of {name}), got {options.seq_len}")
    if options.output_dir:
        from tegula_bench.dashboard import chart_page

        chart_page.check(options.output_dir, options.svg)


def _make(name: str, options: argparse.Namespace) -> tegula.Model:
    if name in _TINY:
        return tegula.Model(_config(name, options), seed=options.seed)
    if "/" in name or name.startswith("."):
        return tegula.Model.from_pretrained(name, dtype=_DTYPES[options.dtype])
    return tegula.Model.from_preset(name, seed=options.seed, vocab_size=options.vocab_size or None)


def _relative(got: Any, want: Any) -> float:
    return float((got - want).abs().max() / want.abs().max())


def _within(differences: Iterable[float], bound: float) -> bool:
    """NaN is not, and an infinite bound bounds nothing."""
    return math.isfinite(bound) and all(one <= bound for one in differences)


class Pair:
    """The same model twice."""

    def __init__(self, name: str, options: argparse.Namespace, directory: str) -> None:
        import torch
        from transformers import AutoModelForCausalLM
        from transformers.utils import logging

        logging.disable_progress_bar()
        first = _make(name, options)
        first.save_pretrained(directory, dtype=_DTYPES[options.dtype])
        self.name, self.device = name, options.device
        if options.device != "cpu" and not torch.cuda.is_available():
            raise NotImplementedError(f"--device: expected a GPU that PyTorch has, got {options.device}")
        self.ours = tegula.Model.from_pretrained(directory, device=options.device)
        self.theirs = AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, _DTYPES[options.dtype]))
        self.theirs.eval().to(options.device)
        vocab = self.ours.info["vocab_size"]
        generator = torch.Generator().manual_seed(options.seed)
        self.ids = torch.randint(vocab, (options.batch_size, options.seq_len), generator=generator).to(options.device)

    def logits(self) -> dict[str, Any]:
        """What agrees, and how far."""
        import torch

        with torch.no_grad():
            theirs = self.theirs(self.ids, use_cache=False).logits.float()
            ours = self.ours(self.ids)
            difference, bound = _relative(ours, theirs), _F32_BOUND
            if self.theirs.dtype != torch.float32:
                wide = self.theirs.float()(self.ids, use_cache=False).logits
                self.theirs.to(getattr(torch, self.ours.dtype))
                difference, bound = _relative(ours, wide), 2 * _relative(theirs, wide) + _F32_BOUND
                theirs = wide
        top = min(5, ours.shape[-1])
        five, others = ours.topk(top).indices.sort().values, theirs.topk(top).indices.sort().values
        return {
            "difference": difference,
            "bound": bound,
            "top1": float((ours.argmax(-1) == theirs.argmax(-1)).float().mean()),
            "top5": float((five == others).all(-1).float().mean()),
        }

    def gradients(self) -> dict[str, float]:
        """The largest difference of each parameter's gradient."""
        import torch

        targets = self.ids.roll(-1, 1)
        logits = self.theirs(self.ids, use_cache=False).logits
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).backward()
        rows, length = self.ids.shape
        with tegula.Trainer(self.ours, batch_size=rows, sequence_length=length, num_steps=1, learning_rate=1.0) as trainer:
            trainer.backward(self.ids, targets)
            found = trainer.gradients()
        named = dict(self.theirs.named_parameters())
        result = {}
        for name, gradient in found.items():
            want = named[name.replace("block_sparse_moe", "mlp")].grad.cpu()
            if self.ours.config.model_type == "gpt2" and name.endswith(_TRANSPOSED):
                want = want.T
            result[name] = _relative(torch.from_dlpack(gradient), want)
        self.theirs.zero_grad()
        return result

    def times(self, iterations: int, peers: list[str]) -> dict[str, dict[str, float]]:
        """Milliseconds of a forward pass, until its logits are there, all in turn: their median, mean, ..."""
        import torch

        from tegula_bench.time_spread import spread_of

        dtype = str(self.theirs.dtype).removeprefix("torch.")
        if set(peers) - {"eager"}:
            torch.compiler.reset()  # what earlier models compiled counts towards a limit, past which peers run eagerly
        runs: dict[str, Callable[[], Any]] = {"tegula": lambda: self.ours(self.ids, dtype=dtype)}
        for peer in peers:
            model = self.theirs
            if peer != "eager":
                model = torch.compile(model, mode="reduce-overhead" if peer == "reduce-overhead" else "default")
            runs[peer] = lambda model=model: model(self.ids, use_cache=False).logits
        spent: dict[str, list[float]] = {name: [] for name in runs}
        with torch.no_grad():
            for number in range(iterations + 3):
                for name, run in runs.items():
                    start = time.perf_counter()
                    run()
                    if self.device != "cpu":
                        torch.cuda.synchronize(self.device)
                    if number >= 3:  # the first ones compile and warm up
                        spent[name].append(1e3 * (time.perf_counter() - start))
        return {name: spread_of(times) for name, times in spent.items()}


def compare(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """All that was asked for, of one model."""
    with tempfile.TemporaryDirectory() as directory:
        pair = Pair(name, options, directory)
        shape = {"batch_size": options.batch_size, "seq_len": options.seq_len, "config": shape_of(pair.ours.info)}
        result: dict[str, Any] = {"model": pair.name, "dtype": options.dtype, "device": options.device, **shape, **pair.logits()}
        agrees = _within([result["difference"]], result["bound"])
        if options.grad:
            result["gradients"] = pair.gradients()
            agrees = agrees and _within(result["gradients"].values(), _F32_BOUND)
        if options.benchmark:
            result["times"] = pair.times(options.iterations, options.peers.split(","))
            result["milliseconds"] = {name: times["median"] for name, times in result["times"].items()}
        result["agrees"] = agrees
    return result


def shape_of(info: dict[str, Any]) -> dict[str, int]:
    """Sizes by the names of GPT-2's config.json, as the predecessor's data have them."""
    return {
        "n_layer": info["num_hidden_layers"], "n_head": info["num_attention_heads"], "n_embd": info["hidden_size"],
        "vocab_size": info["vocab_size"],
    }  # fmt: skip


def _write_pages(results: list[dict[str, Any]], options: argparse.Namespace) -> None:
    from tegula_bench import comparison_page

    page = comparison_page.write(options.output_dir, results, options.device, svg=options.svg)
    print(f"tegula.compare: {page}", file=sys.stderr)


def _show(result: dict[str, Any]) -> None:
    print(f"{result['model']}, {result['dtype']}, {result['device']}: {'agrees' if result['agrees'] else 'DISAGREES'}")
    print(f"  logits: largest difference {result['difference']:.1e} of the largest, at most {result['bound']:.1e}")
    print(f"  most probable token: {result['top1']:.1%}, five most probable: {result['top5']:.1%}")
    if "gradients" in result:
        name, worst = max(result["gradients"].items(), key=lambda item: (math.isnan(item[1]), item[1]))
        print(f"  {len(result['gradients'])} gradients: largest difference {worst:.1e} ({name}), at most {_F32_BOUND:.1e}")
    times = result.get("milliseconds", {})
    for name, spent in times.items():
        ratio = "" if name == "tegula" else f", {spent / times['tegula']:.2f}x tegula's time"
        print(f"  {name}: {spent:.3f} ms{ratio}")


def _as_json(result: dict[str, Any]) -> str:
    from tegula_bench.dashboard.chart_data import finite

    return json.dumps(finite(result), allow_nan=False)


_ERRORS = (ValueError, TypeError, NotImplementedError, RuntimeError, OSError, ModuleNotFoundError)


def _complain(error: Exception) -> int:
    print(f"tegula.compare: {error}", file=sys.stderr)
    return 2


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    names = _names(options)
    try:
        check(names, options)
    except _ERRORS as error:
        return _complain(error)
    code = 0
    results: list[dict[str, Any]] = []
    for name in names:
        try:
            result = compare(name, options)
        except _ERRORS as error:  # the other models are worth their time
            code = _complain(error)
            continue
        code = max(code, 0 if result["agrees"] else 1)
        results.append(result)
        print(_as_json(result)) if options.json else _show(result)
        sys.stdout.flush()
    if options.output_dir and results:
        try:
            _write_pages(results, options)
        except _ERRORS as error:
            code = _complain(error)
    return code


if __name__ == "__main__":
    sys.exit(main())
