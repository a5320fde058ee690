"""`tegula.ops`: attention."""

import math

import torch

from ..autograd import kept_attention
from ..autograd.conventions import empty, heads_first, heads_last, statistic
from ..autograd.op_function import Op
from ..settings import tf32_allowed


def attention_outputs(q, k, v, *rest):
    batch, tokens, heads, _ = q.shape
    return empty((batch, tokens, heads, v.shape[3]), q), statistic((batch, heads, tokens), q)


class KeptOp(Op):
    """An `Op` whose results checkpointed layers keep."""

    def compute(self, arguments, given=None):
        return kept_attention.once(lambda: super(KeptOp, self).compute(arguments, given))


_attention = KeptOp("attention", ["out", "lse"], attention_outputs)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, scale: float | None = None,
    window: int = 0, softcap: float = 0.0, sinks: torch.Tensor | None = None, cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None, key_start: torch.Tensor | None = None,
    key_count: torch.Tensor | None = None, query_start: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """softmax(scale * q @ k.T) @ v for [batch, heads, tokens, head_dim]; tegula/attention.h. k and v may have
    fewer heads, which are shared. `causal` aligns the last query with the last key; scaled_dot_product_attention aligns
    the first ones. scale: 1 / sqrt(head_dim). block_table: forward only. On a GPU, f32 uses TF32 if
    torch.backends.cuda.matmul.allow_tf32 is set, as PyTorch's products do."""
    heads = heads_last("attention", "q", q), heads_last("attention", "k", k), heads_last("attention", "v", v)
    if block_table is not None and torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
        raise NotImplementedError("attention: block_table: expected tensors without gradients, got one that requires its")
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    (y,) = _attention(
        *heads, sinks, cu_seqlens_q, cu_seqlens_k, key_start, key_count, query_start, block_table, scale, softcap, window,
        causal, q.is_cuda and q.dtype == torch.float32 and tf32_allowed(),
    )  # fmt: skip
    return heads_first(y)


_attention_naive = Op(
    "attention_naive", ["out", "probabilities"],
    lambda q, k, v, *rest: (
        empty((*q.shape[:3], v.shape[3]), q), empty((q.shape[0], q.shape[2], q.shape[1], k.shape[1]), q),
    ),
)  # fmt: skip


def attention_naive(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, scale: float | None = None,
) -> torch.Tensor:  # fmt: skip
    """As `attention`, with all probabilities in memory; tegula/attention_naive.h."""
    name = "attention_naive"
    heads = heads_last(name, "q", q), heads_last(name, "k", k), heads_last(name, "v", v)
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    (y,) = _attention_naive(*heads, scale, causal)
    return heads_first(y)
