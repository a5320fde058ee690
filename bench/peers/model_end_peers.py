"""Peers of a model's ends: embedding and loss."""

import torch
import torch.nn.functional as F

from peers.peer_problem import Formula, Peer, Problem, torch_problem


def add_positions(table, ids, where=None, positions=None):
    y = F.embedding(ids, table)
    return y if positions is None else y + F.embedding(where, positions)


def embedding(words, backward, dtype):
    tokens, vocab, dim = words.extents
    rows = words.number("p", 0)
    seq_len = words.number("s", 0)
    words.done()
    ids = torch.randint(vocab, (tokens,))
    positions = torch.randn(rows, dim, dtype=dtype) if rows else None
    where = torch.arange(tokens) % seq_len if seq_len else torch.arange(tokens)
    fixed = (ids, where, positions) if rows else (ids,)
    if not backward:
        table = torch.randn(vocab, dim, dtype=dtype)
        fields = dict(ids=ids, table=table, y=torch.empty(tokens, dim, dtype=dtype),
                      seq_len=seq_len)
        if rows:
            fields["positions"] = positions
        return torch_problem(fields, Formula(add_positions, dict(table=table), ("y",), fixed=fixed))
    dy = torch.randn(tokens, dim, dtype=dtype)
    fields = dict(dy=dy, ids=ids, dtable=torch.zeros(vocab, dim, dtype=dtype), seq_len=seq_len)
    if rows:
        fields["dpositions"] = torch.zeros(rows, dim, dtype=dtype)

    def backward_pass():
        grads = {"dtable": torch.ops.aten.embedding_dense_backward(dy, ids, vocab, -1, False)}
        if rows:
            grads["dpositions"] = torch.ops.aten.embedding_dense_backward(dy, where, rows, -1,
                                                                          False)
        return grads

    formula = None
    if not rows:  # the table's values do not matter, nor does it get memory before it is touched
        formula = Formula(add_positions, dict(table=torch.empty(vocab, dim, dtype=dtype)), ("y",),
                          fixed=fixed, incoming=(dy,))
    return Problem(fields, [Peer("torch", backward_pass)], formula=formula)


def cross_entropy(words, backward, dtype):
    rows, vocab = words.extents
    words.done()
    logits, targets = torch.randn(rows, vocab, dtype=dtype), torch.randint(vocab, (rows,))
    shared = dict(logits=logits, targets=targets, reduction="TG_REDUCTION_MEAN")
    formula = Formula(F.cross_entropy, dict(logits=logits), ("loss",), fixed=(targets,))
    if not backward:
        return torch_problem(dict(loss=torch.empty(1), **shared), formula)
    fields = dict(dloss=torch.ones(1), lse=torch.logsumexp(logits.float(), -1),
                  dlogits=torch.empty_like(logits), **shared)
    formula.incoming = (torch.ones((), dtype=dtype),)
    return torch_problem(fields, formula)


def cross_entropy_fwdbwd(words, _backward, dtype):
    """Forward and backward, as in a training step."""
    rows, vocab = words.extents
    words.done()
    logits, targets = torch.randn(rows, vocab, dtype=dtype), torch.randint(vocab, (rows,))
    formula = Formula(F.cross_entropy, dict(logits=logits), ("loss",), fixed=(targets,), both=True)
    return torch_problem(dict(dloss=torch.ones(1), logits=logits, targets=targets,
                              loss=torch.empty(1), dlogits=torch.empty_like(logits),
                              reduction="TG_REDUCTION_MEAN"), formula)


BUILDERS = dict(embedding=embedding, cross_entropy=cross_entropy,
                cross_entropy_fwdbwd=cross_entropy_fwdbwd)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "embedding": ["4096x500x64_p128_s128"],
    "cross_entropy": ["64x50257"],
}
