"""Weights of minGPT and nanoGPT by the names of their modules, which are transformers' with matrices [out, in]."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

# Buffers, and what wrappers of PyTorch put before a name.
_BUFFERS = (".attn.bias", ".attn.masked_bias")
_PREFIXES = ("_orig_mod.", "module.")
_HEAD, _TOKENS = "lm_head.weight", "transformer.wte.weight"


class MingptWeights(NamedTuple):
    """arrays speak DLPack; the head is among them if it is not the embedding."""

    arrays: dict[str, Any]
    is_tied: bool


def _array(name: str, value: Any) -> Any:
    """What speaks DLPack of a value: a tensor of PyTorch without its gradient, or the value itself."""
    if hasattr(value, "detach"):
        value = value.detach()
        if getattr(getattr(value, "device", None), "type", "cpu") != "cpu":
            value = value.cpu()
        return value if hasattr(value, "__dlpack__") else value.numpy()
    if hasattr(value, "__dlpack__"):
        kind, _ = value.__dlpack_device__()
        return value.get() if kind == 2 and hasattr(value, "get") else value
    raise TypeError(f"load_from_mingpt: {name}: expected an array that speaks DLPack, got {type(value)}")


def _same(one: Any, other: Any) -> bool:
    """Whether two arrays have the same elements."""
    if one is other or (hasattr(one, "data_ptr") and hasattr(other, "data_ptr") and one.data_ptr() == other.data_ptr()):
        return True
    if tuple(one.shape) != tuple(other.shape):
        return False
    equal = one == other
    return bool(equal.all()) if hasattr(equal, "all") else False


def read_weights(source: Any, num_layers: int) -> MingptWeights:
    """Of a module, or of a mapping from names to arrays."""
    state = source.state_dict() if hasattr(source, "state_dict") else source
    if not isinstance(state, Mapping) and not hasattr(state, "keys"):
        raise TypeError(f"load_from_mingpt: expected a module or a state dict, got {type(source)}")
    arrays: dict[str, Any] = {}
    for key in state.keys():
        name = key
        for prefix in _PREFIXES:
            name = name.removeprefix(prefix)
        if not name.endswith(_BUFFERS):
            arrays[name] = _array(name, state[key])
    last = f"transformer.h.{num_layers - 1}.ln_1.weight"
    if _TOKENS not in arrays or last not in arrays:
        missing = _TOKENS if _TOKENS not in arrays else last
        raise ValueError(f"load_from_mingpt: expected a state dict with {missing}, got {len(arrays)} other names")
    is_tied = _HEAD not in arrays or _same(arrays[_HEAD], arrays[_TOKENS])
    if is_tied:
        arrays.pop(_HEAD, None)
    return MingptWeights(arrays, is_tied)
