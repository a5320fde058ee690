"""Peers of softmax."""

import torch

from peers.peer_problem import Peer, Problem, gradients, torch_peer

def softmax(words, backward, dtype):
    scale = 0.125 if words.flag("scaled") else 1.0
    words.done()
    x = torch.randn(words.extents, dtype=dtype)

    def forward(x):
        return torch.softmax(x if scale == 1 else x * scale, -1)

    if not backward:
        fields = dict(x=x, y=torch.empty_like(x), scale=scale)
        return Problem(fields, [torch_peer(lambda: forward(x), "y")])
    dy = torch.randn_like(x)
    fields = dict(dy=dy, y=forward(x), dx=torch.empty_like(x), scale=scale)
    return Problem(fields, [Peer("torch", gradients(forward, dict(x=x), dy))])


BUILDERS = dict(softmax=softmax)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "softmax": ["256x4096"],
}
