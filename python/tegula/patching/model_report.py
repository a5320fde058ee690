"""What runs in each module of a model: `tegula.report(model)`."""

import re
import sys
from dataclasses import dataclass

from torch import nn

from .. import sharding
from ..autograd import kept_attention
from ..autograd.table_entry import runs_stock_for
from . import listeners, patches, replacing, stacked_experts
from .attention import served_by
from .models import causal_lm, decoder, experts


@dataclass(frozen=True)
class Row:
    """Modules of one kind (`*` for the number of a layer), what runs there, and why nothing faster does."""

    modules: str
    runs: str
    note: str


class Report(list):
    """A list of rows that prints as a table."""

    def __str__(self):
        counted = {}
        for row in self:
            counted[row] = counted.get(row, 0) + 1
        lines = [("modules", "runs", "note")]
        lines += [(f"{row.modules} ({count})" if count > 1 else row.modules, row.runs, row.note) for row, count in counted.items()]
        first, second = (max(len(line[column]) for line in lines) for column in (0, 1))
        return "\n".join(f"{a:{first}}  {b:{second}}  {c}".rstrip() for a, b, c in lines)

    __repr__ = __str__


# ---- what a replacement fuses, and what it leaves out: (ops, notes) ----


def of_attention(module, parts):
    ops, notes = [], []
    modelling = sys.modules[listeners.function_of(module).__module__]  # which a replacement has from its original
    reason = decoder.why_rope_called(modelling, decoder.own_rotation(modelling)) if "rope" in parts else None
    if reason:
        notes.append(f"rope of transformers: {reason}")
    elif "rope" in parts:
        ops.append("rope")
    if ops and decoder.is_normed(module) and "rms_norm" in parts:
        reason = decoder.why_head_norms_called(module)
        if reason:
            notes.append(f"q_norm and k_norm run by themselves: {reason}")
        else:
            ops[0] = "qk_norm_rope"
    implementation = module.config._attn_implementation
    if implementation == "sdpa" and not decoder.is_stock_sdpa():
        notes.append("attention: another function is registered as 'sdpa'")
    elif "attention" in parts and implementation in (decoder.own_implementation(module), "tegula"):
        served = served_by(module)
        if served is None or served == "tegula":
            ops.append("attention")
        else:
            notes.append(f"last attention by {served}")
    else:
        notes.append(f"attention: {implementation}")
    return ops, notes


def of_layer(module, parts):
    reasons = {name: decoder.why_called(getattr(module, name)) for name in ("input_layernorm", "post_attention_layernorm")}
    notes = [f"{name} runs by itself: it {reason}" for name, reason in reasons.items() if reason]
    return ([] if reasons["post_attention_layernorm"] else ["add_rms_norm"]), notes


def of_model(module, parts):
    ops, notes = [], []
    if "rms_norm" in parts:
        reason = decoder.why_no_pairs(module)
        ops += [] if reason else ["add_rms_norm between layers"]
        notes += [f"layers add at their end: {reason}"] if reason else []
    if "attention" in parts:
        reason = decoder.why_no_masks(module)
        ops += [] if reason else ["masks as ranges of keys"]
        notes += [f"masks of transformers: {reason}"] if reason else []
        if not reason and kept_attention.for_model(module) is not None:
            notes.append("checkpointed layers: attention's outputs are kept")
    return ops, notes


def of_mlp(module, parts):
    reason = decoder.why_no_swiglu(module)
    return ([], [reason]) if reason else (["swiglu"], [])


def of_causal_lm(module, parts):
    reason = causal_lm.why_no_fused_loss(module, running=False)
    if reason:
        return [], [f"loss from logits: {reason}"]
    distributed = type(module.lm_head.weight) not in causal_lm.PLAIN
    notes = ["FSDP gathers lm_head.weight for it"] if distributed else []
    reason = listeners.why_heard(module, around=True)
    if reason:
        return ["linear_cross_entropy with skip_logits=True"], [f"loss from logits otherwise: the model {reason}", *notes]
    return ["linear_cross_entropy in training"], notes


def of_norm(module, parts):
    old = listeners.sees_last_function(module)
    return ([], ["a backward hook of the old kind sees its last function"]) if old else (["rms_norm"], [])


def of_router(module, parts):
    reason = experts.why_no_router(module)
    return ([], [reason]) if reason else (["topk_router"], [])


def of_experts(module, parts):
    reason = stacked_experts.why_not_replaced(module) or stacked_experts.why_stored_otherwise(module)
    if reason:
        return [], [reason]
    served = stacked_experts.served_by(module)
    if served not in (None, "tegula"):
        return [], [f"last experts by {served}"]
    return ["experts"], []


DETAILS = {
    "rms_norm": of_norm, "mlp": of_mlp, "attention": of_attention, "layer": of_layer, "model": of_model,
    "causal_lm": of_causal_lm, "router": of_router, "experts": of_experts,
}  # fmt: skip


# ---- rows ----


def targets(model_type):
    """(class, attribute, names of the patches, target) of everything that patches of this model type replace."""
    found = {}
    for patch in patches.known().values():
        if not patch.models or model_type in patch.models:
            for path in patch.attributes:
                found.setdefault((patch.module, path), []).append(patch.name)
    return [(*replacing.locate(*target), names, target) for target, names in found.items()]


def why_stock(module, cls, target):
    reason = replacing.why_kept(module, cls)
    if target in replacing._installed:
        if "_old_forward" in vars(module):
            return "hooked by accelerate before the patch: apply_to_model reaches it"
        return f"not reached: {reason}" if reason else "not reached"
    return reason or "not applied"


