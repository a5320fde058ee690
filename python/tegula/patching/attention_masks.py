"""The keys that each query attends to, as small tensors instead of a [tokens, tokens] mask.

transformers passes a mask of rank 4 to the layers unchanged. Tegula's encodings are i32 tensors of rank 4, a dtype that
no mask of transformers has:

  plain     [1, 1, 1, 0]      every key; the last query is aligned with the last key
  segments  [2, 1, 1, n + 1]  cu_seqlens of the queries and of the keys: n sequences in the tokens of all rows
  ranges    [3, 1, 1, batch]  first key, key after the last, and position of the first query

Patched models pass them bare: attention is causal, and each layer knows its window. A `KeyMask` is an encoding with its
own window that looks like the mask of "eager" attention to everybody else."""

import torch


def is_encoded(mask):
    return mask is not None and mask.dtype == torch.int32 and mask.dim() == 4


def plain(device):
    return torch.empty((1, 1, 1, 0), dtype=torch.int32, device=device)


def is_plain(mask):
    return mask.shape[-1] == 0


def segments(queries, keys):
    return torch.stack((queries, keys)).to(torch.int32)[:, None, None, :]


def are_segments(mask):
    return mask.shape[0] == 2


def ranges(start, stop, query):
    return torch.stack((start, stop, query)).to(torch.int32)[:, None, None, :]


def as_booleans(mask, batch, queries, keys, window, causal=True):
    """An encoding as [batch or 1, 1, queries, keys] of booleans, true where a query sees a key."""
    key = torch.arange(keys, device=mask.device)[None, None, None, :]
    place = torch.arange(queries, device=mask.device)[None, None, :, None]
    if is_plain(mask):
        place = place + (keys - queries)
        seen = torch.ones((1, 1, queries, keys), dtype=torch.bool, device=mask.device)
    elif are_segments(mask):
        of_query, of_key = (
            torch.searchsorted(bounds, torch.arange(batch * length, device=mask.device), right=True)
            for bounds, length in zip(mask[:, 0, 0].unbind(), (queries, keys), strict=True)
        )
        of_query, of_key = of_query.view(batch, 1, queries, 1), of_key.view(batch, 1, 1, keys)
        seen = of_query == of_key
        # The last query of a segment is aligned with its last key.
        row = torch.arange(batch, device=mask.device)[:, None, None, None]
        place = place + row * (queries - keys) + (mask[1, 0, 0] - mask[0, 0, 0])[of_query]
    else:
        start, stop, query = (column[:, None, None, None] for column in mask[:, 0, 0].unbind())
        dropped = dropped_keys(query, queries, keys) if window else 0
        seen = (key >= start - dropped) & (key < stop - dropped)
        place = place + query - dropped
    if causal:
        seen = seen & (key <= place)
    if window:
        seen = seen & (key > place - window) & (key < place + window)
    return seen


def dropped_keys(query, queries, keys):
    """How many keys a cache with a window has dropped: positions count from the first key that it holds."""
    return (query + queries - keys).clamp(min=0)


class KeyMask(torch.Tensor):
    """An encoding of `keys`, causal or not, with a window, that has shape, dtype and values of the mask of "eager"
    attention, [batch, 1, queries, keys] with 0 where a query sees a key and the lowest number elsewhere. It is computed
    when anything but Tegula's attention reads it: some models slice their masks, or add to them."""

    @staticmethod
    def __new__(cls, keys, shape, dtype, causal, window):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=keys.device)

    def __init__(self, keys, shape, dtype, causal, window):
        self.keys, self.causal, self.window = keys, causal, window

    def __tensor_flatten__(self):
        return ["keys"], (self.dtype, self.causal, self.window)

    @staticmethod
    def __tensor_unflatten__(inner, context, shape, stride):
        return KeyMask(inner["keys"], shape, *context)

    def dense(self):
        batch, _, queries, keys = self.shape
        seen = as_booleans(self.keys, batch, queries, keys, self.window, self.causal).expand(self.shape)
        lowest = torch.finfo(self.dtype).min
        return torch.where(seen, torch.zeros((), dtype=self.dtype, device=self.device), lowest)

    @classmethod
    def __torch_dispatch__(cls, function, types, args, kwargs=None):
        kwargs = kwargs or {}
        if function in KEEPING:
            mask, place = args[0], {name: kwargs[name] for name in ("device", "non_blocking") if name in kwargs}
            dtype = kwargs.get("dtype") or mask.dtype
            if dtype.is_floating_point:
                return KeyMask(function(mask.keys, **place), mask.shape, dtype, mask.causal, mask.window)
        args, kwargs = torch.utils._pytree.tree_map_only(KeyMask, KeyMask.dense, (args, kwargs))
        return function(*args, **kwargs)


