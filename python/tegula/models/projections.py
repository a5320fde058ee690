"""Linear layers of a model by Tegula's products: for many rows in 16 bits on a GPU where they are faster than PyTorch's,
which on Hopper is so because they choose better among cublasLt's algorithms. Everything else runs as it would."""

import functools

import torch
from torch import nn

from .. import ops

PLAIN = (torch.Tensor, nn.Parameter)
HOPPER = 9
LEAST_ROWS = 1024  # fewer are too little work for the choice to matter, and calls of PyTorch's own cost the host less


@functools.cache
def is_fast_on(device):
    return device.type == "cuda" and torch.cuda.get_device_capability(device)[0] == HOPPER


def why_not(linear):
    """Why the module runs as it would, whatever is given to it; or None."""
    values = vars(linear)
    if type(linear) is not nn.Linear:
        return f"it is a {type(linear).__qualname__}"
    if "forward" in values or linear._compiled_call_impl is not None:
        return "it has a forward of its own"
    hooks = linear._forward_hooks, linear._forward_pre_hooks, linear._backward_hooks, linear._backward_pre_hooks
    if any(hooks):
        return "it has hooks"
    weight = linear.weight
    if type(weight) not in PLAIN:
        return f"its weight is a {type(weight).__qualname__}"
    if not is_fast_on(weight.device):
        return "not on a GPU where that is faster"
    if weight.dtype not in (torch.bfloat16, torch.float16):
        return f"its weight is in {weight.dtype}"
    return None


def projected(linear, x, wanted=True):
    """linear(x). `wanted`: by Tegula, where it may be."""
    if (
        wanted
        and not torch.compiler.is_compiling()
        and type(x) in PLAIN
        and x.numel() >= LEAST_ROWS * x.shape[-1]
        and not torch.is_autocast_enabled(x.device.type)
        and why_not(linear) is None
        and x.dtype == linear.weight.dtype
        and x.device == linear.weight.device
    ):
        return ops.linear(x, linear.weight, linear.bias)
    return linear(x)
