"""Whether anyone sees what a module takes or gives.

A replacement that bypasses a module, or passes it other arguments than the original would, calls `why_heard` first.
A module is heard if a call of it runs more than the function that is known as its forward: hooks of the module or of
all modules, a forward or `__call__` of a subclass, a forward of the instance."""

import torch
from torch import nn
from torch.nn.modules import module as modules

from .. import sharding

CALL, CALL_IMPL = nn.Module.__call__, nn.Module._call_impl
# torch's hooks for all modules. PyTorch fills these dictionaries and never replaces them.
ALL_FORWARD, ALL_FORWARD_PRE = modules._global_forward_hooks, modules._global_forward_pre_hooks
ALL_BACKWARD, ALL_BACKWARD_PRE = modules._global_backward_hooks, modules._global_backward_pre_hooks
ALL_WITH_KEYWORDS = modules._global_forward_hooks_with_kwargs


def function_of(module):
    """The function that runs as module.forward, inside accelerate's hooks and torch.compile(module)."""
    module = module._modules.get("_orig_mod", module)
    forward = module.__dict__.get("_old_forward") or module.forward
    return getattr(forward, "__func__", forward)


def kind(function):
    """The name of the replacement that `function` is, or None. functools.wraps copies a function's attributes, so the
    function names itself, too."""
    return function.tegula_kind if getattr(function, "tegula_itself", None) is function else None


def why_heard(module, runs=None, *, around=False, keywords=False):
    """Who sees what the module takes or gives, as the end of a sentence about it; None if nobody does.

    runs: what is known as its forward: a kind of replacement, or a tuple of functions; None: anything.
    around: hooks that pass on whatever they get do not count: those of FSDP and of transformers' recorder of outputs.
    keywords: `around`, and hooks count only if they see keywords; most see positional arguments alone.
    accelerate's own hooks never count; whoever reads a weight asks `sharding.placement` where it is."""
    if (
        module._forward_hooks_with_kwargs or module._forward_pre_hooks_with_kwargs or ALL_FORWARD
        if keywords
        else module._forward_hooks or module._forward_pre_hooks or module._backward_hooks or module._backward_pre_hooks
        or ALL_FORWARD or ALL_FORWARD_PRE or ALL_BACKWARD or ALL_BACKWARD_PRE
    ):  # fmt: skip
        reason = why_keywords_hooked(module) if keywords else why_hooked(module, around)
        if reason:
            return reason
    cls = type(module)
    if cls.__call__ is not CALL or cls._call_impl is not CALL_IMPL:
        if "_orig_mod" in module._modules:  # torch.compile(module)
            return why_heard(module._modules["_orig_mod"], runs, around=around, keywords=keywords)
        if not is_called_as_usual(cls):
            return f"has a __call__ of its own ({cls.__qualname__})"
    if runs is None or runs_only(module, cls, runs):
        return None
    inner = module._modules.get("_checkpoint_wrapped_module") if keywords else None
    if inner is None:
        return "runs another forward"
    return why_heard(inner, runs, keywords=True)  # PyTorch's wrapper for checkpoints passes keywords on


def runs_only(module, cls, runs):
    """Whether the module's forward, inside accelerate's hook, is one of `runs` and bound to this module."""
    values = module.__dict__
    if "_hf_hook" in values and not sharding.moves_only(values["_hf_hook"]):
        return False
    own = values.get("_old_forward" if "_hf_hook" in values else "forward")
    if own is None:
        function = cls.forward
    elif torch.compiler.is_compiling():  # where PyTorch 2.11 does not find a method's owner
        function = function_of(module)
    elif getattr(own, "__self__", None) is module:
        function = own.__func__
    else:
        return False
    return kind(function) == runs if isinstance(runs, str) else function in runs


# ---- seldom called ----


def passes_on(hook):
    """Whether a hook is FSDP's or of transformers' recorder of outputs."""
    home = getattr(hook, "__module__", None) or ""
    return home.startswith("transformers.utils.output_capturing") or sharding.is_from_fsdp(hook)


def why_hooked(module, around):
    if ALL_FORWARD or ALL_FORWARD_PRE or ALL_BACKWARD or ALL_BACKWARD_PRE:
        return "is under hooks for all modules"
    hooks = [*module._forward_hooks.values(), *module._forward_pre_hooks.values()]
    if module._backward_hooks or module._backward_pre_hooks or not (around and all(map(passes_on, hooks))):
        return "has hooks"
    return None


def why_keywords_hooked(module):
    """PyTorch leaves the index of a removed hook for all modules in ALL_WITH_KEYWORDS."""
    if any(index in ALL_FORWARD for index in ALL_WITH_KEYWORDS):
        return "is under hooks for all modules, which see keywords"
    pairs = (
        (module._forward_hooks_with_kwargs, module._forward_hooks),
        (module._forward_pre_hooks_with_kwargs, module._forward_pre_hooks),
    )
    seeing = [hooks[index] for indices, hooks in pairs for index in indices if index in hooks]
    return None if all(map(passes_on, seeing)) else "has hooks that see keywords"


def is_called_as_usual(cls):
    """A layer of earlier transformers checkpoints in its `__call__`."""
    home = getattr(cls.__call__, "__module__", None)
    return cls._call_impl is CALL_IMPL and (cls.__call__ is CALL or home == "transformers.modeling_layers")


def sees_last_function(module):
    """Whether a backward hook of the old kind (register_backward_hook) sees the module: it gets the gradients of the
    last function of autograd in it, so that the original forward must run."""
    if module._backward_hooks and module._is_full_backward_hook is False:
        return True
    return bool(ALL_BACKWARD) and modules._global_is_full_backward_hook is False
