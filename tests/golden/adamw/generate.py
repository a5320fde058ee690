#!/usr/bin/env python3
"""Writes adamw_values.h: gradients, and what torch.optim.AdamW makes of the parameters, with and
without clip_grad_norm_. Made with PyTorch 2.13.0 (CPU)."""
import pathlib

import torch

STEPS, COUNT = 4, 37


def array(name, values):
    rows, line = [], ""
    for v in values.flatten().tolist():
        word = f"{v.hex()}f, "
        if len(line) + len(word) > 96:
            rows.append(line.rstrip())
            line = ""
        line += word
    rows.append(line.rstrip())
    body = "\n    ".join(rows)
    return f"static const float {name}[] = {{\n    {body}\n}};\n"


def run(start, gradients, max_norm):
    w = torch.nn.Parameter(start.clone())
    optimizer = torch.optim.AdamW([w], lr=3e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, foreach=False)
    norms = []
    for g in gradients:
        w.grad = g.clone()
        if max_norm:
            norms.append(torch.nn.utils.clip_grad_norm_([w], max_norm))
        optimizer.step()
    state = optimizer.state[w]
    return w.detach(), state["exp_avg"], state["exp_avg_sq"], norms


def main():
    torch.manual_seed(3)
    start = torch.randn(COUNT)
    gradients = torch.randn(STEPS, COUNT) * torch.tensor([0.5, 0.01, 20.0, 1.0])[:, None]
    text = [
        "/* Written by generate.py: torch.optim.AdamW of PyTorch 2.13.0. */",
        "#ifndef TGI_TESTS_ADAMW_VALUES_H",
        "#define TGI_TESTS_ADAMW_VALUES_H",
        "",
        f"enum {{ kGoldenSteps = {STEPS}, kGoldenCount = {COUNT} }};",
        "",
        array("kGoldenStart", start),
        array("kGoldenGradients", gradients),
    ]
    for name, max_norm in (("Plain", 0.0), ("Clipped", 1.5)):
        w, avg, sq, norms = run(start, gradients, max_norm)
        text += [array(f"k{name}Weight", w), array(f"k{name}ExpAvg", avg), array(f"k{name}ExpAvgSq", sq)]
        if norms:
            text.append(array("kGoldenNorms", torch.stack(norms)))
    text.append("#endif\n")
    pathlib.Path(__file__).with_name("adamw_values.h").write_text("\n".join(text))


main()
