"""Peers of the product of e4m3 with e4m3 that have scales of rows and of columns: cuBLAS in bf16 on widened
operands, and PyTorch's rowwise product."""

import math

import torch
import torch.nn.functional as F

from peers.peer_problem import Peer, Problem
from shape_words import NotServed


def linear_fp8_fp8_fwd(words, backward, dtype):
    rows, cols, out = words.extents
    codes, fast = words.flag("xf8"), words.flag("fast")
    words.done()
    if not codes:
        raise NotServed(f"{words.shape}: x that is quantised in the call")
    x, weight = (torch.randn(n, cols).to(torch.float8_e4m3fn) for n in (rows, out))
    x_scale = 0.5 + torch.rand(rows)
    scale = (0.5 + torch.rand(out)) / math.sqrt(cols)
    fields = dict(x=x, x_scale=x_scale, weight=weight, weight_scale=scale, allow_fast_accum=fast,
                  y=torch.empty(rows, out, dtype=dtype))
    wide_x = (x.float() * x_scale[:, None]).to(dtype)
    wide = (weight.float() * scale[:, None]).to(dtype)

    def rowwise():
        return {"y": torch._scaled_mm(x, weight.t(), scale_a=x_scale[:, None], scale_b=scale[None],
                                      out_dtype=dtype, use_fast_accum=fast)}

    return Problem(fields, [Peer("torch", lambda: {"y": F.linear(wide_x, wide)}, "operands widened beforehand"),
                            Peer("rowwise", rowwise, "_scaled_mm")], tolerance=0.05)


BUILDERS = dict(linear_fp8_fp8_fwd=linear_fp8_fp8_fwd)
ACCURACY = {}
