"""An op of the table as a function of PyTorch with a gradient.

The op table (`_core.ops()`) lists the tensors and scalars of each direction in order. A gradient is named `d` plus the
name of its tensor. From these names `Op` derives what the forward saves, what the backward reads and which gradients
exist. The table does not give the shapes of outputs: each `Op` gets a function that allocates them.

There are two paths. In eager mode, plain tensors go straight to the library. Everything else (compilation, torch.func,
fake tensors, subclasses, negated views) goes through two operators of the dispatcher, `tegula::<op>_fwd` and
`tegula::<op>_bwd`, which compute the same.
"""

import torch
from torch.autograd import forward_ad

from .conventions import expect_tensor
from .dispatcher import absent_filled, declare, implement, listed, present
from .table_entry import CHOSEN, PLAIN, TABLE, TableEntry, bare_apply, is_accepted, scalar_values

is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor
transforms_active = torch._C._are_functorch_transforms_active
modes_active = torch._C._len_torch_dispatch_stack


# ---- between forward and backward: plain functions of tuples, which Dynamo can trace ----


def saved_tensors(sources, extra, arguments, results):
    """The tensors that the backward needs: those its `sources` name, then the `extra` inputs that only give shapes."""
    kept = []
    for kind, index in sources:
        if kind == "input":
            kept.append(arguments[index])
        elif kind == "output":
            kept.append(results[index])
    return kept + [arguments[index] for index in extra]


def backward_tensors(sources, saved, gradients):
    """The backward's inputs in order, then the extra tensors."""
    tensors, used = [], 0
    for kind, index in sources:
        if kind == "gradient":
            tensors.append(gradients[index])
        elif kind == "absent":
            tensors.append(None)
        else:
            tensors.append(saved[used])
            used += 1
    return tensors + list(saved[used:])


def wanted_gradients(users, paired, needs):
    """Which gradients to compute; `users` lists for each the inputs that it belongs to."""
    asked = [any([needs[index] for index in inputs]) for inputs in users]
    return [any(asked)] * len(asked) if paired else asked


def input_gradients(places, outs, gradients, needs):
    """The gradient of each argument of the forward: a computed one, the gradient of an output, or None."""
    result = []
    for (kind, index), need in zip(places, needs):
        if not need or kind == "none":
            result.append(None)
        else:
            result.append(outs[index] if kind == "computed" else gradients[index])
    return tuple(result)


def refuse_second(name):
    raise RuntimeError(f"tegula.{name}: expected a first derivative, got a request for the second (create_graph)")


