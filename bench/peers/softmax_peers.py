"""Peers of softmax."""

import torch

from peers.peer_problem import Formula, torch_problem

def softmax(words, backward, dtype):
    scale = 0.125 if words.flag("scaled") else 1.0
    words.done()
    x = torch.randn(words.extents, dtype=dtype)

    def forward(x):
        return torch.softmax(x if scale == 1 else x * scale, -1)

    formula = Formula(forward, dict(x=x), ("y",))
    if not backward:
        return torch_problem(dict(x=x, y=torch.empty_like(x), scale=scale), formula)
    dy = torch.randn_like(x)
    formula.incoming = (dy,)
    fields = dict(dy=dy, y=forward(x), dx=torch.empty_like(x), scale=scale)
    return torch_problem(fields, formula)


BUILDERS = dict(softmax=softmax)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "softmax": ["256x4096"],
}
