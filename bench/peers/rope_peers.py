"""Peers of rotary position embedding, with and without a norm of q and k before it."""

import torch

from peers.peer_problem import Formula, torch_problem
from tegula_bench.model_formulas import llama_norm, rotated

EPS = 1e-6


def inputs_of(words, dtype):
    batch, seq, dim = words.number("b", 1), words.number("s", 1), words.number("d", 64)
    heads = words.number("h", 1)
    kv_heads = words.number("kv", heads)
    words.done()
    q, k = (torch.randn(batch, seq, h, dim, dtype=dtype) for h in (heads, kv_heads))
    angles = torch.rand(1, seq, dim // 2) * 1000
    angles = torch.cat((angles, angles), -1)
    return q, k, angles.cos().to(dtype), angles.sin().to(dtype)


def rotate_both(q, k, cos, sin):
    """q and k are [batch, seq, heads, dim]."""
    cos, sin = cos[:, :, None], sin[:, :, None]
    return rotated(q, cos, sin), rotated(k, cos, sin)


def norm_and_rotate(q, k, q_weight, k_weight, cos, sin):
    return rotate_both(llama_norm(q, q_weight, EPS), llama_norm(k, k_weight, EPS), cos, sin)


def rope(words, backward, dtype):
    q, k, cos, sin = inputs_of(words, dtype)
    fields = dict(cos=cos, sin=sin, pairing="TG_ROPE_HALVES")
    formula = Formula(rotate_both, dict(q=q, k=k), ("q_out", "k_out"), fixed=(cos, sin))
    if not backward:
        fields.update(q=q, k=k, q_out=torch.empty_like(q), k_out=torch.empty_like(k),
                      rounding="TG_ROUNDING_HF")
        return torch_problem(fields, formula)
    formula.incoming = torch.randn_like(q), torch.randn_like(k)
    fields.update(zip(("dq_out", "dk_out"), formula.incoming))
    fields.update(dq=torch.empty_like(q), dk=torch.empty_like(k))
    return torch_problem(fields, formula)


def qk_norm_rope(words, backward, dtype):
    q, k, cos, sin = inputs_of(words, dtype)
    weights = {name: torch.randn(q.shape[-1], dtype=dtype) for name in ("q_weight", "k_weight")}
    rstd = {name: (t.float().square().mean(-1) + EPS).rsqrt() for name, t in
            dict(q_rstd=q, k_rstd=k).items()}
    fields = dict(q=q, k=k, cos=cos, sin=sin, pairing="TG_ROPE_HALVES", **weights, **rstd)
    inputs = dict(q=q, k=k, **weights)
    formula = Formula(norm_and_rotate, inputs, ("q_out", "k_out"), fixed=(cos, sin))
    if not backward:
        fields.update(q_out=torch.empty_like(q), k_out=torch.empty_like(k), eps=EPS,
                      rounding="TG_ROUNDING_HF")
        return torch_problem(fields, formula)
    formula.incoming = torch.randn_like(q), torch.randn_like(k)
    fields.update(zip(("dq_out", "dk_out"), formula.incoming))
    fields.update({"d" + name: torch.zeros_like(t) for name, t in inputs.items()})
    return torch_problem(fields, formula)


BUILDERS = dict(rope=rope, qk_norm_rope=qk_norm_rope)

# Small enough for the reference, long sums of weight gradients. By row, else by op.
ACCURACY = {
    "rope": ["b1_s256_h16_kv4_d128"],
    "qk_norm_rope": ["b1_s256_h16_kv4_d128"],
}
