"""Peers of quantisation and sampling: the expressions that PyTorch users write.

Quantised integers are not compared: our scales are rounded up to 15 bits, so that integers beside a
tie may differ by one. docs/accuracy.md has what comes back instead.
"""

import torch

from peers.peer_problem import Peer, Problem, torch_peer

GRANULARITY = {"tensor": "TG_QUANT_PER_TENSOR", "column": "TG_QUANT_PER_COLUMN"}
AXIS = {"tensor": None, "column": 0, "row": 1}


def int8_words(words):
    rows, cols = words.extents
    which = next((w for w in GRANULARITY if words.flag(w)), "row")
    asymmetric = words.flag("asym")
    words.done()
    groups = {"tensor": 1, "column": cols, "row": rows}[which]
    fields = dict(scale=torch.rand(groups) + 0.1,
                  granularity=GRANULARITY.get(which, "TG_QUANT_PER_ROW"))
    if asymmetric:
        fields["zero_point"] = torch.randint(-128, 128, (groups,), dtype=torch.int32)
    return rows, cols, which, fields


def quantize_int8(words, backward, dtype):
    rows, cols, which, fields = int8_words(words)
    x, axis = torch.randn(rows, cols, dtype=dtype), AXIS[which]

    def symmetric():
        most = x.abs().max() if axis is None else x.abs().amax(axis, keepdim=True)
        scale = most.float() / 127
        (x / scale).round_().clamp_(-127, 127).to(torch.int8)
        return {}

    def asymmetric():
        low, high = torch.aminmax(x, dim=axis, keepdim=axis is not None)
        low, high = low.float().clamp(max=0), high.float().clamp(min=0)
        scale = (high - low) / 255
        zero_point = -128 - (low / scale).round_()
        (x / scale).round_().add_(zero_point).clamp_(-128, 127).to(torch.int8)
        return {}

    run = asymmetric if "zero_point" in fields else symmetric
    return Problem(dict(x=x, q=torch.empty(rows, cols, dtype=torch.int8), **fields),
                   [Peer("torch", run)])


def dequantize_int8(words, backward, dtype):
    rows, cols, which, fields = int8_words(words)
    q = torch.randint(-128, 128, (rows, cols), dtype=torch.int8)
    shape = {"tensor": (1, 1), "column": (1, cols), "row": (rows, 1)}[which]
    scale = fields["scale"].view(shape)

    def forward():
        n = q.float()
        if "zero_point" in fields:
            n -= fields["zero_point"].view(shape)
        return n.mul_(scale).to(dtype)

    fields = dict(q=q, x=torch.empty(rows, cols, dtype=dtype), **fields)
    return Problem(fields, [torch_peer(forward, "x")])


def int4_words(words):
    rows, cols = words.extents
    group_size = words.number("g", 32)
    half, asymmetric = words.flag("sf16"), words.flag("asym")
    words.done()
    scale = torch.rand(rows, cols // group_size) + 0.1
    fields = dict(scale=scale.half() if half else scale, group_size=group_size)
    if asymmetric:
        fields["zero_point"] = torch.randint(16, scale.shape, dtype=torch.uint8)
    return rows, cols, fields


def quantize_int4(words, backward, dtype):
    rows, cols, fields = int4_words(words)
    x = torch.randn(rows, cols, dtype=dtype)
    groups = x.view(rows, -1, fields["group_size"])

    def forward():
        low, high = torch.aminmax(groups, dim=2, keepdim=True)
        low, high = low.float(), high.float()
        if "zero_point" in fields:
            scale = ((high.clamp(min=0) - low.clamp(max=0)) / 15).to(fields["scale"].dtype)
            zero_point = -(low.clamp(max=0) / scale).round_()
        else:
            scale = torch.maximum(high / 7.5, low / -8.5).to(fields["scale"].dtype)
            zero_point = 8
        n = (groups / scale).round_().add_(zero_point).clamp_(0, 15).to(torch.uint8)
        n = n.view(rows, cols // 2, 2)
        n[..., 0] | n[..., 1] << 4
        return {}

    q = torch.empty(rows, cols // 2, dtype=torch.uint8)
    return Problem(dict(x=x, q=q, **fields), [Peer("torch", forward)])


def dequantize_int4(words, backward, dtype):
    rows, cols, fields = int4_words(words)
    q = torch.randint(256, (rows, cols // 2), dtype=torch.uint8)

    def forward():
        n = torch.stack((q & 15, q >> 4), dim=2).view(rows, -1, fields["group_size"]).float()
        n -= fields["zero_point"][..., None] if "zero_point" in fields else 8
        return n.mul_(fields["scale"][..., None]).view(rows, cols).to(dtype)

    fields = dict(q=q, x=torch.empty(rows, cols, dtype=dtype), **fields)
    return Problem(fields, [torch_peer(forward, "x")])


def sample(words, backward, dtype):
    rows, vocab = words.extents
    temperature = words.number("t", 100) / 100
    top_k, top_p = words.number("k", 0), words.number("p", 0) / 100
    words.done()
    logits = 3 * torch.randn(rows, vocab, dtype=dtype)

    def forward():
        """In the manner of transformers' logits processors. A draw has no output to compare."""
        if temperature == 0:
            logits.argmax(-1)
            return {}
        scores = logits.float() / temperature
        if top_k:
            scores[scores < scores.topk(top_k).values[:, -1:]] = -torch.inf
        if top_p:
            ordered, ids = scores.sort()
            remove = ordered.softmax(-1).cumsum(-1) <= 1 - top_p
            remove[:, -1] = False
            scores[remove.scatter(1, ids, remove)] = -torch.inf
        torch.multinomial(scores.softmax(-1), 1)
        return {}

    fields = dict(logits=logits, ids=torch.empty(rows, dtype=torch.int64), seed=1, position=2,
                  temperature=temperature, top_k=top_k, top_p=top_p)
    return Problem(fields, [Peer("torch", forward)])


BUILDERS = dict(quantize_int8=quantize_int8, dequantize_int8=dequantize_int8,
                quantize_int4=quantize_int4, dequantize_int4=dequantize_int4, sample=sample)

# The integers of the quantisers are defined bit for bit: the spec driver compares them.
ACCURACY = {
    "dequantize_int8": ["256x4096", "256x4096_column_asym"],
    "dequantize_int4": ["256x4096_g32_sf16", "256x4096_g128_asym"],
}
