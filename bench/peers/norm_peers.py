"""Peers of the normalisations."""

import torch
import torch.nn.functional as F

from peers.peer_problem import Formula, torch_problem
from tegula_bench import model_formulas

EPS = 1e-5


def llama_norm(x, weight):
    return model_formulas.llama_norm(x, weight, EPS)


def torch_norm(x, weight):
    return F.rms_norm(x, weight.shape, weight, EPS)


def rms_norm(words, backward, dtype):
    rows, cols = words.extents
    policy = "TG_RMS_NORM_GPT_OSS" if words.flag("gptoss") else "TG_RMS_NORM_LLAMA"
    words.done()
    x, weight = torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)
    rstd = (x.float().square().mean(-1) + EPS).rsqrt()
    formula = Formula(torch_norm, dict(x=x, weight=weight), ("y",), models_code=llama_norm)
    if not backward:
        fields = dict(x=x, weight=weight, y=torch.empty_like(x), rstd=rstd, eps=EPS, policy=policy)
        problem = torch_problem(fields, formula)
        if policy == "TG_RMS_NORM_LLAMA":
            problem.same_rounding = lambda: {"y": llama_norm(x, weight)}
        return problem
    dy = torch.randn_like(x)
    formula.incoming = (dy,)
    fields = dict(dy=dy, x=x, weight=weight, rstd=rstd, dx=torch.empty_like(x),
                  dweight=torch.zeros_like(weight))
    return torch_problem(fields, formula)


def torch_layer_norm(x, weight, bias):
    return F.layer_norm(x, weight.shape, weight, bias, EPS)


def layer_norm(words, backward, dtype):
    rows, cols = words.extents
    words.done()
    x, weight = torch.randn(rows, cols, dtype=dtype), torch.randn(cols, dtype=dtype)
    bias = torch.randn(cols, dtype=dtype)
    mean = x.float().mean(-1)
    rstd = ((x.float() - mean[:, None]).square().mean(-1) + EPS).rsqrt()
    formula = Formula(torch_layer_norm, dict(x=x, weight=weight, bias=bias), ("y",))
    if not backward:
        fields = dict(x=x, weight=weight, bias=bias, y=torch.empty_like(x), mean=mean, rstd=rstd,
                      eps=EPS)
        return torch_problem(fields, formula)
    dy = torch.randn_like(x)
    formula.incoming = (dy,)
    fields = dict(dy=dy, x=x, weight=weight, mean=mean, rstd=rstd, dx=torch.empty_like(x),
                  dweight=torch.zeros_like(weight), dbias=torch.zeros_like(bias))
    return torch_problem(fields, formula)


def torch_add_norm(x, weight, residual):
    total = residual + x
    return total, torch_norm(total, weight)


def llama_add_norm(x, weight, residual):
    y, total = model_formulas.llama_add_norm(x, residual, weight, EPS)
    return total, y


def add_rms_norm(words, backward, dtype):
    """PyTorch has no fused one: an addition, then F.rms_norm."""
    rows, cols = words.extents
    policy = "TG_RMS_NORM_GPT_OSS" if words.flag("gptoss") else "TG_RMS_NORM_LLAMA"
    words.done()
    x, residual = torch.randn(rows, cols, dtype=dtype), torch.randn(rows, cols, dtype=dtype)
    weight = torch.randn(cols, dtype=dtype)
    total = residual + x
    rstd = (total.float().square().mean(-1) + EPS).rsqrt()
    # The residual's gradient is x's.
    formula = Formula(torch_add_norm, dict(x=x, weight=weight), ("sum", "y"), fixed=(residual,),
                      models_code=llama_add_norm)
    if not backward:
        fields = dict(x=x, residual=residual, weight=weight, sum=torch.empty_like(x),
                      y=torch.empty_like(x), rstd=rstd, eps=EPS, policy=policy)
        problem = torch_problem(fields, formula)
        if policy == "TG_RMS_NORM_LLAMA":
            problem.same_rounding = lambda: {"sum": total, "y": llama_norm(total, weight)}
        return problem
    dy, dsum = torch.randn_like(x), torch.randn_like(x)
    formula.incoming = (dsum, dy)
    fields = dict(dy=dy, dsum=dsum, sum=total, weight=weight, rstd=rstd, dx=torch.empty_like(x),
                  dweight=torch.zeros_like(weight))
    return torch_problem(fields, formula)


def torch_norm_swiglu(x, gate, weight):
    return torch_norm(x, weight) * F.silu(gate)


def llama_norm_swiglu(x, gate, weight):
    return llama_norm(x, weight) * F.silu(gate)


def next_norm_swiglu(x, gate, weight):
    """Rounds as transformers' Qwen3NextRMSNormGated: the activation stays in f32."""
    return (llama_norm(x, weight).float() * F.silu(gate.float())).to(x.dtype)


def rms_norm_swiglu(words, backward, dtype):
    """F.rms_norm times F.silu: PyTorch rounds after each, the class of transformers does not."""
    rows, cols = words.extents
    rounding = "TG_ROUNDING_ONCE" if words.flag("once") else "TG_ROUNDING_HF"
    words.done()
    x, gate = torch.randn(rows, cols, dtype=dtype), torch.randn(rows, cols, dtype=dtype)
    weight = torch.randn(cols, dtype=dtype)
    rstd = (x.float().square().mean(-1) + EPS).rsqrt()
    formula = Formula(torch_norm_swiglu, dict(x=x, gate=gate, weight=weight), ("y",),
                      models_code=llama_norm_swiglu)
    if not backward:
        fields = dict(x=x, gate=gate, weight=weight, y=torch.empty_like(x), rstd=rstd, eps=EPS,
                      rounding=rounding)
        problem = torch_problem(fields, formula)
        if rounding == "TG_ROUNDING_HF":
            problem.same_rounding = lambda: {"y": next_norm_swiglu(x, gate, weight)}
        return problem
    dy = torch.randn_like(x)
    formula.incoming = (dy,)
    fields = dict(dy=dy, x=x, gate=gate, weight=weight, rstd=rstd, dx=torch.empty_like(x),
                  dgate=torch.empty_like(x), dweight=torch.zeros_like(weight))
    return torch_problem(fields, formula)


BUILDERS = dict(rms_norm=rms_norm, layer_norm=layer_norm, add_rms_norm=add_rms_norm,
                rms_norm_swiglu=rms_norm_swiglu)

# Small enough for the reference, wide enough for long sums. By row, else by op.
ACCURACY = {
    "rms_norm_fwd": ["256x4096", "256x4096_gptoss"],
    "rms_norm_bwd": ["256x4096"],
    "layer_norm": ["256x4096"],
    "add_rms_norm_fwd": ["256x4096", "256x4096_gptoss"],
    "add_rms_norm_bwd": ["256x4096"],
    "rms_norm_swiglu_fwd": ["256x4096", "256x4096_once"],
    "rms_norm_swiglu_bwd": ["256x4096"],
}