# What only copies a mask, moves it to another device, or casts it, as mixed precision does with a module's arguments.
KEEPING = {
    torch.ops.aten.detach.default, torch.ops.aten.alias.default, torch.ops.aten.clone.default,
    torch.ops.aten._to_copy.default,
}  # fmt: skip


# ---- what the model was given ----


def cache_kind(cache):
    """The kind of cache: "growing", "fixed" (a buffer of full length), or None if unknown."""
    from transformers import cache_utils as c

    layers = {type(layer) for layer in cache.layers}
    if type(cache) is c.DynamicCache and layers <= {c.DynamicLayer, c.DynamicSlidingWindowLayer}:
        return "growing"
    if type(cache) is c.StaticCache and layers <= {c.StaticLayer}:
        return "fixed"
    return None


def is_caching(model, use_cache):
    if model.gradient_checkpointing and model.training:
        return False
    return model.config.use_cache if use_cache is None else use_cache


def boundaries(position_ids):
    """cu_seqlens of the sequences that position_ids [batch, tokens] describe, or None if each row is one sequence."""
    new = torch.ones_like(position_ids, dtype=torch.bool)
    new[:, 1:] = position_ids[:, 1:] != position_ids[:, :-1] + 1
    starts = new.flatten().nonzero().flatten()
    if len(starts) == len(position_ids):
        return None
    return torch.cat((starts, starts.new_tensor([position_ids.numel()])))


def key_ranges(mask):
    """(first key, key after the last) of each row of a padding mask [batch, keys]; None if every key is valid, False
    if the valid keys of a row are not contiguous. Reads from the device."""
    mask = mask.bool()
    count = mask.sum(1)
    start = mask.int().argmax(1)
    stop = torch.where(count > 0, mask.shape[1] - mask.flip(1).int().argmax(1), 0)
    every, contiguous = torch.stack(((count == mask.shape[1]).all(), (count == stop - start).all())).tolist()
    if every:
        return None
    return (start, stop) if contiguous else False


def encode(model, tokens, attention_mask, position_ids, past_key_values, use_cache, kwargs):
    """Tegula's mask, or the given one if transformers must make the mask: then it is dense and PyTorch's attention runs.
    While compiling, nothing can be read from the device, so transformers handles padding and packing."""
    if tokens is None or not kwargs.get("is_causal", getattr(model.config, "is_causal", True)):
        return attention_mask
    if attention_mask is not None and not (isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 2):
        return attention_mask
    batch, length, device = tokens.shape[0], tokens.shape[1], tokens.device
    past, extent, growing = 0, length, True
    if past_key_values is not None:
        kind = cache_kind(past_key_values)
        if kind is None:
            return attention_mask
        growing = kind == "growing"
        past = past_key_values.get_seq_length()
        extent = past + length if growing else past_key_values.layers[0].max_cache_len
    elif attention_mask is None:
        return encode_positions(model, tokens, position_ids, use_cache, kwargs)
    found = None
    if attention_mask is not None:
        width = attention_mask.shape[1]
        if torch.compiler.is_compiling() or (width != extent if growing else width > extent):
            return attention_mask
        found = key_ranges(attention_mask.to(device))
        if found is False:
            return attention_mask
    if found is None and growing:
        return plain(device)
    whole = torch.zeros(batch, dtype=torch.int64, device=device)
    start, stop = found or (whole, whole + extent)
    return ranges(start, stop, whole + past)


def encode_positions(model, tokens, position_ids, use_cache, kwargs):
    """The mask without a padding mask or cache: packed sequences if cu_seq_lens or position_ids describe them."""
    if is_caching(model, use_cache):
        return plain(tokens.device)
    if kwargs.get("cu_seq_lens_q") is not None and tokens.shape[0] == 1:
        bounds = kwargs["cu_seq_lens_q"].to(tokens.device)
        return segments(bounds, bounds)
    if position_ids is None:
        return plain(tokens.device)
    if torch.compiler.is_compiling() or position_ids.dim() != 2:
        return None
    bounds = boundaries(position_ids.to(tokens.device).expand(tokens.shape[0], -1))
    return plain(tokens.device) if bounds is None else segments(bounds, bounds)
