"""Tegula's attention as an attention implementation of transformers. A replaced attention forward calls it in place of
"sdpa"; `attn_implementation="tegula"` selects it by name.

Unsupported calls, and calls without a fast kernel on this GPU, fall back to PyTorch's attention. `served_by` returns the
reason, and `tegula.report` prints it."""

import weakref

import torch

from .. import ops
from ..autograd.kept_attention import running
from . import attention_masks as masks

# Where Tegula's kernels are as fast as PyTorch's: major compute capability -> largest head_dim of the forward and of the
# backward. Elsewhere they work but are slower (backward of head_dim 256 on Hopper: 0.91 to 1.00 times the speed of
# cuDNN) or were not measured. 8 and 12 use the Ampere kernels, measured on an H200 beside FlashAttention-2: 0.995 to
# 1.31 times its speed for head_dim 64 and 128.
FAST = {8: (128, 128), 9: (256, 192), 12: (128, 128)}

# Module -> why its last call fell back to PyTorch, or None. Calls in compiled code are not recorded.
_last_call = weakref.WeakKeyDictionary()


def served_by(module):
    """What computed the module's last call, as text; None before the first call."""
    if module not in _last_call:
        return None
    reason = _last_call[module]
    return "tegula" if reason is None else f"pytorch: {reason}"


def has_fast_kernel(query, value, needs_gradient):
    if query.device.type == "cpu":
        return True
    head = max(query.shape[-1], value.shape[-1])
    forward, backward = FAST.get(torch.cuda.get_device_capability(query.device)[0], (0, 0))
    half = query.dtype in (torch.float16, torch.bfloat16)
    return half and head <= (min(forward, backward) if needs_gradient else forward)


def why_pytorch(query, key, value, mask, dropout, kwargs):
    """Why a call falls back to PyTorch, or None."""
    if query.device.type not in ("cpu", "cuda"):
        return f"device {query.device.type}"
    if dropout > 0:
        return "dropout"
    if kwargs.get("output_attentions"):
        return "output_attentions"
    for name in ("position_bias", "cache"):
        if kwargs.get(name) is not None:
            return name
    if mask is not None and not masks.is_encoded(mask):
        return "a dense mask"
    needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    if not has_fast_kernel(query, value, needs_gradient):
        name = torch.cuda.get_device_name(query.device)
        way = "forward and backward" if needs_gradient else "forward"
        return f"no fast {way} for {query.dtype} heads of {query.shape[-1]} on {name}"
    return None


def in_autocast(*tensors):
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(device)) if x.is_floating_point() else x for x in tensors)


def one_row(x):
    """[batch, heads, tokens, head_dim] as [1, heads, batch * tokens, head_dim]."""
    return x.transpose(1, 2).flatten(0, 1)[None].transpose(1, 2)


def attend(q, k, v, mask, causal, scale, window, softcap, sinks):
    """Heads first, as in `ops.attention`; a mask of `attention_masks` or None."""
    options = dict(scale=scale, softcap=softcap, sinks=sinks, causal=causal, window=window)
    if mask is None or masks.is_plain(mask):
        return ops.attention(q, k, v, **options)
    if masks.is_packed(mask):
        bounds = mask.flatten()
        y = ops.attention(*map(one_row, (q, k, v)), cu_seqlens_q=bounds, cu_seqlens_k=bounds, **options)
        return y.transpose(1, 2).unflatten(1, (q.shape[0], q.shape[2]))[0].transpose(1, 2)
    start, stop, query = mask[:, 0, 0].unbind()
    if window:
        # A cache with a window has dropped the first keys: positions count from the first key that it holds.
        dropped = (query + q.shape[2] - k.shape[2]).clamp(min=0)
        start, stop, query = ((place - dropped).clamp(min=0) for place in (start, stop, query))
    return ops.attention(q, k, v, key_start=start, key_count=stop - start, query_start=query, **options)


