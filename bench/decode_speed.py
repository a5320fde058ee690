"""Decoding and prefill on a GPU, beside transformers with a static cache and torch.compile.

    bench/decode_speed.py --build build/release [--model qwen3-0.6b ...] [--batch 1 32] [--csv FILE]

bf16, random weights, 512 tokens in the cache. Ours: `tegula bench table`. The peer: the model class
of transformers, its step compiled with reduced overhead (CUDA graphs), argmax on the device and fed
back, without generate(). Rows have the columns of bench/results."""

import argparse
import json
import statistics
import subprocess
import time

import results_csv
from tegula_bench import gpu_state

VOCAB = {"gpt2": 50257, "qwen3-0.6b": 151936, "qwen3-8b": 151936}
QWEN = {"qwen3-0.6b": dict(hidden_size=1024, intermediate_size=3072, num_hidden_layers=28,
                           num_attention_heads=16, num_key_value_heads=8, tie_word_embeddings=True),
        "qwen3-8b": dict(hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
                         num_attention_heads=32, num_key_value_heads=8,
                         tie_word_embeddings=False)}
DEPTH, TOKENS, PROMPT = 512, 128, 2048


def shape_of(test, batch):
    return f"b{batch}_{test}"


def ours(build, model, batch, runs):
    """Rows of `tegula bench table`, and the plan that it names."""
    prompt = PROMPT if batch == 1 and model != "gpt2" else 0
    command = [f"{build}/src/cli/tegula", "bench", "table", "--preset", model, "--vocab-size",
               str(VOCAB[model]), "--dtype", "bf16", "--device", "cuda", "-p", str(prompt), "-n",
               str(TOKENS), "-d", str(DEPTH), "--batch", str(batch), "--steps", str(runs), "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    plan = done.stderr.strip().rpartition(": ")[2]
    for line in done.stdout.splitlines():
        row = json.loads(line)
        yield row, plan


def make_peer(model):
    import torch
    from transformers import AutoModelForCausalLM, GPT2Config, Qwen3Config
    config = (GPT2Config(vocab_size=VOCAB[model]) if model == "gpt2" else
              Qwen3Config(vocab_size=VOCAB[model], head_dim=128, max_position_embeddings=40960,
                          **QWEN[model]))
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        made = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
        torch.set_default_dtype(torch.float32)
    return made


def peer_seconds(model, runs):
    """Seconds of a token, `runs` times."""
    import torch
    from transformers import StaticCache
    net = make_peer(model)
    cache = StaticCache(config=net.config, max_batch_size=1, max_cache_len=DEPTH + TOKENS + 64,
                        device="cuda", dtype=torch.bfloat16)
    ids = torch.randint(0, VOCAB[model], (1, DEPTH), device="cuda")

    def step(token, position):
        logits = net(token, past_key_values=cache, cache_position=position,
                     position_ids=position[None], use_cache=True).logits
        return logits[:, -1:].argmax(-1)

    fast = torch.compile(step, mode="reduce-overhead", fullgraph=False)
    with torch.inference_mode():
        net(ids, past_key_values=cache, cache_position=torch.arange(DEPTH, device="cuda"),
            use_cache=True, logits_to_keep=1)
        for run in range(-1, runs):
            token = ids[:, :1].clone()
            position = torch.tensor([DEPTH], device="cuda")
            torch.cuda.synchronize()
            start = time.perf_counter()
            for i in range(TOKENS):
                torch.compiler.cudagraph_mark_step_begin()
                token = fast(token, position).clone()
                position = position + 1
            torch.cuda.synchronize()
            if run >= 0:
                yield (time.perf_counter() - start) / TOKENS


def measure(options, run, model):
    import torch
    import transformers
    for batch in options.batch:
        for row, plan in ours(options.build, model, batch, options.runs):
            rate = row["tokens_per_s"]
            case = dict(op=model, dir="decode" if row["test"].startswith("tg") else "prefill",
                        dtype="bf16", shape=shape_of(row["test"].replace(" ", ""), batch),
                        impl="tegula", config=plan, ms=1e3 * batch / rate, tokens_per_s=rate)
            print(f"{model:12} {case['shape']:24} tegula {rate:9.0f} tok/s  {plan}", flush=True)
            run.append([case])
    if options.peer:
        seconds = list(peer_seconds(model, options.runs))
        rate = 1 / statistics.median(seconds)
        version = f"torch {torch.__version__}; transformers {transformers.__version__}"
        case = dict(op=model, dir="decode", dtype="bf16",
                    shape=shape_of(f"tg{TOKENS}@d{DEPTH}", 1))
        print(f"{model:12} {case['shape']:24} hf     {rate:9.0f} tok/s", flush=True)
        run.append([{**results_csv.row_of(case, "hf", version, "static cache; torch.compile "
                                          "reduce-overhead", seconds), "tokens_per_s": rate}])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", default="build/release")
    parser.add_argument("--model", nargs="+", choices=list(VOCAB), default=list(VOCAB))
    parser.add_argument("--batch", nargs="+", type=int, default=[1])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--csv")
    parser.add_argument("--no-peer", dest="peer", action="store_false")
    options = parser.parse_args()
    device, driver = gpu_state.name_and_driver()
    commit = subprocess.run([f"{options.build}/bench/bench_ops", "--commit"], check=True,
                            capture_output=True, text=True).stdout.strip()
    run = results_csv.Run(options.csv, commit, "engine", device=device, driver=driver)
    for model in options.model:
        measure(options, run, model)


if __name__ == "__main__":
    main()
