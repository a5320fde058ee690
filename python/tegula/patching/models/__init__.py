"""The replacements for each model family, as data: op -> "Class.attribute" -> the function that makes the replacement.

A family names its modelling file and, for each op of `tegula.apply` that it has, the attributes to replace. If several ops share an
attribute, its replacement is made once for all ops that are applied (`patching/patches.py`)."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# The order in which patches are listed.
OPS = ("rms_norm", "rope", "swiglu", "fused_linear_cross_entropy", "attention", "experts")
NAMES = ("qwen3", "qwen2", "llama", "gpt_oss", "qwen3_moe", "mixtral")


@dataclass(frozen=True)
class Family:
    """`patches`: op -> {"Class.attribute": make}; make(stock, ops, modelling) returns the replacement of `stock` while
    `ops` are applied."""

    name: str
    module: str
    patches: Mapping[str, Mapping[str, Callable]]


def family(name: str) -> Family:
    return importlib.import_module(f".{name}", __name__).FAMILY
