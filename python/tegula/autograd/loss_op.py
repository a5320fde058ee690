"""Losses that compute their gradients in the forward.

A scalar loss is nearly always the root of the backward, so its gradients are known up to a factor. The table entry
`<op>_fwdbwd` computes loss and gradients in one pass over the logits. The backward multiplies by the incoming gradient
unless it is 1. f16 is excepted: its gradients are scaled against underflow, and the scale must be applied before they
are rounded.
"""

import torch

from .conventions import rows
from .dispatcher import absent_filled, declare, implement, listed
from .op_function import Op, needs_gradient, refuse_second
from .table_entry import CHOSEN, TableEntry, bare_apply, scalar_values


def factor_of(dloss):
    """The factor as a number. Reading it waits for the GPU, which a graph capture forbids: there it stays a tensor."""
    return dloss if dloss.is_cuda and torch.cuda.is_current_stream_capturing() else dloss.item()


def scaled(gradient, factor):
    """gradient * factor in f32, rounded once more. A new tensor: a second backward needs the old one."""
    if not isinstance(factor, torch.Tensor) or gradient.dtype in (torch.float32, torch.float64):
        return gradient * factor
    return (gradient.float() * factor).to(gradient.dtype)


class LossOp(Op):
    """An `Op` with an entry `fwdbwd`, which serves scalar losses that need a gradient. The first input may have any rank:
    if its gradient were a view of the saved tensor, autograd would hand out the saved memory."""

    def __init__(self, name, *arguments, **more):
        self.both_entry = TableEntry(f"{name}_fwdbwd")
        super().__init__(name, *arguments, **more)
        names = [slot["name"] for slot in self.forward_entry.scalars]
        self.reduction = self.num_inputs + names.index("reduction")
        self.per_row = 1  # TG_REDUCTION_NONE
        self.both_scalars = [
            names.index(slot["name"]) if slot["name"] in names else CHOSEN[slot["name"]] for slot in self.both_entry.scalars
        ]
        self.define_both()

    def allocate_both(self, arguments, wanted):
        results = dict(zip(self.results, self.allocated(arguments)))
        for target, slot, asked in zip(self.targets, self.backward_entry.outs, wanted):
            like = arguments[target]
            results[slot["name"]] = like.new_empty(like.shape) if asked and like is not None else None
        return results

    def compute_both(self, arguments, wanted):
        """The loss and the wanted gradients."""
        results = self.allocate_both(arguments, wanted)
        tensors = {**dict(zip(self.inputs, arguments)), **results}
        for name in (self.inputs[0], f"d{self.inputs[0]}"):  # the others have the ranks of the contract
            tensors[name] = None if tensors[name] is None else rows(tensors[name])
        ins = [tensors.get(slot["name"]) for slot in self.both_entry.ins]  # without dloss, which is 1
        outs = [tensors.get(slot["name"]) for slot in self.both_entry.outs]
        self.both_entry.run(ins, outs, scalar_values(self.both_scalars, arguments[self.num_inputs :]))
        return self.returned(results)

    def returned(self, results):
        return [results[self.results[0]]] + [results[slot["name"]] for slot in self.backward_entry.outs]

    def define_both(self):
        ins = [(slot["name"], slot["optional"]) for slot in self.forward_entry.ins]
        declare(self.both_entry.name, ins, self.forward_entry.scalars, ["bool[] wanted"], 1 + len(self.targets))
        both = implement(
            self.both_entry.name,
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
            generate_vmap_rule = True

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
            generate_vmap_rule = True

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
        if not torch.compiler.is_compiling():
            self.expect_inputs(arguments)
        first, *others = arguments
        wanted = [arguments[target] is not None and needs_gradient(arguments[target]) for target in self.targets]
        late = any(asked and arguments[target].dtype == torch.float16 for target, asked in zip(self.targets, wanted))
        if late or arguments[self.reduction] == self.per_row or not self.requires_gradient(arguments):
            return super().__call__(rows(first), *others)
        if torch.compiler.is_compiling() or not self.is_plain(arguments[: self.num_inputs]):
            return self.both_through_dispatcher(rows(first), *others, wanted)[:1]
        return (self.both_direct(*arguments, wanted),)
