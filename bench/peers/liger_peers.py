"""Liger-Kernel's Triton kernels, on a GPU, through its functions for users; no peer of the CPU's.

Several overwrite what they are given: rope in both directions, the backwards of swiglu, geglu,
rms_norm and add_rms_norm, cross_entropy. They get copies of their own; called again they work on
what the call before left, as fast as before. Install the package, or let LIGER_DIR be the folder of
its sources.
"""

import importlib
import sys

import torch

from peers.norm_peers import EPS
from tegula_bench import liger_package

version = liger_package.version

BUILDERS, ACCURACY = {}, {}  # it has no problems of its own
OTHERS = {"erf", "halves", "interleaved", "gptoss", "once", "scaled"}  # what it has no form of


def load():
    """The module of functions; None if it is not there."""
    if not liger_package.find():
        print("# Liger-Kernel is left out: not installed, and no LIGER_DIR", file=sys.stderr)
        return None
    liger_package.use_triton()
    return importlib.import_module("liger_kernel.transformers.functional")


def variants(liger, op, direction, shape=""):
    """(configuration, function of the op's Formula, whether a graph can capture it) of each way to
    call it; none if Liger has no such op, or not in this form."""
    if OTHERS & set(shape.split("_")):
        return []

    def add_norm(x, weight, residual):
        y, total = liger.liger_fused_add_rms_norm(x, residual, weight, EPS)
        return total, y

    def rope(q, k, cos, sin):
        heads = (t.transpose(1, 2) for t in (q, k))
        return tuple(t.transpose(1, 2) for t in liger.liger_rope(*heads, cos, sin))

    def linear_loss(accumulated):
        return lambda hidden, weight, targets: liger.liger_fused_linear_cross_entropy(
            hidden, weight, targets, accum_dtype=accumulated)

    found = dict(
        rms_norm=lambda x, weight: liger.liger_rms_norm(x, weight, EPS),
        layer_norm=lambda x, weight, bias: liger.liger_layer_norm(x, weight, bias, EPS),
        add_rms_norm=add_norm,
        swiglu=liger.liger_swiglu,
        geglu=liger.liger_geglu,
        rope=rope,
        softmax=liger.liger_softmax,
    ).get(op)
    if found:
        return [("", found, True)]
    if op == "cross_entropy" and direction != "bwd":  # its forward makes the gradient, too
        return [("", liger.liger_cross_entropy, False)]  # it waits for the number of targets
    if op == "linear_cross_entropy" and direction == "fwdbwd":
        return [("", linear_loss(None), False),
                ("sums of dweight in f32", linear_loss(torch.float32), False)]
    return []
