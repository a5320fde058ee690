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
class Formula:
    """The problem as a PyTorch function, for compilers and for what other libraries have in its
    place: function(*inputs, *fixed) -> tensor or tuple."""

    function: object
    inputs: dict  # name -> tensor; a backward gives the gradient of each
    outputs: tuple  # names of the results
    fixed: tuple = ()  # tensors without a gradient: ids, targets, tables
    incoming: tuple = ()  # gradients of the results: the problem is the backward alone
    both: bool = False  # the problem is the forward of a scalar loss and its backward
    models_code: object = None  # the same in the steps of models' own code, if a compiler gets that

    def caller(self, function=None):
        """() -> {slot: tensor}: the problem's call with `function` in the formula's place."""
        function = function or self.function
        if self.both:
            return lambda: self.step(function)
        if self.incoming:
            return gradients(lambda *leaves: function(*leaves, *self.fixed), self.inputs,
                             self.incoming)
        return lambda: named(self.outputs, function(*self.inputs.values(), *self.fixed))

    def step(self, function):
        leaves = [t.detach().requires_grad_() for t in self.inputs.values()]
        loss = function(*leaves, *self.fixed)
        found = torch.autograd.grad(loss, leaves)
        return named(self.outputs, loss.detach()) | named(gradient_names(self.inputs), found)


@dataclasses.dataclass
class Problem:
    fields: dict
    peers: list
    tolerance: float = 0.0  # of the comparison before timing, where a peer is known to be inexact
    same_rounding: object = None  # for errors: PyTorch with the call's policy, if not peers[0]'s
    formula: Formula = None  # of peers[0]; None: it is not one function of PyTorch


def named(names, values):
    return dict(zip(names, values if isinstance(values, (tuple, list)) else (values,)))


def gradient_names(inputs):
    return ["d" + name for name in inputs]


def gradients(function, inputs, dy):
    """Backward alone: the graph of `function` on `inputs` (name -> tensor) is built once."""
    leaves = [t.detach().requires_grad_() for t in inputs.values()]
    y = function(*leaves)
    names = gradient_names(inputs)
    return lambda: dict(zip(names, torch.autograd.grad(y, leaves, dy, retain_graph=True)))


def when_called(make):
    """The call that make() returns, made when it is called first: what a library does not take
    fails there."""
    made = []

    def run():
        if not made:
            made.append(make())
        return made[0]()
    return run


def torch_peer(function, name):
    return Peer("torch", lambda: {name: function()})


def torch_problem(fields, formula):
    """PyTorch's own function is the only peer."""
    return Problem(fields, [Peer("torch", formula.caller())], formula=formula)
