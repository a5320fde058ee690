"""Patches models of transformers with Tegula's ops, and restores them."""

import contextlib
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import sharding
from . import models, replacing

DESCRIPTIONS = {
    "rms_norm": "RMSNorm; additions to the residual with the norm that follows; with rope: norms of heads",
    "rope": "rotary positions",
    "swiglu": "silu(gate) * up",
    "fused_linear_cross_entropy": "in training the loss without logits",
    "attention": "attention in the place of sdpa, or of eager where there are sinks",
    "experts": "scores of routers; experts in the place of grouped_mm and eager",
}


@dataclass(frozen=True)
class Patch:
    name: str
    description: str
    module: str
    attributes: Mapping[str, Callable]
    op: str | None
    models: tuple[str, ...]
    has_backward: bool = True
    priority: int = 10


_patches: dict[str, Patch] = {}
_own: dict[str, Patch] = {}
_applied: set[str] = set()  # also those whose places others hold


def known() -> dict[str, Patch]:
    """All patches in order: the ops of each family, then those of register_patch by priority."""
    if not _own:
        for name in models.NAMES:
            family = models.family(name)
            for op in models.OPS:
                if op in family.patches:
                    title = f"{op}_{name}"
                    _own[title] = Patch(title, DESCRIPTIONS[op], family.module, family.patches[op], op, (name,))
    return {**_own, **dict(sorted(_patches.items(), key=lambda item: -item[1].priority))}


def model_types(patches) -> list[str]:
    return list(dict.fromkeys(name for patch in patches for name in patch.models))


def choose(function, flags, model_type):
    """The patches that the flags and the model type select."""
    patches = known().values()
    valid = [*models.OPS, *dict.fromkeys(p.op for p in patches if p.op and p.op not in models.OPS)]
    for name in flags:
        if name not in valid:
            raise TypeError(f"{function}: expected keywords of {', '.join(valid)}, got {name!r}")
    if model_type is not None and model_type not in model_types(patches):
        expected = ", ".join(model_types(patches))
        raise ValueError(f"{function}: model_type: expected one of {expected}, got {model_type!r}")
    return [
        patch
        for patch in patches
        if flags.get(patch.op, True) and (model_type is None or not patch.models or model_type in patch.models)
    ]


def ordered(names) -> list[str]:
    return [name for name in known() if name in names]


def having(names) -> list[Patch]:
    return [patch for name, patch in known().items() if name in names]


def register_names():
    """Attention and experts by the name "tegula"."""
    from .attention import register_attention
    from .stacked_experts import STACKED, register_experts

    register_attention()
    if STACKED:
        register_experts()


def apply(
    rms_norm: bool = True, swiglu: bool = True, rope: bool = True, fused_linear_cross_entropy: bool = True,
    attention: bool = True, experts: bool = True, model_type: str | None = None, **more: bool,
) -> list[str]:  # fmt: skip
    """Patches the classes of `model_type` (None: of every known family), and so every model of it in the process,
    existing and future. Returns the names of the patches in place. Earlier patches stay applied. Modules with forwards
    of their own (hooks of accelerate, kernelize) need apply_to_model; `report` shows them."""
    flags = dict(
        rms_norm=rms_norm, swiglu=swiglu, rope=rope, fused_linear_cross_entropy=fused_linear_cross_entropy,
        attention=attention, experts=experts, **more,
    )  # fmt: skip
    names = {patch.name for patch in choose("apply", flags, model_type)}
    register_names()
    replacing.install(having(_applied | names))
    _applied.update(names)
    return ordered(names & replacing.names_of_places())


def apply_to_model(model: Any, **flags: bool) -> list[str]:
    """As `apply`, for this model only: its modules get forwards of their own, other models of the family stay as they
    are. Returns the names of the patches that matched a module. Use `apply` with nn.DataParallel, whose replicas would
    share these forwards."""
    model = sharding.unwrapped(model)
    model_type = getattr(getattr(model, "config", None), "model_type", None)
    if model_type is None:
        raise TypeError(f"apply_to_model: model: expected a model of transformers, got {type(model).__qualname__}")
    names = {patch.name for patch in choose("apply_to_model", flags, model_type)}
    register_names()
    taken = replacing.convert(list(model.modules()), lambda module: having(replacing.wanted_of(module) | names))
    return ordered(taken & names)


def reset(names: str | Sequence[str] | None = None) -> list[str]:
    """Restores the originals in classes, functions and modules for these patches (None: for all). Returns the names of
    those that were applied."""
    names = [names] if isinstance(names, str) else names
    for name in names or ():
        if name not in known():
            raise ValueError(f"reset: names: expected some of {', '.join(known())}, got {name!r}")
    gone = set(known() if names is None else names)
    found = set(get_patched_ops()) & gone
    replacing.install(having(_applied - gone))
    _applied.difference_update(gone)
    replacing.convert(replacing.converted_modules(), lambda module: having(replacing.wanted_of(module) - gone))
    return ordered(found)


def get_patched_ops() -> list[str]:
    """The names of the patches that are applied to classes or to any model."""
    names = set(replacing.names_of_places())
    for module in replacing.converted_modules():
        names |= replacing.names_of(module)
    return ordered(names)


def list_patches() -> list[str]:
    """The names of all patches, as `reset` accepts them."""
    return list(known())


def register_patch(
    name: str, description: str, target_module: str, target_attr: str, replacement: Any, has_backward: bool = True,
    priority: int = 10, models: Sequence[str] | None = None, op: str | None = None,
) -> None:  # fmt: skip
    """Adds a patch that replaces `target_attr` of `target_module` ("Class", "function" or "Class.forward") with
    `replacement`. It applies to the model types in `models` (None: to all), unless the keyword `op` of `apply` is False
    (None: always). apply_to_model supports only patches of a "Class.forward". Where patches replace the same attribute,
    that of the highest `priority` does; Tegula's own have 10, and `apply` raises ValueError if two are equal."""
    if name in known():
        raise ValueError(f"register_patch: name: expected one that is not taken, got {name!r}")
    if not callable(replacement):
        raise TypeError(f"register_patch: replacement: expected a class or function, got {replacement!r}")
    if importlib.util.find_spec(target_module) is None:
        raise ValueError(f"register_patch: target_module: expected a module, got {target_module!r}")

    def make(stock, ops, modelling):
        return replacement

    make.as_given = True
    _patches[name] = Patch(
        name, description, target_module, {target_attr: make}, op, tuple(models or ()), has_backward, priority
    )


def unregister_patch(name: str) -> None:
    """Removes a patch of register_patch, also from classes and models. A patch that it kept away takes its place."""
    if name not in _patches:
        raise ValueError(f"unregister_patch: name: expected one of {', '.join(_patches) or 'none'}, got {name!r}")
    reset(name)
    del _patches[name]


@contextlib.contextmanager
def patched(model: Any, **flags: bool) -> Iterator[list[str]]:
    """A context manager: apply_to_model, undone at the end."""
    before = {module: replacing.wanted_of(module) for module in model.modules()}
    try:
        yield apply_to_model(model, **flags)
    finally:
        replacing.convert(list(model.modules()), lambda module: having(before.get(module, frozenset())))


@contextlib.contextmanager
def suspended(model: Any) -> Iterator[None]:
    """A context manager: without any patch in classes and in this model."""
    before = {module: replacing.wanted_of(module) for module in model.modules()}
    replacing.install([])
    try:
        replacing.convert(list(model.modules()), lambda module: [])
        yield
    finally:
        replacing.install(having(_applied))
        replacing.convert(list(model.modules()), lambda module: having(before.get(module, frozenset())))
