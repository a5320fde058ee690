"""`tegula.ops`: routing of a mixture of experts, their linear layers and feed-forward blocks."""

from typing import NamedTuple

import torch

from .. import _core
from ..autograd.conventions import GATED, PACKING, ROUNDING, SCORING, choose, empty, expect_tensor, flat, rows, statistic, widened
from ..autograd.op_function import Op, needs_gradient
from .elementwise_ops import swiglu, swiglu_clamped


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


class Spread(torch.autograd.Function):
    """The row of x of each slot. Its gradient adds up a token's slots in their order, without atomics."""

    @staticmethod
    def forward(ctx, x, slot, row):
        ctx.save_for_backward(row)
        return x.index_select(0, slot // row.shape[-1])

    @staticmethod
    def backward(ctx, gradient):
        (row,) = ctx.saved_tensors
        (dx,) = _moe_combine(row, None, gradient.contiguous(), None, ROUNDING["once"], None)
        return dx, None, None


def gathered(op, x, slot, row):
    """The rows of x of all slots, with a gradient."""
    if row is None:
        raise ValueError(f"{op}: row: expected a tensor beside a gathered x that requires its gradient, got None")
    if expect_tensor(op, "row", row).dim() != 2 or row.shape[0] != x.shape[0] or row.numel() != slot.numel():
        raise ValueError(f"{op}: row: expected [{x.shape[0]}, k] for {slot.numel()} slots, got {list(row.shape)}")
    return Spread.apply(x, slot, row)


def slots_of_row(op, x, slot):
    """slots_per_row, of checked shapes."""
    if x.dim() != 2:
        raise ValueError(f"{op}: x: expected rank 2, got {list(x.shape)}")
    if slot is not None and expect_tensor(op, "slot", slot).dim() != 1:
        raise ValueError(f"{op}: slot: expected rank 1, got {list(slot.shape)}")
    return 0 if slot is None else max(1, slot.shape[0] // max(1, x.shape[0]))


def gated_scalars(op, activation, alpha, limit, packing):
    """activation, alpha, limit and packing as the ops have them: 0 where the activation does not read it."""
    number, packed = choose(op, "activation", GATED, activation), choose(op, "packing", PACKING, packing)
    clamped = activation == "swiglu_clamped"
    return number, alpha if clamped else 0.0, limit if clamped else 0.0, packed if number else 0


def activated(z, activation, alpha, limit, packing):
    """What the op's own activation computes of z, with a gradient."""
    if activation == "none":
        return z
    if activation == "swiglu":
        return swiglu(z, packing=packing, rounding="once")
    return swiglu_clamped(z, alpha=alpha, limit=limit, packing=packing, rounding="once")


def grouped(x, weight, bias, offsets, slot, slots_per_row, in_first, activation, *rest):
    columns = weight.shape[2 if in_first else 1]
    return (empty((x.shape[0] if slot is None else slot.shape[0], columns // 2 if activation else columns), x),)


_grouped_linear = Op("grouped_linear", ["y"], grouped)


def grouped_linear(
    x: torch.Tensor, weight: torch.Tensor, offsets: torch.Tensor, bias: torch.Tensor | None = None, *,
    slot: torch.Tensor | None = None, row: torch.Tensor | None = None, in_first: bool = False, activation: str = "none",
    alpha: float = 1.702, limit: float = 7.0, packing: str = "halves",
) -> torch.Tensor:  # fmt: skip
    """x @ weight[e].T + bias[e] for the rows of each expert e, which offsets gives, with weight [experts, out, in], or
    [experts, in, out] if in_first; tegula/grouped_linear.h. offsets, slot and row come from moe_plan. With slot, x
    [tokens, in] is gathered. A gradient of x then needs row, and keeps the gathered rows; without one they are gathered as
    they are read. activation "swiglu" or "swiglu_clamped" (with alpha and limit) follows and halves the columns, which
    hold gate and up as packing says."""
    for name, tensor in (("x", x), ("weight", weight), ("offsets", offsets)):
        expect_tensor("grouped_linear", name, tensor)
    slots_per_row = slots_of_row("grouped_linear", x, slot)
    scalars = gated_scalars("grouped_linear", activation, alpha, limit, packing)
    if not torch.is_grad_enabled() or not any(isinstance(t, torch.Tensor) and needs_gradient(t) for t in (x, weight, bias)):
        return _grouped_linear(x, weight, bias, offsets, slot, slots_per_row, in_first, *scalars)[0]
    if slot is not None and needs_gradient(x):
        x, slot, slots_per_row = gathered("grouped_linear", x, slot, row), None, 0
    z = _grouped_linear(x, weight, bias, offsets, slot, slots_per_row, in_first, *gated_scalars("grouped_linear", "none", 0, 0, packing))[0]
    return activated(z, activation, alpha, limit, packing)


class PackedExperts(NamedTuple):
    """Weights [experts, out_features, in_features] in MXFP4, packed by `pack_mxfp4`. To move them:
    packed._replace(data=packed.data.cuda())."""

    data: torch.Tensor
    experts: int
    out_features: int
    in_features: int


def pack_mxfp4(blocks: torch.Tensor, scales: torch.Tensor) -> PackedExperts:
    """Weights for `grouped_linear_mxfp4`, of blocks [experts, out, in / 32, 16] and scales [experts, out, in / 32], as the
    files of GPT-OSS hold them; tegula/grouped_linear_mxfp4.h. A file's tensors, and the way back, are the same bits."""
    op = "grouped_linear_mxfp4"
    if expect_tensor(op, "blocks", blocks).dim() != 4:
        raise ValueError(f"{op}: blocks: expected rank 4, got rank {blocks.dim()}")
    host = {name: expect_tensor(op, name, t).detach().cpu().contiguous() for name, t in (("weight", blocks), ("scale", scales))}
    data = torch.empty(_core.packed_bytes(op, **host), dtype=torch.uint8)
    _core.pack(op, **host, packed=data)
    return PackedExperts(data.to(blocks.device), blocks.shape[0], blocks.shape[1], 32 * blocks.shape[2])


def grouped_packed(x, weight, bias, offsets, slot, slots_per_row, activation, alpha, limit, packing, out_features):
    return (empty((x.shape[0] if slot is None else slot.shape[0], out_features // 2 if activation else out_features), x),)


_grouped_linear_mxfp4 = Op("grouped_linear_mxfp4", ["y"], grouped_packed, more=["SymInt out_features"])


def grouped_linear_mxfp4(
    x: torch.Tensor, weight: PackedExperts, offsets: torch.Tensor, bias: torch.Tensor | None = None, *,
    slot: torch.Tensor | None = None, row: torch.Tensor | None = None, activation: str = "none", alpha: float = 1.702,
    limit: float = 7.0, packing: str = "halves",
) -> torch.Tensor:  # fmt: skip
    """`grouped_linear` with frozen weights from `pack_mxfp4`, whose values are not rounded; tegula/grouped_linear_mxfp4.h.
    The weights have no gradient."""
    op = "grouped_linear_mxfp4"
    if not isinstance(weight, PackedExperts):
        raise TypeError(f"{op}: weight: expected PackedExperts, got {type(weight)}")
    for name, tensor in (("x", x), ("offsets", offsets)):
        expect_tensor(op, name, tensor)
    slots_per_row = slots_of_row(op, x, slot)
    if x.shape[1] != weight.in_features:
        raise ValueError(f"{op}: x: expected [rows, {weight.in_features}], got {list(x.shape)}")
    if activation != "none" and weight.out_features % 2:
        raise ValueError(f"{op}: weight: expected an even number of outputs, got {weight.out_features}")
    scalars = gated_scalars(op, activation, alpha, limit, packing)
    if not torch.is_grad_enabled() or not any(isinstance(t, torch.Tensor) and needs_gradient(t) for t in (x, bias)):
        return _grouped_linear_mxfp4(x, weight.data, bias, offsets, slot, slots_per_row, *scalars, weight.out_features)[0]
    if slot is not None:  # the backward gives dx by row, whoever wants it
        x = gathered(op, x, slot, row) if needs_gradient(x) else x.index_select(0, slot // slots_per_row)
        slot, slots_per_row = None, 0
    none = gated_scalars(op, "none", 0, 0, packing)
    z = _grouped_linear_mxfp4(x, weight.data, bias, offsets, slot, slots_per_row, *none, weight.out_features)[0]
    return activated(z, activation, alpha, limit, packing)


def fed_forward(x, weights, offsets, slot, row, gate_up, gate_up_bias, down, down_bias, residual, *scalars):
    in_first, keep = scalars[-2:]
    return empty(x.shape, x), empty((slot.shape[0], gate_up.shape[2 if in_first else 1]), x) if keep else None


_moe_mlp = Op("moe_mlp", ["y", "preactivation"], fed_forward, passed={"residual": "y"}, more=["bool keep"])


def moe_mlp(
    x: torch.Tensor, weights: torch.Tensor, offsets: torch.Tensor, slot: torch.Tensor, row: torch.Tensor,
    gate_up: torch.Tensor, down: torch.Tensor, gate_up_bias: torch.Tensor | None = None, down_bias: torch.Tensor | None = None, *,
    residual: torch.Tensor | None = None, activation: str = "swiglu", alpha: float = 1.702, limit: float = 7.0,
    packing: str = "halves", in_first: bool = False,
) -> torch.Tensor:  # fmt: skip
    """The experts of x [..., hidden], added up with weights [..., k], plus residual; tegula/moe_mlp.h. offsets, slot and
    row come from moe_plan. gate_up is [experts, 2 * inter, hidden] and down [experts, hidden, inter], or with in_first both
    with the last two axes exchanged; packing says how the rows of gate_up hold gate and up. activation is "swiglu" or
    "swiglu_clamped", which reads alpha and limit. A gradient keeps x and the pre-activation; that of frozen parameters is not computed."""
    for name, tensor in (("x", x), ("weights", weights), ("slot", slot), ("gate_up", gate_up), ("down", down)):
        expect_tensor("moe_mlp", name, tensor)
    for name, tensor, rank in (("slot", slot, 1), ("gate_up", gate_up, 3)):
        if tensor.dim() != rank:
            raise ValueError(f"moe_mlp: {name}: expected rank {rank}, got {list(tensor.shape)}")
    choose("moe_mlp", "activation", {name: number for name, number in GATED.items() if number}, activation)
    scalars = gated_scalars("moe_mlp", activation, alpha, limit, packing)
    parameters = gate_up, gate_up_bias, down, down_bias
    keep = torch.is_grad_enabled() and any(isinstance(t, torch.Tensor) and needs_gradient(t) for t in (x, weights, *parameters))
    added = None if residual is None else rows(expect_tensor("moe_mlp", "residual", residual))
    found = _moe_mlp(rows(x), rows(widened(weights, x)), offsets, slot, row, *parameters, added, *scalars, in_first, keep)
    return found[0].view(x.shape)
