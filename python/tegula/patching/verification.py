"""Compares a patched model with the stock one: `tegula.verify(model, batch)`."""

import copy
from dataclasses import dataclass

import torch

from .. import sharding
from . import patches


@dataclass(frozen=True)
class Error:
    """Largest difference from the stock model in f32, relative to the largest value there."""

    name: str
    tegula: float
    pytorch: float


class Verification(list):
    """Errors of the loss and of each gradient. `pytorch` is the stock model's own error in `dtype`."""

    def __init__(self, errors, dtype, names):
        super().__init__(errors)
        self.dtype, self.names = dtype, names

    def worst(self):
        """The gradients, sorted by Tegula's error, largest first."""
        return sorted(self[1:], key=lambda error: -error.tegula)

    def __str__(self):
        rows = [self[0], *self.worst()[:8]]
        width = max(len(row.name) for row in rows)
        title = f"difference from PyTorch in float32, of {', '.join(self.names) or 'nothing'}"
        head = f"{'':{width}}  tegula, {str(self.dtype)[6:]}  pytorch, bfloat16"
        lines = [f"{row.name:{width}}  {row.tegula:{len(str(self.dtype)) + 2}.1e}  {row.pytorch:17.1e}" for row in rows]
        more = [f"and {len(self) - len(rows)} gradients with less"] if len(self) > len(rows) else []
        return "\n".join([title, head, *lines, *more])

    def __repr__(self):
        """Short: `verify` has printed the table, and a prompt shows what a call returned."""
        gradients = self.worst()
        return f"Verification(loss: {self[0].tegula:.1e}, largest of {len(gradients)} gradients: {gradients[0].tegula:.1e})"


def measure(model, batch):
    """(loss, {name: gradient}); the model's own gradients are unchanged."""
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    loss = model(**batch).loss
    if loss is None:
        raise ValueError("verify: batch: expected labels, got a batch without a loss")
    gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    return loss.detach().float(), {
        name: None if gradient is None else gradient.float() for name, gradient in zip(parameters, gradients)
    }


def distance(value, exact):
    if value is None or exact is None:
        return 0.0 if value is exact else float("inf")
    scale = exact.abs().max()
    return ((value - exact).abs().max() / scale.clamp(min=torch.finfo(torch.float32).tiny)).item()


def verify(model, batch) -> Verification:
    """Compares loss and gradients of `batch` (a dict with labels) with the stock model in f32, and gives the stock
    model's own error in bf16 beside them. The model is compared as it is patched; an unpatched one as apply_to_model
    would patch it. Prints a table and returns it. It runs copies and needs the memory of three models."""
    model = sharding.unwrapped(model)
    if any(map(sharding.is_unit, model.modules())):
        raise NotImplementedError("verify: model: expected a whole model, got a unit of FSDP; verify before fully_shard")
    dtype = next(p.dtype for p in model.parameters() if p.is_floating_point())
    random = torch.get_rng_state()

    def run(candidate):
        torch.set_rng_state(random)
        return measure(candidate.train(), batch)

    own = copy.deepcopy(model)
    mine = patches.having(patches.get_patched_ops())
    names = [patch.name for patch in mine if not patch.models or model.config.model_type in patch.models]
    if names:
        patched = run(own)
    else:
        with patches.patched(own) as names:
            patched = run(own)
    with patches.suspended(own):
        exact, half = run(own.float()), run(own.bfloat16())
    errors = [Error("loss", distance(patched[0], exact[0]), distance(half[0], exact[0]))]
    for name in exact[1]:
        errors.append(Error(name, distance(patched[1][name], exact[1][name]), distance(half[1][name], exact[1][name])))
    result = Verification(errors, dtype, names)
    print(result)
    return result
