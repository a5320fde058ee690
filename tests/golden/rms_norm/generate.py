#!/usr/bin/env python3
"""Writes rms_norm_values.h: bf16 outputs of the RMSNorm classes of transformers, with the f32 rstd
that their formula gives. Made with transformers 5.17.0 and PyTorch 2.13.0 (CPU)."""
import pathlib

import torch
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

ROWS, COLS, EPS = 6, 96, 1e-6
CLASSES = {"Qwen3": Qwen3RMSNorm, "Llama": LlamaRMSNorm, "GptOss": GptOssRMSNorm}


def array(kind, name, words):
    lines, line = [], ""
    for word in words:
        if len(line) + len(word) + 2 > 96:
            lines.append(line.rstrip())
            line = ""
        line += word + ", "
    lines.append(line.rstrip())
    body = "\n    ".join(lines)
    return f"static const {kind} {name}[] = {{\n    {body}\n}};\n"


def bits(name, tensor):
    return array("uint16_t", name, [f"0x{v & 0xffff:04x}" for v in tensor.view(torch.int16).flatten().tolist()])


def main():
    torch.manual_seed(11)
    scale = torch.tensor([[1.0], [0.02], [30.0], [1e3], [1.0], [5.0]])
    x = (torch.randn(ROWS, COLS) * scale).bfloat16()
    weight = (1 + 0.3 * torch.randn(COLS)).bfloat16()
    rstd = torch.rsqrt(x.float().pow(2).mean(-1) + EPS)
    parts = [
        "/* Written by generate.py; see there. */\n",
        "#ifndef TGI_GOLDEN_RMS_NORM_VALUES_H\n#define TGI_GOLDEN_RMS_NORM_VALUES_H\n\n#include <stdint.h>\n",
        f"enum {{ kGoldenRows = {ROWS}, kGoldenCols = {COLS} }};\n",
        bits("kGoldenX", x),
        bits("kGoldenWeight", weight),
        array("float", "kGoldenRstd", [f"{v.hex()}f" for v in rstd.tolist()]),
    ]
    for name, cls in CLASSES.items():
        module = cls(COLS, eps=EPS).bfloat16()
        module.weight.data.copy_(weight)
        y = module(x)
        assert y.dtype == torch.bfloat16
        parts.append(bits(f"kGolden{name}", y.detach()))
    parts.append("#endif\n")
    pathlib.Path(__file__).with_name("rms_norm_values.h").write_text("\n".join(parts))


if __name__ == "__main__":
    main()
