"""The Python patch: a stock model of transformers trains on Tegula's kernels after one call."""

import tegula
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

torch.manual_seed(0)
config = Qwen3Config(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
model = Qwen3ForCausalLM(config).train()
ids = torch.randint(97, (2, 32))
stock = model(input_ids=ids, labels=ids).loss.item()
print("patches:", len(tegula.apply()) > 3)
patched = model(input_ids=ids, labels=ids).loss.item()
print("same loss:", abs(patched - stock) < 1e-5)
optimizer = tegula.optim.AdamW(model.parameters(), lr=3e-3)
for _ in range(20):
    optimizer.zero_grad()
    model(input_ids=ids, labels=ids).loss.backward()
    optimizer.step()
print("learnt:", model(input_ids=ids, labels=ids).loss.item() < 0.5 * stock)

# Prints:
# patches: True
# same loss: True
# learnt: True
