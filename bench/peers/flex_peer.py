"""PyTorch's flex attention as transformers calls it for models with sinks: compiled, with a mask of
blocks; sinks go over its results by their logsumexp."""

import types

import torch

from peers.peer_problem import Peer, gradients, when_called

IMPL = "flex"


def forward_of(nq, keys, scale, window, device):
    """(q, k, v, sinks), heads inside -> out. The mask is made once, as a model makes it once for
    all of its layers."""
    from torch.nn.attention.flex_attention import create_block_mask
    from transformers.integrations.flex_attention import flex_attention_forward

    def sees(batch, head, query, key):
        causal = query >= key
        return causal & (query - key < window) if window else causal

    mask = create_block_mask(sees, 1, None, nq, keys, device=device)
    module = types.SimpleNamespace(training=True)

    def forward(q, k, v, sinks):
        return flex_attention_forward(module, *(x.transpose(1, 2) for x in (q, k, v)), mask,
                                      scaling=scale, s_aux=sinks)[0]
    return forward


def peers(inputs, dout, scale, window):
    """A list of one. It runs only where transformers is installed."""
    q, k = inputs["q"], inputs["k"]

    def make():
        forward = forward_of(q.shape[1], k.shape[1], scale, window, q.device)
        if dout is None:
            return lambda: {"out": forward(**inputs)}
        return gradients(forward, inputs, dout)
    return [Peer(IMPL, when_called(make), "as transformers", torch.__version__)]
