"""Peers of gate and up with their activation, and of the experts' products."""

import math

import torch
import torch.nn.functional as F

from peers.peer_problem import Peer, Problem, torch_peer


def linear_swiglu(words, backward, dtype):
    """Beside PyTorch's three steps, and cuBLAS followed by our own kernel."""
    rows, cols, out = words.extents
    saves, once = words.flag("save"), words.flag("once")
    words.done()
    x = torch.randn(rows, cols, dtype=dtype)
    gate_weight, up_weight = (torch.randn(out, cols, dtype=dtype) / math.sqrt(cols) for _ in range(2))
    fields = dict(x=x, gate_weight=gate_weight, up_weight=up_weight, y=torch.empty(rows, out, dtype=dtype),
                  rounding="TG_ROUNDING_ONCE" if once else "TG_ROUNDING_HF")
    if saves:
        fields.update(gate=torch.empty(rows, out, dtype=dtype), up=torch.empty(rows, out, dtype=dtype))

    def torch_steps():
        gate, up = F.linear(x, gate_weight), F.linear(x, up_weight)
        return {"gate": gate, "up": up, "y": F.silu(gate) * up}

    def with_our_kernel():
        from tegula import ops
        gate, up = F.linear(x, gate_weight), F.linear(x, up_weight)
        return {"gate": gate, "up": up, "y": ops.swiglu(gate, up)}

    return Problem(fields, [Peer("torch", torch_steps), Peer("cublas_swiglu", with_our_kernel, "two products; tegula.ops.swiglu")])


def experts_of(tokens, experts, k):
    """offsets and slots of random choices: each token's k experts differ."""
    chosen = torch.rand(tokens, experts).argsort(-1)[:, :k].reshape(-1)
    slot = torch.sort(chosen, stable=True)[1].int()
    ends = torch.bincount(chosen, minlength=experts).cumsum(0).int()
    return torch.cat([ends.new_zeros(1), ends]), slot


def bare_product(a, b, ends):
    """torch's grouped product; elsewhere than on a GPU, expert by expert."""
    if a.is_cuda:
        return torch._grouped_mm(a, b, offs=ends)
    ends = [0, *ends.tolist()]
    parts = list(zip(ends, ends[1:]))
    if b.dim() == 2:
        return torch.stack([a[:, begin:end] @ b[begin:end] for begin, end in parts])
    return torch.cat([a[begin:end] @ b[e] for e, (begin, end) in enumerate(parts)])


def grouped_linear(words, backward, dtype):
    """Beside the bare product: what it multiplies is gathered beforehand, and nothing follows. Biases are zero."""
    x_rows, cols, out = words.extents
    experts, k, in_first = words.number("e", 1), words.number("k", 0), words.flag("infirst")
    clamped, swiglu, biased = words.flag("clamped"), words.flag("swiglu"), words.flag("bias")
    interleaved, saves = words.flag("interleaved"), words.flag("pre")
    no_dx, no_dweight, overwrite = words.flag("nodx"), words.flag("nodweight"), words.flag("overwrite")
    words.flag("nodbias")
    words.done()
    offsets, slot = experts_of(x_rows, experts, k) if k else experts_of(x_rows, experts, 1)
    rows, ends = x_rows * max(k, 1), offsets[1:]
    x = torch.randn(x_rows, cols, dtype=dtype)
    gathered = x[(slot // k).long()] if k else x
    weight = torch.randn(experts, *((cols, out) if in_first else (out, cols)), dtype=dtype) / math.sqrt(cols)
    in_out = weight if in_first else weight.transpose(1, 2)
    fields = dict(x=x, weight=weight, offsets=offsets, in_first=in_first)
    if k:
        fields.update(slot=slot, slots_per_row=k)
    if backward:
        dy = torch.randn(rows, out, dtype=dtype)
        fields.update(dy=dy, overwrite=overwrite)
        if no_dx:
            fields["dweight"] = torch.zeros_like(weight)
            operands = (gathered.t(), dy) if in_first else (dy.t(), gathered)
            return Problem(fields, [torch_peer(lambda: bare_product(*operands, ends), "dweight")])
        if not no_dweight:
            raise ValueError("grouped_linear_bwd: expected nodx or nodweight")
        fields["dx"] = torch.empty(rows, cols, dtype=dtype)
        return Problem(fields, [torch_peer(lambda: bare_product(dy, in_out.transpose(1, 2), ends), "dx")])
    acts = clamped or swiglu
    fields["y"] = torch.empty(rows, out // 2 if acts else out, dtype=dtype)
    if biased:
        fields["bias"] = torch.zeros(experts, out, dtype=dtype)
    if acts:
        fields.update(activation="TG_GATED_SWIGLU_CLAMPED" if clamped else "TG_GATED_SWIGLU",
                      packing="TG_GATE_UP_INTERLEAVED" if interleaved else "TG_GATE_UP_HALVES",
                      alpha=1.702 if clamped else 0.0, limit=7.0 if clamped else 0.0)
    if saves:
        fields["preactivation"] = torch.empty(rows, out, dtype=dtype)
    return Problem(fields, [torch_peer(lambda: bare_product(gathered, in_out, ends), "preactivation" if acts else "y")])


BUILDERS = dict(linear_swiglu=linear_swiglu, grouped_linear=grouped_linear)
ACCURACY = {}
