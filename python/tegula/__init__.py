"""Tegula: transformer kernels, forward and backward, for CPUs and NVIDIA GPUs.

`tegula.ops` holds the ops as functions of PyTorch's tensors, with gradients; `tegula.optim` an optimiser; modules and
`fused_linear_cross_entropy` stand here. What needs PyTorch imports it when it is first used.
"""

import importlib

from . import _core
from .settings import allow_nondeterministic

TYPE_CHECKING = False  # but for type checkers, which see no __getattr__ through
if TYPE_CHECKING:
    from . import ops, optim
    from .modules import TegulaLinearCrossEntropyLoss, TegulaRMSNorm, TegulaSwiGLUMLP
    from .ops import fused_linear_cross_entropy

__version__ = _core.version

check = _core.check
device_count = _core.device_count
device_info = _core.device_info

# name: the module that has it, imported at first use; a module's own name is the module.
_LAZY = {
    "ops": "ops",
    "optim": "optim",
    "fused_linear_cross_entropy": "ops",
    "TegulaLinearCrossEntropyLoss": "modules",
    "TegulaRMSNorm": "modules",
    "TegulaSwiGLUMLP": "modules",
}
__all__ = ["allow_nondeterministic", "check", "device_count", "device_info", *_LAZY]


def __getattr__(name):
    if name not in _LAZY:
        raise AttributeError(f"module 'tegula' has no attribute '{name}'")
    module = importlib.import_module(f".{_LAZY[name]}", __name__)
    value = module if _LAZY[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
