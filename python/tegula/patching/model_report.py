"""What runs in each module of a model: `tegula.report(model)`."""

import re
import sys
from dataclasses import dataclass

from torch import nn

from .. import sharding
from ..autograd import kept_attention
from . import patches, replacing
from .attention import served_by
from .models import causal_lm, decoder


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
    if "rope" in parts:
        ops.append("rope")
    if decoder.is_normed(module) and "rms_norm" in parts:
        if "rope" in parts and decoder.norms_with_rope(module):
            ops[0] = "qk_norm_rope"
        elif "rope" in parts:
            notes.append("q_norm and k_norm run by themselves: they have hooks or another forward")
    implementation = module.config._attn_implementation
    if "attention" in parts and implementation in ("sdpa", "tegula"):
        served = served_by(module)
        if served is None or served == "tegula":
            ops.append("attention")
        else:
            notes.append(f"last attention by {served}")
    else:
        notes.append(f"attention: {implementation}")
    return ops, notes


def of_layer(module, parts):
    bypassed = decoder.may_bypass(module.post_attention_layernorm)
    note = [] if bypassed else ["post_attention_layernorm runs by itself: it has hooks or another forward"]
    return (["add_rms_norm"] if bypassed else []), note


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
    silu = decoder.is_silu(module.act_fn)
    return (["swiglu"], []) if silu else ([], [f"its activation is {type(module.act_fn).__name__}"])


def of_causal_lm(module, parts):
    reason = causal_lm.why_no_fused_loss(module, running=False)
    if reason:
        return [], [f"loss from logits: {reason}"]
    distributed = type(module.lm_head.weight) not in causal_lm.PLAIN
    notes = ["FSDP gathers lm_head.weight for it"] if distributed else []
    return ["linear_cross_entropy in training"], notes


def of_norm(module, parts):
    return ["rms_norm"], []


DETAILS = {
    "rms_norm": of_norm, "mlp": of_mlp, "attention": of_attention, "layer": of_layer, "model": of_model,
    "causal_lm": of_causal_lm,
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


def beneath_wrappers(function, original):
    """The function inside wrappers (of mixed precision) that name it: Tegula's replacement or the original."""
    inner = function
    while inner is not None and inner is not original and decoder.kind(inner) is None:
        inner = getattr(inner, "__wrapped__", None)
    return inner or function


def of_module(module, cls, target):
    original = replacing.original_of(*target)
    function = beneath_wrappers(decoder.behind(module), original)
    kind = decoder.kind(function)
    if kind is None:
        notes = common_notes(module)
        if function is not original:
            return f"{function.__module__}.{function.__qualname__}", notes
        return "transformers", [why_stock(module, cls, target), *notes]
    ops, notes = DETAILS[kind](module, function.tegula_parts)
    scope = ["this model"] if replacing.record_of(module) else []
    return "tegula: " + ", ".join(ops) if ops else "transformers", [*notes, *scope, *common_notes(module)]


def rope_of_kernels(model, modelling):
    """A row for the function whose forward kernelize may have replaced, for all models of the file at once."""
    function = vars(modelling).get("apply_rotary_pos_emb")
    forward = getattr(vars(function).get("forward"), "__func__", None) if isinstance(function, nn.Module) else None
    if forward is None or forward is type(function).forward:
        return []
    attentions = [module for module in model.modules() if hasattr(module, "_kernel_funcs")]
    own = [module for module in attentions if "rope" in getattr(decoder.behind(module), "tegula_parts", ())]
    note = "not called: rope is Tegula's" if len(own) == len(attentions) else f"called by {len(attentions) - len(own)} modules"
    name = f"{modelling.__name__}.apply_rotary_pos_emb"
    return [Row(name, f"{forward.__module__}.{forward.__qualname__}", f"put there by kernelize; {note}")]


def without_numbers(name):
    return re.sub(r"\.\d+(?=\.|$)", ".*", name) or "(model)"


def named_attention_rows(model):
    """The modules of a family without patches that have called Tegula's attention by name."""
    for name, module in model.named_modules():
        served = served_by(module)
        if served == "tegula":
            yield Row(without_numbers(name), "tegula: attention", "")
        elif served:
            yield Row(without_numbers(name), "transformers", f"last attention by {served}")


def report(model) -> Report:
    """What runs in each module that a patch could replace, and the reason if it is not Tegula; in families without
    patches, what the modules ran that have called attn_implementation="tegula". Prints as a table. Whether attention fell
    back to PyTorch is known only after a call."""
    model = sharding.unwrapped(model)
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    rows = Report()
    if model_type not in patches.model_types(patches.known().values()):
        rows.extend(named_attention_rows(model))
        if rows:
            return rows
        raise ValueError(f"report: model: expected a model with patches, got model_type {model_type!r}")
    for name, module in model.named_modules():
        for owner, attribute, _, target in targets(model_type):
            if attribute == "forward" and isinstance(owner, type) and isinstance(module, owner):
                runs, notes = of_module(module, owner, target)
                rows.append(Row(without_numbers(name), runs, "; ".join(notes)))
    for owner, attribute, names, target in targets(model_type):
        if not isinstance(owner, type):
            applied = target in replacing._installed
            rows.append(Row(".".join(target), names[0] if applied else "transformers", "" if applied else "not applied"))
    for modelling in dict.fromkeys(sys.modules[module] for *_, (module, _) in targets(model_type)):
        rows += rope_of_kernels(model, modelling)
    return rows
