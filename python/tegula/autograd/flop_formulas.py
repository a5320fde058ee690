"""Floating-point operations of the operators that multiply matrices, for torch.utils.flop_counter.FlopCounterMode.

They are counted as PyTorch's own: a multiplication and an addition for each element of a product; attention as if no key
were masked, its backward with the scores that it computes again."""

import math

import torch
from torch.utils.flop_counter import register_flop_formula

names = torch.ops.tegula


def product(x, columns):
    """x [..., n] by n * columns numbers."""
    return 2 * math.prod(x) * columns


def linear(x, weight, *arguments, out_shape=None, **named):
    return product(x, weight[0])


def linear_swiglu(x, gate_weight, up_weight, *arguments, out_shape=None, **named):
    return 2 * product(x, gate_weight[0])


def linear_backward(dy, x, weight, *arguments, out_shape=None, **named):
    return product(x, weight[0]) * sum(arguments[-1][:2])  # wanted: dx, dweight, dbias


def grouped_linear(x, weight, *arguments, out_shape=None, **named):
    return product(out_shape, x[1])


def grouped_linear_backward(dy, x, *arguments, out_shape=None, **named):
    return product(dy, x[1]) * sum(arguments[-1][:2])  # wanted: dx, dweight, dbias


def grouped_packed_backward(dy, weight, offsets, x, *arguments, out_shape=None, **named):
    return product(dy, x[1])


def experts(x, weights, offsets, slot, row, gate_up, gate_up_bias, down, *arguments, out_shape=None, **named):
    return 3 * product(slot, math.prod(down[1:]))


def experts_backward(dy, x, weights, offsets, slot, row, gate_up, down, *arguments, out_shape=None, **named):
    dx, dweights, dgate_up, dgate_up_bias, ddown = arguments[-1][:5]  # wanted
    products = (dx or dweights or dgate_up or dgate_up_bias) + ddown + 2 * dx + 2 * dgate_up
    return products * product(slot, math.prod(down[1:]))


def loss(hidden, weight, *arguments, out_shape=None, **named):
    return product(hidden, weight[0])


def loss_and_gradients(hidden, weight, *arguments, out_shape=None, **named):
    return product(hidden, weight[0]) * (1 + sum(arguments[-1][:2]))  # wanted: dhidden, dweight, dbias


def loss_backward(dloss, hidden, weight, *arguments, out_shape=None, **named):
    return loss_and_gradients(hidden, weight, *arguments)


def quantised_linear(x, weight, *arguments, out_shape=None, **named):
    return product(x, out_shape[-1])


def pairs(q, k, cu_seqlens_q=None, cu_seqlens_k=None, block_table=None):
    """Pairs of a query and a key, over batch and heads."""
    batch, queries, heads = q.shape[:3]
    keys = k.shape[1]
    if block_table is not None:  # k is [blocks, keys of a block, ...]
        keys *= block_table.shape[1]
    if cu_seqlens_q is None:
        return batch * heads * queries * keys
    count = cu_seqlens_q.shape[0] - 1
    if isinstance(cu_seqlens_q, torch._subclasses.FakeTensor) or count < 1:  # lengths are unknown: all alike
        return heads * queries * keys // max(count, 1)
    lengths_q, lengths_k = cu_seqlens_q.diff(), keys if cu_seqlens_k is None else cu_seqlens_k.diff()
    return heads * int((lengths_q.long() * lengths_k).sum())


def attention(q, k, v, sinks, cu_seqlens_q, cu_seqlens_k, start, count, query_start, block_table, *rest, out_val=None, **named):
    return 2 * pairs(q, k, cu_seqlens_q, cu_seqlens_k, block_table) * (q.shape[3] + v.shape[3])


def attention_backward(dout, q, k, v, out, lse, sinks, cu_seqlens_q, cu_seqlens_k, *rest, out_val=None, **named):
    """Scores, dq and dk by head_dim of q; the probabilities' gradient and dv by that of v."""
    return 2 * pairs(q, k, cu_seqlens_q, cu_seqlens_k) * (3 * q.shape[3] + 2 * v.shape[3])


def naive_attention(q, k, v, *rest, out_val=None, **named):
    return 2 * pairs(q, k) * (q.shape[3] + v.shape[3])


def naive_attention_backward(dout, q, k, v, *rest, out_val=None, **named):
    """The probabilities are kept: no scores."""
    return 2 * pairs(q, k) * 2 * (q.shape[3] + v.shape[3])


BY_SHAPES = {
    "linear_fwd": linear, "linear_bwd": linear_backward, "linear_swiglu_fwd": linear_swiglu, "grouped_linear_fwd": grouped_linear,
    "grouped_linear_bwd": grouped_linear_backward, "grouped_linear_mxfp4_fwd": grouped_linear,
    "grouped_linear_mxfp4_bwd": grouped_packed_backward, "linear_cross_entropy_fwd": loss,
    "linear_cross_entropy_fwdbwd": loss_and_gradients, "linear_cross_entropy_bwd": loss_backward,
    "moe_mlp_fwd": experts, "moe_mlp_bwd": experts_backward,
    **dict.fromkeys(("linear_int8_fwd", "linear_int4_fwd", "linear_fp8_fwd", "linear_fp8_fp8_fwd"), quantised_linear),
}  # fmt: skip
BY_TENSORS = {
    "attention_fwd": attention, "attention_bwd": attention_backward, "attention_naive_fwd": naive_attention,
    "attention_naive_bwd": naive_attention_backward,
}  # fmt: skip


def register():
    """After the operators exist."""
    for formulas, raw in ((BY_SHAPES, False), (BY_TENSORS, True)):
        for name, formula in formulas.items():
            register_flop_formula(getattr(names, name), get_raw=raw)(formula)
