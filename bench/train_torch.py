#!/usr/bin/env python3
"""A GPT-2 124M training step in plain PyTorch: one line of JSON for each step.

  train_torch.py [--steps N] [--batch B] [--seq T] [--threads N] [--bf16]

The first step is warm-up and is not printed. Same model, batch and optimiser as the other
providers of train_llmc.py: f32, tied head, AdamW without decay, random tokens.
"""

import argparse
import json
import time

import torch
import torch.nn.functional as F
from torch import nn

LAYERS, HEADS, WIDTH, VOCAB, CONTEXT = 12, 12, 768, 50257, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_in, self.norm_mlp = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, seq, _ = x.shape
        q, k, v = (part.view(batch, seq, HEADS, -1).transpose(1, 2)
                   for part in self.qkv(self.norm_in(x)).chunk(3, -1))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, seq, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm_mlp(x)), approximate="tanh"))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCAB, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.Sequential(*[Block() for _ in range(LAYERS)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.positions.weight[:ids.shape[1]]
        logits = F.linear(self.norm(self.blocks(x)), self.tokens.weight)
        return F.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1))


def main():
    parser = argparse.ArgumentParser()
    for name, default in (("steps", 5), ("batch", 4), ("seq", 64), ("threads", 2)):
        parser.add_argument("--" + name, type=int, default=default)
    parser.add_argument("--bf16", action="store_true", help="autocast to bf16")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    model = Model()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0, fused=True)
    for step in range(options.steps + 1):
        ids = torch.randint(VOCAB, (options.batch, options.seq + 1))
        start = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.bf16):
            loss = model(ids[:, :-1], ids[:, 1:])
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        value = loss.item()
        if step > 0:
            print(json.dumps({"ms": 1e3 * (time.perf_counter() - start), "loss": value,
                              "version": torch.__version__}), flush=True)


if __name__ == "__main__":
    main()
