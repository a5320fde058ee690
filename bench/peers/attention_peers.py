"""Peers of attention."""

import math

import torch
import torch.nn.functional as F

from peers.peer_problem import Peer, Problem, gradients, torch_peer

def attention(words, backward, dtype):
    batch, heads = words.number("b", 1), words.number("h", 1)
    kv_heads = words.number("kv", heads)
    nq = words.number("s", 1)
    keys = words.number("sk", nq)
    dim = words.number("d", 64)
    v_dim = words.number("vd", dim)
    causal = words.flag("causal")
    words.done()

    def heads_inside(n, h, d):
        return torch.randn(batch, n, h, d, dtype=dtype)

    q, k, v = heads_inside(nq, heads, dim), heads_inside(keys, kv_heads, dim), heads_inside(
        keys, kv_heads, v_dim)
    out, lse = heads_inside(nq, heads, v_dim), torch.empty(batch, heads, nq)
    scale = 1 / math.sqrt(dim)
    # PyTorch aligns a causal mask at the top left: the same only if the lengths agree; a single
    # query sees every key.
    masked = causal and nq > 1
    mask = None
    if masked and nq != keys:
        mask = torch.ones(nq, keys, dtype=torch.bool).tril(keys - nq)

    def forward(q, k, v):
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=mask,
            is_causal=masked and mask is None, scale=scale, enable_gqa=heads != kv_heads)
        return y.transpose(1, 2)

    shared = dict(q=q, k=k, v=v, out=out, lse=lse, scale=scale, causal=causal)
    if not backward:
        return Problem(shared, [torch_peer(lambda: forward(q, k, v), "out")])
    dout = torch.randn_like(out)
    fields = dict(dout=dout, dq=torch.empty_like(q), dk=torch.empty_like(k),
                  dv=torch.empty_like(v), **shared)
    return Problem(fields, [Peer("torch", gradients(forward, dict(q=q, k=k, v=v), dout))])


def attention_naive(words, backward, dtype):
    batch, heads = words.number("b", 1), words.number("h", 1)
    kv_heads = words.number("kv", heads)
    nq = words.number("s", 1)
    keys = words.number("sk", nq)
    dim = words.number("d", 64)
    v_dim = words.number("vd", dim)
    causal = words.flag("causal")
    words.done()
    q = torch.randn(batch, nq, heads, dim, dtype=dtype)
    k = torch.randn(batch, keys, kv_heads, dim, dtype=dtype)
    v = torch.randn(batch, keys, kv_heads, v_dim, dtype=dtype)
    out = torch.empty(batch, nq, heads, v_dim, dtype=dtype)
    scale = 1 / math.sqrt(dim)
    hidden = torch.ones(nq, keys, dtype=torch.bool).triu(keys - nq + 1)

    def by_head(x):
        return x.transpose(1, 2).repeat_interleave(heads // x.shape[2], 1)

    def probabilities_of(q, k):
        scores = by_head(q) @ by_head(k).transpose(2, 3) * scale
        if causal:
            scores = scores.masked_fill(hidden, -math.inf)
        return torch.softmax(scores, -1)

    def both(q, k, v):
        p = probabilities_of(q, k)
        return dict(out=(p @ by_head(v)).transpose(1, 2), probabilities=p)

    shared = dict(q=q, k=k, v=v, probabilities=probabilities_of(q, k), scale=scale)
    if not backward:
        return Problem(dict(out=out, causal=causal, **shared),
                       [Peer("torch", lambda: both(q, k, v))])
    dout = torch.randn_like(out)
    fields = dict(dout=dout, dq=torch.empty_like(q), dk=torch.empty_like(k),
                  dv=torch.empty_like(v), **shared)
    backward_of_out = gradients(lambda *x: both(*x)["out"], dict(q=q, k=k, v=v), dout)
    return Problem(fields, [Peer("torch", backward_of_out)])


BUILDERS = dict(attention=attention, attention_naive=attention_naive)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "attention": ["b1_h4_s512_d64_causal"],
    "attention_naive": ["b1_h4_s512_d64"],
    "attention_naive_bwd": ["b1_h4_s192_d64_causal"],
}
