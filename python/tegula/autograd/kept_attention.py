"""Attention of checkpointed layers, computed once.

Gradient checkpointing runs each layer's forward again in the backward. Only attention grows with the square of the
sequence length there, and its outputs are as small as the layer's input, which is saved anyway. So the first run keeps
these outputs and the second reuses them. The bits are the same, since attention is deterministic."""

import contextlib
import threading

import torch

from ..settings import recomputes_attention

_now = threading.local()  # the backward runs in other threads


class KeptAttention:
    """The outputs of one forward of a model; its layers get the object as the keyword `kept_attention`."""

    def __init__(self):
        self._outputs = {}  # module -> outputs of its calls; empty after the second run

    @contextlib.contextmanager
    def within(self, module):
        """Around the module's attention, in the first run or again in the backward. If one forward calls a module more
        than once, its runs cannot be told apart and attention is computed in every run."""
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
    """The object for a forward that begins, or None if nothing is checkpointed."""
    if torch.compiler.is_compiling() or not (model.gradient_checkpointing and model.training):
        return None
    if recomputes_attention() or not torch.is_grad_enabled():
        return None
    if any(layer._compiled_call_impl is not None for layer in model.layers):
        return None  # layers would be recompiled for each such object
    return KeptAttention()


def running(kept, module):
    return contextlib.nullcontext() if kept is None else kept.within(module)


def once(compute):
    """compute(), or the first run's tensors in the second run. They are kept detached: their graph would keep them alive."""
    outputs = getattr(_now, "outputs", None)
    if outputs is None:
        return compute()
    if not _now.keeps:
        return outputs.pop(0) if outputs else compute()
    results = compute()
    outputs.append(tuple(tensor.detach() for tensor in results))
    return results
