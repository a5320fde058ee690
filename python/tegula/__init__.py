"""Tegula: transformer kernels, forward and backward, for CPUs and NVIDIA GPUs.

`tegula.ops` holds the ops as functions of PyTorch's tensors, with gradients; it imports PyTorch when it is first used.
"""

import importlib

from . import _core
from .settings import allow_nondeterministic

__version__ = _core.version
__all__ = ["allow_nondeterministic", "check", "device_count", "device_info", "ops"]

check = _core.check
device_count = _core.device_count
device_info = _core.device_info


def __getattr__(name):
    if name == "ops":
        return importlib.import_module(".ops", __name__)
    raise AttributeError(f"module 'tegula' has no attribute '{name}'")


def __dir__():
    return sorted(set(globals()) | set(__all__))
