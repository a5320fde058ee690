"""Peers of GELU."""

import torch
import torch.nn.functional as F

from peers.peer_problem import Formula, torch_problem

def gelu(words, backward, dtype):
    exact = words.flag("erf")
    words.flag("tanh")
    words.done()
    x = torch.randn(words.extents, dtype=dtype)
    approximation = "TG_GELU_ERF" if exact else "TG_GELU_TANH"

    def forward(x):
        return F.gelu(x, approximate="none" if exact else "tanh")

    formula = Formula(forward, dict(x=x), ("y",))
    if not backward:
        fields = dict(x=x, y=torch.empty_like(x), approximation=approximation)
        return torch_problem(fields, formula)
    dy = torch.randn_like(x)
    formula.incoming = (dy,)
    fields = dict(dy=dy, x=x, dx=torch.empty_like(x), approximation=approximation)
    return torch_problem(fields, formula)


BUILDERS = dict(gelu=gelu)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "gelu": ["256x4096_tanh", "256x4096_erf"],
}
