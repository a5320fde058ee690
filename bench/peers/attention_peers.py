"""Peers of attention."""

import math

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from peers import fa4_peer, flex_peer
from peers.peer_problem import Peer, Problem, gradients, torch_peer, when_called
from shape_words import NotServed

VECTOR = 8  # elements of 16 bytes


def on_backend(backend, function):
    """The function, with scaled_dot_product_attention on that library alone: it fails where the
    library does not take a call."""
    def run(*tensors):
        with sdpa_kernel(backend):
            return function(*tensors)
    return run


def with_sink_key(q, k, v, sinks, mask, scale):
    """The same with sinks as one more key, whose value is 0: an element that only it has a 1 in
    gets the sink from the query. Rows stay whole vectors."""
    element = (sinks / scale).view(1, 1, -1, 1).expand(*q.shape[:3], 1)
    key = F.pad(torch.ones_like(k[:, :1, :, :1]), (k.shape[3], VECTOR - 1))
    return (F.pad(torch.cat((q, element), -1), (0, VECTOR - 1)),
            torch.cat((F.pad(k, (0, VECTOR)), key), 1), F.pad(v, (0, 0, 0, 0, 0, 1)),
            mask if mask is None else F.pad(mask, (0, 1), value=True))


class Flash:
    """PyTorch's FlashAttention-2, causal, with what scaled_dot_product_attention has no argument
    for: a window, or sequences that follow one another (`starts` of them and the total, and the
    `longest`). Sinks take a pass over its result; its backward with that and their lse gives dq, dk
    and dv, and no dsinks."""

    def __init__(self, q, k, v, scale, window=0, sinks=None, starts=None, longest=0):
        self.tensors, self.sinks, self.starts = (q, k, v), sinks, (starts, starts)
        self.lengths = (longest or q.shape[1], longest or k.shape[1], 0.0, True)  # no dropout
        self.options = dict(scale=scale)
        if window:
            self.options |= dict(window_size_left=window - 1, window_size_right=0)

    def forward(self):
        out, lse, *self.state = torch.ops.aten._flash_attention_forward(
            *self.tensors, *self.starts, *self.lengths, False, **self.options)
        if self.sinks is None:
            return out, lse
        sinks = self.sinks.float().view(1, -1, 1)
        share = torch.sigmoid(lse - sinks).transpose(1, 2).unsqueeze(-1)
        return (out * share).to(out.dtype), torch.logaddexp(lse, sinks)

    def backward(self, dout):
        """The call, after the forward that it needs."""
        results = self.forward()

        def run():
            found = torch.ops.aten._flash_attention_backward(
                dout, *self.tensors, *results, *self.starts, *self.lengths, *self.state[:2],
                **self.options)
            return dict(zip(("dq", "dk", "dv"), found))
        return run

    def peer(self, dout):
        run = (lambda: {"out": self.forward()[0]}) if dout is None else when_called(
            lambda: self.backward(dout))
        return Peer("fa2", run, "in PyTorch")


def gpu_peers(forward, inputs, dout):
    """The libraries behind PyTorch's default, each alone; the third shares no heads and is slow
    backward."""
    backends = [("cudnn", SDPBackend.CUDNN_ATTENTION, "through PyTorch",
                 str(torch.backends.cudnn.version())),
                ("fa2", SDPBackend.FLASH_ATTENTION, "in PyTorch", torch.__version__)]
    if dout is None and inputs["q"].shape[2] == inputs["k"].shape[2]:
        backends.append(("efficient", SDPBackend.EFFICIENT_ATTENTION, "in PyTorch",
                         torch.__version__))
    found = []
    for name, backend, config, version in backends:
        function = on_backend(backend, forward)
        found.append(Peer(
            name, (lambda f=function: {"out": f(*inputs.values())}) if dout is None else (
                when_called(lambda f=function: gradients(f, inputs, dout))), config, version))
    return found


