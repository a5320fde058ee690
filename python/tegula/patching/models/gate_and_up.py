"""When gate_proj and up_proj of an MLP run as one product with the activation, `ops.linear_swiglu`, whose kernel Hopper
has."""

import functools

import torch
from torch import nn

from ..listeners import why_heard

ENABLED = False  # the product alone is faster; a training step with it has not been timed yet
LINEAR = (nn.Linear.forward,)
FEW_ROWS, FEW_TILES = 64, 128  # as the op has them: so many rows, or fewer tiles, are two products there, too


@functools.cache
def is_hopper(index):
    return torch.cuda.get_device_capability(index)[0] == 9


def is_plain(layer, x):
    """Whether the layer is x @ weight.T, seen by nobody, with its weight at hand."""
    if type(layer) is not nn.Linear or layer.bias is not None or why_heard(layer, LINEAR):
        return False
    weight = layer.weight
    return type(weight) is nn.Parameter and weight.dtype == x.dtype and weight.device == x.device


def has_tiles(module, x):
    rows = x.shape[:-1].numel()
    return rows > FEW_ROWS and -(-rows // 128) * -(-module.gate_proj.out_features // 96) >= FEW_TILES


def is_one_product(module, x):
    if not ENABLED or not x.is_cuda or x.dtype not in (torch.float16, torch.bfloat16) or torch.compiler.is_compiling():
        return False
    if torch.is_autocast_enabled("cuda") or not is_hopper(x.device.index) or type(module.gate_proj) is not nn.Linear:
        return False
    return has_tiles(module, x) and is_plain(module.gate_proj, x) and is_plain(module.up_proj, x)
