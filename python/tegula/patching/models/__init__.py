"""What is replaced in the models of transformers, as data: op -> class and attribute -> who makes the replacement.

A family names its modelling file and, for each op of `tegula.apply`, the attributes that change. An attribute may serve
several ops: its replacement is made once, for all ops that are applied together (`tegula.patches`)."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# The order of everything that lists patches.
OPS = ("rms_norm", "rope", "swiglu", "fused_linear_cross_entropy", "attention")
NAMES = ("qwen3", "qwen2", "llama")


@dataclass(frozen=True)
class Family:
    """`patches`: op -> {"Class.attribute": make}; make(stock, ops, modelling) returns what stands there while `ops`
    are applied, `stock` being what stood there before."""

    name: str
    module: str
    patches: Mapping[str, Mapping[str, Callable]]


def family(name: str) -> Family:
    return importlib.import_module(f".{name}", __name__).FAMILY
