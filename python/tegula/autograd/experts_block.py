"""The experts of a mixture as one function of PyTorch with a gradient: from routed tokens to their weighted sums.

Row r is token t at its expert e, in the order of `moe_plan`; s[r] is its score.

    h[r] = x[t] gate_up[e] + gate_up_bias[e]      a[r] = gate(h[r])      y[r] = a[r] down[e] + down_bias[e]
    out[t] = sum over the rows r of t: s[r] y[r]

The backward keeps x, the scores, the plan and h beside the parameters, and computes a again:

    q[r] = dout[t] down[e]^T      ds[r] = <q[r], a[r]> + <dout[t], down_bias[e]>      dh[r] = gate'(h[r]) (s[r] q[r])
    ddown[e] = sum a[r]^T (s[r] dout[t])          ddown_bias[e] = sum s[r] dout[t]
    dgate_up[e] = sum x[t]^T dh[r]                dgate_up_bias[e] = sum dh[r]
    dx[t] = sum over the rows of t: dh[r] gate_up[e]^T

That y is not kept is from Guo et al. 2025, arXiv:2512.14080, section 3."""

import torch

from .conventions import PACKING, ROUNDING, empty, statistic, widened
from .dispatcher import absent_filled, declare, implement, listed
from .op_function import refuse_second
from .table_entry import TableEntry

INS = (
    ("x", False), ("scores", False), ("indices", False), ("offsets", False), ("slot", False), ("row", False),
    ("gate_up", False), ("gate_up_bias", True), ("down", False), ("down_bias", True),
)  # fmt: skip
DIFFERENTIABLE = (0, 1, 6, 7, 8, 9)
# alpha 0: the gate is that of `swiglu`, else that of `swiglu_clamped`.
SCALARS = (("alpha", "f64"), ("limit", "f64"), ("packing", "enum"), ("in_first", "bool"))
HF, ONCE = ROUNDING["hf"], ROUNDING["once"]

PRODUCT, PRODUCT_BACKWARD = TableEntry("grouped_linear_fwd"), TableEntry("grouped_linear_bwd")
SUM, SUM_BACKWARD = TableEntry("moe_combine_fwd"), TableEntry("moe_combine_bwd")
GATES = {
    False: (TableEntry("swiglu_fwd"), TableEntry("swiglu_bwd")),
    True: (TableEntry("swiglu_clamped_fwd"), TableEntry("swiglu_clamped_bwd")),
}


# ---- forward ----


def width(weight, in_first):
    """The outputs of an expert's linear layer."""
    return weight.shape[2 if in_first else 1]


def allocated(x, scores, indices, offsets, slot, row, gate_up, gate_up_bias, down, down_bias, alpha, limit, packing, in_first):
    """(out, h)."""
    return empty((x.shape[0], width(down, in_first)), x), empty((slot.shape[0], width(gate_up, in_first)), x)


