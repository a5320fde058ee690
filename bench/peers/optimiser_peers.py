"""Peers of the optimiser and of the gradient norm."""

import torch

from peers.peer_problem import Peer, Problem, torch_peer

ADAMW = dict(lr=0.01, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1)


VECTOR = 4096  # elements of a norm's weight


def parameter_list(words, make):
    """ROWSxCOLS_tN: a matrix and ragged vectors. ELEMENTS_tN: as in a model, every second of N
    tensors is a vector, and the others have equal shares of the rest."""
    count = words.number("t", 1)
    if len(words.extents) == 1:
        matrices = count - count // 2
        rest = words.extents[0] - count // 2 * VECTOR
        sizes = [rest // matrices + (i < rest % matrices) for i in range(matrices)]
        return [make(VECTOR if i % 2 else sizes[i // 2]) for i in range(count)]
    rows, cols = words.extents
    return [make(rows, cols)] + [make(cols // i) for i in range(1, count)]


def adamw(words, _backward, dtype):
    params = parameter_list(words, lambda *n: torch.randn(n, dtype=dtype))
    words.done()
    grads = [torch.randn_like(p) for p in params]
    first, second = ([torch.zeros_like(p) for p in params] for _ in range(2))
    fields = dict(params=params, grads=grads, exp_avg=first, exp_avg_sq=second, step=1, **ADAMW)
    peers = []
    for config in ("fused", "foreach") if params[0].device.type == "cpu" else ("fused",):
        mine = [torch.nn.Parameter(p.detach().clone()) for p in params]
        for p, g in zip(mine, grads):
            p.grad = g
        optimiser = torch.optim.AdamW(mine, lr=ADAMW["lr"], eps=ADAMW["eps"],
                                      betas=(ADAMW["beta1"], ADAMW["beta2"]),
                                      weight_decay=ADAMW["weight_decay"], **{config: True})

        def step(optimiser=optimiser, mine=mine):
            optimiser.step()
            return {"params": [p.detach() for p in mine]}

        peers.append(Peer("torch", step, config))
    return Problem(fields, peers)


def global_norm(words, _backward, dtype):
    tensors = parameter_list(words, lambda *n: torch.randn(n, dtype=dtype))
    words.done()
    fields = dict(tensors=tensors, norm=torch.empty(1))
    run = torch_peer(lambda: torch.nn.utils.get_total_norm(tensors)[None], "norm")
    # PyTorch adds 4e7 squares in f32, one after the other in each lane: 0.3 % off.
    return Problem(fields, [run], tolerance=0.01)


BUILDERS = dict(adamw=adamw, global_norm=global_norm)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "adamw": ["512x768"],
    "global_norm": ["2048x768_t4"],
}
