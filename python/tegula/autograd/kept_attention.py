"""Attention of checkpointed layers, computed once.

Gradient checkpointing runs each layer's forward again within the backward. Of what it computes there attention alone
grows with the square of the sequence, and its outputs are as small as the layer's input, which is kept anyway. So the
first run keeps them, and the second takes them: the same bits, for attention adds in one order."""

import contextlib
import threading

import torch

from ..settings import recomputes_attention

_now = threading.local()  # the backward has threads of its own


class KeptAttention:
    """Of one forward of a model, whose layers get it by the keyword `kept_attention`."""

    def __init__(self):
        self._outputs = {}  # module -> what its calls gave; empty once the second run has taken it

    @contextlib.contextmanager
    def within(self, module):
        """The module's attention runs: for the first time, or again in the backward. A module that the forward calls
        more than once has its attention computed in every run: which run is which nobody says."""
        first = module not in self._outputs
        outputs = self._outputs.setdefault(module, [])
        if not first and not in_backward():
            outputs.clear()
        _now.keeps, _now.outputs = first, outputs
        try:
            yield
        finally:
            _now.outputs = None


def in_backward():
    return torch._C._current_graph_task_id() != -1


def for_model(model):
    """What the layers of a model shall get in a forward that begins, or None where nothing is checkpointed."""
    if torch.compiler.is_compiling() or not (model.gradient_checkpointing and model.training):
        return None
    if recomputes_attention() or not torch.is_grad_enabled():
        return None
    if any(layer._compiled_call_impl is not None for layer in model.layers):
        return None  # compiled code would be made anew for each such object
    return KeptAttention()


def running(kept, module):
    return contextlib.nullcontext() if kept is None else kept.within(module)


def once(compute):
    """compute()'s tensors, those of the first run in the second. Kept without their graph, which would hold them."""
    outputs = getattr(_now, "outputs", None)
    if outputs is None:
        return compute()
    if not _now.keeps:
        return outputs.pop(0) if outputs else compute()
    results = compute()
    outputs.append(tuple(tensor.detach() for tensor in results))
    return results
