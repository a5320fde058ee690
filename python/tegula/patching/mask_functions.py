"""The mask function of `attn_implementation="tegula"`, for models whose own forward is not replaced.

transformers describes a mask by a function of (row, head, query, key) that its `masking_utils` puts together from a few
kinds. `read` takes such a function apart, so that no [queries, keys] mask is made. What it does not know, such as blocks
of images or a model's own overlay, becomes the dense mask of "eager" attention."""

import math
import typing

import torch

from .attention_masks import KeyMask, key_ranges, plain, ranges, segments


class Pattern(typing.NamedTuple):
    """What a mask function says, padding aside."""

    causal: bool = False
    window: int = 0  # as in ops.attention
    backwards: bool = False  # the window ends before a query only
    chunk: tuple | None = None  # keys of a chunk, left padding [rows]: chunks do not see each other
    sequence: torch.Tensor | None = None  # [rows, tokens]: sequences of different numbers do not see each other
    position: torch.Tensor | None = None  # [rows, tokens]: places within the sequences


# ---- a mask function, taken apart ----


def made_by(function):
    """The name in masking_utils of what made a mask function, and what it was made of."""
    if getattr(function, "__module__", None) != "transformers.masking_utils" or not hasattr(function, "__code__"):
        return None, {}
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return function.__qualname__.partition(".")[0], {name: cell.cell_contents for name, cell in cells}


def is_empty(function):
    """Whether a mask function adds nothing: blocks, such as those of images, in a text without any."""
    kind, parts = made_by(function)
    return kind == "blockwise_overlay" and not bool((parts["block_sequence_ids"] >= 0).any())


def within(pattern, window, **more):
    """The pattern and a window; None if the window shows nothing, since 0 is no window to ops.attention."""
    return pattern._replace(window=min(window, pattern.window or window), **more) if window > 0 else None


def read(function, pattern):
    """`pattern` and what the mask function adds to it; None if it has a part of another kind."""
    kind, parts = made_by(function)
    if kind == "causal_mask_function":
        return pattern._replace(causal=True)
    if kind == "bidirectional_mask_function":
        return pattern
    if kind == "and_masks":
        for part in parts["mask_functions"]:
            pattern = pattern and read(part, pattern)
        return pattern
    if kind == "or_masks":
        others = [part for part in parts["mask_functions"] if not is_empty(part)]
        return read(others[0], pattern) if len(others) == 1 else None
    if kind == "sliding_window_overlay":
        return within(pattern, parts["sliding_window"], backwards=True)
    if kind == "sliding_window_bidirectional_overlay":
        return within(pattern, parts["sliding_window"] + 1)
    if kind == "chunked_overlay" and "left_padding" in parts and pattern.chunk is None and pattern.position is None:
        return pattern._replace(chunk=(parts["chunk_size"], parts["left_padding"]))
    if kind == "packed_sequence_mask_function" and pattern.sequence is None:
        return pattern._replace(sequence=parts["packed_sequence_mask"])
    if kind == "remap_positions_for_packed_sequence" and pattern == Pattern():
        pattern = read(parts["mask_function"], pattern)
        return pattern and pattern._replace(position=parts["position_ids"])
    return None


def pattern_of(function):
    """The pattern of a mask function, or None if ops.attention has no arguments for it."""
    pattern = read(function, Pattern())
    if pattern is None or (pattern.backwards and not pattern.causal):
        return None
    if pattern.position is not None and pattern.sequence is None:
        return None
    if pattern.chunk and (not pattern.causal or (pattern.sequence is not None and pattern.position is None)):
        return None
    return pattern


# ---- the keys of a pattern ----


def keys_of_sequences(pattern, batch, tokens):
    """The encoding of packed sequences, within them of chunks. Reads from the device."""
    number = pattern.sequence.expand(batch, -1)
    new = torch.ones((batch, tokens), dtype=torch.bool, device=number.device)
    new[:, 1:] = number[:, 1:] != number[:, :-1]
    strange = number[:, 1:] < number[:, :-1]  # a number could come again
    if pattern.position is not None:
        position = pattern.position.expand(batch, -1)
        strange = strange | ~new[:, 1:] & (position[:, 1:] != position[:, :-1] + 1)
    if pattern.chunk:
        size, left = pattern.chunk
        chunk = (position - left[:, None]) // size
        new[:, 1:] |= chunk[:, 1:] != chunk[:, :-1]
    if strange.any():
        return None
    starts = new.flatten().nonzero().flatten()
    if len(starts) == batch:
        return plain(number.device)
    bounds = torch.cat((starts, starts.new_tensor([batch * tokens])))
    return segments(bounds, bounds)