def common_notes(module):
    notes = []
    if "_old_forward" in vars(module):
        notes.append("under accelerate's hook")
    if module._compiled_call_impl is not None:
        notes.append("compiled; a patch has it compiled anew")
    if sharding.is_unit(module):
        notes.append("a unit of FSDP")
    for name, parameter in module.named_parameters(recurse=False):
        if type(parameter) not in causal_lm.PLAIN and not sharding.comes_whole(module, name):
            notes.append(f"{name} is a {type(parameter).__name__}")
    return notes


def why_stock_tensors(module):
    """Why every op of a module runs in PyTorch whatever replaces it, or None."""
    for parameter in module.parameters():
        if runs_stock_for(parameter.dtype, parameter.device.type):
            return f"tensors of {parameter.dtype} on {parameter.device.type} run in PyTorch"
    return None


def beneath_wrappers(function, original):
    """The function inside wrappers (of mixed precision) that name it: Tegula's replacement or the original."""
    inner = function
    while inner is not None and inner is not original and listeners.kind(inner) is None:
        inner = getattr(inner, "__wrapped__", None)
    return inner or function


def name_of(function):
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def of_module(module, cls, target):
    original = replacing.original_of(*target)
    function = beneath_wrappers(listeners.function_of(module), original)
    kind = listeners.kind(function)
    if kind is None:
        notes = common_notes(module)
        if function is not original:
            return name_of(function), notes
        if target[1].endswith("Experts.forward") and stacked_experts.implementation_of(module) == "tegula":
            ops, why = of_experts(module, ())
            return "tegula: experts" if ops else "transformers", ["by name", *why, *notes]
        return "transformers", [why_stock(module, cls, target), *notes]
    ops, notes = DETAILS[kind](module, function.tegula_parts)
    reason = why_stock_tensors(module)
    if reason:
        ops, notes = [], [reason]
    scope = ["this model"] if replacing.record_of(module) else []
    return "tegula: " + ", ".join(ops) if ops else "transformers", [*notes, *scope, *common_notes(module)]


def rope_of_kernels(model, modelling):
    """A row for the function whose forward kernelize may have replaced, for all models of the file at once."""
    function = vars(modelling).get("apply_rotary_pos_emb")
    forward = getattr(vars(function).get("forward"), "__func__", None) if isinstance(function, nn.Module) else None
    if forward is None or forward is type(function).forward:
        return []
    attentions = [module for module in model.modules() if hasattr(module, "_kernel_funcs")]
    own = [module for module in attentions if "rope" in getattr(listeners.function_of(module), "tegula_parts", ())]
    if decoder.why_rope_called(modelling, None):
        own = []
    note = "not called: rope is Tegula's" if len(own) == len(attentions) else f"called by {len(attentions) - len(own)} modules"
    name = f"{modelling.__name__}.apply_rotary_pos_emb"
    return [Row(name, f"{forward.__module__}.{forward.__qualname__}", f"put there by kernelize; {note}")]


def without_numbers(name):
    return re.sub(r"\.\d+(?=\.|$)", ".*", name) or "(model)"


def named_rows(model):
    """The modules of a family without patches that have called Tegula's attention or experts by name."""
    for name, module in model.named_modules():
        for kind, served in (("attention", served_by(module)), ("experts", stacked_experts.served_by(module))):
            if served == "tegula":
                yield Row(without_numbers(name), f"tegula: {kind}", "")
            elif served:
                yield Row(without_numbers(name), "transformers", f"last {kind} by {served}")


def rows_of_other_experts(model):
    """{name of a block: row} where the block, or its experts, are none that patches know."""
    found = {}
    for name, module in model.named_modules():
        children = module._modules
        if "experts" not in children or not ("router" in children or "gate" in children):
            continue
        function, cls, own = listeners.function_of(module), type(module), type(children["experts"])
        if not stacked_experts.STACKED:
            found[name] = Row(without_numbers(f"{name}.experts"), "transformers", stacked_experts.WHY_NOT_STACKED)
        elif cls.__module__.startswith("transformers.models.") and function is not cls.forward:
            found[name] = Row(without_numbers(name), name_of(function), "its router and experts are not called")
        elif own.__module__.startswith("transformers.integrations."):
            found[name] = Row(without_numbers(f"{name}.experts"), "transformers", f"quantised experts, {own.__qualname__}")
    return found


def report(model) -> Report:
    """What runs in each module that a patch could replace, and the reason if it is not Tegula; in families without
    patches, what the modules ran that have called attention or experts by the name "tegula". Prints as a table. Whether
    attention fell back to PyTorch, or experts to transformers, is known only after a call."""
    model = sharding.unwrapped(model)
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    rows = Report()
    if model_type not in patches.model_types(patches.known().values()):
        rows.extend(named_rows(model))
        if rows:
            return rows
        raise ValueError(f"report: model: expected a model with patches, got model_type {model_type!r}")
    others = rows_of_other_experts(model)
    for name, module in model.named_modules():
        if name in others:
            rows.append(others[name])
        if stacked_experts.STACKED and any(name.startswith(f"{block}.") for block in others):
            continue
        for owner, attribute, _, target in targets(model_type):
            if attribute == "forward" and isinstance(owner, type) and isinstance(module, owner):
                runs, notes = of_module(module, owner, target)
                rows.append(Row(without_numbers(name), runs, "; ".join(dict.fromkeys(notes))))
    for owner, attribute, names, target in targets(model_type):
        if not isinstance(owner, type):
            applied = target in replacing._installed
            rows.append(Row(".".join(target), names[0] if applied else "transformers", "" if applied else "not applied"))
    for modelling in dict.fromkeys(sys.modules[module] for *_, (module, _) in targets(model_type)):
        rows += rope_of_kernels(model, modelling)
    return rows
