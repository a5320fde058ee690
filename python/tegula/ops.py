"""The ops as functions of PyTorch's tensors, with gradients.

Shapes, dtypes, formulas and rounding are those of the headers in `include/tegula/`, which each function names; here
stand the conventions that differ. Tensors of any rank are taken where the header says [rows, cols]: leading axes are
rows. Heads come before tokens, [batch, heads, tokens, head_dim], as in PyTorch. Errors: ValueError (shapes, strides,
values), TypeError (dtypes), NotImplementedError (no such device or backend here). f64 tensors on the CPU are computed by
the slow reference. First derivatives alone: asking for a second one, or for forward mode, raises.
"""

import math
from collections.abc import Sequence

import torch

from . import _core
from .op_function import TABLE, Op

__all__ = [
    "adamw_step", "add_rms_norm", "attention", "attention_naive", "cross_entropy", "embedding", "geglu", "gelu",
    "layer_norm", "linear", "linear_cross_entropy", "qk_norm_rope", "rms_norm", "rms_norm_swiglu", "rope", "silu",
    "softmax", "swiglu", "swiglu_clamped",
]  # fmt: skip

Tensors = Sequence[torch.Tensor]
Pair = tuple[torch.Tensor, torch.Tensor]

ROUNDING = {"hf": 1, "once": 2}
POLICY = {"llama": 1, "gpt_oss": 2}
APPROXIMATION = {"tanh": 1, "none": 2}
PACKING = {"halves": 1, "interleaved": 2}
PAIRING = {"halves": 1, "interleaved": 2}
REDUCTION = {"none": 1, "sum": 2, "mean": 3}
NUM_ITEMS = 4
ACTIVATION = {"none": 0, "gelu_tanh": 1, "gelu": 2}


def choose(op, argument, choices, value):
    if value not in choices:
        raise ValueError(f"{op}: {argument}: expected {' or '.join(choices)}, got {value!r}")
    return choices[value]


def rows(x):
    """[..., cols] as [rows, cols]."""
    if x.dim() == 2:
        return x
    return x.flatten(0, -2) if x.dim() > 2 else x.unsqueeze(0)


def flat(x):
    return None if x is None else x if x.dim() == 1 else x.reshape(-1)


def heads_last(x):
    """[batch, heads, tokens, ...] as [batch, tokens, heads, ...], and back."""
    return None if x is None else x.transpose(1, 2)


def empty(shape, like):
    return like.new_empty(shape)


def statistic(shape, like):
    """f32, or f64 beside tensors of the reference."""
    if like.dtype in (torch.float32, torch.float64):
        return like.new_empty(shape)
    return like.new_empty(shape, dtype=torch.float32)


def call(op, like, out, arguments):
    """The one public result, in the leading shape of `like`; written to `out` if that is given."""
    if out is None:
        (y,) = op(*arguments)
        return y if like.dim() == 2 else y.view(*like.shape[:-1], y.shape[-1])
    if out.shape[:-1] != like.shape[:-1]:
        raise ValueError(f"{op.name}: out: expected {[*like.shape[:-1], '...']}, got {list(out.shape)}")
    # A view: rows() would copy where there is none.
    op.write(out if out.dim() == 2 else out.view(math.prod(out.shape[:-1]), out.shape[-1]), arguments)
    return out


# ---- norms ----

_rms_norm = Op(
    "rms_norm", ["y", "rstd"],
    lambda x, weight, eps, offset, policy: (empty(x.shape, x), statistic(x.shape[:1], x)),
)  # fmt: skip


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, weight_offset: float = 0.0, policy: str = "llama",
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """x / sqrt(mean(x^2) + eps) * (weight_offset + weight) over the last axis; tegula/rms_norm.h. `policy` says where
    16-bit tensors are rounded: "llama" (also Qwen3) or "gpt_oss" (with weight_offset=1: Gemma)."""
    arguments = (rows(x), weight, eps, weight_offset, choose("rms_norm", "policy", POLICY, policy))
    return call(_rms_norm, x, out, arguments)


_add_rms_norm = Op(
    "add_rms_norm", ["y", "sum", "rstd"],
    lambda x, residual, weight, eps, offset, policy: (empty(x.shape, x), empty(x.shape, x), statistic(x.shape[:1], x)),
    public=2, same={"residual": "x"}, like={"x": "sum"},
)  # fmt: skip


