"""What a builder of peers returns, and the common kinds of peer."""

import dataclasses

import torch


@dataclasses.dataclass
class Peer:
    impl: str
    run: object  # () -> {slot: tensor or list}
    config: str = ""
    version: str = torch.__version__
    extra_bytes: object = None  # () -> memory beside inputs and results; ours is the workspace


@dataclasses.dataclass
class Problem:
    fields: dict
    peers: list
    tolerance: float = 0.0  # of the comparison before timing, where a peer is known to be inexact
    same_rounding: object = None  # for errors: PyTorch with the call's policy, if peers[0] has another


def gradients(function, inputs, dy):
    """Backward alone: the graph of `function` on `inputs` (name -> tensor) is built once."""
    leaves = [t.detach().requires_grad_() for t in inputs.values()]
    y = function(*leaves)
    names = ["d" + name for name in inputs]
    return lambda: dict(zip(names, torch.autograd.grad(y, leaves, dy, retain_graph=True)))


def torch_peer(function, name):
    return Peer("torch", lambda: {name: function()})
