"""Losses whose gradients are made in the forward.

A loss of one number is nearly always the root of the backward, so its gradients follow up to a factor before anybody
asks: the op's fwdbwd row makes both in one pass over the logits. The backward multiplies by the factor, if it is not 1.
Not so in f16, whose gradients are scaled against underflow, by a factor that has to be in before they are rounded.
"""

import torch

from .conventions import rows
from .dispatcher import absent_filled, declare, implement, listed
from .op_function import Op, refuse_second
from .table_entry import CHOSEN, Row, bare_apply


def factor_of(dloss):
    """A number where the host may know it. On a GPU that takes a wait, which a capture must not have: then a tensor."""
    return dloss if dloss.is_cuda and torch.cuda.is_current_stream_capturing() else dloss.item()


def scaled(gradient, factor):
    """Multiplied in f32, and rounded once more. A new tensor: a second backward starts from the old one."""
    if not isinstance(factor, torch.Tensor) or gradient.dtype in (torch.float32, torch.float64):
        return gradient * factor
    return (gradient.float() * factor).to(gradient.dtype)


def flattened(tensor, slot):
    return tensor if tensor is None or slot["ndim"] != 2 else rows(tensor)


class LossOp(Op):
    """An `Op` with a row fwdbwd. Through it go losses of one number of which a gradient is asked for. The first input
    may have any rank: were its gradient a view of the tensor that is kept, autograd would hand out the kept memory."""

    def __init__(self, name, *arguments, **more):
        self.both_row = Row(f"{name}_fwdbwd")
        super().__init__(name, *arguments, **more)
        names = [slot["name"] for slot in self.forward_row.scalars]
        self.reduction = self.num_inputs + names.index("reduction")
        self.per_row = 1  # TG_REDUCTION_NONE
        self.both_scalars = [
            names.index(slot["name"]) if slot["name"] in names else CHOSEN[slot["name"]] for slot in self.both_row.scalars
        ]
        self.define_both()

    def allocate_both(self, arguments, wanted):
        results = dict(zip(self.results, self.allocate(*arguments)))
        for target, slot, asked in zip(self.targets, self.backward_row.outs, wanted):
            like = arguments[target]
            results[slot["name"]] = like.new_empty(like.shape) if asked and like is not None else None
        return results

    def compute_both(self, arguments, wanted):
        """The loss, and the gradients that are wanted."""
        results = self.allocate_both(arguments, wanted)
        tensors = dict(zip(self.inputs, arguments))
        ins = [flattened(tensors.get(slot["name"]), slot) for slot in self.both_row.ins]  # without dloss: it is 1
        outs = [flattened(results.get(slot["name"]), slot) for slot in self.both_row.outs]
        scalars = arguments[self.num_inputs :]
        chosen = [scalars[source] if isinstance(source, int) else source() for source in self.both_scalars]
        self.both_row.run(ins, outs, chosen)
        return self.returned(results)

    def returned(self, results):
        return [results[self.results[0]]] + [results[slot["name"]] for slot in self.backward_row.outs]

    def define_both(self):
        ins = [(slot["name"], slot["optional"]) for slot in self.forward_row.ins]
        declare(self.both_row.name, ins, self.forward_row.scalars, ["bool[] wanted"], 1 + len(self.targets))
        both = implement(
            self.both_row.name,
            lambda *arguments: absent_filled(self.compute_both(arguments[:-1], arguments[-1]), arguments[0]),
            lambda *arguments: absent_filled(self.returned(self.allocate_both(arguments[:-1], arguments[-1])), arguments[0]),
        )
        op, name, targets, count = self, self.name, tuple(self.targets), self.num_arguments + 1

        def by_argument(gradients):
            found = [None] * count
            for target, gradient in zip(targets, gradients):
                found[target] = gradient
            return tuple(found)

        class ThroughDispatcher(torch.autograd.Function):
            @staticmethod
            def forward(*arguments):
                return listed(both(*arguments))

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*output[1:])
                ctx.mark_non_differentiable(*output[1:])
                ctx.wanted = inputs[-1]

            @staticmethod
            def backward(ctx, *factors):
                multiply = scaled if torch.compiler.is_compiling() else Scaled.apply
                factor = factors[0].view(())
                made = [multiply(g, factor) if asked else None for g, asked in zip(ctx.saved_tensors, ctx.wanted)]
                return by_argument(made)

        class Scaled(torch.autograd.Function):
            @staticmethod
            def forward(gradient, factor):
                return scaled(gradient, factor)

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, *gradients):
                refuse_second(name)

        class Direct(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *arguments):
                loss, *gradients = op.compute_both(arguments[:-1], arguments[-1])
                ctx.save_for_backward(*gradients)
                return loss

            @staticmethod
            def backward(ctx, dloss):
                if torch.is_grad_enabled():
                    refuse_second(name)
                factor = factor_of(dloss.view(()))
                if isinstance(factor, float) and factor == 1:
                    return by_argument(ctx.saved_tensors)
                return by_argument([g if g is None else scaled(g, factor) for g in ctx.saved_tensors])

        self.both_through_dispatcher = ThroughDispatcher.apply
        self.both_direct = bare_apply(Direct)

    def __call__(self, *arguments):
        first, *others = arguments
        wanted = [arguments[target] is not None and arguments[target].requires_grad for target in self.targets]
        late = any(asked and arguments[target].dtype == torch.float16 for target, asked in zip(self.targets, wanted))
        if late or arguments[self.reduction] == self.per_row or not self.requires_gradient(arguments):
            return super().__call__(rows(first), *others)
        if torch.compiler.is_compiling() or not self.is_plain(arguments[: self.num_inputs]):
            return self.both_through_dispatcher(rows(first), *others, wanted)[:1]
        return (self.both_direct(*arguments, wanted),)
