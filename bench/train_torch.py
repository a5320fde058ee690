#!/usr/bin/env python3
"""A GPT-2 training step in plain PyTorch: one line of JSON for each step.

  train_torch.py [--steps N] [--batch B] [--seq T] [--threads N] [--bf16] [--compile] [--clip X]
                 [--device cuda] [--layers N] [--heads N] [--width N] [--vocab N] [--context N]

The first step is warm-up and is not printed. Same model, batch and optimiser as the other
providers of train_step.py: tied head, AdamW, random tokens; 124M parameters unless told otherwise.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        width, self.heads = size.width, size.heads
        self.norm_in, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, seq, width = x.shape
        q, k, v = (part.view(batch, seq, self.heads, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_in(x)).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, seq, width))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.tokens = nn.Embedding(size.vocab, size.width)
        self.positions = nn.Embedding(size.context, size.width)
        self.blocks = nn.Sequential(*[Block(size) for _ in range(size.layers)])
        self.norm = nn.LayerNorm(size.width)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.reshape(-1))


def peak_of(device):
    """Of a GPU's memory; a process on the CPU is judged by its parent."""
    return {"peak_bytes": torch.cuda.max_memory_allocated()} if device == "cuda" else {}


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("steps", 5), ("batch", 4), ("seq", 64), ("threads", 2),
                          ("layers", 12), ("heads", 12), ("width", 768), ("vocab", 50257),
                          ("context", 1024)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--bf16", action="store_true", help="autocast to bf16")
    parser.add_argument("--compile", action="store_true", help="torch.compile the model")
    parser.add_argument("--clip", type=float, default=0, help="largest gradient norm; 0: any")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    model = Model(options).to(options.device)
    run = torch.compile(model) if options.compile else model
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    for step in range(options.steps + 1):
        ids = torch.randint(options.vocab, (options.batch, options.seq + 1)).to(options.device)
        start = time.perf_counter()
        with torch.autocast(options.device, torch.bfloat16, enabled=options.bf16):
            loss = run(ids[:, :-1], ids[:, 1:])
        loss.backward()
        if options.clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), options.clip)
        optimiser.step()
        optimiser.zero_grad()
        value = loss.item()
        if step > 0:
            print(json.dumps({"ms": 1e3 * (time.perf_counter() - start), "loss": value,
                              "version": torch.__version__, **peak_of(options.device)}), flush=True)


if __name__ == "__main__":
    main()
