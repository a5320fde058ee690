"""Tegula as layers of the `kernels` package: `kernelize(model)`, `from_pretrained(use_kernels=True)`.

A layer replaces all classes of its name, whatever their rounding: RMSNorm selects the rounding policy of the module's own
class. Only single layers can be replaced this way. The fused residual addition, head norms with rotation, MLP, attention
and loss need `tegula.apply`."""

import functools
import types

import torch
from torch import nn

from .. import ops
from ..autograd.table_entry import run_stock


@functools.cache
def rounding_of(cls) -> str:
    """The policy of `ops.rms_norm` with the same bits as the class, found by running both."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn((64, 96), generator=generator).bfloat16()
    weight = torch.randn(96, generator=generator).bfloat16()
    module = types.SimpleNamespace(weight=weight, variance_epsilon=1e-5, eps=1e-5)
    with torch.no_grad():
        own = cls.forward(module, x)
        for policy in ("llama", "gpt_oss"):
            if torch.equal(ops.rms_norm(x, weight, 1e-5, policy=policy), own):
                return policy
    raise NotImplementedError(f"RMSNorm: {cls.__qualname__}: expected the rounding of Llama or GPT-OSS, got another")


# `kernels` accepts classes with nothing but a forward. `self` is the model's own module.


class RMSNorm(nn.Module):
    can_torch_compile = True
    has_backward = True

    def forward(self, hidden_states):
        if run_stock(hidden_states, self.weight):
            return type(self).forward(self, hidden_states)
        return ops.rms_norm(
            hidden_states, self.weight, self.variance_epsilon, policy=rounding_of(type(self))
        )


class SiLU(nn.Module):
    can_torch_compile = True
    has_backward = True

    def forward(self, input):
        return type(self).forward(self, input) if run_stock(input) else ops.silu(input)


class Repository:
    """The interface from which `kernels` loads a layer."""

    def __init__(self, layer):
        self.layer = layer

    def load(self):
        return self.layer


def hub_layers() -> dict:
    """A mapping for kernels.use_kernel_mapping, kernels.register_kernel_mapping and KernelConfig.kernel_mapping."""
    from kernels import Mode

    mode = Mode.TRAINING | Mode.TORCH_COMPILE  # also taken for inference
    return {
        layer.__name__: {device: {mode: Repository(layer)} for device in ("cpu", "cuda")} for layer in (RMSNorm, SiLU)
    }
