#!/usr/bin/env python3
"""Writes rms_norm_swiglu_values.h: bf16 outputs of the gated RMSNorm class of transformers, with the
f32 rstd that its formula gives. Made with transformers 5.17.0 and PyTorch 2.13.0 (CPU)."""
import pathlib

import torch
from transformers.models.qwen3_next.modeling_qwen3_next import Qwen3NextRMSNormGated

ROWS, COLS, EPS = 6, 96, 1e-6


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
    words = tensor.detach().view(torch.int16).flatten().tolist()
    return array("uint16_t", name, [f"0x{v & 0xffff:04x}" for v in words])


def main():
    torch.manual_seed(17)
    scale = torch.tensor([[1.0], [0.02], [30.0], [1e3], [1.0], [5.0]])
    x = (torch.randn(ROWS, COLS) * scale).bfloat16()
    gate = (3 * torch.randn(ROWS, COLS)).bfloat16()
    weight = (1 + 0.3 * torch.randn(COLS)).bfloat16()
    rstd = torch.rsqrt(x.float().pow(2).mean(-1) + EPS)
    module = Qwen3NextRMSNormGated(COLS, eps=EPS).bfloat16()
    module.weight.data.copy_(weight)
    y = module(x, gate)
    wide = Qwen3NextRMSNormGated(COLS, eps=EPS)  # its weight stays f32
    wide.weight.data.copy_(weight)
    y_wide = wide(x, gate)
    assert y.dtype == y_wide.dtype == torch.bfloat16
    parts = [
        "/* Written by generate.py; see there. */\n",
        "#ifndef TGI_GOLDEN_RMS_NORM_SWIGLU_VALUES_H\n"
        "#define TGI_GOLDEN_RMS_NORM_SWIGLU_VALUES_H\n\n#include <stdint.h>\n",
        f"enum {{ kGoldenRows = {ROWS}, kGoldenCols = {COLS} }};\n",
        bits("kGoldenX", x),
        bits("kGoldenGate", gate),
        bits("kGoldenWeight", weight),
        array("float", "kGoldenRstd", [f"{v.hex()}f" for v in rstd.tolist()]),
        bits("kGoldenY", y),
        bits("kGoldenYWideWeight", y_wide),
        "#endif\n",
    ]
    text = "\n".join(parts)
    path = pathlib.Path(__file__).with_name("rms_norm_swiglu_values.h")
    path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
