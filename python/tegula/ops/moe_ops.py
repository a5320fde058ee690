"""`tegula.ops`: routing of a mixture of experts."""

import torch

from ..autograd.conventions import ROUNDING, SCORING, choose, empty, expect_tensor, flat, rows, statistic, widened
from ..autograd.op_function import Op


def integers(tensor):
    """A mask of booleans as integers, which the ops read."""
    return tensor.to(torch.int32) if tensor is not None and tensor.dtype is torch.bool else tensor


def routed(logits, token_mask, scoring, k, wide, sums):
    tokens, experts = logits.shape
    weights = statistic((tokens, k), logits) if wide else empty((tokens, k), logits)
    prob_sum, counts = None, None
    if sums:
        prob_sum, counts = statistic((experts,), logits), logits.new_empty(experts, dtype=torch.int32)
    return weights, logits.new_empty((tokens, k), dtype=torch.int64), prob_sum, counts


_topk_router = Op(
    "topk_router", ["weights", "indices", "prob_sum", "counts"], routed, public=4, more=["SymInt k", "bool wide", "bool sums"],
)  # fmt: skip


def topk_router(
    logits: torch.Tensor, k: int, *, scoring: str = "selected", token_mask: torch.Tensor | None = None,
    f32_weights: bool = False, sums: bool = False,
) -> tuple[torch.Tensor, ...]:  # fmt: skip
    """(weights, indices), each [..., k], of the k best of logits [..., experts]; tegula/topk_router.h. indices are i64.
    f32_weights: weights are f32 beside 16-bit logits. sums: also returns prob_sum and counts, for the auxiliary loss;
    token_mask, of the leading axes, says which tokens they include."""
    number = choose("topk_router", "scoring", SCORING, scoring)
    lead = expect_tensor("topk_router", "logits", logits).shape[:-1]
    if token_mask is not None:
        token_mask = flat(integers(expect_tensor("topk_router", "token_mask", token_mask)))
    if not 0 < k <= (logits.shape[-1] if logits.dim() else 0):
        raise ValueError(f"topk_router: k: expected 1 to {list(logits.shape)[-1:]}, got {k}")
    weights, indices, prob_sum, counts = _topk_router(rows(logits), token_mask, number, k, f32_weights, sums)
    results = weights.view(*lead, k), indices.view(*lead, k)
    return (*results, prob_sum, counts) if sums else results


def planned(indices, experts):
    new = lambda *shape: indices.new_empty(shape, dtype=torch.int32)  # noqa: E731
    return new(experts + 1), new(indices.shape[0] * indices.shape[1]), new(*indices.shape)


_moe_plan = Op("moe_plan", ["offsets", "slot", "row"], planned, public=3, more=["SymInt experts"])


def moe_plan(indices: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(offsets [experts + 1], slot [tokens * k], row [tokens, k]), all i32, of indices [..., k]; tegula/moe_plan.h."""
    if experts < 1:
        raise ValueError(f"moe_plan: experts: expected at least 1, got {experts}")
    return _moe_plan(rows(expect_tensor("moe_plan", "indices", indices)), experts)


_moe_combine = Op(
    "moe_combine", ["out"], lambda row, weights, y, *rest: (empty((row.shape[0], y.shape[1]), y),),
    passed={"residual": "out"}, more=["Tensor? slot"],
)  # fmt: skip


def moe_combine(
    y: torch.Tensor, row: torch.Tensor, weights: torch.Tensor | None = None, residual: torch.Tensor | None = None, *,
    slot: torch.Tensor | None = None, rounding: str = "hf",
) -> torch.Tensor:  # fmt: skip
    """The sum [tokens, hidden] over each token's rows of y [rows, hidden], with weights [tokens, k], plus residual;
    tegula/moe_combine.h. row and slot come from moe_plan; the gradient of y needs slot."""
    number = choose("moe_combine", "rounding", ROUNDING, rounding)
    expect_tensor("moe_combine", "y", y)
    if slot is not None:
        expect_tensor("moe_combine", "slot", slot)
    elif y.requires_grad:
        raise ValueError("moe_combine: slot: expected a tensor beside a y that requires its gradient, got None")
    weights = None if weights is None else widened(weights, y)
    (out,) = _moe_combine(row, weights, y, residual, number, slot)
    return out
