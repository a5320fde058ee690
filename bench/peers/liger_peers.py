"""Liger-Kernel's Triton kernels, on a GPU, through its functions for users; no peer of the CPU's.

Several overwrite what they are given: rope in both directions, the backwards of swiglu, geglu,
rms_norm and add_rms_norm, cross_entropy. They get copies of their own; called again they work on
what the call before left, as fast as before. Install the package, or let LIGER_DIR be the folder of
its sources.
"""

import importlib
import importlib.metadata
import os
import pathlib
import re
import sys

import torch

from peers.norm_peers import EPS

BUILDERS, ACCURACY = {}, {}  # it has no problems of its own
OTHERS = {"erf", "halves", "interleaved", "gptoss", "once"}  # forms and roundings that it has not


def sources():
    """The folder that holds the package below LIGER_DIR; None without LIGER_DIR."""
    folder = os.environ.get("LIGER_DIR")
    if not folder:
        return None
    found = [path for path in (pathlib.Path(folder), pathlib.Path(folder, "src"))
             if (path / "liger_kernel").is_dir()]
    if not found:
        raise FileNotFoundError(f"LIGER_DIR: expected liger_kernel or src/liger_kernel in {folder}")
    return found[0]


def load():
    """The module of functions; None if it is not there."""
    folder = sources()
    if folder and str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("liger_kernel.transformers.functional")
    except ModuleNotFoundError as error:
        if folder:
            raise
        print(f"# Liger-Kernel is left out: {error}", file=sys.stderr)
        return None


def version():
    try:
        return importlib.metadata.version("liger_kernel")
    except importlib.metadata.PackageNotFoundError:
        folder = sources()
        for folder in (folder, folder.parent) if folder else ():
            project = folder / "pyproject.toml"
            if project.exists():
                return re.search(r'^version = "(.*)"', project.read_text(), re.M).group(1)
        return ""


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
