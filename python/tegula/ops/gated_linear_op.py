"""`tegula.ops`: gate and up of a feed-forward block with their activation.

The table has a forward alone. Its gradient is that of swiglu, then that of both linear layers."""

import torch
from torch.autograd import forward_ad

from ..autograd.conventions import ROUNDING, choose, empty, expect_tensor, rows
from ..autograd.op_function import Op, needs_gradient, refuse_second, transforms_active


def gated_outputs(x, gate_weight, up_weight, rounding, keep):
    y = empty((x.shape[0], gate_weight.shape[0]), x)
    return (y, empty(y.shape, y), empty(y.shape, y)) if keep else (y, None, None)


_linear_swiglu = Op("linear_swiglu", ["y", "gate", "up"], gated_outputs, public=3, more=["bool keep"])


def compute_gradients(dy, x, gate_weight, up_weight, gate, up, wanted):
    """Of x and both weights, as far as they are wanted."""
    kernels = torch.ops.tegula
    dgate, dup, _ = kernels.swiglu_bwd(dy, gate, up, None, 0, [True, True, False])
    layers = [(dgate, gate_weight, wanted[1]), (dup, up_weight, wanted[2])]
    results = [kernels.linear_bwd(dz, x, w, None, None, 0, False, [wanted[0], weighs, False]) for dz, w, weighs in layers]
    dx = results[0][0] + results[1][0] if wanted[0] else None
    return dx, *(result[1] if weighs else None for result, (_, _, weighs) in zip(results, layers))


class Gradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments):
        return compute_gradients(*arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *gradients):
        refuse_second("linear_swiglu")


class LinearSwiGLU(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, gate_weight, up_weight, rounding):
        return tuple(_linear_swiglu(x, gate_weight, up_weight, rounding, True))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:3], *output[1:])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx, dy, *gradients):
        compiling = torch.compiler.is_compiling()
        if not compiling and not transforms_active() and torch.is_grad_enabled():
            refuse_second("linear_swiglu")
        run = compute_gradients if compiling else Gradient.apply
        return *run(dy, *ctx.saved_tensors, ctx.needs_input_grad[:3]), None


def linear_swiglu(x: torch.Tensor, gate_weight: torch.Tensor, up_weight: torch.Tensor, *, rounding: str = "hf") -> torch.Tensor:
    """silu(x @ gate_weight.T) * (x @ up_weight.T); tegula/linear_swiglu.h. A gradient keeps x and both products."""
    number = choose("linear_swiglu", "rounding", ROUNDING, rounding)
    tensors = {"x": x, "gate_weight": gate_weight, "up_weight": up_weight}
    for name, tensor in tensors.items():
        expect_tensor("linear_swiglu", name, tensor)
    arguments = rows(x), gate_weight, up_weight, number
    wanted = torch.is_grad_enabled() and any(needs_gradient(tensor) for tensor in tensors.values())
    if wanted or not torch.compiler.is_compiling() and forward_ad._current_level >= 0:  # which raises
        y = LinearSwiGLU.apply(*arguments)[0]
    else:
        y = _linear_swiglu(*arguments, False)[0]
    return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[-1])
