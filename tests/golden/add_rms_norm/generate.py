#!/usr/bin/env python3
"""Writes add_rms_norm_values.h: bf16 sums and norms as the layers of transformers compute them
(hidden_states = residual + hidden_states, then the norm's class), with the f32 rstd that the norm's
formula gives. Made with transformers 5.17.0 and PyTorch 2.13.0 (CPU)."""
import pathlib

import torch
from transformers.models.gpt_oss.modeling_gpt_oss import GptOssRMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

ROWS, COLS, EPS = 6, 96, 1e-6
CLASSES = {"Qwen3": Qwen3RMSNorm, "GptOss": GptOssRMSNorm}


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
    torch.manual_seed(13)
    scale = torch.tensor([[1.0], [0.02], [30.0], [1e3], [1.0], [5.0]])
    x = torch.randn(ROWS, COLS).bfloat16()
    residual = (torch.randn(ROWS, COLS) * scale).bfloat16()
    weight = (1 + 0.3 * torch.randn(COLS)).bfloat16()
    total = residual + x
    rstd = torch.rsqrt(total.float().pow(2).mean(-1) + EPS)
    parts = [
        "/* Written by generate.py; see there. */\n",
        "#ifndef TGI_GOLDEN_ADD_RMS_NORM_VALUES_H\n#define TGI_GOLDEN_ADD_RMS_NORM_VALUES_H\n\n"
        "#include <stdint.h>\n",
        f"enum {{ kGoldenRows = {ROWS}, kGoldenCols = {COLS} }};\n",
        bits("kGoldenX", x),
        bits("kGoldenResidual", residual),
        bits("kGoldenWeight", weight),
        bits("kGoldenSum", total),
        array("float", "kGoldenRstd", [f"{v.hex()}f" for v in rstd.tolist()]),
    ]
    for name, cls in CLASSES.items():
        module = cls(COLS, eps=EPS).bfloat16()
        module.weight.data.copy_(weight)
        y = module(total)
        assert y.dtype == torch.bfloat16
        parts.append(bits(f"kGolden{name}", y))
    parts.append("#endif\n")
    text = "\n".join(parts)
    pathlib.Path(__file__).with_name("add_rms_norm_values.h").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
