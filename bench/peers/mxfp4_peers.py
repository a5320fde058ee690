"""Peers of the experts' products with weights in MXFP4: PyTorch's linear layer, expert by expert, on weights
that were widened beforehand."""

import ctypes
import functools
import math

import torch
import torch.nn.functional as F

from peers.peer_problem import Peer, Problem
from peers.quantised_linear_peers import device, pack, seed
from tegula_call import View

GROUP = 32  # columns that share a scale
VALUES = (0, 0.5, 1, 1.5, 2, 3, 4, 6)  # of the codes 0 to 7; from 8 on the same, negative


class PackSource(ctypes.Structure):
    """tg_grouped_linear_mxfp4_pack_source"""
    _fields_ = [("blocks", View), ("scales", View), ("packed", View)]


def widen(blocks, scales, dtype):
    """[experts, out, in]; of a byte the low code comes first."""
    table = torch.tensor([*VALUES, *(-value for value in VALUES)], dtype=dtype)
    codes = torch.stack([blocks & 15, blocks >> 4], -1).flatten(-2)
    return (table[codes.long()] * torch.exp2(scales.float() - 127)[..., None].to(dtype)).flatten(-2)


@functools.lru_cache(1)
def expert_weights(experts, out, cols, dtype, of_device):
    """(packed, widened): codes of all values, scales that keep sums near 1. All sets of arrays have them, and
    other experts of them."""
    torch.manual_seed(1)
    blocks = torch.randint(0, 256, (experts, out, cols // GROUP, GROUP // 2), dtype=torch.uint8)
    usual = 126 - round(math.log2(3 * math.sqrt(cols)))
    scales = torch.randint(usual, usual + 3, blocks.shape[:3], dtype=torch.uint8)
    packed = pack("grouped_linear_mxfp4", PackSource(),
                  lambda f: f(*map(ctypes.c_int64, (experts, out, cols))),
                  blocks=blocks, scales=scales)
    return packed, torch.stack([widen(*one, dtype) for one in zip(blocks, scales)])


def grouped_linear_mxfp4_fwd(words, backward, dtype):
    """Each row has an expert of its own, while there are some: beginning with one that the seed chooses."""
    tokens, cols, out = words.extents
    experts, k, biased = words.number("e", 1), words.number("k", 0), words.flag("bias")
    words.done()
    rows, chosen = tokens * max(k, 1), seed()
    packed, wide = expert_weights(experts, out, cols, dtype, device())
    torch.manual_seed(chosen)
    owner = sorted((rows * (chosen - 1) + row) % experts for row in range(rows))
    counts = torch.bincount(torch.tensor(owner), minlength=experts)
    offsets = torch.cat([counts.new_zeros(1), counts.cumsum(0)]).int()
    slot = torch.randperm(rows).int()
    x, bias = torch.randn(tokens, cols, dtype=dtype), torch.randn(experts, out, dtype=dtype)
    fields = dict(x=x, weight=packed, offsets=offsets, y=torch.empty(rows, out, dtype=dtype))
    if biased:
        fields["bias"] = bias
    if k:
        fields.update(slot=slot, slots_per_row=k)
    source = (slot // k).long() if k else torch.arange(rows)
    ends = offsets.tolist()
    parts = [(expert, ends[expert], ends[expert + 1]) for expert in sorted(set(owner))]

    def run():
        gathered = x[source] if k else x
        return {"y": torch.cat([
            F.linear(gathered[begin:end], wide[expert], bias[expert] if biased else None)
            for expert, begin, end in parts])}

    return Problem(fields, [Peer("torch", run, "weights widened beforehand; expert by expert")],
                   tolerance=0.05)


BUILDERS = dict(grouped_linear_mxfp4_fwd=grouped_linear_mxfp4_fwd)
ACCURACY = {}
