"""An `Op` over rows: its inputs [..., cols] share their leading axes, and its results are shaped like the first input.

A call of plain dense tensors, which is what models make in eager mode, takes a way of its own through `_core.bind`: one
call from Python to the result. Whatever that does not take goes the general way of `Op`.
"""

import math

import torch
from torch.autograd import forward_ad

from . import _core
from .conventions import rows
from .op_function import Op, input_gradients, refuse_second, wanted_gradients
from .op_row import allocate_bytes

# Dynamo takes this for True, and never sees the call of C behind it.
tracing = torch.compiler.is_dynamo_compiling


def statistic(like, count):
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return torch.empty(count, dtype=dtype, device=like.device)


_core.use_torch(
    torch.Tensor, torch.nn.Parameter, torch.is_grad_enabled, torch._C._are_functorch_transforms_active,
    torch._C._len_torch_dispatch_stack, forward_ad, torch.Tensor.is_neg, torch.empty_like, statistic,
    lambda like, count: allocate_bytes(like.device, count), torch._C._increment_version,
)  # fmt: skip


class RowOp(Op):
    """`row_inputs`: how many of the inputs, the first ones, are [..., cols]."""

    def __init__(self, name, results, allocate, *, row_inputs=1, **more):
        super().__init__(name, results, allocate, **more)
        self.row_inputs = row_inputs
        self.quick = _core.bind(self.forward_row.index, tuple(results[: self.public]))
        if self.backward_row:
            self.define_quick(_core.bind(self.forward_row.index, tuple(results)))

    def define_quick(self, compute):
        op, name, num_inputs, public = self, self.name, self.num_inputs, self.public
        kept = [source for source in self.sources if source[0] in ("input", "output")]
        kept = [(kind == "output", index) for kind, index in kept] + [(False, index) for index in self.extra]
        users, paired, places = self.users, self.paired, tuple(self.places)

        class Quick(torch.autograd.Function):
            """As Op's Direct, on tensors of any rank."""

            @staticmethod
            def forward(ctx, *arguments):
                results = compute(None, *arguments)
                if results.__class__ is torch.Tensor:
                    results = (results,)
                ctx.save_for_backward(*[results[i] if made else arguments[i] for made, i in kept])
                ctx.scalars = arguments[num_inputs:]
                return results[0] if public == 1 else results[:public]

            @staticmethod
            def backward(ctx, *gradients):
                if torch.is_grad_enabled():
                    refuse_second(name)
                needs = ctx.needs_input_grad
                outs = op.gradients_by_rows(ctx.saved_tensors, gradients, ctx.scalars, wanted_gradients(users, paired, needs))
                return input_gradients(places, outs, gradients, needs)

        self.quick_direct = Quick.apply

    def gradients_by_rows(self, saved, gradients, scalars, wanted):
        tensors, used = [], 0
        for kind, index in self.sources:
            if kind == "gradient":
                tensors.append(gradients[index])
            elif kind == "absent":
                tensors.append(None)
            else:
                tensors.append(saved[used])
                used += 1
        outs = self.allocate_gradients(tensors + list(saved[used:]), wanted)
        chosen = [scalars[source] if isinstance(source, int) else source() for source in self.scalar_sources]
        row = self.backward_row
        flat = [by_rows(tensor, slot) for tensor, slot in zip(tensors, row.ins)]
        row.run(flat, [by_rows(tensor, slot) for tensor, slot in zip(outs, row.outs)], chosen)
        return outs

    def go_on(self, verdict, out, *arguments):
        """Where `quick` gave a verdict and no result. Every function of these ops begins with quick, as a call of its own
        costs a tenth of a microsecond in Python:

            y = tracing() or op.quick(out, *arguments)
            return y if type(y) is not bool else op.go_on(y, out, *arguments)
        """
        if verdict and self.backward_row and not tracing():
            return self.quick_direct(*arguments)
        return self.by_the_general_way(out, arguments)

    def by_the_general_way(self, out, arguments):
        by_name = [pair for pair in zip(self.inputs[: self.row_inputs], arguments) if pair[1] is not None]
        like = by_name[0][1]
        for argument, tensor in by_name[1:]:
            if tensor.shape[:-1] != like.shape[:-1]:
                raise ValueError(
                    f"{self.name}: {argument}: expected {[*like.shape[:-1], '...']}, got {list(tensor.shape)}"
                )
        flat = [None if tensor is None else rows(tensor) for tensor in arguments[: self.row_inputs]]
        flat += arguments[self.row_inputs :]
        if out is None:
            results = self(*flat)
            if like.dim() != 2:
                results = tuple(y.view(*like.shape[:-1], y.shape[-1]) for y in results)
            return results[0] if self.public == 1 else results
        if out.shape[:-1] != like.shape[:-1]:
            raise ValueError(f"{self.name}: out: expected {[*like.shape[:-1], '...']}, got {list(out.shape)}")
        # A view: rows() would copy where there is none.
        self.write(out if out.dim() == 2 else out.view(math.prod(out.shape[:-1]), out.shape[-1]), flat)
        return out


def by_rows(tensor, slot):
    return tensor if tensor is None or slot["ndim"] != 2 else rows(tensor)