def keys_of_chunks(pattern, batch, queries, keys, q_offset, kv_offset):
    """The encoding of chunks: each is a segment, and so are the left padding before the first and the unused end of a
    cache after the last. Queries in the padding see each other; nobody reads their results."""
    size, left = pattern.chunk
    # More edges than a row needs lie at its end.
    edges = left[:, None] + size * torch.arange(math.ceil((kv_offset + keys) / size) + 1, device=left.device)

    def bounds(offset, end, length):
        first = length * torch.arange(batch + 1, device=left.device)[:, None]
        inner = (edges - offset).clamp(0, end)
        return torch.cat(((first[:-1] + torch.nn.functional.pad(inner, (1, 0))).flatten(), first[-1]))

    return segments(bounds(q_offset, queries, queries), bounds(kv_offset, q_offset + queries - kv_offset, keys))


def keys_of(pattern, batch, queries, keys, q_offset, kv_offset, padding, device):
    """The encoding of a pattern beside a padding mask [batch, tokens] or None; None if there is none."""
    found = None
    if padding is not None:
        if padding.dim() != 2 or padding.shape[0] != batch:
            return None
        local = padding[:, kv_offset : kv_offset + keys].to(device)
        found = key_ranges(torch.nn.functional.pad(local, (0, keys - local.shape[1])))
        if found is False:
            return None
    first = q_offset - kv_offset
    aligned = not isinstance(first, torch.Tensor) and first + queries == keys
    if pattern.sequence is not None:
        return keys_of_sequences(pattern, batch, queries) if found is None and aligned and queries == keys else None
    if pattern.chunk and queries > 1:
        q_offset = int(q_offset)
        if found and padding.shape[1] < q_offset + queries:
            return None  # queries behind the padding mask are not padding
        return keys_of_chunks(pattern, batch, queries, keys, q_offset, kv_offset)
    if found is None and not pattern.chunk and (aligned or not (pattern.causal or pattern.window)):
        return plain(device)
    whole = torch.zeros(batch, dtype=torch.int64, device=device)
    start, stop = found or (whole, whole + keys)
    if pattern.chunk:
        size, left = pattern.chunk
        start = torch.maximum(start, left + (q_offset - left) // size * size - kv_offset).minimum(stop)
    return ranges(start, stop, whole + first)


# ---- the mask function ----


def place_of_queries(cache_position):
    """(count, position of the first) of the queries, as earlier versions of transformers pass them. The position is read
    from the device, except while compiling."""
    first = cache_position[0]
    return cache_position.shape[0], first if torch.compiler.is_compiling() else int(first)


def attention_mask(
    batch_size, q_length=0, kv_length=0, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
    dtype=torch.float32, device="cpu", cache_position=None, **kwargs,
):  # fmt: skip
    """The mask function of "tegula": a `KeyMask`, or the mask of "eager" attention. While compiling, nothing can be read
    from the device and padding and packing cannot be told from their absence: then it is always the latter."""
    from transformers.masking_utils import causal_mask_function, eager_mask

    if cache_position is None:
        place = dict(q_length=q_length, q_offset=q_offset, device=device)
    else:
        place = dict(cache_position=cache_position)
        q_length, q_offset = place_of_queries(cache_position)
        device = cache_position.device
    mask_function = mask_function or causal_mask_function
    tracing = torch.compiler.is_compiling() or torch.jit.is_tracing()
    if not tracing and not isinstance(kv_offset, torch.Tensor):
        pattern = pattern_of(mask_function)
        keys = pattern and keys_of(pattern, batch_size, q_length, kv_length, q_offset, kv_offset, attention_mask, device)
        if keys is not None:
            return KeyMask(keys, (batch_size, 1, q_length, kv_length), dtype, pattern.causal, pattern.window)
    return eager_mask(
        batch_size=batch_size, kv_length=kv_length, kv_offset=kv_offset, mask_function=mask_function,
        attention_mask=attention_mask, dtype=dtype, **place, **kwargs,
    )  # fmt: skip
