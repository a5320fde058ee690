"""The keys that each query attends to, as small tensors instead of a [tokens, tokens] mask of booleans.

transformers passes a mask of rank 4 to the layers unchanged. Tegula's masks are i32 tensors of rank 4, a dtype that no
mask of transformers has. Attention is causal in each case:

  plain   [1, 1, 1, 0]      every key; the last query is aligned with the last key
  packed  [1, 1, 1, n + 1]  cu_seqlens of n sequences in the tokens of all rows
  ranges  [3, 1, 1, batch]  first key, key after the last, and position of the first query
"""

import torch


def is_encoded(mask):
    return mask is not None and mask.dtype == torch.int32 and mask.dim() == 4


def plain(device):
    return torch.empty((1, 1, 1, 0), dtype=torch.int32, device=device)


def is_plain(mask):
    return mask.shape[-1] == 0


def is_packed(mask):
    return mask.shape[0] == 1


def ranges(start, stop, query):
    return torch.stack((start, stop, query)).to(torch.int32)[:, None, None, :]


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
    return torch.cat((starts, starts.new_tensor([position_ids.numel()]))).to(torch.int32)


def key_ranges(mask):
    """(first key, key after the last) of each row of a padding mask [batch, keys]; None if every key is valid, False
    if the valid keys of a row are not contiguous. Reads from the device."""
    mask = mask.bool()
    count = mask.sum(1)
    start = mask.int().argmax(1)
    stop = torch.where(count > 0, mask.shape[1] - mask.flip(1).int().argmax(1), 0)
    if torch.stack((count == mask.shape[1], count == stop - start)).all(1).tolist() == [True, True]:
        return None
    return (start, stop) if bool((count == stop - start).all()) else False


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
        return kwargs["cu_seq_lens_q"].to(tokens.device, torch.int32)[None, None, None, :]
    if position_ids is None:
        return plain(tokens.device)
    if torch.compiler.is_compiling() or position_ids.dim() != 2:
        return None
    bounds = boundaries(position_ids.to(tokens.device).expand(tokens.shape[0], -1))
    return plain(tokens.device) if bounds is None else bounds[None, None, None, :]
