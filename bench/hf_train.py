"""Training steps of a Hugging Face Qwen3 with random weights, by one provider, in a process of its
own: stock, tegula, tegula-adamw (with tegula.optim.AdamW), liger, compile. bf16 weights, torch's
fused AdamW, random ids. Prints a line of JSON.

  hf_train.py PROVIDER --model qwen3-0.6b --batch 4 --seq 4096 --steps 12 [--device cuda]
"""

import argparse
import json
import statistics
import time

import torch
import transformers

from peers import liger_peers

WARM_UP = 4
HEADS = dict(num_attention_heads=16, num_key_value_heads=8, head_dim=128)
MODELS = {
    "qwen3-0.6b": dict(hidden_size=1024, num_hidden_layers=28, intermediate_size=3072,
                       vocab_size=151936, tie_word_embeddings=True, **HEADS),
    "qwen3-tiny": dict(hidden_size=64, num_hidden_layers=2, intermediate_size=128, vocab_size=320,
                       tie_word_embeddings=True, num_attention_heads=4, num_key_value_heads=2,
                       head_dim=16),
}
PROVIDERS = ("stock", "compile", "liger", "tegula", "tegula-adamw")


def make_model(options):
    config = transformers.Qwen3Config(max_position_embeddings=40960, **MODELS[options.model])
    torch.manual_seed(0)
    with torch.device(options.device):
        model = transformers.Qwen3ForCausalLM(config).bfloat16()
    return model.train()


def provide(options):
    """(what is called, its optimiser, the provider's version)"""
    if options.provider == "liger":
        if liger_peers.load() is None:
            raise SystemExit("liger: expected the package, or its folder in LIGER_DIR")
        from liger_kernel.transformers import apply_liger_kernel_to_qwen3
        apply_liger_kernel_to_qwen3()
    model = make_model(options)
    optimiser, version = torch.optim.AdamW, f"transformers {transformers.__version__}"
    if options.provider == "liger":
        version = liger_peers.version()
    if options.provider.startswith("tegula"):
        import tegula
        tegula.apply_to_model(model)
        version = tegula.__version__
    if options.provider == "tegula-adamw":
        return model, tegula.optim.AdamW(model.parameters(), lr=1e-4), version
    optimiser = optimiser(model.parameters(), lr=1e-4, fused=True)
    called = torch.compile(model) if options.provider == "compile" else model
    return called, optimiser, version


def main():
    parser = argparse.ArgumentParser(description="Training steps of a Hugging Face model.")
    parser.add_argument("provider", choices=PROVIDERS)
    parser.add_argument("--model", choices=MODELS, default="qwen3-0.6b")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seq", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    model, optimiser, version = provide(options)
    generator = torch.Generator().manual_seed(1)
    shape, vocab = (options.batch, options.seq), MODELS[options.model]["vocab_size"]
    batches = [torch.randint(vocab, shape, generator=generator).to(options.device)
               for _ in range(2)]
    losses, times = [], []
    for i in range(WARM_UP + options.steps):
        if on_gpu and i == WARM_UP:
            torch.cuda.reset_peak_memory_stats()
        start = time.perf_counter()
        ids = batches[i % 2]
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())  # waits for the step
        times.append(1e3 * (time.perf_counter() - start))
    kept = times[WARM_UP:]
    print(json.dumps({
        "ms": statistics.median(kept), "steps": kept, "losses": losses, "version": version,
        "peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
    }))


if __name__ == "__main__":
    main()
