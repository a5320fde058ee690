"""FlashAttention 4, on a GPU of compute capability 9.0 or newer: attention in the CuTe DSL. Needs
flash-attn-4 with what it brings, quack-kernels and nvidia-cutlass-dsl."""

import functools
import importlib
import importlib.metadata
import sys

import torch

from peers import cutlass_package
from peers.peer_problem import Peer, gradients, when_called

IMPL = "fa4"


@functools.cache
def load():
    """Its module of functions; None if it is not there, which is said once."""
    if not cutlass_package.find("FlashAttention 4", "flash_attn", "quack"):
        return None
    try:
        return importlib.import_module("flash_attn.cute")
    except (ImportError, AttributeError, TypeError) as error:  # FlashAttention 2, or another DSL
        print(f"# FlashAttention 4 is left out: {error}", file=sys.stderr)
        return None


@functools.cache
def version():
    try:
        return cutlass_package.with_version(importlib.metadata.version("flash-attn-4"))
    except importlib.metadata.PackageNotFoundError:
        return ""


def peers(inputs, dout, scale, causal, in_order, window=0, starts=None, longest=0):
    """A list of one, or of none for other types. It runs only where load() finds the package.
    `inputs`: q, k, v and perhaps sinks, heads inside [batch, tokens]; with `starts` sequences follow
    one another, and the batch is one."""
    q = inputs["q"]
    if q.dtype not in (torch.float16, torch.bfloat16):
        return []
    options = dict(softmax_scale=scale, causal=causal, deterministic=in_order and dout is not None)
    if window:
        options["window_size"] = (window - 1, 0)
    if starts is not None:
        options |= dict(cu_seqlens_q=starts, cu_seqlens_k=starts, max_seqlen_q=longest,
                        max_seqlen_k=longest)

    def forward(q, k, v, sinks=None, **more):
        if starts is None:
            return load().flash_attn_func(q, k, v, learnable_sink=sinks, **options, **more)[0]
        return load().flash_attn_varlen_func(q[0], k[0], v[0], learnable_sink=sinks, **options,
                                             **more)[0][None]

    if dout is None:
        return [Peer(IMPL, lambda: {"out": forward(**inputs, return_lse=True)}, "", version())]
    return [Peer(IMPL, when_called(lambda: gradients(forward, inputs, dout)),
                 "in order" if in_order else "any order", version())]
