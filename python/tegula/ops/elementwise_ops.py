"""`tegula.ops`: softmax, activations, gated activations."""

import torch

from ..autograd.conventions import APPROXIMATION, FLOATS, PACKING, ROUNDING, choose, empty, expect_leading, expect_tensor
from ..autograd.rowwise_op import RowwiseOp, tracing

_softmax = RowwiseOp("softmax", ["y"], lambda x, scale: (empty(x.shape, x),), like={"x": "y"})


def softmax(x: torch.Tensor, *, scale: float = 1.0, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(scale * x) over the last axis; tegula/softmax.h."""
    y = tracing() or _softmax.quick(out, x, scale)
    return y if type(y) is not bool else _softmax.general(out, x, scale)


_silu = RowwiseOp("silu", ["y"], lambda x: (empty(x.shape, x),))


def silu(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x * sigmoid(x); tegula/silu.h."""
    y = tracing() or _silu.quick(out, x)
    return y if type(y) is not bool else _silu.general(out, x)


_gelu = RowwiseOp("gelu", ["y"], lambda x, approximation: (empty(x.shape, x),))


def gelu(x: torch.Tensor, *, approximate: str = "none", out: torch.Tensor | None = None) -> torch.Tensor:
    """GELU, exact or approximate="tanh"; tegula/gelu.h."""
    approximation = choose("gelu", "approximate", APPROXIMATION, approximate)
    y = tracing() or _gelu.quick(out, x, approximation)
    return y if type(y) is not bool else _gelu.general(out, x, approximation)


def gated(gate, up, gate_up, *scalars):
    if gate_up is None:
        return (empty(gate.shape, gate),)
    return (empty((gate_up.shape[0], gate_up.shape[1] // 2), gate_up),)


_swiglu = RowwiseOp("swiglu", ["y"], gated, row_inputs=3)
_geglu = RowwiseOp("geglu", ["y"], gated, row_inputs=3)
_swiglu_clamped = RowwiseOp("swiglu_clamped", ["y"], gated, row_inputs=3)


def call_gated(op, gate, up, scalars, packing, rounding, out, in_steps):
    """`in_steps`: y from gate, up and scalars by separate ops, as the classes of transformers compute it. It serves a gate
    of another dtype than `up`."""
    number = choose(op.name, "rounding", ROUNDING, rounding)
    packing = choose(op.name, "packing", PACKING, packing)
    if up is None:
        return op.general(out, None, None, expect_tensor(op.name, "gate", gate), *scalars, packing, number)
    y = tracing() or op.quick(out, gate, up, None, *scalars, 0, number)
    if type(y) is not bool:
        return y
    dtypes = {expect_tensor(op.name, "gate", gate).dtype, expect_tensor(op.name, "up", up).dtype}
    if len(dtypes) == 1 or not dtypes <= FLOATS or rounding == "once":
        return op.general(out, gate, up, None, *scalars, 0, number)
    if out is not None:
        raise TypeError(f"{op.name}: out: expected none beside two dtypes, {gate.dtype} of gate and {up.dtype} of up")
    expect_leading(op.name, "up", up, gate)
    return in_steps(gate, up, *scalars)


def swiglu_in_steps(gate, up):
    return silu(gate) * up


def geglu_in_steps(gate, up, approximation):
    return gelu(gate, approximate=next(name for name, number in APPROXIMATION.items() if number == approximation)) * up


def clamped_in_steps(gate, up, alpha, limit):
    gate = gate.clamp(max=limit)
    return (up.clamp(-limit, limit) + 1) * (gate * torch.sigmoid(gate * alpha))


def swiglu(
    gate: torch.Tensor, up: torch.Tensor | None = None, *, packing: str = "halves", rounding: str = "hf",
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """silu(gate) * up; tegula/swiglu.h. Without `up`, `gate` holds both, packed as "halves" or
    "interleaved". If their dtypes differ, the activation has that of gate and the product the promoted one, as in
    PyTorch."""
    return call_gated(_swiglu, gate, up, (), packing, rounding, out, swiglu_in_steps)


def geglu(
    gate: torch.Tensor, up: torch.Tensor | None = None, *, approximate: str = "none", packing: str = "halves",
    rounding: str = "hf", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """gelu(gate) * up, the rest as in `swiglu`; tegula/geglu.h."""
    approximation = choose("geglu", "approximate", APPROXIMATION, approximate)
    return call_gated(_geglu, gate, up, (approximation,), packing, rounding, out, geglu_in_steps)


def swiglu_clamped(
    gate: torch.Tensor, up: torch.Tensor | None = None, *, alpha: float = 1.702, limit: float = 7.0,
    packing: str = "interleaved", rounding: str = "hf", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """GPT-OSS's gate, the rest as in `swiglu`; tegula/swiglu_clamped.h."""
    return call_gated(_swiglu_clamped, gate, up, (alpha, limit), packing, rounding, out, clamped_in_steps)
