"""The ops as functions of PyTorch's tensors, with gradients.

Each function names the header in `include/tegula/` with its shapes, dtypes, formulas and rounding. The conventions that
differ: for [rows, cols] in a header, tensors of any rank are accepted, and leading axes are rows. Heads come before
tokens, [batch, heads, tokens, head_dim], as in PyTorch. Errors: ValueError (shapes, strides, values), TypeError (dtypes),
NotImplementedError (device or backend not available). f64 tensors on the CPU run on the slow reference. Only first
derivatives exist: a second derivative or forward mode raises.
"""

import inspect

from ..autograd import flop_formulas
from .attention_ops import attention, attention_naive
from .elementwise_ops import geglu, gelu, silu, softmax, swiglu, swiglu_clamped
from .gated_linear_op import linear_swiglu
from .list_ops import adamw_step, clip_grad_norm_, global_norm
from .loss_ops import cross_entropy, fused_linear_cross_entropy, linear, linear_cross_entropy
from .moe_ops import PackedExperts, grouped_linear, grouped_linear_mxfp4, moe_combine, moe_mlp, moe_plan, pack_mxfp4, topk_router
from .norm_ops import add_rms_norm, layer_norm, rms_norm, rms_norm_swiglu
from .op_contracts import CONTRACTS
from .position_ops import embedding, qk_norm_rope, rope
from .quantized_ops import (
    PackedWeight, dequantize_int4, dequantize_int8, dequantize_mxfp4, linear_fp8, linear_fp8_fp8, linear_int4, linear_int8, pack_fp8,
    pack_int4, pack_int8, quantize_int4, quantize_int8,
)  # fmt: skip
from .sample_op import sample

__all__ = [
    "PackedExperts", "PackedWeight", "adamw_step", "add_rms_norm", "attention", "attention_naive", "clip_grad_norm_", "cross_entropy",
    "dequantize_int4", "dequantize_int8", "dequantize_mxfp4", "embedding", "fused_linear_cross_entropy", "geglu", "gelu", "global_norm",
    "grouped_linear", "grouped_linear_mxfp4", "layer_norm", "linear", "linear_cross_entropy", "linear_fp8", "linear_fp8_fp8", "linear_int4", "linear_int8",
    "linear_swiglu", "moe_combine", "moe_mlp", "moe_plan", "pack_fp8", "pack_int4", "pack_int8", "pack_mxfp4", "qk_norm_rope", "quantize_int4", "quantize_int8",
    "rms_norm", "rms_norm_swiglu", "rope", "sample", "silu", "softmax", "swiglu", "swiglu_clamped", "topk_router",
]  # fmt: skip

flop_formulas.register()
for _name, _contract in CONTRACTS.items():
    _function = globals()[_name]
    _function.__doc__ = f"{inspect.cleandoc(_function.__doc__)}\n\n{_contract}"
