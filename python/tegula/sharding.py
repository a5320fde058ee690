"""Several processes and devices: wrappers around modules, and distributed tensors.

FSDP2 shards parameters outside of a unit's forward. DDP wraps the model. accelerate's device_map wraps each module's
forward and moves its arguments and its offloaded weights."""

import sys

import torch
from torch import nn

HOMES = ("torch.distributed.fsdp", "torch.distributed._composable")


def unwrapped(model):
    """The model inside torch.compile and DistributedDataParallel."""
    while True:
        if hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif "torch.nn.parallel.distributed" in sys.modules and isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        else:
            return model


def is_unit_class(cls):
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return fsdp is not None and issubclass(cls, fsdp.FSDPModule)


def is_unit(module):
    """Whether fully_shard was called with the module, so that its own forward gathers its parameters."""
    return is_unit_class(type(module))


def class_of(module):
    """The module's class without the subclass that fully_shard makes."""
    return next(cls for cls in type(module).__mro__ if not is_unit_class(cls))


def inherit_forward(cls):
    """fully_shard makes one subclass for all units of a class. transformers gives the subclass of a layer a copy of the
    layer's forward at that time, wrapped for checkpointing. Deleting the copy lets the current forward of the layer's
    class run, stock or replaced, which checkpoints itself."""
    if is_unit_class(cls) and hasattr(vars(cls).get("forward"), "__wrapped__"):
        del cls.forward


def comes_whole(module, name):
    """Whether the parameter, a DTensor outside, is a plain tensor in forwards: FSDP alone shards it."""
    parameter = getattr(module, name)
    cuts = sum(not placement.is_replicate() for placement in getattr(parameter, "placements", ()))
    return cuts == 1 and getattr(module, "_is_fsdp_managed_module", False)


def is_from_fsdp(hook):
    return (getattr(hook, "__module__", None) or "").startswith(HOMES)


def moves_only(hook):
    """Whether a hook is one of accelerate's own: they move or cast tensors and look at nothing else."""
    home, name = type(hook).__module__, type(hook).__name__
    if home != "accelerate.hooks" or hook.no_grad:
        return False
    return name != "SequentialHook" or all(map(moves_only, hook.hooks))


def placement(module):
    """accelerate's hook that moves arguments and weights to the module's device, if it is the only hook; else None."""
    hook = module.__dict__.get("_hf_hook")
    if hook is None:
        return None
    hooks = sys.modules.get("accelerate.hooks")
    return hook if hooks is not None and type(hook) is hooks.AlignDevicesHook and not hook.no_grad else None


def runs_around(module):
    """Whether a call of the module gathers or moves its weights, so that it must be called."""
    return is_unit(module) or placement(module) is not None


@torch.compiler.disable
def call_as_forward(function, module, x):
    """module(x) with `function` as its forward, so that FSDP gathers parameters and reduces gradients around it, or
    accelerate moves x and the weights."""
    attribute = "_old_forward" if placement(module) else "forward"
    before = vars(module).pop(attribute, None)
    setattr(module, attribute, function)
    try:
        return module(x)
    finally:
        delattr(module, attribute)
        if before is not None:
            setattr(module, attribute, before)


# ---- distributed tensors ----


def local(tensor):
    """This process's shard of a distributed tensor; another tensor itself."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def norms_of_all(tensors, norm_of, name):
    """One norm for each layout of the tensors, equal in all processes; the norm of these is that of all elements.
    `norm_of` computes the norm of a list. Replicated elements and tensors that are not distributed count once."""
    layouts = {}
    for tensor in tensors:
        key = (tensor.device_mesh, tensor.placements) if hasattr(tensor, "to_local") else None
        layouts.setdefault(key, []).append(local(tensor))
    norms = []
    for layout, parts in layouts.items():
        norm = norm_of(parts)
        norms.append(norm if layout is None else over_processes(norm, *layout, name))
    return norms


def over_processes(norm, mesh, placements, name):
    square = norm.double().square()
    for axis, placement in enumerate(placements):
        if placement.is_partial():
            raise NotImplementedError(f"{name}: expected tensors in parts or whole, got one with summands in each process")
        if not placement.is_replicate():
            torch.distributed.all_reduce(square, group=mesh.get_group(axis))
    return square.sqrt().to(norm.dtype)
