"""An `Op` over rows: its inputs [..., cols] share their leading axes, and its results have the first input's shape.

Calls with plain dense tensors, as models make them in eager mode, take a fast path: one call of C (`_core.bind`) checks
the arguments, allocates the result and runs the op. Unsupported calls return a bool without side effects and fall back
to the general path of `Op`. The functions of `tegula.ops` call both:

    y = tracing() or op.quick(out, *arguments)
    return y if type(y) is not bool else op.general(out, *arguments)
"""

import itertools
import math

import torch
from torch.autograd import forward_ad

from .. import _core
from .conventions import expect_leading, expect_tensor, one_dtype, rows, widened
from .op_function import Op, backward_tensors, input_gradients, refuse_second, wanted_gradients
from .table_entry import allocate_bytes, bare_apply, scalar_values

# Dynamo evaluates this to True and never sees the call of C behind it.
tracing = torch.compiler.is_dynamo_compiling


# Inductor's allocation functions bypass the dispatcher; they allocate on the current device only.
EMPTY = {"cpu": torch._C._dynamo.guards._empty_strided_cpu, "cuda": torch._C._dynamo.guards._empty_strided_cuda}
_core.use_torch(
    torch.Tensor, torch.nn.Parameter, torch.is_grad_enabled, torch._C._are_functorch_transforms_active,
    torch._C._len_torch_dispatch_stack, vars(forward_ad), torch.Tensor.is_neg, EMPTY["cpu"], EMPTY["cuda"],
    lambda beside, sizes, dtype: beside.new_empty(sizes, dtype=dtype), torch.zeros_like,
    lambda beside, count: allocate_bytes(beside.device, count), torch._C._increment_version,
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
)  # fmt: skip


class RowwiseOp(Op):
    """`row_inputs`: the number of inputs, the first ones, that are [..., cols]."""

    def __init__(self, name, results, allocate, *, row_inputs=1, **more):
        super().__init__(name, results, allocate, **more)
        self.row_inputs = row_inputs
        public_names = tuple(results[: self.public])
        if self.backward_entry:
            self.quick = _core.bind(self.forward_entry.index, public_names, self.define_quick(tuple(results)))
        else:
            self.quick = _core.bind(self.forward_entry.index, public_names)

    def bind_backward(self):
        saved = itertools.count()
        numbers = {"gradient": lambda index: -1 - index, "absent": lambda index: None}
        tensors = [numbers[kind](index) if kind in numbers else next(saved) for kind, index in self.sources]
        tensors += [next(saved) for _ in self.extra]
        together = tuple(index for inputs in self.users for index in inputs)
        users = tuple(together if self.paired else tuple(inputs) for inputs in self.users)
        numbers = {"computed": lambda index: index, "passed": lambda index: -1 - index, "none": lambda index: None}
        places = [numbers[kind](index) for kind, index in self.places[: self.num_inputs]]
        return _core.bind_backward(
            self.backward_entry.index, tuple(tensors), tuple(self.shapes), tuple(self.scalar_sources), users, tuple(places)
        )

    def define_quick(self, results):
        op, name, differentiate = self, self.name, self.bind_backward()
        kept = [index if kind == "input" else -1 - index for kind, index in self.sources if kind in ("input", "output")]
        users, paired, places = self.users, self.paired, self.places[: self.num_inputs]
        keeps_scalars = any(isinstance(source, int) for source in self.scalar_sources)

        class Quick(torch.autograd.Function):
            """As Direct of `Op`, for tensors of any rank. `quick` applies it to the inputs alone; its forward finds the
            other arguments, already parsed, in C."""

            forward = _core.bind_forward(
                self.forward_entry.index, results, self.public, (*kept, *self.extra), keeps_scalars
            )

            @staticmethod
            def backward(ctx, *gradients):
                if torch.is_grad_enabled():
                    refuse_second(name)
                needs, saved = ctx.needs_input_grad, ctx.saved_tensors
                scalars = ctx.scalars if keeps_scalars else ()
                found = differentiate(needs, scalars, saved, gradients)
                if found is not False:
                    return found
                tensors = backward_tensors(op.sources, saved, gradients)
                outs = op.compute_gradients(tensors, scalars, wanted_gradients(users, paired, needs))
                return input_gradients(places, outs, gradients, needs)

        return bare_apply(Quick)

    def compute_gradients(self, tensors, scalars, wanted):
        outs = self.allocate_gradients(tensors, wanted)
        values = scalar_values(self.scalar_sources, scalars)
        self.backward_entry.run_by_rows(tensors[: len(self.sources)], outs, values)
        return outs

    def expect_rows(self, out, arguments):
        """The first tensor of rows. All of them, and `out`, must have its leading axes."""
        by_name = [pair for pair in zip(self.inputs[: self.row_inputs], arguments) if pair[1] is not None]
        (first, like), others = by_name[0], by_name[1:]
        if like.dim() == 0:
            raise ValueError(f"{self.name}: {first}: expected [..., cols], got []")
        for argument, tensor in others + ([] if out is None else [("out", expect_tensor(self.name, "out", out))]):
            expect_leading(self.name, argument, tensor, like)
        return like

    def general(self, out, *arguments):
        """The general path: flattens leading axes to rows and restores them. Rows of several dtypes are promoted as PyTorch
        promotes them, and narrower weights are widened."""
        if not torch.compiler.is_compiling():
            self.expect_inputs(arguments)
        like = self.expect_rows(out, arguments)
        rowwise = one_dtype(*arguments[: self.row_inputs])
        weights = arguments[self.row_inputs : self.num_inputs]
        beside = next(tensor for tensor in rowwise if tensor is not None)
        flat = [None if tensor is None else rows(tensor) for tensor in rowwise]
        flat += [widened(weight, beside) for weight in weights]
        flat += arguments[self.num_inputs :]
        if out is None:
            results = self(*flat)
            if like.dim() != 2:
                results = tuple(y.view(*like.shape[:-1], y.shape[-1]) for y in results)
            return results[0] if self.public == 1 else results
        # A view, so that the op writes to `out`: rows() could copy.
        flat_out = out if out.dim() == 2 else out.view(math.prod(out.shape[:-1]), out.shape[-1])
        self.write("out", (flat_out,), flat)
        return out
