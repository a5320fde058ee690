"""The name of the key-value cache in transformers, which has changed."""

import dataclasses
import types

import torch
from transformers.modeling_outputs import BaseModelOutputWithPast

# In models, layers and outputs: "cache" since transformers 5.24.
CACHE = "cache" if "cache" in {field.name for field in dataclasses.fields(BaseModelOutputWithPast)} else "past_key_values"


def given_cache(cache, kwargs, stock, module):
    """The cache of a call under either name, removed from kwargs. Of its old name transformers warns, as in `stock`."""
    if "past_key_values" in kwargs and CACHE != "past_key_values":
        old = kwargs.pop("past_key_values")
        if not torch.compiler.is_compiling():
            warn_of_names(stock, module, past_key_values=old, **({} if cache is None else {CACHE: cache}))
        return old if cache is None else cache
    return kwargs.pop(CACHE, None) if cache is None else cache


def warn_of_names(stock, module, **keywords):
    """Calls the wrapper that transformers puts around a forward to rename a deprecated keyword, without the forward."""
    while stock.__globals__["__name__"] != "transformers.utils.deprecation":
        stock = getattr(stock, "__wrapped__", None)
        if stock is None:
            return
    code = stock.__code__

    def nothing(*arguments, **keywords):
        pass

    nothing.__name__ = stock.__name__  # for the warning
    cells = zip(code.co_freevars, stock.__closure__)
    closure = tuple(types.CellType(nothing) if name == "func" else cell for name, cell in cells)
    if "func" in code.co_freevars:
        types.FunctionType(code, stock.__globals__, closure=closure)(module, **keywords)
