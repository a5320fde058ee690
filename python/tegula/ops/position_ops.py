"""`tegula.ops`: ops that read positions or ids."""

import torch

from ..autograd.conventions import (
    PAIRING, ROUNDING, choose, empty, expect_tensor, flat, heads_first, heads_last, statistic, widened,
)  # fmt: skip
from ..autograd.op_function import Op

Pair = tuple[torch.Tensor, torch.Tensor]

_rope = Op(
    "rope", ["q_out", "k_out"],
    lambda q, k, *rest: (empty(q.shape, q), None if k is None else empty(k.shape, k)),
    public=2, like={"q": "dq_out", "k": "dk_out"}, paired=True,
)  # fmt: skip


def rotated(op, q, k, others, scalars, inplace):
    """(q, k) by the op, in new memory or, `inplace`, in their own; k may be None. others: weights and tables."""
    heads = heads_last(op.name, "q", q), None if k is None else heads_last(op.name, "k", k)
    arguments = (*heads, *(widened(tensor, q) for tensor in others), *scalars)
    if inplace:
        op.write("inplace", heads, arguments)
        return q, k
    q_out, k_out = op(*arguments)
    return heads_first(q_out), None if k is None else heads_first(k_out)


def rope(
    q: torch.Tensor, k: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, *, rotary_dim: int = 0,
    position_offset: int = 0, pairing: str = "halves", rounding: str = "hf", inplace: bool = False,
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """(q, k) rotated by their positions; k may be None. q and k are [batch, heads, tokens, head_dim], cos and sin
    [1 or batch, positions, rotary_dim or half of it]; tegula/rope.h. inplace: overwrites q and k and returns them; refused
    where a gradient is recorded."""
    pairing = choose("rope", "pairing", PAIRING, pairing)
    scalars = (rotary_dim, position_offset, pairing, choose("rope", "rounding", ROUNDING, rounding))
    if k is None or getattr(q, "dtype", None) == getattr(k, "dtype", None):
        return rotated(_rope, q, k, (cos, sin), scalars, inplace)
    # Each of two dtypes is rotated in its own, as by PyTorch.
    return tuple(rotated(_rope, x, None, (cos, sin), scalars, inplace)[0] for x in (q, k))


_qk_norm_rope = Op(
    "qk_norm_rope", ["q_out", "k_out", "q_rstd", "k_rstd"],
    lambda q, k, *rest: (
        empty(q.shape, q), empty(k.shape, k), statistic(q.shape[:3], q), statistic(k.shape[:3], k),
    ),
    public=2,
)  # fmt: skip


def qk_norm_rope(
    q: torch.Tensor, k: torch.Tensor, q_weight: torch.Tensor, k_weight: torch.Tensor, cos: torch.Tensor,
    sin: torch.Tensor, eps: float = 1e-6, *, rotary_dim: int = 0, position_offset: int = 0, pairing: str = "halves",
    rounding: str = "hf", inplace: bool = False,
) -> Pair:  # fmt: skip
    """(q, k), each head normed and then rotated, shapes and `inplace` as in `rope`; tegula/qk_norm_rope.h."""
    pairing = choose("qk_norm_rope", "pairing", PAIRING, pairing)
    rounding = choose("qk_norm_rope", "rounding", ROUNDING, rounding)
    scalars = (eps, rotary_dim, position_offset, pairing, rounding)
    return rotated(_qk_norm_rope, q, expect_tensor("qk_norm_rope", "k", k), (q_weight, k_weight, cos, sin), scalars, inplace)


_embedding = Op(
    "embedding", ["y"],
    lambda ids, table, *rest: (empty((ids.shape[0], table.shape[1]), table),),
)  # fmt: skip


def broadcast_ids(ids, position_ids):
    try:
        return position_ids.expand(ids.shape)
    except RuntimeError:
        raise ValueError(
            f"embedding: position_ids: expected a shape that broadcasts to {list(ids.shape)}, got {list(position_ids.shape)}"
        ) from None


def embedding(
    ids: torch.Tensor, table: torch.Tensor, positions: torch.Tensor | None = None, *,
    position_ids: torch.Tensor | None = None, position_offset: int = 0,
) -> torch.Tensor:  # fmt: skip
    """table[ids], plus rows of `positions` if given; tegula/embedding.h. position_ids selects these rows; without it
    they are position_offset, position_offset + 1, ... along the last axis of ids."""
    expect_tensor("embedding", "ids", ids)
    if position_ids is not None:
        position_ids = flat(broadcast_ids(ids, expect_tensor("embedding", "position_ids", position_ids)))
    seq_len = ids.shape[-1] if positions is not None and ids.dim() > 0 else 0
    (y,) = _embedding(flat(ids), table, positions, position_ids, seq_len, position_offset)
    return y.view(*ids.shape, table.shape[1])
