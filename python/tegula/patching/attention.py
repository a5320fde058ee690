"""Tegula's attention as an attention implementation of transformers. A replaced attention forward calls it in place of
"sdpa"; `attn_implementation="tegula"` selects it by name.

Unsupported calls, and calls without a fast kernel on this GPU, fall back to PyTorch's attention. `served_by` returns the
reason, and `tegula.report` prints it. PyTorch's attention knows neither softcaps nor sinks: a call that has one and is
unsupported raises an error."""

import typing
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


class Seen(typing.NamedTuple):
    """What the queries of a call see."""

    keys: torch.Tensor | None  # an encoding of `attention_masks`; None: every key, and the first query sits at the first
    causal: bool
    window: int


def seen_by_queries(module, query, key, mask, sliding_window, is_causal):
    """What the mask says, or None if it is a dense one."""
    if mask is None:
        # As with "sdpa", whose mask function leaves masks out; a window is then wider than the sequence.
        causal = query.shape[-2] > 1 and (getattr(module, "is_causal", True) if is_causal is None else is_causal)
        return Seen(None, causal, 0)
    if isinstance(mask, masks.KeyMask):
        fits = mask.shape == (query.shape[0], 1, query.shape[-2], key.shape[-2])
        return Seen(mask.keys, mask.causal, mask.window) if fits else None
    return Seen(mask, True, sliding_window or 0) if masks.is_encoded(mask) else None


def why_pytorch(query, key, value, seen, dropout, kwargs):
    """Why Tegula does not serve a call, or None."""
    if query.device.type not in ("cpu", "cuda"):
        return f"device {query.device.type}"
    if dropout > 0:
        return "dropout"
    if kwargs.get("output_attentions"):
        return "output_attentions"
    for name in ("position_bias", "cache"):
        if kwargs.get(name) is not None:
            return name
    if seen is None:
        return "a dense mask"
    if not query.dim() == key.dim() == value.dim() == 4:
        return f"tensors of {query.dim()} axes"
    if not query.shape[0] == key.shape[0] == value.shape[0] or key.shape[1] != value.shape[1] or query.shape[1] % key.shape[1]:
        return "rows or heads that are broadcast"
    if seen.keys is None and seen.causal and key.shape[2] < query.shape[2]:
        return "fewer keys than queries, and no mask"
    return None


def why_slower(query, key, value):
    """Why PyTorch's attention is the faster one, or None."""
    needs_gradient = torch.is_grad_enabled() and any(x.requires_grad for x in (query, key, value))
    if has_fast_kernel(query, value, needs_gradient):
        return None
    name = torch.cuda.get_device_name(query.device)
    way = "forward and backward" if needs_gradient else "forward"
    return f"no fast {way} for {query.dtype} heads of {query.shape[-1]} on {name}"


def in_autocast(*tensors):
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    return tuple(x.to(torch.get_autocast_dtype(device)) if x.is_floating_point() else x for x in tensors)


def one_row(x):
    """[batch, heads, tokens, head_dim] as [1, heads, batch * tokens, head_dim]."""
    return x.transpose(1, 2).flatten(0, 1)[None].transpose(1, 2)


def attend(q, k, v, seen, scale, softcap, sinks):
    """Heads first, as in `ops.attention`."""
    options = dict(scale=scale, softcap=softcap, sinks=sinks, causal=seen.causal, window=seen.window)
    keys = seen.keys
    if keys is None:
        if seen.causal:
            k, v = k[:, :, : q.shape[2]], v[:, :, : q.shape[2]]
        return ops.attention(q, k, v, **options)
    if masks.is_plain(keys):
        return ops.attention(q, k, v, **options)
    if masks.are_segments(keys):
        bounds_q, bounds_k = keys[:, 0, 0].unbind()
        y = ops.attention(*map(one_row, (q, k, v)), cu_seqlens_q=bounds_q, cu_seqlens_k=bounds_k, **options)
        return y.transpose(1, 2).unflatten(1, (q.shape[0], q.shape[2]))[0].transpose(1, 2)
    start, stop, query = keys[:, 0, 0].unbind()
    if seen.window:
        dropped = masks.dropped_keys(query, q.shape[2], k.shape[2])
        start, stop, query = ((place - dropped).clamp(min=0) for place in (start, stop, query))
    return ops.attention(q, k, v, key_start=start, key_count=stop - start, query_start=query, **options)