def uneven_lengths(batch, total):
    """Lengths of so many sequences, from a 16th of their mean to 4 times it, in a mixed order."""
    least, most = total // batch // 16, 4 * total // batch
    steps = torch.linspace(0, 1, batch, dtype=torch.float64)
    lengths = (least * (most / least) ** steps).round().long()
    left = total - int(lengths.sum())  # 5 % of it, to those between
    between = lengths[1:-1]
    between += left * between // int(between.sum())
    lengths[batch // 2] += total - int(lengths.sum())
    order = torch.randperm(batch, generator=torch.Generator("cpu").manual_seed(1), device="cpu")
    return lengths[order].tolist()


def packed_attention(words, backward, dtype):
    """Sequences of uneven lengths, one behind the other, causal."""
    batch, heads, total = words.number("b", 1), words.number("h", 1), words.number("s", 1)
    kv_heads, dim = words.number("kv", heads), words.number("d", 64)
    causal, any_order = words.flag("causal"), words.flag("any")
    if not causal or batch < 8:
        raise NotServed(f"{words.shape}: packed are 8 or more sequences, with a causal mask")
    words.done()
    lengths = uneven_lengths(batch, total)
    starts = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).int()
    q = torch.randn(1, total, heads, dim, dtype=dtype)
    k, v = (torch.randn(1, total, kv_heads, dim, dtype=dtype) for _ in range(2))
    out, lse = torch.empty_like(q), torch.empty(1, heads, total)
    scale = 1 / math.sqrt(dim)

    def forward(q, k, v):
        parts = zip(*(x.transpose(1, 2).split(lengths, 2) for x in (q, k, v)))
        return torch.cat([F.scaled_dot_product_attention(
            *part, is_causal=True, scale=scale, enable_gqa=heads != kv_heads)
            for part in parts], 2).transpose(1, 2)

    inputs = dict(q=q, k=k, v=v)
    fields = dict(inputs, out=out, lse=lse, scale=scale, causal=True, cu_seqlens_q=starts,
                  cu_seqlens_k=starts)
    dout = torch.randn_like(out) if backward else None
    if backward:
        fields |= dict(dout=dout, dq=torch.empty_like(q), dk=torch.empty_like(k),
                       dv=torch.empty_like(v), allow_nondeterministic=any_order)
        found = [Peer("torch", when_called(lambda: gradients(forward, inputs, dout)))]
    else:
        found = [torch_peer(lambda: forward(q, k, v), "out")]
    if q.is_cuda:
        flash = Flash(*(x[0] for x in (q, k, v)), scale, starts=starts, longest=max(lengths))
        found.append(flash.peer(None if dout is None else dout[0]))
        found += fa4_peer.peers(inputs, dout, scale, True, not any_order, starts=starts,
                                longest=max(lengths))
    return Problem(fields, found)


def attention(words, backward, dtype):
    if words.flag("packed"):
        return packed_attention(words, backward, dtype)
    batch, heads = words.number("b", 1), words.number("h", 1)
    kv_heads = words.number("kv", heads)
    nq = words.number("s", 1)
    keys = words.number("sk", nq)
    dim = words.number("d", 64)
    v_dim = words.number("vd", dim)
    causal, window, sink = words.flag("causal"), words.number("w", 0), words.flag("sink")
    any_order = words.flag("any")  # as the peers add always
    tf32 = words.flag("tf32")  # on a GPU, of the peers, too
    torch.backends.cuda.matmul.allow_tf32 = tf32
    page = words.number("page", 0)  # rows of a block of keys
    if page and (backward or keys % page):
        raise NotServed(f"{words.shape}: blocks of a forward, all of them full")
    if window and not (causal and nq == keys):
        raise NotServed(f"{words.shape}: a window without a causal mask of {nq} keys")
    words.done()

    def heads_inside(n, h, d):
        return torch.randn(batch, n, h, d, dtype=dtype)

    q, k, v = heads_inside(nq, heads, dim), heads_inside(keys, kv_heads, dim), heads_inside(
        keys, kv_heads, v_dim)
    blocks = None
    if page:
        blocks = torch.randperm(batch * keys // page).view(batch, -1)
        k, v = (x.view(-1, page, kv_heads, x.shape[3]) for x in (k, v))
    out, lse = heads_inside(nq, heads, v_dim), torch.empty(batch, heads, nq)
    scale = 1 / math.sqrt(dim)
    sinks = torch.randn(heads, dtype=dtype) if sink else None
    # PyTorch aligns a causal mask at the top left: the same only if the lengths agree; a single
    # query sees every key.
    masked = causal and nq > 1
    mask = None
    if masked and (nq != keys or window or sink):
        mask = torch.ones(nq, keys, dtype=torch.bool).tril(keys - nq)
    if masked and window:
        mask = mask.triu(1 - window)

    def forward(q, k, v, sinks=None):
        sees, groups = mask, heads // kv_heads
        if page:
            k, v = (x[blocks].flatten(1, 2) for x in (k, v))
        if sink:
            q, k, v, sees = with_sink_key(q, k, v, sinks, mask, scale)
        if sees is not None and groups > 1:  # masks and shared keys together take a slow way
            k, v = (x.repeat_interleave(groups, 2) for x in (k, v))
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=sees,
            is_causal=masked and sees is None, scale=scale,
            enable_gqa=q.shape[2] != k.shape[2])
        return y.transpose(1, 2)

    inputs = dict(q=q, k=k, v=v) | (dict(sinks=sinks) if sink else {})
    fields = dict(inputs, out=out, lse=lse, scale=scale, causal=causal, window=window,
                  allow_tf32=tf32)
    if page:
        fields |= dict(block_table=blocks.int())
    dout = torch.randn_like(out) if backward else None
    if backward:
        fields |= dict(dout=dout, dq=torch.empty_like(q), dk=torch.empty_like(k),
                       dv=torch.empty_like(v), allow_nondeterministic=any_order)
        fields |= dict(dsinks=torch.zeros_like(sinks)) if sink else {}
        found = [Peer("torch", when_called(lambda: gradients(forward, inputs, dout)))]
    else:
        found = [torch_peer(lambda: forward(*inputs.values()), "out")]
    if q.is_cuda:
        found += [Flash(q, k, v, scale, window, sinks).peer(dout)] if window else (
            gpu_peers(forward, inputs, dout))
        if not page:
            found += fa4_peer.peers(inputs, dout, scale, causal, not any_order, window)
        if sink and causal and nq == keys:
            found += flex_peer.peers(inputs, dout, scale, window)
    return Problem(fields, found)


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
