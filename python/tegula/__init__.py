"""Tegula: transformer kernels, forward and backward, for CPUs and NVIDIA GPUs.

`Model`, `Tokenizer` and `Trainer` run language models without PyTorch. `tegula.apply()` patches the models of transformers. `tegula.ops` holds the kernels as functions of PyTorch with
gradients, `tegula.optim` an optimiser; this module also has `nn.Module`s and `fused_linear_cross_entropy`. PyTorch and
transformers are imported at the first use of one of these.
"""

import importlib

from . import _core
from .settings import allow_nondeterministic, allow_overlap, recompute_attention

TYPE_CHECKING = False  # type checkers do not evaluate __getattr__, nor the list of names below
if TYPE_CHECKING:
    from . import arrays as arrays, ops as ops, optim as optim
    from .ops import fused_linear_cross_entropy as fused_linear_cross_entropy
    from .patching.modules import (
        TegulaLinearCrossEntropyLoss as TegulaLinearCrossEntropyLoss,
        TegulaRMSNorm as TegulaRMSNorm,
        TegulaSwiGLUMLP as TegulaSwiGLUMLP,
    )
    from .runtime.language_model import Model as Model
    from .runtime.model_config import ModelConfig as ModelConfig, presets as presets
    from .runtime.model_trainer import Trainer as Trainer
    from .runtime.text_tokenizer import Tokenizer as Tokenizer

__version__ = _core.version

Array = _core.Array
check = _core.check
device_count = _core.device_count
device_info = _core.device_info

# Name -> the module that defines it, imported at first use. If both are the same, the name is the module.
_LATER = {
    **dict.fromkeys(
        ("apply", "apply_to_model", "get_patched_ops", "list_patches", "patched", "register_patch", "reset",
         "unregister_patch"),
        "patching.patches",
    ),
    **dict.fromkeys(("TegulaLinearCrossEntropyLoss", "TegulaRMSNorm", "TegulaSwiGLUMLP"), "patching.modules"),
    "Model": "runtime.language_model",
    "ModelConfig": "runtime.model_config",
    "Tokenizer": "runtime.text_tokenizer",
    "Trainer": "runtime.model_trainer",
    "arrays": "arrays",
    "clear_autotune_cache": "warm_up",
    "fused_linear_cross_entropy": "ops",
    "hub_layers": "patching.hub",
    "ops": "ops",
    "optim": "optim",
    "presets": "runtime.model_config",
    "register_attention": "patching.attention",
    "register_experts": "patching.stacked_experts",
    "report": "patching.model_report",
    "verify": "patching.verification",
    "warmup_all_kernels": "warm_up",
}  # fmt: skip
__all__ = [
    "Array", "allow_nondeterministic", "allow_overlap", "check", "device_count", "device_info", "recompute_attention",
    *_LATER,
]  # fmt: skip


def __getattr__(name):
    if name not in _LATER:
        raise AttributeError(f"module 'tegula' has no attribute '{name}'")
    module = importlib.import_module(f".{_LATER[name]}", __name__)
    value = module if _LATER[name] == name else getattr(module, name)
    globals()[name] = value
    return value


def __dir__():
    return sorted(set(globals()) | set(__all__))
