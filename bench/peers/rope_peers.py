"""Peers of rotary position embedding, with and without a norm of q and k before it."""

import torch

from peers.peer_problem import Peer, Problem

EPS = 1e-6


def rotate_half(x):
    first, second = x.chunk(2, -1)
    return torch.cat((-second, first), -1)


def rotate(x, cos, sin):
    """As transformers' apply_rotary_pos_emb, for [batch, seq, heads, dim]."""
    return x * cos + rotate_half(x) * sin


def norm(x, weight):
    """As Qwen3RMSNorm."""
    wide = x.float()
    return weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPS)).to(x.dtype)


def inputs_of(words, dtype):
    batch, seq, dim = words.number("b", 1), words.number("s", 1), words.number("d", 64)
    heads = words.number("h", 1)
    kv_heads = words.number("kv", heads)
    words.done()
    q, k = (torch.randn(batch, seq, h, dim, dtype=dtype) for h in (heads, kv_heads))
    angles = torch.rand(1, seq, dim // 2) * 1000
    angles = torch.cat((angles, angles), -1)
    return q, k, angles.cos().to(dtype), angles.sin().to(dtype)


def gradients_of(outputs, leaves):
    """leaves: name -> tensor; outputs and their gradients are those of q_out and k_out."""
    dq_out, dk_out = (torch.randn_like(t) for t in outputs)
    names = ["d" + name for name in leaves]

    def run():
        grads = torch.autograd.grad(outputs, list(leaves.values()), (dq_out, dk_out),
                                    retain_graph=True)
        return dict(zip(names, grads))

    return dict(dq_out=dq_out, dk_out=dk_out), run


def rope(words, backward, dtype):
    q, k, cos, sin = inputs_of(words, dtype)
    fields = dict(cos=cos, sin=sin, pairing="TG_ROPE_HALVES")
    wide = cos[:, :, None], sin[:, :, None]
    if not backward:
        fields.update(q=q, k=k, q_out=torch.empty_like(q), k_out=torch.empty_like(k),
                      rounding="TG_ROUNDING_HF")
        return Problem(fields, [Peer("torch", lambda: dict(q_out=rotate(q, *wide),
                                                           k_out=rotate(k, *wide)))])
    leaves = {name: t.detach().requires_grad_() for name, t in dict(q=q, k=k).items()}
    given, run = gradients_of(tuple(rotate(t, *wide) for t in leaves.values()), leaves)
    fields.update(given, dq=torch.empty_like(q), dk=torch.empty_like(k))
    return Problem(fields, [Peer("torch", run)])


def qk_norm_rope(words, backward, dtype):
    q, k, cos, sin = inputs_of(words, dtype)
    weights = {name: torch.randn(q.shape[-1], dtype=dtype) for name in ("q_weight", "k_weight")}
    rstd = {name: (t.float().square().mean(-1) + EPS).rsqrt() for name, t in
            dict(q_rstd=q, k_rstd=k).items()}
    fields = dict(q=q, k=k, cos=cos, sin=sin, pairing="TG_ROPE_HALVES", **weights, **rstd)
    wide = cos[:, :, None], sin[:, :, None]

    def forward(q, k, q_weight, k_weight):
        return rotate(norm(q, q_weight), *wide), rotate(norm(k, k_weight), *wide)

    if not backward:
        fields.update(q_out=torch.empty_like(q), k_out=torch.empty_like(k), eps=EPS,
                      rounding="TG_ROUNDING_HF")
        run = lambda: dict(zip(("q_out", "k_out"), forward(q, k, **weights)))
        return Problem(fields, [Peer("torch", run)])
    leaves = {name: t.detach().requires_grad_() for name, t in dict(q=q, k=k, **weights).items()}
    given, run = gradients_of(forward(**leaves), leaves)
    fields.update(given, **{"d" + name: torch.zeros_like(t.detach()) for name, t in leaves.items()})
    return Problem(fields, [Peer("torch", run)])


BUILDERS = dict(rope=rope, qk_norm_rope=qk_norm_rope)

# Small enough for the reference, long sums of weight gradients. By row, else by op.
ACCURACY = {
    "rope": ["b1_s256_h16_kv4_d128"],
    "qk_norm_rope": ["b1_s256_h16_kv4_d128"],
}
