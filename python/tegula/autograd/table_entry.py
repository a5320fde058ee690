"""An entry of the op table, one direction of an op, called on tensors of PyTorch."""

import functools

import torch

from .. import _core
from ..settings import nondeterministic_allowed
from .conventions import rows

TABLE = {entry["name"]: (index, entry) for index, entry in enumerate(_core.ops())}
F64 = torch.float64
PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
# Scalars that only backwards have.
CHOSEN = {"allow_nondeterministic": nondeterministic_allowed, "overwrite": lambda: True}


def allocate_bytes(device, count):
    return torch.empty(count, dtype=torch.uint8, device=device)


def is_accepted(tensor, slot):
    """Whether the slot accepts the tensor's strides."""
    if tensor.is_contiguous():
        return True
    if slot["layout"] != "rows":
        return False
    strides = [stride for stride, extent in zip(tensor.stride(), tensor.shape) if extent != 1]
    return min(strides) > 0 and (tensor.shape[-1] == 1 or tensor.stride(-1) == 1)


def runs_stock_for(dtype, device_type):
    """Whether the library has no kernel for such tensors, so that what it replaces must run instead: f64 is for the
    reference, which runs on the CPU, and there are kernels for CPUs and NVIDIA GPUs alone."""
    return device_type not in ("cpu", "meta") and (dtype == F64 or device_type != "cuda")


def run_stock(*tensors):
    """Whether `runs_stock_for` holds for any of them."""
    for tensor in tensors:
        if tensor.dtype is F64 or not (tensor.is_cuda or tensor.is_cpu):
            if runs_stock_for(tensor.dtype, tensor.device.type):
                return True
    return False


def arranged(tensor, slot):
    """The tensor itself if the slot accepts its strides, else a contiguous copy."""
    return tensor if tensor is None or is_accepted(tensor, slot) else tensor.contiguous()


def by_rows(tensors, slots):
    """Tensors of any rank as [rows, cols] where the slot has rank 2."""
    return [t if t is None or slot["ndim"] != 2 else rows(t) for t, slot in zip(tensors, slots)]


def scalar_values(sources, given):
    """The scalars of a backward: `sources` are indices among the forward's, or functions."""
    return [given[source] if isinstance(source, int) else source() for source in sources]


def bare_apply(function):
    """The `apply` of an autograd.Function without its checks for transforms of torch.func, which take as long as the
    rest of it. The caller makes these checks."""
    return super(torch.autograd.Function, function).apply


class TableEntry:
    def __init__(self, name):
        self.index, entry = TABLE[name]
        self.name = name
        slots = entry["slots"]
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

    def run_by_rows(self, ins, outs, scalars):
        """As `run`, with tensors of any rank for slots of rank 2: leading axes are rows."""
        self.run(by_rows(ins, self.ins), by_rows(outs, self.outs), scalars)
