"""Peers of what chooses and groups the experts of a sparse model."""

import torch

from peers.peer_problem import Formula, torch_problem
from shape_words import NotServed


def distinct_logits(tokens, experts, dtype):
    """No two of a row are equal: PyTorch says nothing about the order of equal ones."""
    if experts > 256:
        raise NotServed(f"{experts} distinct logits")  # 256 whole numbers are exact in bf16
    return (torch.rand(tokens, experts).argsort(-1) / 16).to(dtype)


def topk_router(words, backward, dtype):
    tokens, experts = words.extents
    k, ids = words.number("k", 1), torch.int64 if words.flag("i64") else torch.int32
    over_all, renormalized = words.flag("all"), words.flag("renorm")
    words.done()
    logits = distinct_logits(tokens, experts, dtype)

    def forward(logits):
        if not over_all and not renormalized:  # GPT-OSS
            chosen, indices = torch.topk(logits, k, -1)
            return torch.softmax(chosen, -1), indices
        weights, indices = torch.topk(torch.softmax(logits, -1, dtype=torch.float), k, -1)
        if renormalized:
            weights = weights / weights.sum(-1, keepdim=True)
        return weights.to(dtype), indices

    formula = Formula(forward, dict(logits=logits), ("weights", "indices"))
    weights, indices = torch.empty(tokens, k, dtype=dtype), torch.zeros(tokens, k, dtype=ids)
    scoring = "TG_ROUTER_" + ("RENORMALIZED" if renormalized else "ALL" if over_all else "SELECTED")
    if not backward:
        return torch_problem(dict(logits=logits, indices=indices, weights=weights, scoring=scoring),
                             formula)
    formula.function, formula.outputs = (lambda logits: forward(logits)[0]), ("weights",)
    formula.incoming = (torch.randn_like(weights),)
    indices.copy_(forward(logits)[1])
    return torch_problem(dict(dweights=formula.incoming[0], logits=logits, indices=indices,
                              dlogits=torch.empty_like(logits), scoring=scoring), formula)


def moe_plan(words, backward, dtype):
    """Beside a stable sort and a histogram; ours gives the inverse of the order, too."""
    tokens, experts = words.extents
    k, ids = words.number("k", 1), torch.int64 if words.flag("i64") else torch.int32
    words.done()
    indices = torch.rand(tokens, experts).argsort(-1)[:, :k].to(ids).contiguous()

    def forward(indices):
        flat = indices.view(-1)
        order = torch.sort(flat, stable=True)[1]
        counts = torch.histc(flat.int() if flat.is_cuda else flat.float(), experts, 0, experts - 1)
        return order, counts.cumsum(0)

    formula = Formula(forward, {}, ("slot", "ends"), fixed=(indices,))
    return torch_problem(dict(indices=indices, offsets=torch.empty(experts + 1, dtype=torch.int32),
                              slot=torch.empty(tokens * k, dtype=torch.int32),
                              row=torch.empty(tokens, k, dtype=torch.int32)), formula)


BUILDERS = dict(topk_router=topk_router, moe_plan=moe_plan)
ACCURACY = {}