# Arguments of attention functions that change the result and that nothing here computes: other sinks, sparse attention.
UNKNOWN = ("sinks", "indices", "block_indices")


def refuse_unknown(module, reason, softcap, s_aux, kwargs):
    """Raises if neither Tegula nor PyTorch's attention computes what the call asks for; `reason` is why not Tegula."""
    where = type(module).__name__
    for name in UNKNOWN:
        if kwargs.get(name) is not None:
            raise NotImplementedError(f"attention: {name}: expected None, got one from {where}: choose attn_implementation='eager'")
    if reason is None:
        return
    for name, given in (("softcap", softcap), ("sinks", s_aux)):
        if given is not None:
            raise NotImplementedError(
                f"attention: {name} of {where}: expected a call that Tegula serves, got {reason}, and PyTorch's attention "
                f"knows no {name}: choose attn_implementation='eager'"
            )


def attention_forward(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, softcap=None,
    s_aux=None, is_causal=None, kept_attention=None, **kwargs,
):  # fmt: skip
    """An attention function of transformers: ([batch, tokens, heads, head_dim], None)."""
    softcap = softcap or None
    seen = seen_by_queries(module, query, key, attention_mask, sliding_window, is_causal)
    reason = why_pytorch(query, key, value, seen, dropout, kwargs)
    refuse_unknown(module, reason, softcap, s_aux, kwargs)
    if reason is None and softcap is None and s_aux is None:
        reason = why_slower(query, key, value)
    if not torch.compiler.is_compiling():
        _last_call[module] = reason
    if reason is not None:
        return in_pytorch(module, query, key, value, attention_mask, seen, dropout, scaling, is_causal, kwargs)
    query, key, value = in_autocast(query, key, value)
    if s_aux is not None and s_aux.dtype not in (query.dtype, torch.float32):
        s_aux = s_aux.to(query.dtype)
    with running(kept_attention, module):
        y = attend(query, key, value, seen, scaling, softcap or 0.0, s_aux)
    return y.transpose(1, 2).contiguous(), None


def named_attention(module, query, key, value, attention_mask, is_causal=None, **kwargs):
    """The attention function "tegula". Its mask function leaves no causal mask out, so None is what it is to "eager"
    attention: no mask."""
    if attention_mask is None and is_causal is None:
        is_causal = False
    return attention_forward(module, query, key, value, attention_mask, is_causal=is_causal, **kwargs)


def in_pytorch(module, query, key, value, mask, seen, dropout, scaling, is_causal, kwargs):
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    if seen is not None and seen.keys is not None:
        queries, keys, causal, window = query.shape[-2], key.shape[-2], seen.causal, seen.window
        if masks.is_plain(seen.keys) and not 0 < window < keys and (not causal or queries in (1, keys)):
            mask, is_causal = None, causal
        else:
            mask = masks.as_booleans(seen.keys, query.shape[0], queries, keys, window, causal)
    elif isinstance(mask, masks.KeyMask):
        mask = mask.dense()
    if mask is not None and mask.is_floating_point() and mask.dtype != query.dtype:
        mask = mask.clamp(min=torch.finfo(query.dtype).min).to(query.dtype)
    return sdpa_attention_forward(
        module, query, key, value, mask, dropout=dropout, scaling=scaling, is_causal=is_causal, **kwargs
    )


def register_attention():
    """Registers "tegula" as an attention implementation of transformers, with its mask function: without one, padding
    would be ignored."""
    from transformers import AttentionInterface, AttentionMaskInterface

    from .mask_functions import attention_mask

    AttentionInterface.register("tegula", named_attention)
    AttentionMaskInterface.register("tegula", attention_mask)
