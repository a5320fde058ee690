"""Tegula: transformer kernels, forward and backward, for CPUs and NVIDIA GPUs.

`tegula.apply()` puts them into the models of transformers; `tegula.ops` holds them as functions of PyTorch's tensors,
with gradients; `tegula.optim` an optimiser; modules and `fused_linear_cross_entropy` stand here. PyTorch and transformers
are imported when one of these is first used.
"""

import importlib

from . import _core
from .settings import allow_nondeterministic, recompute_attention

TYPE_CHECKING = False  # but for type checkers, which see no __getattr__ through
if TYPE_CHECKING:
    from . import ops, optim
    from .patching.modules import TegulaLinearCrossEntropyLoss, TegulaRMSNorm, TegulaSwiGLUMLP
    from .ops import fused_linear_cross_entropy

__version__ = _core.version

check = _core.check
device_count = _core.device_count
device_info = _core.device_info

# Name -> the module that has it, imported at first use; a module itself where both are the same.
_LATER = {
    **dict.fromkeys(
        ("apply", "apply_to_model", "get_patched_ops", "list_patches", "patched", "register_patch", "reset"), "patching.patches"
    ),
    **dict.fromkeys(("TegulaLinearCrossEntropyLoss", "TegulaRMSNorm", "TegulaSwiGLUMLP"), "patching.modules"),
    "clear_autotune_cache": "warm_up",
    "fused_linear_cross_entropy": "ops",
    "hub_layers": "patching.hub",
    "ops": "ops",
    "optim": "optim",
    "register_attention": "patching.attention",
    "report": "patching.model_report",
    "verify": "patching.verification",
    "warmup_all_kernels": "warm_up",
}  # fmt: skip
__all__ = ["allow_nondeterministic", "check", "device_count", "device_info", "recompute_attention", *_LATER]


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module 'tegula' has no attribute '{name}'")
    module = importlib.import_module(f".{_LATER[name]}", __name__)
    value = module if _LATER[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
