"""Several processes and devices: what others put around modules for them, and tensors in parts.

FSDP2 keeps parts of parameters outside of a unit's forward; DDP stands around the model; accelerate's device_map stands
around each module's forward, and moves what comes in, and weights that are offloaded."""

import sys

import torch
from torch import nn

HOMES = ("torch.distributed.fsdp", "torch.distributed._composable")


def unwrapped(model):
    """The model in torch.compile and DistributedDataParallel."""
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
    """fully_shard was called with the module: its own forward gathers its parameters."""
    return is_unit_class(type(module))


def class_of(module):
    """The module's class, below the one that fully_shard made of it."""
    return next(cls for cls in type(module).__mro__ if not is_unit_class(cls))


def inherit_forward(cls):
    """fully_shard makes a subclass for units, once for all. If it is one of a layer, transformers gives it a copy of the
    forward that the layer had then, with checkpointing around it: without the copy, what stands in the layer's class
    runs, stock or replaced, and checkpoints itself."""
    if is_unit_class(cls) and hasattr(vars(cls).get("forward"), "__wrapped__"):
        del cls.forward


def comes_whole(module, name):
    """Whether the parameter, a DTensor now, is a plain tensor in forwards: FSDP gathers it, and nothing else has cut it."""
    parameter = getattr(module, name)
    cuts = sum(not placement.is_replicate() for placement in getattr(parameter, "placements", ()))
    return cuts == 1 and getattr(module, "_is_fsdp_managed_module", False)


def is_from_fsdp(hook):
    return (getattr(hook, "__module__", None) or "").startswith(HOMES)


def placement(module):
    """accelerate's hook that moves arguments and weights to the module's device, where there is that alone; else None."""
    hooks = sys.modules.get("accelerate.hooks")
    hook = vars(module).get("_hf_hook")
    return hook if hooks is not None and type(hook) is hooks.AlignDevicesHook and not hook.no_grad else None


def runs_around(module):
    """Something gathers or moves the module's weights when it is called, so it has to be called."""
    return is_unit(module) or placement(module) is not None


@torch.compiler.disable
def call_as_forward(function, module, x):
    """module(x) with `function` as its forward: FSDP gathers the parameters and later scatters gradients around it, or
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
    """This process's part of a distributed tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def norms_of_all(tensors, norm_of, name):
    """Norms, equal in all processes, whose norm is that of all elements of all tensors; `norm_of` makes that of a list.
    Elements that several processes hold count once, so do tensors that are not distributed."""
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
