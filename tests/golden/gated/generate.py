#!/usr/bin/env python3
"""Writes gated_values.h: bf16 outputs of the gated activations inside the classes of transformers,
for gate and up drawn from a normal distribution. Made with transformers 5.17.0 and PyTorch 2.13.0
(CPU)."""
import pathlib

import torch
from transformers import GemmaConfig, GptOssConfig, Qwen3Config
from transformers.models.gemma.modeling_gemma import GemmaMLP
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

COUNT = 768


def bits(name, tensor):
    words = [f"0x{v & 0xffff:04x}" for v in tensor.view(torch.int16).flatten().tolist()]
    lines = [", ".join(words[i:i + 12]) for i in range(0, len(words), 12)]
    body = ",\n    ".join(lines)
    return f"static const uint16_t {name}[] = {{\n    {body},\n}};\n"


class Given(torch.nn.Module):
    """Stands for a projection: gives what it is told to."""

    def __init__(self, y):
        super().__init__()
        self.y = y

    def forward(self, x):
        return self.y


def mlp(cls, config, gate, up):
    module = cls(config)
    module.gate_proj, module.up_proj = Given(gate), Given(up)
    module.down_proj = torch.nn.Identity()
    return module(gate)


def main():
    torch.manual_seed(5)
    gate = (3 * torch.randn(COUNT)).bfloat16()
    up = (3 * torch.randn(COUNT)).bfloat16()
    small = dict(hidden_size=8, intermediate_size=8, num_attention_heads=1, num_key_value_heads=1,
                 head_dim=8, vocab_size=8, num_hidden_layers=1)
    experts = GptOssExperts(GptOssConfig(num_local_experts=1, num_experts_per_tok=1, **small))
    packed = torch.stack([gate, up], dim=-1).flatten()
    parts = [
        "/* Written by generate.py; see there. */\n",
        "#ifndef TGI_GOLDEN_GATED_VALUES_H\n#define TGI_GOLDEN_GATED_VALUES_H\n\n#include <stdint.h>\n",
        f"enum {{ kGoldenCount = {COUNT} }};\n",
        bits("kGoldenGate", gate),
        bits("kGoldenUp", up),
        bits("kGoldenQwen3", mlp(Qwen3MLP, Qwen3Config(**small), gate, up)),
        bits("kGoldenGptOss", experts._apply_gate(packed)),
        bits("kGoldenGemma", mlp(GemmaMLP, GemmaConfig(hidden_act="gelu_pytorch_tanh", **small), gate, up)),
        "#endif\n",
    ]
    pathlib.Path(__file__).with_name("gated_values.h").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
