#!/usr/bin/env python3
"""Writes cross_entropy_values.h: losses and gradients by PyTorch's cross_entropy and autograd, in
f64 from f32 logits. Made with PyTorch 2.13.0 (CPU)."""
import pathlib

import torch
import torch.nn.functional as F

ROWS, VOCAB, IGNORED = 6, 19, -100


def array(kind, name, words):
    rows, line = [], ""
    for word in words:
        if len(line) + len(word) + 2 > 96:
            rows.append(line.rstrip())
            line = ""
        line += word + ", "
    rows.append(line.rstrip())
    body = "\n    ".join(rows)
    return f"static const {kind} {name}[] = {{\n    {body}\n}};\n"


def floats(name, values):
    return array("float", name, [f"{v.hex()}f" for v in values.flatten().float().tolist()])


def doubles(name, values):
    return array("double", name, [v.hex() for v in values.flatten().tolist()])


def loss_of(logits, targets, reduction, smoothing, z_loss, softcap, items):
    z = softcap * torch.tanh(logits / softcap) if softcap else logits
    total = F.cross_entropy(z, targets, reduction="sum", label_smoothing=smoothing)
    counted = (targets != IGNORED).sum()
    if z_loss:
        lse = torch.logsumexp(z, -1)
        total = total + z_loss * (lse.square() * (targets != IGNORED)).sum()
    return total / {"sum": 1, "mean": counted, "items": items}[reduction]


def main():
    torch.manual_seed(5)
    logits = (3 * torch.randn(ROWS, VOCAB)).float().double()
    targets = torch.randint(0, VOCAB, (ROWS,))
    targets[2] = IGNORED
    cases = {
        "Mean": ("mean", 0.0, 0.0, 0.0, 1),
        "Sum": ("sum", 0.125, 0.0, 0.0, 1),
        "Items": ("items", 0.0, 0.0625, 0.0, 11),
        "Capped": ("mean", 0.125, 0.0625, 4.0, 1),
    }
    text = [
        "/* Written by generate.py: PyTorch 2.13.0. */",
        "#ifndef TGI_TESTS_CROSS_ENTROPY_VALUES_H",
        "#define TGI_TESTS_CROSS_ENTROPY_VALUES_H",
        "",
        f"enum {{ kGoldenRows = {ROWS}, kGoldenVocab = {VOCAB} }};",
        "",
        floats("kGoldenLogits", logits),
        array("long long", "kGoldenTargets", [str(t) for t in targets.tolist()]),
    ]
    for name, case in cases.items():
        x = logits.clone().requires_grad_()
        loss = loss_of(x, targets, *case)
        loss.backward()
        text += [f"static const double k{name}Loss = {loss.item().hex()};\n", doubles(f"k{name}Gradient", x.grad)]
    text.append("#endif\n")
    pathlib.Path(__file__).with_name("cross_entropy_values.h").write_text("\n".join(text))


main()
