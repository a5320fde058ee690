"""`tegula.ops`: ops that read positions or ids."""

import torch

from ..autograd.conventions import PAIRING, ROUNDING, choose, empty, flat, heads_last, statistic
from ..autograd.op_function import Op

Pair = tuple[torch.Tensor, torch.Tensor]

_rope = Op(
    "rope", ["q_out", "k_out"],
    lambda q, k, *rest: (empty(q.shape, q), None if k is None else empty(k.shape, k)),
    public=2, like={"q": "dq_out", "k": "dk_out"}, paired=True,
)  # fmt: skip


def rope(
    q: torch.Tensor, k: torch.Tensor | None, cos: torch.Tensor, sin: torch.Tensor, *, rotary_dim: int = 0,
    position_offset: int = 0, pairing: str = "halves", rounding: str = "hf",
) -> tuple[torch.Tensor, torch.Tensor | None]:  # fmt: skip
    """(q, k) rotated by their positions; k may be None. q and k are [batch, heads, tokens, head_dim], cos and sin
    [1 or batch, positions, rotary_dim or half of it]; tegula/rope.h."""
    pairing = choose("rope", "pairing", PAIRING, pairing)
    rounding = choose("rope", "rounding", ROUNDING, rounding)
    q_out, k_out = _rope(heads_last(q), heads_last(k), cos, sin, rotary_dim, position_offset, pairing, rounding)
    return heads_last(q_out), None if k is None else heads_last(k_out)


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
    rounding: str = "hf",
) -> Pair:  # fmt: skip
    """(q, k), each head normed and then rotated, shapes as in `rope`; tegula/qk_norm_rope.h."""
    pairing = choose("qk_norm_rope", "pairing", PAIRING, pairing)
    rounding = choose("qk_norm_rope", "rounding", ROUNDING, rounding)
    q_out, k_out = _qk_norm_rope(
        heads_last(q), heads_last(k), q_weight, k_weight, cos, sin, eps, rotary_dim, position_offset, pairing, rounding
    )
    return heads_last(q_out), heads_last(k_out)


_embedding = Op(
    "embedding", ["y"],
    lambda ids, table, *rest: (empty((ids.shape[0], table.shape[1]), table),),
)  # fmt: skip


def embedding(
    ids: torch.Tensor, table: torch.Tensor, positions: torch.Tensor | None = None, *,
    position_ids: torch.Tensor | None = None, position_offset: int = 0,
) -> torch.Tensor:  # fmt: skip
    """table[ids], plus rows of `positions` if given; tegula/embedding.h. position_ids selects these rows; without it
    they are position_offset, position_offset + 1, ... along the last axis of ids."""
    if position_ids is not None:
        position_ids = flat(position_ids.expand(ids.shape))
    seq_len = ids.shape[-1] if positions is not None and ids.dim() > 0 else 0
    (y,) = _embedding(flat(ids), table, positions, position_ids, seq_len, position_offset)
    return y.view(*ids.shape, table.shape[1])
