"""A call of an op on arrays: arguments by name, outputs allocated in the caller's library, results in the caller's axes."""

from __future__ import annotations

import inspect
import math
import sys
from collections import namedtuple
from typing import Any

from .. import _core
from ..enumerations import GATED, NUM_ITEMS
from ..caller_arrays import cuda_device, like
from .result_rules import CHOICES, EXTRA, RULES, SCALARS, Rule, given

_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_ANY = inspect.Parameter.POSITIONAL_OR_KEYWORD


def _by_op(table: dict[str, Any], op: str, name: str) -> Any:
    return table.get(f"{op}.{name}", table.get(name))


class _Library:
    """Where results come from: the library and the device of an array."""

    def __init__(self, array: Any) -> None:
        self.array = array
        self.root = sys.modules.get(type(array).__module__.split(".")[0])
        self.name = getattr(self.root, "__name__", "")

    def dtype(self, name: str) -> Any:
        return name if self.name not in ("torch", "numpy", "cupy") else getattr(self.root, name)

    def empty(self, shape: tuple[int, ...], dtype: Any, zero: bool) -> Any:
        """`dtype`: the library's own, or a name."""
        root: Any = self.root
        if self.name == "torch":
            return (root.zeros if zero else root.empty)(shape, dtype=dtype, device=self.array.device)
        if self.name == "numpy":
            return (root.zeros if zero else root.empty)(shape, dtype)
        if self.name == "cupy":
            with self.array.device:
                return (root.zeros if zero else root.empty)(shape, dtype)
        index = cuda_device(self.array)
        return _core.empty(shape, getattr(dtype, "name", str(dtype)), -1 if index is None else index, zero)

    def give(self, result: Any) -> Any:
        """An array of the library of an output that `empty` made."""
        return like(self.array, result) if type(result) is _core.Array else result