def needs_gradient(tensor):
    """Whether autograd or a transform of torch.func wants the tensor's gradient. vmap hides that in its wrapper."""
    while not tensor.requires_grad and not torch.compiler.is_compiling() and is_wrapped(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor.requires_grad


class Op:
    """`results` names the outputs to compute, public ones first. `allocate` makes them from the inputs and scalars, as a
    tuple; None skips an optional output.

    `same` maps an input to the input whose gradient it shares. `passed` maps an input to the output whose gradient it
    gets unchanged. `like` maps an input that the backward does not read to an input of the backward with its shape and
    dtype. `paired`: gradients are computed together or not at all. `more`: arguments after the scalars, declared as for
    the dispatcher, that only `allocate` reads, or the backward where one of its inputs has that name."""

    def __init__(self, name, results, allocate, *, public=1, same=(), passed=(), like=(), paired=False, more=()):
        self.more = list(more)
        self.name, self.results, self.allocate, self.public = name, results, allocate, public
        self.same, self.passed, self.like, self.paired = dict(same), dict(passed), dict(like), paired
        self.forward_entry = TableEntry(f"{name}_fwd")
        self.inputs = [slot["name"] for slot in self.forward_entry.ins]
        self.required = [not slot["optional"] for slot in self.forward_entry.ins]
        self.num_inputs = len(self.inputs)
        self.num_arguments = self.num_inputs + len(self.forward_entry.scalars)
        self.placed = [results.index(slot["name"]) if slot["name"] in results else None for slot in self.forward_entry.outs]
        self.backward_entry = TableEntry(f"{name}_bwd") if f"{name}_bwd" in TABLE else None
        if self.backward_entry:
            self.wire()
        self.define()

    def wire(self):
        """Finds the source of each argument of the backward: (kind, index), where kind is input, output or gradient."""
        names = [slot["name"] for slot in self.backward_entry.ins]
        more = [argument.split()[-1] for argument in self.more]
        self.sources = []
        for slot in self.backward_entry.ins:
            name = slot["name"]
            if name in self.inputs:
                self.sources.append(("input", self.inputs.index(name)))
            elif name in self.results:
                self.sources.append(("output", self.results.index(name)))
            elif name in more:
                self.sources.append(("input", self.num_arguments + more.index(name)))
            elif name[1:] in self.results[: self.public]:
                self.sources.append(("gradient", self.results.index(name[1:])))
            elif slot["optional"]:
                self.sources.append(("absent", 0))
            else:
                raise ImportError(f"{self.name}_bwd: {name}: expected a tensor of the forward or its gradient")
        # For each gradient the tensor that has its shape: an input of the backward, or an extra one. A gradient of no input
        # (dpreactivation) is not computed.
        self.extra = []
        self.shapes = []
        targets = [slot["name"][1:] for slot in self.backward_entry.outs]
        self.targets = [self.inputs.index(name) if name in self.inputs else None for name in targets]
        for target in self.targets:
            name = None if target is None else self.inputs[target]
            if name is None:
                self.shapes.append(None)
            elif self.like.get(name, name) in names:
                self.shapes.append(names.index(self.like.get(name, name)))
            else:
                self.shapes.append(len(names) + len(self.extra))
                self.extra.append(target)
        scalar_names = [slot["name"] for slot in self.forward_entry.scalars]
        self.scalar_sources = [
            scalar_names.index(slot["name"]) if slot["name"] in scalar_names else CHOSEN[slot["name"]]
            for slot in self.backward_entry.scalars
        ]
        names = [None if target is None else self.inputs[target] for target in self.targets]
        self.users = tuple(
            tuple(index for index, name in enumerate(self.inputs) if self.same.get(name, name) == target)
            for target in names
        )
        self.places = []
        for name in self.inputs:
            if name in self.passed:
                self.places.append(("passed", self.results.index(self.passed[name])))
            elif self.same.get(name, name) in names:
                self.places.append(("computed", names.index(self.same.get(name, name))))
            else:
                self.places.append(("none", 0))
        self.places += [("none", 0)] * (len(self.forward_entry.scalars) + len(self.more))
        self.overwrites = any(slot["name"] == "overwrite" for slot in self.backward_entry.scalars)

    # ---- computing ----

    def allocated(self, arguments):
        """The results, not yet computed. Their shapes can only be wrong where an input is, which is then reported."""
        try:
            return self.allocate(*arguments)
        except (IndexError, ValueError):
            for slot, tensor in zip(self.forward_entry.ins, arguments):
                if tensor is not None and slot["ndim"] and tensor.dim() != slot["ndim"]:
                    raise ValueError(
                        f"{self.forward_entry.name}: {slot['name']}: expected rank {slot['ndim']}, got {list(tensor.shape)}"
                    ) from None
            raise

    def compute(self, arguments, given=None):
        """All results; `given` is memory for them. Plain tensors come here unchecked, to save time: what is wrong with an
        input (it is absent, it is not dense) makes a step fail, and is then reported."""
        ins, scalars = arguments[: self.num_inputs], arguments[self.num_inputs : self.num_arguments]
        try:
            results = self.allocated(arguments) if given is None else given
            outs = [None if place is None else results[place] for place in self.placed]
            self.forward_entry.run(ins, outs, scalars)
        except Exception:
            self.report_inputs(arguments)
            raise
        return results

    def allocate_gradients(self, tensors, wanted):
        outs = []
        for slot, shape, asked in zip(self.backward_entry.outs, self.shapes, wanted):
            like = None if shape is None else tensors[shape]
            if like is None or not (asked or not slot["optional"]):
                outs.append(None)
            elif slot["role"] == "acc" and not self.overwrites:
                outs.append(like.new_zeros(like.shape))
            else:
                outs.append(like.new_empty(like.shape))
        return outs

    def compute_gradients(self, tensors, scalars, wanted):
        outs = self.allocate_gradients(tensors, wanted)
        self.backward_entry.run(tensors[: len(self.sources)], outs, scalar_values(self.scalar_sources, scalars))
        return outs

    # ---- the operators of the dispatcher ----

    def define(self):
        entry = self.forward_entry
        ins = [(slot["name"], slot["optional"]) for slot in entry.ins]
        declare(entry.name, ins, entry.scalars, self.more, len(self.results))

        def like_of(arguments):
            return next(tensor for tensor in arguments if tensor is not None)

        forward = implement(
            entry.name,
            lambda *arguments: absent_filled(self.compute(arguments), like_of(arguments)),
            lambda *arguments: absent_filled(self.allocated(arguments), like_of(arguments)),
        )
        self.without_gradients = lambda *arguments: listed(forward(*arguments))
        if not self.backward_entry:
            self.through_dispatcher = self.without_gradients
            return

        entry = self.backward_entry
        ins = [(slot["name"], slot["optional"]) for slot in entry.ins]
        ins += [(f"{self.inputs[index]}_like", True) for index in self.extra]
        chosen = [slot for slot, source in zip(entry.scalars, self.scalar_sources) if isinstance(source, int)]
        picked = tuple(source for source in self.scalar_sources if isinstance(source, int))
        declare(entry.name, ins, chosen, ["bool[] wanted"], len(entry.outs))
        count, scalar_sources = len(ins), self.scalar_sources

        def split(arguments):
            tensors = [present(tensor, slot) for tensor, slot in zip(arguments, entry.ins)]
            tensors += arguments[len(entry.ins) : count]
            return tensors, list(arguments[count:-1]), list(arguments[-1])

        def backward_values(*arguments):
            tensors, values, wanted = split(arguments)
            values = iter(values)
            scalars = [next(values) if isinstance(source, int) else source() for source in scalar_sources]
            outs = self.allocate_gradients(tensors, wanted)
            entry.run(tensors[: len(entry.ins)], outs, scalars)
            return absent_filled(outs, like_of(tensors))

        def backward_shapes(*arguments):
            tensors, _, wanted = split(arguments)
            return absent_filled(self.allocate_gradients(tensors, wanted), like_of(tensors))

        backward = implement(entry.name, backward_values, backward_shapes)
        op, name, num_inputs, public = self, self.name, self.num_inputs, self.public
        sources, extra, users, paired = tuple(self.sources), tuple(self.extra), self.users, self.paired
        places, nothing = tuple(self.places), [None] * len(self.targets)

        class Gradient(torch.autograd.Function):
            generate_vmap_rule = True

            @staticmethod
            def forward(*arguments):
                return backward(*arguments)

            @staticmethod
            def setup_context(ctx, inputs, output):
                pass

            @staticmethod
            def backward(ctx, *gradients):
                refuse_second(name)

        class ThroughDispatcher(torch.autograd.Function):
            generate_vmap_rule = True  # the operators then run once for each element of the batch

            @staticmethod
            def forward(*arguments):
                return listed(forward(*arguments))

            @staticmethod
            def setup_context(ctx, inputs, output):
                ctx.save_for_backward(*saved_tensors(sources, extra, inputs, output))
                ctx.scalars = [inputs[num_inputs + index] for index in picked]
                if len(output) > public:
                    ctx.mark_non_differentiable(*output[public:])

            @staticmethod
            def backward(ctx, *gradients):
                needs = ctx.needs_input_grad
                wanted = wanted_gradients(users, paired, needs)
                outs = nothing
                if any(wanted):
                    tensors = backward_tensors(sources, ctx.saved_tensors, gradients)
                    # Compiled graphs refuse second derivatives on their own.
                    run = backward if torch.compiler.is_compiling() else Gradient.apply
                    outs = listed(run(*tensors, *ctx.scalars, wanted))
                return input_gradients(places, outs, gradients, needs)

        class Direct(torch.autograd.Function):
            @staticmethod
            def forward(ctx, *arguments):
                results = op.compute(arguments)
                ctx.save_for_backward(*saved_tensors(sources, extra, arguments, results))
                ctx.scalars = arguments[num_inputs:]
                return results[:public]

            @staticmethod
            def backward(ctx, *gradients):
                if torch.is_grad_enabled():
                    refuse_second(name)
                needs = ctx.needs_input_grad
                wanted = wanted_gradients(users, paired, needs)
                outs = nothing
                if any(wanted):
                    tensors = backward_tensors(sources, ctx.saved_tensors, gradients)
                    outs = op.compute_gradients(tensors, ctx.scalars, wanted)
                return input_gradients(places, outs, gradients, needs)

        self.through_dispatcher = ThroughDispatcher.apply
        self.direct = bare_apply(Direct)

    # ---- calling ----

    def is_plain(self, tensors):
        if transforms_active() or modes_active() or forward_ad._current_level >= 0:
            return False
        for tensor in tensors:
            if tensor is None:
                continue
            # A wrapper can outlive its transform; Function.apply unwraps it.
            if type(tensor) not in PLAIN or tensor.is_meta or tensor.is_neg() or is_wrapped(tensor):
                return False
        return True

    def requires_gradient(self, arguments):
        if torch.is_grad_enabled():
            for tensor in arguments[: self.num_inputs]:
                if tensor is not None and tensor.requires_grad:
                    return True
        return False

    def expect_inputs(self, arguments):
        for name, required, value in zip(self.inputs, self.required, arguments):
            if required or value is not None:
                expect_tensor(self.name, name, value)

    def report_inputs(self, arguments):
        """Raises the error of the first bad input, if there is one, instead of the error that is being handled."""
        try:
            self.expect_inputs(arguments)
        except TypeError as error:
            raise error from None

    def __call__(self, *arguments):
        """The public results, as a tuple."""
        compiling = torch.compiler.is_compiling()
        plain = not compiling and self.is_plain(arguments[: self.num_inputs])
        if not compiling and not plain:
            self.expect_inputs(arguments)
        with_gradient = self.requires_gradient(arguments)
        if with_gradient and not self.backward_entry:
            if plain:
                self.expect_inputs(arguments)
            raise NotImplementedError(f"tegula.{self.name}: expected tensors without gradients, got one that requires its")
        if plain:
            return self.direct(*arguments) if with_gradient else self.compute(arguments)[: self.public]
        if compiling and not with_gradient:
            # Dynamo does not trace an autograd.Function without an input to differentiate.
            return self.without_gradients(*arguments)[: self.public]
        return self.through_dispatcher(*arguments)[: self.public]

    def may_write(self, given):
        slots = [slot for slot, place in zip(self.forward_entry.outs, self.placed) if place is not None]
        return all(tensor is None or is_accepted(tensor, slot) for slot, tensor in zip(slots, given))

    def write(self, argument, given, arguments):
        """Writes the first results to the tensors `given`, which have the shapes of the contract; None where a result is
        absent. The others, which only the backward reads, are not computed. `argument` names them in an error."""
        targets = [tensor for tensor in given if tensor is not None]
        tensors = (*arguments[: self.num_inputs], *targets)
        compiling = torch.compiler.is_compiling()
        plain = not compiling and self.is_plain(tensors)
        if not compiling and not plain:
            self.expect_inputs(arguments)
        if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors):
            raise RuntimeError(f"tegula.{self.name}: {argument}: expected tensors without gradients, got one that requires its")
        if not plain or not self.may_write(given):
            for target, result in zip(given, self(*arguments)):
                if target is not None:
                    target.copy_(result)
        else:
            self.compute(arguments, (*given, *[None] * (len(self.results) - len(given))))
            torch.autograd.graph.increment_version(targets)