def add_rms_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, weight_offset: float = 0.0,
    policy: str = "llama",
) -> Pair:  # fmt: skip
    """(rms_norm(x + residual), x + residual); tegula/add_rms_norm.h."""
    policy = choose("add_rms_norm", "policy", POLICY, policy)
    y, total = _add_rms_norm(rows(x), rows(residual), weight, eps, weight_offset, policy)
    return y.view(x.shape), total.view(x.shape)


_layer_norm = Op(
    "layer_norm", ["y", "mean", "rstd"],
    lambda x, weight, bias, eps: (empty(x.shape, x), statistic(x.shape[:1], x), statistic(x.shape[:1], x)),
)  # fmt: skip


def layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, eps: float = 1e-5, *,
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axis; tegula/layer_norm.h."""
    return call(_layer_norm, x, out, (rows(x), weight, bias, eps))


_rms_norm_swiglu = Op(
    "rms_norm_swiglu", ["y", "rstd"],
    lambda x, gate, weight, eps, rounding: (empty(x.shape, x), statistic(x.shape[:1], x)),
)  # fmt: skip


def rms_norm_swiglu(
    x: torch.Tensor, gate: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6, *, rounding: str = "hf",
    out: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """rms_norm(x, weight) * silu(gate); tegula/rms_norm_swiglu.h."""
    rounding = choose("rms_norm_swiglu", "rounding", ROUNDING, rounding)
    return call(_rms_norm_swiglu, x, out, (rows(x), rows(gate), weight, eps, rounding))


# ---- element-wise ----

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


# ---- positions and ids ----

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
    """table[ids], plus the rows of `positions` where it is given: those of position_ids, else of position_offset,
    position_offset + 1, ... along the last axis of ids; tegula/embedding.h."""
    if position_ids is not None:
        position_ids = flat(position_ids.expand(ids.shape))
    seq_len = ids.shape[-1] if positions is not None and ids.dim() > 0 else 0
    (y,) = _embedding(flat(ids), table, positions, position_ids, seq_len, position_offset)
    return y.view(*ids.shape, table.shape[1])


# ---- products and losses ----


def linear_outputs(x, weight, bias, residual, activation):
    y = empty((x.shape[0], weight.shape[0]), x)
    return y, empty(y.shape, y) if activation else None


_linear = Op("linear", ["y", "preactivation"], linear_outputs, passed={"residual": "y"})


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, residual: torch.Tensor | None = None,
    activation: str = "none",
) -> torch.Tensor:  # fmt: skip
    """activation(x @ weight.T + bias) + residual; activation is "none", "gelu" or "gelu_tanh"; tegula/linear.h."""
    activation = choose("linear", "activation", ACTIVATION, activation)
    arguments = (rows(x), weight, bias, None if residual is None else rows(residual), activation)
    return call(_linear, x, None, arguments)


def loss_outputs(logits, targets, reduction):
    count = targets.shape[0]
    return statistic((count if reduction == 1 else 1,), logits), statistic((count,), logits)


_cross_entropy = Op(
    "cross_entropy", ["loss", "lse"],
    lambda logits, targets, items, *scalars: loss_outputs(logits, targets, scalars[5]),
)  # fmt: skip
_linear_cross_entropy = Op(
    "linear_cross_entropy", ["loss", "lse"],
    lambda hidden, weight, bias, targets, items, *scalars: loss_outputs(hidden, targets, scalars[7]),
)  # fmt: skip


def loss_scalars(op, reduction, num_items_in_batch, ignore_index):
    """(num_items, num_items_in_batch, reduction, ignore_index): the number of items comes as a number or a tensor, and
    makes a sum of a mean."""
    number = choose(op, "reduction", REDUCTION, reduction)
    if num_items_in_batch is None:
        return None, 0, number
    if reduction == "none":
        raise ValueError(f"{op}: num_items_in_batch: expected None with reduction none, got {num_items_in_batch!r}")
    if isinstance(num_items_in_batch, torch.Tensor):
        return num_items_in_batch, 0, NUM_ITEMS
    return None, num_items_in_batch, NUM_ITEMS


def shaped_loss(loss, targets, reduction):
    return loss.view(targets.shape) if reduction == "none" else loss.view(())


def cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, *, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0, z_loss: float = 0.0, softcap: float = 0.0,
    num_items_in_batch: int | torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Cross-entropy of [..., vocab] logits and [...] ids; tegula/cross_entropy.h. The loss is f32. num_items_in_batch,
    a number or a tensor, divides the sum in the place of the number of targets."""
    items, number, kind = loss_scalars("cross_entropy", reduction, num_items_in_batch, ignore_index)
    (loss,) = _cross_entropy(
        rows(logits), flat(targets), items, ignore_index, number, label_smoothing, z_loss, softcap, kind, True
    )
    return shaped_loss(loss, targets, reduction)


