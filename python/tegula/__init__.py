"""Tegula: transformer kernels, forward and backward, for CPUs and NVIDIA GPUs.

`tegula.apply()` puts them into the models of transformers; `tegula.ops` holds them as functions of PyTorch's tensors,
with gradients. PyTorch and transformers are imported when one of these is first used.
"""

import importlib

from . import _core
from .settings import allow_nondeterministic

__version__ = _core.version

check = _core.check
device_count = _core.device_count
device_info = _core.device_info

# Name -> the module that has it; a module itself where both are the same.
_LATER = {
    **dict.fromkeys(
        ("apply", "apply_to_model", "get_patched_ops", "list_patches", "patched", "register_patch", "reset"), "patches"
    ),
    "clear_autotune_cache": "warm_up",
    "hub_layers": "hub",
    "ops": "ops",
    "register_attention": "attention",
    "report": "model_report",
    "verify": "verification",
    "warmup_all_kernels": "warm_up",
}  # fmt: skip
__all__ = ["allow_nondeterministic", "check", "device_count", "device_info", *_LATER]


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module 'tegula' has no attribute '{name}'")
    module = importlib.import_module(f".{_LATER[name]}", __name__)
    return module if name == _LATER[name] else getattr(module, name)


def __dir__():
    return sorted(set(globals()) | set(__all__))
