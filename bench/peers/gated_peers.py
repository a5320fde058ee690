"""Peers of SiLU and of the gated activations, in the steps of the models' own code."""

import torch
import torch.nn.functional as F

from peers.peer_problem import Formula, torch_problem
from tegula_bench import model_formulas

ALPHA, LIMIT = 1.702, 7.0


def silu(words, backward, dtype):
    words.done()
    x = torch.randn(words.extents, dtype=dtype)
    formula = Formula(F.silu, dict(x=x), ("y",))
    if not backward:
        return torch_problem(dict(x=x, y=torch.empty_like(x)), formula)
    dy = torch.randn_like(x)
    formula.incoming = (dy,)
    return torch_problem(dict(dy=dy, x=x, dx=torch.empty_like(x)), formula)


def clamped_formula(gate, up):
    gate, up = gate.clamp(max=LIMIT), up.clamp(min=-LIMIT, max=LIMIT)
    return (up + 1) * (gate * torch.sigmoid(gate * ALPHA))


def gated(words, backward, dtype, activation, scalars):
    halves, interleaved = words.flag("halves"), words.flag("interleaved")
    once = words.flag("once")
    words.done()
    rows, cols = words.extents
    if halves or interleaved:
        inputs = dict(gate_up=torch.randn(rows, 2 * cols, dtype=dtype))
        packing = dict(packing="TG_GATE_UP_HALVES" if halves else "TG_GATE_UP_INTERLEAVED")
    else:
        inputs = dict(gate=torch.randn(rows, cols, dtype=dtype),
                      up=torch.randn(rows, cols, dtype=dtype))
        packing = {}

    def forward(*tensors):
        if halves:
            tensors = tensors[0].chunk(2, dim=-1)
        elif interleaved:
            tensors = tensors[0][..., ::2], tensors[0][..., 1::2]
        return activation(*tensors)

    formula = Formula(forward, inputs, ("y",))
    y = torch.empty(rows, cols, dtype=dtype)
    if not backward:
        rounding = "TG_ROUNDING_ONCE" if once else "TG_ROUNDING_HF"
        fields = dict(**inputs, y=y, **packing, **scalars, rounding=rounding)
        return torch_problem(fields, formula)
    dy = torch.randn_like(y)
    formula.incoming = (dy,)
    outputs = {"d" + name: torch.empty_like(t) for name, t in inputs.items()}
    fields = dict(dy=dy, **inputs, **outputs, **packing, **scalars)
    return torch_problem(fields, formula)


def swiglu(words, backward, dtype):
    return gated(words, backward, dtype, model_formulas.swiglu, {})


def geglu(words, backward, dtype):
    exact = words.flag("erf")
    approximation = "TG_GELU_ERF" if exact else "TG_GELU_TANH"

    def formula(gate, up):
        return model_formulas.geglu(gate, up, "none" if exact else "tanh")

    return gated(words, backward, dtype, formula, dict(approximation=approximation))


def swiglu_clamped(words, backward, dtype):
    return gated(words, backward, dtype, clamped_formula, dict(alpha=ALPHA, limit=LIMIT))


BUILDERS = dict(silu=silu, swiglu=swiglu, geglu=geglu, swiglu_clamped=swiglu_clamped)

# Both policies of the forwards; the backwards know none.
ACCURACY = {
    "silu": ["256x4096"],
    "swiglu_fwd": ["256x4096", "256x4096_once"],
    "swiglu_bwd": ["256x4096", "256x4096_interleaved"],
    "geglu_fwd": ["256x4096", "256x4096_erf", "256x4096_once"],
    "geglu_bwd": ["256x4096", "256x4096_erf"],
    "swiglu_clamped_fwd": ["256x4096", "256x4096_interleaved_once"],
    "swiglu_clamped_bwd": ["256x4096_interleaved"],
}