def linear_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, bias: torch.Tensor | None = None, *,
    ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0, z_loss: float = 0.0,
    softcap: float = 0.0, num_items_in_batch: int | torch.Tensor | None = None, chunk_rows: int = 0,
    chunk_cols: int = 0,
) -> torch.Tensor:  # fmt: skip
    """cross_entropy(hidden @ weight.T + bias, targets) without the logits in memory; tegula/linear_cross_entropy.h."""
    items, number, kind = loss_scalars("linear_cross_entropy", reduction, num_items_in_batch, ignore_index)
    (loss,) = _linear_cross_entropy(
        rows(hidden), weight, bias, flat(targets), items, ignore_index, number, chunk_rows, chunk_cols,
        label_smoothing, z_loss, softcap, kind, True,
    )  # fmt: skip
    return shaped_loss(loss, targets, reduction)


# ---- attention ----


def attention_outputs(q, k, v, *rest):
    batch, tokens, heads, _ = q.shape
    return empty((batch, tokens, heads, v.shape[3]), q), statistic((batch, heads, tokens), q)


_attention = Op("attention", ["out", "lse"], attention_outputs)


def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, scale: float | None = None,
    window: int = 0, softcap: float = 0.0, sinks: torch.Tensor | None = None, cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None, key_start: torch.Tensor | None = None,
    key_count: torch.Tensor | None = None, query_start: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """softmax(scale * q @ k.T) @ v for [batch, heads, tokens, head_dim]; tegula/attention.h. Heads of k and v may be
    fewer and are shared. `causal` aligns the last query with the last key, where scaled_dot_product_attention aligns
    the first. scale: 1 / sqrt(head_dim). block_table: forward only."""
    if block_table is not None and torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v)):
        raise NotImplementedError("attention: block_table: expected tensors without gradients, got one that requires its")
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    (y,) = _attention(
        heads_last(q), heads_last(k), heads_last(v), sinks, cu_seqlens_q, cu_seqlens_k, key_start, key_count, query_start,
        block_table, scale, softcap, window, causal,
    )  # fmt: skip
    return heads_last(y)


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
    if scale is None:
        scale = 1 / math.sqrt(q.shape[-1]) if q.shape[-1] else 1.0
    (y,) = _attention_naive(heads_last(q), heads_last(k), heads_last(v), scale, causal)
    return heads_last(y)


# ---- optimiser ----

ADAMW = TABLE["adamw_step"][0]


def adamw_step(
    params: Tensors, grads: Tensors, exp_avg: Tensors, exp_avg_sq: Tensors, *, step: int, lr: float,
    beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 1e-2,
    master: Tensors | None = None, clip: torch.Tensor | None = None, grad_scale: float | None = None,
) -> None:  # fmt: skip
    """One step of AdamW on lists of tensors, in place; tegula/adamw.h."""
    lists = [list(tensors) for tensors in (params, grads, exp_avg, exp_avg_sq, master or ())]
    detached = [[tensor.detach() for tensor in tensors] for tensors in lists]
    _core.run(
        ADAMW, *detached[:4], detached[4] or None, clip, step, lr, beta1, beta2, eps, weight_decay, grad_scale,
        grad_scale is not None,
    )  # fmt: skip
    for written in (lists[0], lists[2], lists[3], lists[4]):
        for tensor in written:
            torch.autograd.graph.increment_version(tensor)
