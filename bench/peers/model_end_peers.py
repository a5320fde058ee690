"""Peers of a model's ends: embedding and loss."""

import torch
import torch.nn.functional as F

from peers.peer_problem import Peer, Problem, gradients, torch_peer

def embedding(words, backward, dtype):
    tokens, vocab, dim = words.extents
    rows = words.number("p", 0)
    seq_len = words.number("s", 0)
    words.done()
    ids = torch.randint(vocab, (tokens,))
    positions = torch.randn(rows, dim, dtype=dtype) if rows else None
    where = torch.arange(tokens) % seq_len if seq_len else torch.arange(tokens)
    if not backward:
        table = torch.randn(vocab, dim, dtype=dtype)
        fields = dict(ids=ids, table=table, y=torch.empty(tokens, dim, dtype=dtype),
                      seq_len=seq_len)
        if rows:
            fields["positions"] = positions

        def forward():
            y = F.embedding(ids, table)
            return y + F.embedding(where, positions) if rows else y

        return Problem(fields, [torch_peer(forward, "y")])
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

    return Problem(fields, [Peer("torch", backward_pass)])


def cross_entropy(words, backward, dtype):
    rows, vocab = words.extents
    words.done()
    logits, targets = torch.randn(rows, vocab, dtype=dtype), torch.randint(vocab, (rows,))
    shared = dict(logits=logits, targets=targets, reduction="TG_REDUCTION_MEAN")
    if not backward:
        fields = dict(loss=torch.empty(1), **shared)
        return Problem(fields, [torch_peer(lambda: F.cross_entropy(logits, targets)[None], "loss")])
    fields = dict(dloss=torch.ones(1), lse=torch.logsumexp(logits.float(), -1),
                  dlogits=torch.empty_like(logits), **shared)
    run = gradients(lambda logits: F.cross_entropy(logits, targets), dict(logits=logits),
                    torch.ones((), dtype=dtype))
    return Problem(fields, [Peer("torch", run)])


BUILDERS = dict(embedding=embedding, cross_entropy=cross_entropy)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "embedding": ["4096x500x64_p128_s128"],
    "cross_entropy": ["64x50257"],
}
