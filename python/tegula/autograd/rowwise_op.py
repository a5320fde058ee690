"""An `Op` over rows: its inputs [..., cols] share their leading axes, and its results are shaped like the first input.

A call of plain dense tensors, which is what models make in eager mode, takes a way of its own through `_core.bind`: one
call from Python to the result. Whatever that does not take goes the general way of `Op`.
"""

import inspect
import itertools
import math

import torch
from torch.autograd import forward_ad

from .. import _core
from .conventions import rows
from .op_function import Op, input_gradients, refuse_second, wanted_gradients
from .table_entry import allocate_bytes, bare_apply

# Dynamo takes this for True, and never sees the call of C behind it.
tracing = torch.compiler.is_dynamo_compiling


# Inductor's own ways to memory, past the dispatcher; they know the current device alone.
EMPTY = {"cpu": torch._C._dynamo.guards._empty_strided_cpu, "cuda": torch._C._dynamo.guards._empty_strided_cuda}
_core.use_torch(
    torch.Tensor, torch.nn.Parameter, torch.is_grad_enabled, torch._C._are_functorch_transforms_active,
    torch._C._len_torch_dispatch_stack, vars(forward_ad), torch.Tensor.is_neg, EMPTY["cpu"], EMPTY["cuda"],
    lambda beside, sizes, dtype: beside.new_empty(sizes, dtype=dtype), torch.zeros_like,
    lambda beside, count: allocate_bytes(beside.device, count), torch._C._increment_version,
    torch.float32, torch.float64, torch.float16, torch.bfloat16,
)  # fmt: skip
FUNCTION_TYPE = _core.function_type(type(torch.autograd.Function))
# What apply asks a Function for; some of it in newer versions of PyTorch alone.
ASKED_FOR = ("_backward_cls", "clear_saved_tensors_on_access", "boxed_grads_call", "setup_context", "forward")


class RowOp(Op):
    """`row_inputs`: how many of the inputs, the first ones, are [..., cols]."""

    def __init__(self, name, results, allocate, *, row_inputs=1, **more):
        super().__init__(name, results, allocate, **more)
        self.row_inputs = row_inputs
        public_names = tuple(results[: self.public])
        if self.backward_row:
            self.quick = _core.bind(self.forward_row.index, public_names, self.define_quick(tuple(results)))
        else:
            self.quick = _core.bind(self.forward_row.index, public_names)

    def begins_in_c(self, renamed=(), values=(), needed=(), **choices):
        """Makes a decorator: from Python 3.12 on calls of the function begin in C, with `quick`, and go on with the function
        where that gives no result. It is to say the same: its parameters are `quick`'s arguments by name, or as `renamed`
        says, `choices` those for which a dict has what stands for them; `values` are arguments that are no parameters, and
        `needed` parameters for whose None there is another way."""
        arguments = ["out", *self.inputs, *(slot["name"] for slot in self.forward_row.scalars)]

        def decorate(function):
            given, parameters = {"out": None, **dict(values)}, []
            signature = inspect.signature(function).parameters.values()
            for p in signature:
                name, chosen = dict(renamed).get(p.name, p.name), choices.get(p.name)
                place = None if name in dict(values) else arguments.index(name)
                parameters.append((p.name, place, chosen, p.name in needed))
                if not (place is None or p.name in needed or p.default is p.empty):
                    given[name] = chosen[p.default] if chosen else p.default
            positional = sum(p.kind is not p.KEYWORD_ONLY for p in signature)
            defaults = tuple(given.get(name, ...) for name in arguments)
            _core.begin_in_c(function, self.quick, positional, tuple(parameters), defaults)
            return function

        return decorate

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
            self.backward_row.index, tuple(tensors), tuple(self.shapes), tuple(self.scalar_sources), users, tuple(places)
        )

    def define_quick(self, results):
        op, name, differentiate = self, self.name, self.bind_backward()
        kept = [index if kind == "input" else -1 - index for kind, index in self.sources if kind in ("input", "output")]
        users, paired, places = self.users, self.paired, self.places[: self.num_inputs]
        keeps_scalars = any(isinstance(source, int) for source in self.scalar_sources)

        class Quick(torch.autograd.Function, metaclass=FUNCTION_TYPE):
            """As Op's Direct, on tensors of any rank. Its arguments are the inputs alone: the rest is what `quick` has
            read, within whose call it is applied."""

            forward = _core.bind_forward(
                self.forward_row.index, results, self.public, (*kept, *self.extra), keeps_scalars
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
                outs = op.gradients_by_rows(saved, gradients, scalars, wanted_gradients(users, paired, needs))
                return input_gradients(places, outs, gradients, needs)

        _core.keep_attributes(Quick, tuple(name for name in ASKED_FOR if hasattr(Quick, name)))
        return bare_apply(Quick)

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

    def go_on(self, out, *arguments):
        """Where `quick` gave no result. Every function of these ops begins with quick, as a call of its own costs a
        tenth of a microsecond in Python:

            y = tracing() or op.quick(out, *arguments)
            return y if type(y) is not bool else op.go_on(out, *arguments)
        """
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
