"""Formulas of stock models in PyTorch, with the rounding steps of the models' own code."""

import torch
import torch.nn.functional as F


def llama_norm(x, weight, eps):
    """As LlamaRMSNorm and Qwen3RMSNorm: rounds before it multiplies by the weight. F.rms_norm rounds once."""
    wide = x.float()
    return weight * (wide * (wide.square().mean(-1, keepdim=True) + eps).rsqrt()).to(x.dtype)


def llama_add_norm(x, residual, weight, eps):
    """(norm(residual + x), residual + x)."""
    total = residual + x
    return llama_norm(total, weight, eps), total


def rotated(x, cos, sin):
    """As apply_rotary_pos_emb; cos and sin are broadcast to x."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def swiglu(gate, up):
    return F.silu(gate) * up


def geglu(gate, up, approximate="tanh"):
    return F.gelu(gate, approximate=approximate) * up


def loss_of_logits(logits, targets):
    return F.cross_entropy(logits.float(), targets)


def loss_of_hidden(hidden, weight, targets):
    """The loss of a causal model. torch.compile fuses the conversion and never writes the f32 logits."""
    return loss_of_logits(F.linear(hidden, weight), targets)