def gated(h, alpha, limit, packing):
    a = empty((h.shape[0], h.shape[1] // 2), h)
    more = dict(alpha=alpha, limit=limit) if alpha else {}
    GATES[bool(alpha)][0].run_named(gate_up=h, y=a, packing=packing, rounding=HF, **more)
    return a


def compute(*arguments):
    """(out, h)."""
    out, h = allocated(*arguments)
    x, scores, indices, offsets, slot, row, gate_up, gate_up_bias, down, down_bias, alpha, limit, packing, in_first = arguments
    PRODUCT.run_named(
        x=x, weight=gate_up, bias=gate_up_bias, offsets=offsets, slot=slot, y=h, slots_per_row=indices.shape[1], in_first=in_first
    )
    a = gated(h, alpha, limit, packing)
    y = empty((h.shape[0], out.shape[1]), x)
    PRODUCT.run_named(x=a, weight=down, bias=down_bias, offsets=offsets, y=y, in_first=in_first)
    # transformers rounds the product with a score to the dtype that both have together.
    SUM.run_named(row=row, weights=scores, y=y, out=out, rounding=HF if scores.dtype == x.dtype else ONCE)
    return out, h


# ---- backward ----


def allocated_gradients(arguments, wanted):
    return [empty(arguments[place].shape, arguments[place]) if asked else None for place, asked in zip(DIFFERENTIABLE, wanted)]


def spread(dout, weights, row, slot):
    """Each row's share of dout, [rows, hidden]."""
    dy = empty((slot.shape[0], dout.shape[1]), dout)
    SUM_BACKWARD.run_named(dout=dout, row=row, slot=slot, weights=weights, dy=dy)
    return dy


def scaled(q, s, a=None):
    """(s * q, <q, a> of each row in f32), for rows of one token each; without a, None in the place of the latter."""
    each = torch.arange(len(q), dtype=torch.int32, device=q.device)
    da = torch.empty_like(q)
    products = None if a is None else statistic((len(q), 1), q)
    SUM_BACKWARD.run_named(dout=q, row=each[:, None], slot=each, weights=s[:, None], y=a, dy=da, dweights=products)
    return da, products


def bias_products(dout, indices, bias):
    """<dout[t], bias[e]> in f32, [tokens, k]; 0 for dropped slots. The biases are the rows that are added up."""
    expert = torch.where(indices < len(bias), indices, -1).to(torch.int32)
    products = statistic(indices.shape, dout)
    SUM_BACKWARD.run_named(dout=dout, row=expert, weights=torch.ones_like(products), y=bias, dweights=products)
    return products


def by_slot(values, slot, shape):
    """One value of each row, in the order of the slots."""
    return torch.empty_like(values).view(-1).index_copy_(0, slot.long(), values.view(-1)).view(shape)


def compute_gradients(dout, h, arguments, wanted):
    x, scores, indices, offsets, slot, row, gate_up, gate_up_bias, down, down_bias, alpha, limit, packing, in_first = arguments
    outs = allocated_gradients(arguments, wanted)
    dx, dscores, dgate_up, dgate_up_bias, ddown, ddown_bias = outs
    first = any(out is not None for out in (dx, dgate_up, dgate_up_bias))
    a = None
    if dscores is not None or ddown is not None:
        a = gated(h, alpha, limit, packing)
    if ddown is not None or ddown_bias is not None:
        # Without ddown no row of a is read, and h has its shape.
        rows = h[:, : h.shape[1] // 2] if a is None else a
        dy = spread(dout, scores, row, slot)
        PRODUCT_BACKWARD.run_named(
            dy=dy, x=rows, weight=down, offsets=offsets, dweight=ddown, dbias=ddown_bias, in_first=in_first, overwrite=True
        )
        del dy, rows
    if not first and dscores is None:
        return outs
    dy = spread(dout, None, row, slot)
    q = empty((h.shape[0], h.shape[1] // 2), h)
    PRODUCT_BACKWARD.run_named(dy=dy, x=h[:, : q.shape[1]], weight=down, offsets=offsets, dx=q, in_first=in_first)
    del dy
    s = scores.reshape(-1).index_select(0, slot.long()).to(statistic((0,), h).dtype)
    da, products = scaled(q, s, None if dscores is None else a)
    del q, a
    if dscores is not None:
        total = by_slot(products, slot, scores.shape)
        dscores.copy_(total if down_bias is None else total + bias_products(dout, indices, down_bias))
    if not first:
        return outs
    dh = torch.empty_like(h)
    more = dict(alpha=alpha, limit=limit) if alpha else {}
    GATES[bool(alpha)][1].run_named(dy=da, gate_up=h, dgate_up=dh, packing=packing, **more)
    del da
    by_row = None if dx is None else empty((h.shape[0], x.shape[1]), x)
    PRODUCT_BACKWARD.run_named(
        dy=dh, x=x, weight=gate_up, offsets=offsets, slot=slot, dx=by_row, dweight=dgate_up, dbias=dgate_up_bias,
        slots_per_row=indices.shape[1], in_first=in_first, overwrite=True,
    )  # fmt: skip
    if dx is not None:
        SUM.run_named(row=row, y=by_row, out=dx, rounding=ONCE)
    return outs


# ---- operators and function ----


def define():
    ins = list(INS)
    scalars = [dict(name=name, kind=kind) for name, kind in SCALARS]
    declare("experts_fwd", ins, scalars, [], 2)
    forward = implement("experts_fwd", compute, allocated)
    declare("experts_bwd", [("dout", False), ("preactivation", False), *ins], scalars, ["bool[] wanted"], len(DIFFERENTIABLE))

    def values(dout, h, *rest):
        return absent_filled(compute_gradients(dout, h, rest[:-1], rest[-1]), h)

    def shapes(dout, h, *rest):
        return absent_filled(allocated_gradients(rest[:-1], rest[-1]), h)

    return forward, implement("experts_bwd", values, shapes)


FORWARD, BACKWARD = define()


class Gradient(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments):
        return tuple(BACKWARD(*arguments))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, *gradients):
        refuse_second("experts")


class Experts(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(*arguments):
        return tuple(FORWARD(*arguments))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(output[1], *inputs[: len(INS)])
        ctx.scalars = inputs[len(INS) :]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, dout, _):
        h, *tensors = ctx.saved_tensors
        needs = ctx.needs_input_grad
        wanted = [needs[place] for place in DIFFERENTIABLE]
        run = BACKWARD if torch.compiler.is_compiling() else Gradient.apply
        found = listed(run(dout, h, *tensors, *ctx.scalars, wanted))
        gradients = [None] * (len(INS) + len(SCALARS))
        for place, asked, gradient in zip(DIFFERENTIABLE, wanted, found):
            gradients[place] = gradient if asked else None
        return tuple(gradients)


def experts_block(
    x, scores, indices, plan, gate_up, gate_up_bias, down, down_bias, *, alpha=0.0, limit=0.0, packing="halves", in_first=False,
):  # fmt: skip
    """out [tokens, hidden] of x [tokens, hidden] with scores and indices [tokens, k]; `plan` is `ops.moe_plan` of indices.
    gate_up is [experts, 2 * inter, hidden], or [experts, hidden, 2 * inter] if in_first; down the other way round. alpha
    0: silu(gate) * up, else `ops.swiglu_clamped`."""
    arguments = (x, widened(scores, x), indices, *plan, gate_up, gate_up_bias, down, down_bias)
    arguments += (alpha, limit, PACKING[packing], in_first)
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in arguments[: len(INS)]):
        return Experts.apply(*arguments)[0]
    return FORWARD(*arguments)[0]
