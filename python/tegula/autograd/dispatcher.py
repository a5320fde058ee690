"""Operators of PyTorch's dispatcher, `tegula::<table entry>`. They return tensors only."""

import functools
import sys

import torch

LIBRARY = torch.library.Library("tegula", "DEF")
SCALAR_TYPES = {"f32": "float", "f64": "float", "i32": "int", "i64": "int", "enum": "int", "bool": "bool"}


def absent(like):
    """Stands for an absent output, since an operator returns tensors only. It has rank 1 and no elements, as no present
    output of rank 1 that may be absent has."""
    return like.new_empty(0)


def present(tensor, slot):
    """None for a tensor made by `absent`."""
    if tensor is None or not slot["ndim"]:
        return tensor
    if tensor.dim() != slot["ndim"] or (slot["ndim"] == 1 and slot["optional"] and tensor.shape[0] == 0):
        return None
    return tensor


def absent_filled(results, like):
    results = tuple(absent(like) if tensor is None else tensor for tensor in results)
    return results[0] if len(results) == 1 else results


def listed(results):
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def declare(name, ins, scalars, more, count):
    """`ins`: (name, optional); `scalars`: slots; `more`: further arguments in the dispatcher's syntax."""
    words = [f"Tensor{'?' if optional else ''} {argument}" for argument, optional in ins]
    words += [f"{SCALAR_TYPES[slot['kind']]} {slot['name']}" for slot in scalars] + list(more)
    returns = "Tensor" if count == 1 else "(" + ", ".join(["Tensor"] * count) + ")"
    tags = torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides
    LIBRARY.define(f"{name}({', '.join(words)}) -> {returns}", tags=tags)


def known_to_inductor(name, fake):
    """`fake`, which also adds the operator to Inductor's list of fallbacks. For an operator that is not in the list,
    PyTorch 2.11 formats a log message (even if the log is off) with the whole graph before it, which took more than
    five minutes for 36 layers."""

    @functools.wraps(fake)
    def traced(*arguments):
        lowering = sys.modules.get("torch._inductor.lowering")  # loaded once Inductor traces a graph
        getattr(lowering, "FALLBACK_ALLOW_LIST", set()).add(f"tegula::{name}")
        return fake(*arguments)

    return traced


def implement(name, compute, fake):
    for key in ("CPU", "CUDA"):
        LIBRARY.impl(name, compute, key)
    torch.library.register_fake(f"tegula::{name}", known_to_inductor(name, fake), lib=LIBRARY)
    return getattr(torch.ops.tegula, name).default