def attention_forward(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, softcap=None,
    s_aux=None, is_causal=None, kept_attention=None, **kwargs,
):  # fmt: skip
    """An attention function of transformers: ([batch, tokens, heads, head_dim], None)."""
    reason = why_pytorch(query, key, value, attention_mask, dropout, kwargs)
    if not torch.compiler.is_compiling():
        _last_call[module] = reason
    if reason is not None:
        return in_pytorch(
            module, query, key, value, attention_mask, dropout, scaling, sliding_window, softcap, s_aux, is_causal, kwargs
        )
    window = 0
    if attention_mask is None:
        # With "sdpa", None means causal from the first key on; the window is then wider than the sequence.
        causal = query.shape[2] > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
        if causal and key.shape[2] > query.shape[2]:
            key, value = key[:, :, : query.shape[2]], value[:, :, : query.shape[2]]
    else:
        causal, window = True, sliding_window or 0
    query, key, value = in_autocast(query, key, value)
    with running(kept_attention, module):
        y = attend(query, key, value, attention_mask, causal, scaling, window, softcap or 0.0, s_aux)
    return y.transpose(1, 2).contiguous(), None


# ---- by PyTorch ----


def dense(mask, queries, keys, window):
    """A mask of `attention_masks` as [batch or 1, 1, queries, keys] of booleans."""
    device = mask.device
    key = torch.arange(keys, device=device)[None, None, None, :]
    place = torch.arange(queries, device=device)[None, None, :, None]
    if masks.is_plain(mask):
        place = place + (keys - queries)
        seen = torch.ones((), dtype=torch.bool, device=device)
    elif masks.is_packed(mask):
        places = torch.arange((mask.flatten()[-1]), device=device)
        sequence = torch.searchsorted(mask.flatten(), places, right=True).view(-1, queries)
        seen = sequence[:, None, :, None] == sequence[:, None, None, :]
    else:
        start, stop, query = (column[:, None, None, None] for column in mask[:, 0, 0].unbind())
        dropped = (query + queries - keys).clamp(min=0) if window else 0
        seen = (key >= start - dropped) & (key < stop - dropped)
        place = place + query - dropped
    seen = seen & (key <= place)
    return seen & (key > place - window) if window else seen


def in_pytorch(
    module, query, key, value, mask, dropout, scaling, sliding_window, softcap, s_aux, is_causal, kwargs
):  # fmt: skip
    if s_aux is not None:
        raise NotImplementedError("attention: sinks: expected a call that Tegula serves: PyTorch's attention has none")
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    window = sliding_window or 0
    if masks.is_encoded(mask):
        queries, keys = query.shape[2], key.shape[2]
        if masks.is_plain(mask) and (queries == 1 or queries == keys) and not 0 < window < keys:
            mask = None
        else:
            mask = dense(mask, queries, keys, window)
    return sdpa_attention_forward(
        module, query, key, value, mask, dropout=dropout, scaling=scaling, is_causal=is_causal, softcap=softcap, **kwargs
    )


def queries_at(cache_position):
    """(count, position of the first) of the queries, as earlier versions of transformers pass them. The position is read
    from the device, except while compiling."""
    first = cache_position[0]
    return cache_position.shape[0], first if torch.compiler.is_compiling() else int(first)


def attention_mask(
    batch_size, q_length=0, kv_length=0, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None,
    local_size=None, allow_is_causal_skip=True, device="cpu", cache_position=None, **kwargs,
):  # fmt: skip
    """The mask function of "tegula", for models whose own forward is not replaced."""
    from transformers.masking_utils import causal_mask_function, sdpa_mask

    if cache_position is None:
        kwargs.update(q_length=q_length, q_offset=q_offset, device=device)
    else:
        q_length, q_offset = queries_at(cache_position)
        device = cache_position.device
        kwargs.update(cache_position=cache_position)
    causal = mask_function is causal_mask_function and local_size is None and allow_is_causal_skip
    if causal and attention_mask is None and not isinstance(q_offset, torch.Tensor) and q_offset + q_length == kv_length:
        return masks.plain(device)
    if causal and attention_mask is not None and attention_mask.shape[1] == kv_length and not torch.compiler.is_compiling():
        found = masks.key_ranges(attention_mask)
        if found:
            return masks.ranges(*found, torch.full((batch_size,), 0, device=device) + q_offset)
    if mask_function is not None:
        kwargs["mask_function"] = mask_function
    return sdpa_mask(
        batch_size=batch_size, kv_length=kv_length, kv_offset=kv_offset, attention_mask=attention_mask,
        local_size=local_size, allow_is_causal_skip=allow_is_causal_skip, **kwargs,
    )  # fmt: skip


def register_attention():
    """Registers "tegula" as an attention implementation of transformers, with its mask function: without one, padding
    would be ignored."""
    from transformers import AttentionInterface, AttentionMaskInterface

    AttentionInterface.register("tegula", attention_forward)
    AttentionMaskInterface.register("tegula", attention_mask)
