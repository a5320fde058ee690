"""`tegula.ops`: softmax, activations, gated activations."""

import torch

from .conventions import APPROXIMATION, PACKING, ROUNDING, call, choose, empty, rows
from .op_function import Op

_softmax = Op("softmax", ["y"], lambda x, scale: (empty(x.shape, x),), like={"x": "y"})


def softmax(x: torch.Tensor, *, scale: float = 1.0, out: torch.Tensor | None = None) -> torch.Tensor:
    """softmax(scale * x) over the last axis; tegula/softmax.h."""
    return call(_softmax, x, out, (rows(x), scale))


_silu = Op("silu", ["y"], lambda x: (empty(x.shape, x),))


def silu(x: torch.Tensor, *, out: torch.Tensor | None = None) -> torch.Tensor:
    """x * sigmoid(x); tegula/silu.h."""
    return call(_silu, x, out, (rows(x),))


_gelu = Op("gelu", ["y"], lambda x, approximation: (empty(x.shape, x),))


def gelu(x: torch.Tensor, *, approximate: str = "none", out: torch.Tensor | None = None) -> torch.Tensor:
    """GELU, exact or approximate="tanh"; tegula/gelu.h."""
    return call(_gelu, x, out, (rows(x), choose("gelu", "approximate", APPROXIMATION, approximate)))


def gated(gate, up, gate_up, *scalars):
    if gate_up is None:
        return (empty(gate.shape, gate),)
    return (empty((gate_up.shape[0], gate_up.shape[1] // 2), gate_up),)


_swiglu = Op("swiglu", ["y"], gated)
_geglu = Op("geglu", ["y"], gated)
_swiglu_clamped = Op("swiglu_clamped", ["y"], gated)


def call_gated(op, gate, up, scalars, packing, rounding, out):
    rounding = choose(op.name, "rounding", ROUNDING, rounding)
    packing = choose(op.name, "packing", PACKING, packing)
    if up is None:
        return call(op, gate, out, (None, None, rows(gate), *scalars, packing, rounding))
    return call(op, gate, out, (rows(gate), rows(up), None, *scalars, 0, rounding))


def swiglu(
    gate: torch.Tensor, up: torch.Tensor | None = None, *, packing: str = "halves", rounding: str = "hf",
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """silu(gate) * up; tegula/swiglu.h. Without `up`, `gate` holds both, as `packing` says: "halves" or
    "interleaved"."""
    return call_gated(_swiglu, gate, up, (), packing, rounding, out)


def geglu(
    gate: torch.Tensor, up: torch.Tensor | None = None, *, approximate: str = "none", packing: str = "halves",
    rounding: str = "hf", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """gelu(gate) * up, the rest as in `swiglu`; tegula/geglu.h."""
    approximation = choose("geglu", "approximate", APPROXIMATION, approximate)
    return call_gated(_geglu, gate, up, (approximation,), packing, rounding, out)


def swiglu_clamped(
    gate: torch.Tensor, up: torch.Tensor | None = None, *, alpha: float = 1.702, limit: float = 7.0,
    packing: str = "interleaved", rounding: str = "hf", out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """GPT-OSS's gate, the rest as in `swiglu`; tegula/swiglu_clamped.h."""
    return call_gated(_swiglu_clamped, gate, up, (alpha, limit), packing, rounding, out)
