"""A row of the op table: one direction of an op, called on tensors of PyTorch."""

import functools

import torch

from .. import _core
from ..settings import nondeterministic_allowed

TABLE = {row["name"]: (index, row) for index, row in enumerate(_core.ops())}
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
# Scalars that only backwards have.
CHOSEN = {"allow_nondeterministic": nondeterministic_allowed, "overwrite": lambda: True}


def allocate_bytes(device, count):
    return torch.empty(count, dtype=torch.uint8, device=device)


def arranged(tensor, slot):
    """The tensor itself where the slot takes its strides, else a contiguous copy."""
    if tensor is None:
        return None
    if tensor.is_contiguous():
        return tensor
    if slot["layout"] == "rows":
        strides = [stride for stride, extent in zip(tensor.stride(), tensor.shape) if extent != 1]
        if min(strides) > 0 and (tensor.shape[-1] == 1 or tensor.stride(-1) == 1):
            return tensor
    return tensor.contiguous()


def bare_apply(function):
    """The `apply` of an autograd.Function without Function's own questions for transforms, which take as long as the
    rest: for callers that have asked."""
    return super(torch.autograd.Function, function).apply


class Row:
    """A row of the table: one direction of an op."""

    def __init__(self, name):
        self.index, row = TABLE[name]
        self.name = name
        slots = row["slots"]
        self.ins = [slot for slot in slots if slot["role"] == "in"]
        self.outs = [slot for slot in slots if slot["role"] in ("out", "acc")]
        self.scalars = [slot for slot in slots if not slot["role"] and slot["kind"] != "workspace"]
        self.workspace = slots[-1]["kind"] == "workspace"
        if slots[: len(slots) - self.workspace] != self.ins + self.outs + self.scalars:
            raise ImportError(f"{name}: expected inputs, outputs, scalars and workspace in this order")

    def run(self, ins, outs, scalars):
        arguments = [arranged(tensor, slot) for tensor, slot in zip(ins, self.ins)]
        arguments += outs
        arguments += scalars
        if self.workspace:
            device = next(tensor.device for tensor in ins if tensor is not None)
            arguments.append(functools.partial(allocate_bytes, device))
        _core.run(self.index, *arguments)
