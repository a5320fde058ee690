"""Liger-Kernel's CuTe DSL kernels, on a GPU: those of LIGER_KERNEL_IMPL=cutedsl.

That variable puts other classes behind four of its functions for users; the rest get theirs through
its dispatcher. Both are done here without the variable, because a process reads it once and the
Triton kernels are peers in the same one. Needs nvidia-cutlass-dsl.
"""

import importlib
import importlib.util
import logging
import os
import sys

from peers import cutlass_package, liger_peers

BUILDERS, ACCURACY = {}, {}  # it has no problems of its own
IMPL = "nvidia-cutedsl"
REPLACED = ("LigerRMSNormFunction", "LigerCrossEntropyFunction", "LigerRopeFunction",
            "LigerSiLUMulFunction")
variants = liger_peers.variants


def version():
    return cutlass_package.with_version(liger_peers.version())


def load():
    """A second module of functions, on the other kernels; None if they are not there."""
    if not liger_peers.liger_package.find() or not cutlass_package.find("Liger's CuTe DSL"):
        return None
    os.environ["LIGER_KERNEL_STRICT"] = "1"  # it would run Triton where it has no kernel
    logging.getLogger("liger_kernel").setLevel(logging.ERROR)  # it lists what else is not installed
    first = liger_peers.load()
    try:
        kernels = importlib.import_module("liger_kernel.ops.cutedsl.ops")
        own = importlib.import_module("liger_kernel.functional")
    except ImportError as error:
        print(f"# Liger's CuTe DSL is left out: {error}", file=sys.stderr)
        return None
    spec = importlib.util.find_spec(first.__name__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in REPLACED:
        setattr(module, name, getattr(kernels, name))

    def linear_loss(hidden, weight, targets, accum_dtype):
        return own.fused_linear_cross_entropy(hidden, weight, targets, accum_dtype=accum_dtype,
                                              impl=IMPL)[0]

    module.liger_layer_norm = lambda x, weight, bias, eps: own.layer_norm(x, weight, bias, eps,
                                                                          impl=IMPL)
    module.liger_fused_add_rms_norm = lambda x, residual, weight, eps: own.fused_add_rms_norm(
        x, residual, weight, eps, impl=IMPL)
    module.liger_softmax = lambda x: own.softmax(x, impl=IMPL)
    module.liger_geglu = lambda gate, up: own.geglu(gate, up, impl=IMPL)
    module.liger_fused_linear_cross_entropy = linear_loss
    return module
