"""Tegula's experts as an experts implementation of transformers. A replaced forward of experts calls them in place of
"grouped_mm" and "eager"; `set_experts_implementation("tegula")` selects them by name.

Whatever Tegula does not compute runs in transformers. `served_by` returns the reason, and `tegula.report` prints it."""

import importlib.util
import math
import weakref

import torch

from .. import ops, sharding
from ..autograd.table_entry import PLAIN, run_stock
from . import listeners
from .models.decoder import why_no_swiglu


def gates_of_transformers():
    from transformers.models.gpt_oss.modeling_gpt_oss import GptOssExperts
    from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

    return GptOssExperts._apply_gate, Qwen3MoeExperts._apply_gate


# Earlier versions hold experts in another form, and have no experts by name.
STACKED = importlib.util.find_spec("transformers.integrations.moe") is not None
WHY_NOT_STACKED = "this transformers holds experts in another form; Tegula's need version 5"
# The functions between the two products. The second is that of every class without one of its own.
CLAMPED, HALVES = gates_of_transformers() if STACKED else (None, None)
WEIGHTS, BIASES = ("gate_up_proj", "down_proj"), ("gate_up_proj_bias", "down_proj_bias")

# Module -> why its last call ran in transformers, or None. Calls in compiled code are not recorded.
_last_call = weakref.WeakKeyDictionary()


def served_by(module):
    """What computed the module's last call, as text; None before the first call."""
    if module not in _last_call:
        return None
    reason = _last_call[module]
    return "tegula" if reason is None else f"transformers: {reason}"


def implementation_of(module):
    return getattr(module.config, "_experts_implementation", None)


# ---- what a class computes ----


def is_clamped(module):
    """Whether the gate is GPT-OSS's: interleaved, clamped."""
    return getattr(type(module), "_apply_gate", None) is CLAMPED


def is_plain_gate(module):
    """Whether the gate is that of transformers' decorator: act_fn(first half) * second half."""
    return getattr(type(module), "_apply_gate", None) is HALVES


def why_no_gate(module):
    """Why Tegula does not know the gate between the two products, or None."""
    if "_apply_gate" in module.__dict__ or not (is_clamped(module) or is_plain_gate(module)):
        return "their gate is another"
    if not is_clamped(module):
        return why_no_swiglu(module)
    if not (0 < module.alpha < math.inf and 0 < module.limit < math.inf):
        return f"alpha {module.alpha} and limit {module.limit} of their gate"
    return None


def why_no_form(module):
    """Why the experts are none that Tegula computes, whatever their tensors are, or None."""
    if not getattr(module, "has_gate", True):  # which the first versions of transformers 5 do not note
        return "they have no gate"
    if getattr(module, "has_post_expert_norm", False):
        return "a norm follows each expert"
    if is_clamped(module) == getattr(module, "is_concatenated", not is_clamped(module)):
        return "gate and up are arranged in another way"
    return why_no_gate(module)


def names_of(module):
    return (*WEIGHTS, *BIASES) if module.has_bias else WEIGHTS


def why_no_tensors(tensors):
    """Why the parameters, by name, are none that Tegula reads, or None."""
    for name, tensor in tensors.items():
        if type(tensor) not in PLAIN:
            return f"{name} is a {type(tensor).__qualname__}"
    first = tensors[WEIGHTS[0]]
    for name, tensor in tensors.items():
        if tensor.dtype != first.dtype or not tensor.is_floating_point():
            return f"{name} is {tensor.dtype}, {WEIGHTS[0]} {first.dtype}"
    return None


def why_not_replaced(module):
    """Why a replaced forward leaves the experts to transformers, whatever its call is, or None."""
    implementation = implementation_of(module)
    if implementation not in (None, "eager", "grouped_mm", "tegula"):
        return f"the model's experts are {implementation!r}"
    if getattr(module, "_is_expert_parallel", False):
        return "expert parallelism"
    if listeners.sees_last_function(module):
        return "a backward hook of the old kind sees their last function"
    return why_no_form(module)


def why_stored_otherwise(module):
    """Why its parameters, as they lie outside of a call, keep the experts from Tegula, or None. FSDP gathers its own."""
    tensors = {name: module._parameters[name] for name in names_of(module) if name in module._parameters}
    whole = {name: tensor for name, tensor in tensors.items() if not sharding.comes_whole(module, name)}
    return why_no_tensors(whole) if WEIGHTS[0] in whole else None


# ---- computing ----


def gate_options(module):
    if is_clamped(module):
        return dict(activation="swiglu_clamped", alpha=float(module.alpha), limit=float(module.limit), packing="interleaved")
    return dict(activation="swiglu", packing="halves")


def computed(module, hidden_states, indices, scores):
    """(out, None), or (None, why transformers must compute it)."""
    # Once: PEFT computes adapted weights at each access.
    tensors = {name: getattr(module, name) for name in names_of(module)}
    reason = why_no_tensors(tensors)
    if reason:
        return None, reason
    gate_up, down = tensors[WEIGHTS[0]], tensors[WEIGHTS[1]]
    if hidden_states.dtype != gate_up.dtype:
        return None, f"hidden states are {hidden_states.dtype}, {WEIGHTS[0]} {gate_up.dtype}"
    if run_stock(hidden_states) or gate_up.device != hidden_states.device:
        return None, f"tensors of {hidden_states.dtype} on {hidden_states.device.type} and {gate_up.device.type}"
    if hidden_states.dim() != 2 or indices.dim() != 2 or indices.shape != scores.shape:
        return None, "routes of another form"
    count = len(gate_up)
    indices = indices.clamp(max=count)  # other processes' experts: their slots are dropped
    out = ops.moe_mlp(
        hidden_states, scores, *ops.moe_plan(indices, count), gate_up, down, tensors.get(BIASES[0]), tensors.get(BIASES[1]),
        in_first=bool(module.is_transposed), **gate_options(module),
    )  # fmt: skip
    return out, None


def run(module, reason, instead, hidden_states, indices, scores):
    """The experts' result, by Tegula unless there is a reason against it, else by `instead`()."""
    out = None
    if reason is None:
        out, reason = computed(module, hidden_states, indices, scores)
    if not torch.compiler.is_compiling():
        _last_call[module] = reason
    return instead() if reason else out


def named_experts(self, hidden_states, top_k_index, top_k_weights):
    """The experts function "tegula"."""
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    def instead():
        return ALL_EXPERTS_FUNCTIONS["grouped_mm"](self, hidden_states, top_k_index, top_k_weights)

    return run(self, why_no_form(self), instead, hidden_states, top_k_index, top_k_weights)


def register_experts():
    """Registers "tegula" as an experts implementation of transformers."""
    if not STACKED:
        raise NotImplementedError(f"register_experts: expected transformers 5, got an earlier one: {WHY_NOT_STACKED}")
    from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

    ALL_EXPERTS_FUNCTIONS.register("tegula", named_experts)

