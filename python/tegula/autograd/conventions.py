"""Shared by the functions of `tegula.ops`: values of enumerated arguments, and shapes of tensors."""

import torch

ROUNDING = {"hf": 1, "once": 2}
POLICY = {"llama": 1, "gpt_oss": 2}
APPROXIMATION = {"tanh": 1, "none": 2}
PACKING = {"halves": 1, "interleaved": 2}
PAIRING = {"halves": 1, "interleaved": 2}
REDUCTION = {"none": 1, "sum": 2, "mean": 3}
NUM_ITEMS = 4
ACTIVATION = {"none": 0, "gelu_tanh": 1, "gelu": 2}


def choose(op, argument, choices, value):
    if value not in choices:
        raise ValueError(f"{op}: {argument}: expected {' or '.join(choices)}, got {value!r}")
    return choices[value]


def rows(x):
    """[..., cols] as [rows, cols]."""
    if x.dim() == 2:
        return x
    return x.flatten(0, -2) if x.dim() > 2 else x.unsqueeze(0)


def flat(x):
    return None if x is None else x if x.dim() == 1 else x.reshape(-1)


def heads_last(x):
    """[batch, heads, tokens, ...] as [batch, tokens, heads, ...], and back."""
    return None if x is None else x.transpose(1, 2)


def empty(shape, like):
    return like.new_empty(shape)


def statistic(shape, like):
    """f32, or f64 if `like` is f64."""
    if like.dtype in (torch.float32, torch.float64):
        return like.new_empty(shape)
    return like.new_empty(shape, dtype=torch.float32)
