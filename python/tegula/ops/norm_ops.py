"""`tegula.ops`: norms."""

import torch

from ..autograd.conventions import POLICY, ROUNDING, choose, empty, statistic
from ..autograd.rowwise_op import RowwiseOp, tracing

Pair = tuple[torch.Tensor, torch.Tensor]

_rms_norm = RowwiseOp(
    "rms_norm", ["y", "rstd"],
    lambda x, weight, eps, offset, policy: (empty(x.shape, x), statistic(x.shape[:1], x)),
)  # fmt: skip


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, weight_offset: float = 0.0, policy: str = "llama",
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """x / sqrt(mean(x^2) + eps) * (weight_offset + weight) over the last axis; tegula/rms_norm.h. `policy` selects where
    16-bit tensors are rounded: "llama" (also Qwen3) or "gpt_oss" (with weight_offset=1: Gemma)."""
    policy = choose("rms_norm", "policy", POLICY, policy)
    y = tracing() or _rms_norm.quick(out, x, weight, eps, weight_offset, policy)
    return y if type(y) is not bool else _rms_norm.general(out, x, weight, eps, weight_offset, policy)


_add_rms_norm = RowwiseOp(
    "add_rms_norm", ["y", "sum", "rstd"],
    lambda x, residual, weight, eps, offset, policy: (empty(x.shape, x), empty(x.shape, x), statistic(x.shape[:1], x)),
    row_inputs=2, public=2, same={"residual": "x"}, like={"x": "sum"},
)  # fmt: skip


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, weight_offset: float = 0.0,
    policy: str = "llama",
) -> Pair:  # fmt: skip
    """(rms_norm(x + residual), x + residual); tegula/add_rms_norm.h."""
    policy = choose("add_rms_norm", "policy", POLICY, policy)
    y = tracing() or _add_rms_norm.quick(None, x, residual, weight, eps, weight_offset, policy)
    return y if type(y) is not bool else _add_rms_norm.general(None, x, residual, weight, eps, weight_offset, policy)


_layer_norm = RowwiseOp(
    "layer_norm", ["y", "mean", "rstd"],
    lambda x, weight, bias, eps: (empty(x.shape, x), statistic(x.shape[:1], x), statistic(x.shape[:1], x)),
)  # fmt: skip


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, eps: float = 1e-5, *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis; tegula/layer_norm.h."""
    y = tracing() or _layer_norm.quick(out, x, weight, bias, eps)
    return y if type(y) is not bool else _layer_norm.general(out, x, weight, bias, eps)


_rms_norm_swiglu = RowwiseOp(
    "rms_norm_swiglu", ["y", "rstd"],
    lambda x, gate, weight, eps, rounding: (empty(x.shape, x), statistic(x.shape[:1], x)),
    row_inputs=2,
)  # fmt: skip


def rms_norm_swiglu(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, rounding: str = "hf",
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """rms_norm(x, weight) * silu(gate); tegula/rms_norm_swiglu.h."""
    rounding = choose("rms_norm_swiglu", "rounding", ROUNDING, rounding)
    y = tracing() or _rms_norm_swiglu.quick(out, x, gate, weight, eps, rounding)
    return y if type(y) is not bool else _rms_norm_swiglu.general(out, x, gate, weight, eps, rounding)