class ArrayFunction:
    """The function of one entry of the op table."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.entry, self.op = entry["name"], entry["op"]
        self.name = self.__name__ = self.op if entry["dir"] == "fwd" else self.entry
        self.__qualname__, self.__module__ = self.name, "tegula.arrays"
        slots = {slot["name"]: slot for slot in entry["slots"] if slot["kind"] != "workspace"}
        arrays = {name: slot for name, slot in slots.items() if slot["kind"] in ("tensor", "list")}
        self.inputs = {name: slot for name, slot in arrays.items() if slot["role"] in ("in", "inout")}
        self.outputs = {name: slot for name, slot in arrays.items() if name not in self.inputs}
        self.scalars = {name: slot for name, slot in slots.items() if name not in arrays and not name.startswith("has_")}
        self.flags = [name for name in slots if name.startswith("has_")]
        rules = RULES.get(self.entry, {})
        self.rules = {name: rules.get(name, given("float32")) for name in self.outputs}
        self.__signature__ = self._signature()
        self.__doc__ = f"{self.entry}: see include/tegula/ and the help of tegula.arrays.\n\nOutputs: {', '.join(self.outputs) or 'none'}."

    def _default(self, name: str, kind: str) -> Any:
        if kind == "enum":
            return _by_op(CHOICES, self.op, name)[1]
        usual = _by_op(SCALARS, self.op, name)
        if usual == "required":
            return inspect.Parameter.empty
        if f"has_{name}" in self.flags or usual is not None:
            return usual
        return None if name == "scale" else {"bool": False, "f32": 0.0, "f64": 0.0}.get(kind, 0)

    def _signature(self) -> inspect.Signature:
        needed = [n for n, slot in self.inputs.items() if not slot["optional"]]
        others = [n for n, slot in self.inputs.items() if slot["optional"]]
        parameters = [inspect.Parameter(name, _ANY) for name in needed]
        parameters += [inspect.Parameter(name, _ANY, default=None) for name in others]
        parameters += [inspect.Parameter(name, _KEYWORD) for name in EXTRA.get(self.entry, ())]
        parameters += [
            inspect.Parameter(name, _KEYWORD, default=self._default(name, slot["kind"])) for name, slot in self.scalars.items()
        ]
        parameters += [inspect.Parameter(name, _KEYWORD, default=None) for name in self.outputs]
        return inspect.Signature([*parameters, inspect.Parameter("results", _KEYWORD, default=None)])

    # ---- arguments ----

    def _flatten(self, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
        """Arrays of the ranks of the contract, and the leading axes of those that had more."""
        leads: dict[str, tuple[int, ...]] = {}
        arrays = {}
        for name, slot in {**self.inputs, **self.outputs}.items():
            array = given[name]
            rank = len(getattr(array, "shape", ())) if slot["kind"] == "tensor" and array is not None else 0
            if slot["ndim"] == 2 and rank > 2:
                leads[name] = tuple(array.shape[:-1])
                array = array.reshape(-1, array.shape[-1])
            elif slot["ndim"] == 1 and rank > 1:
                leads[name] = tuple(array.shape)
                array = array.reshape(-1)
            elif slot["ndim"] == 2 and rank == 1 and name in ("x", "dy", "logits"):
                leads[name] = ()
                array = array.reshape(1, -1)
            arrays[name] = array
        return arrays, leads

    def _numbers(self, given: dict[str, Any], arrays: dict[str, Any]) -> dict[str, Any]:
        """Scalars as the op has them."""
        numbers = {name: given[name] for name in self.scalars}
        for flag in self.flags:
            name = flag.removeprefix("has_")
            numbers[flag] = numbers[name] is not None
            numbers[name] = numbers[name] or 0
        for name, slot in self.scalars.items():
            if slot["kind"] == "enum" and isinstance(numbers[name], str):
                choices = _by_op(CHOICES, self.op, name)[0]
                if numbers[name] not in choices:
                    raise ValueError(f"{self.entry}: {name}: expected {' or '.join(choices)}, got {numbers[name]!r}")
                numbers[name] = choices[numbers[name]]
        if numbers.get("scale", 0) is None:  # of attention
            numbers["scale"] = 1 / math.sqrt(arrays["q"].shape[-1])
        if numbers.get("num_items_in_batch") or arrays.get("num_items") is not None:
            numbers["reduction"] = NUM_ITEMS
        if self.op in ("grouped_linear", "grouped_linear_mxfp4", "moe_mlp") and "alpha" in numbers:
            clamped = numbers["activation"] == GATED["swiglu_clamped"]
            numbers["alpha"], numbers["limit"] = (numbers["alpha"], numbers["limit"]) if clamped else (0.0, 0.0)
            numbers["packing"] = numbers["packing"] if numbers["activation"] else 0
        if arrays.get("gate") is not None and self.op in ("swiglu", "geglu", "swiglu_clamped"):
            numbers["packing"] = 0
        if self.op == "embedding" and not numbers["seq_len"]:
            numbers["seq_len"] = given["ids"].shape[-1]
        if self.op in ("grouped_linear", "grouped_linear_mxfp4") and arrays.get("slot") is not None and not numbers["slots_per_row"]:
            numbers["slots_per_row"] = max(1, arrays["slot"].shape[0] // max(1, arrays["x"].shape[0]))
        return numbers

    # ---- outputs ----

    def _wanted(self, results: Any, given: dict[str, Any]) -> list[str]:
        if results is None:
            return [name for name, rule in self.rules.items() if rule.usual or given[name] is not None]
        names = [results] if isinstance(results, str) else list(results)
        for name in names:
            if name not in self.rules:
                raise ValueError(f"{self.entry}: results: expected some of {', '.join(self.rules)}, got {name!r}")
        return names

    def _dtype(self, rule: Rule, library: _Library, arrays: dict[str, Any]) -> Any:
        if rule.dtype == "=first":
            return library.array.dtype
        if rule.dtype.startswith("="):
            return arrays[rule.dtype[1:]].dtype
        if rule.dtype.startswith("wide="):  # codes of 8 bits are no results
            own = arrays[rule.dtype[5:]].dtype
            return library.dtype("float32") if "float8" in str(own) else own
        if rule.dtype == "statistic":
            return library.dtype("float64" if "float64" in str(library.array.dtype) else "float32")
        return library.dtype(rule.dtype)

    def _allocate(self, wanted: list[str], known: dict[str, Any], library: _Library, arrays: dict[str, Any]) -> list[str]:
        """Adds the outputs that nobody gave to `arrays`; the names that have no input to belong to are left out."""
        found = []
        for name in wanted:
            if arrays[name] is None:
                shape = self.rules[name].shape(known)
                if shape is None and name in known["results"]:
                    raise ValueError(f"{self.entry}: {name}: expected an array to write to, got none")
                if shape is None and not self.outputs[name]["optional"]:
                    raise ValueError(f"{self.entry}: {name}: expected an array to write to, got none")
                if shape is None:
                    continue
                zero = self.outputs[name]["role"] == "acc"
                arrays[name] = library.empty(tuple(shape), self._dtype(self.rules[name], library, arrays), zero)
            found.append(name)
        return found

    def _result(self, name: str, given: dict[str, Any], library: _Library, arrays: dict[str, Any], leads: dict[str, Any]) -> Any:
        if given[name] is not None:
            return given[name]
        result = library.give(arrays[name])
        source = self.rules[name].rows_of
        if source == "first":
            source = next(iter(leads), None)
        if source not in leads:
            return result
        return result.reshape(leads[source] + tuple(result.shape[1:]))

    def __call__(self, *args: Any, **named: Any) -> Any:
        bound = self.__signature__.bind(*args, **named)
        bound.apply_defaults()
        given = bound.arguments
        arrays, leads = self._flatten(given)
        first = next((array for name, array in arrays.items() if array is not None and name in self.inputs), None)
        if self.inputs and next(iter(self.inputs.values()))["kind"] == "list":
            arrays.update({name: list(arrays[name] or ()) or None for name, slot in self.inputs.items() if slot["kind"] == "list"})
            first = next(iter(next(iter(arrays.values())) or ()), None)
        for name, array in arrays.items():
            if self.inputs.get(name, {}).get("kind") == "tensor" and array is not None and not hasattr(array, "__dlpack__"):
                raise TypeError(f"{self.entry}: {name}: expected an array that speaks DLPack, got {type(array)}")
        if first is None:
            raise TypeError(f"{self.entry}: expected an array, got none")
        numbers = self._numbers(given, arrays)
        library = _Library(first)
        shapes = {name: tuple(array.shape) if hasattr(array, "shape") else None for name, array in arrays.items()}
        known = {**shapes, **numbers, **{name: given[name] for name in EXTRA.get(self.entry, ())}}
        wanted = self._wanted(given["results"], given)
        known["results"] = wanted if given["results"] is not None else ()
        computed = [name for name, slot in self.outputs.items() if name in wanted or not slot["optional"]]
        computed = self._allocate(computed, known, library, arrays)
        used = {name: array for name, array in arrays.items() if name in self.inputs or name in computed}
        _core.run(self.entry, **used, **numbers)
        wanted = [name for name in wanted if name in computed]
        found = [self._result(name, given, library, arrays, leads) for name in wanted]
        if len(found) < 2:
            return found[0] if found else None
        return namedtuple(f"{self.name}_results", wanted)(*found)

    def __repr__(self) -> str:
        return f"<function tegula.arrays.{self.name}{self.__signature__}>"
