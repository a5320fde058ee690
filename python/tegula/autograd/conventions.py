"""Shared by the functions of `tegula.ops`: values of enumerated arguments, types, shapes and dtypes of tensors."""

import functools

import torch

from ..enumerations import (
    ACTIVATION, APPROXIMATION, GATED, NUM_ITEMS, PACKING, PAIRING, POLICY, REDUCTION, ROUNDING, SCORING,
)  # fmt: skip

__all__ = [
    "ACTIVATION", "APPROXIMATION", "GATED", "NUM_ITEMS", "PACKING", "PAIRING", "POLICY", "REDUCTION", "ROUNDING", "SCORING",
]  # fmt: skip
FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


def choose(op, argument, choices, value):
    if value not in choices:
        raise ValueError(f"{op}: {argument}: expected {' or '.join(choices)}, got {value!r}")
    return choices[value]


def expect_tensor(op, argument, value):
    """`value`, which must be a dense tensor of PyTorch."""
    if not isinstance(value, torch.Tensor):
        raise TypeError(f"{op}: {argument}: expected a tensor of PyTorch, got {value if value is None else type(value)}")
    if value.layout is not torch.strided:
        raise TypeError(f"{op}: {argument}: expected a dense tensor, got one of layout {value.layout}")
    return value


def expect_leading(op, argument, tensor, like):
    """The tensor must be [..., n] with all of the leading axes of `like`."""
    if tensor.shape[:-1] != like.shape[:-1] or tensor.dim() != like.dim():
        leading = "".join(f"{extent}, " for extent in like.shape[:-1])
        raise ValueError(f"{op}: {argument}: expected [{leading}...], got {list(tensor.shape)}")


def rows(x):
    """[..., cols] as [rows, cols]."""
    if x.dim() == 2:
        return x
    return x.flatten(0, -2) if x.dim() > 2 else x.unsqueeze(0)


def flat(x):
    return None if x is None else x if x.dim() == 1 else x.reshape(-1)


def heads_last(op, argument, x):
    """[batch, heads, tokens, head_dim] as [batch, tokens, heads, head_dim]."""
    if expect_tensor(op, argument, x).dim() != 4:
        raise ValueError(f"{op}: {argument}: expected [batch, heads, tokens, head_dim], got {list(x.shape)}")
    return x.transpose(1, 2)


def heads_first(x):
    return None if x is None else x.transpose(1, 2)


def one_dtype(*tensors):
    """The tensors in the dtype that PyTorch promotes theirs to; None stays."""
    dtypes = {tensor.dtype for tensor in tensors if tensor is not None}
    if len(dtypes) < 2 or not dtypes <= FLOATS:
        return tensors
    dtype = functools.reduce(torch.promote_types, dtypes)
    return tuple(tensor if tensor is None else tensor.to(dtype) for tensor in tensors)


def widened(tensor, like):
    """A weight or table beside `like`. The ops take it in that dtype or in f32; another 16-bit dtype is widened, exactly."""
    dtype = getattr(tensor, "dtype", None)  # what is no tensor is reported by the op
    if dtype == like.dtype or dtype not in (torch.float16, torch.bfloat16) or like.dtype not in FLOATS:
        return tensor
    return tensor.to(torch.promote_types(like.dtype, torch.float32))


def empty(shape, like):
    return like.new_empty(shape)


def statistic(shape, like):
    """f32, or f64 if `like` is f64."""
    if like.dtype in (torch.float32, torch.float64):
        return like.new_empty(shape)
    return like.new_empty(shape, dtype=torch.float32)
