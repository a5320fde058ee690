"""Peers of the normalisations."""

import torch
import torch.nn.functional as F

from peers.peer_problem import Peer, Problem, gradients, torch_peer

EPS = 1e-5


def rms_norm(words, backward, dtype):
    rows, cols = words.extents
    policy = "TG_RMS_NORM_GPT_OSS" if words.flag("gptoss") else "TG_RMS_NORM_LLAMA"
    words.done()
    x, weight = torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)
    rstd = (x.float().square().mean(-1) + EPS).rsqrt()

    def forward(x, weight):
        return F.rms_norm(x, (cols,), weight, EPS)

    if not backward:
        fields = dict(x=x, weight=weight, y=torch.empty_like(x), rstd=rstd, eps=EPS, policy=policy)
        return Problem(fields, [torch_peer(lambda: forward(x, weight), "y")])
    dy = torch.randn_like(x)
    fields = dict(dy=dy, x=x, weight=weight, rstd=rstd, dx=torch.empty_like(x),
                  dweight=torch.zeros_like(weight))
    return Problem(fields, [Peer("torch", gradients(forward, dict(x=x, weight=weight), dy))])


def layer_norm(words, backward, dtype):
    rows, cols = words.extents
    words.done()
    x, weight = torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)
    bias = torch.randn(cols, dtype=dtype)
    mean = x.float().mean(-1)
    rstd = ((x.float() - mean[:, None]).square().mean(-1) + EPS).rsqrt()

    def forward(x, weight, bias):
        return F.layer_norm(x, (cols,), weight, bias, EPS)

    if not backward:
        fields = dict(x=x, weight=weight, bias=bias, y=torch.empty_like(x), mean=mean, rstd=rstd,
                      eps=EPS)
        return Problem(fields, [torch_peer(lambda: forward(x, weight, bias), "y")])
    dy = torch.randn_like(x)
    fields = dict(dy=dy, x=x, weight=weight, mean=mean, rstd=rstd, dx=torch.empty_like(x),
                  dweight=torch.zeros_like(weight), dbias=torch.zeros_like(bias))
    inputs = dict(x=x, weight=weight, bias=bias)
    return Problem(fields, [Peer("torch", gradients(forward, inputs, dy))])


BUILDERS = dict(rms_norm=rms_norm, layer_norm=layer_norm)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "rms_norm_fwd": ["256x4096", "256x4096_gptoss"],  # Llama's policy rounds once more,
    "rms_norm_bwd": ["256x4096"],
    "layer_norm": ["256x4096"],
}
