"""Modules with the parameters and names of Hugging Face's, so that they are interchangeable, weights included."""

import torch
from torch import nn

from ..ops.elementwise_ops import swiglu
from ..ops.loss_ops import fused_linear_cross_entropy
from ..ops.norm_ops import rms_norm
from .listeners import why_heard

SILU = (nn.SiLU.forward,)


class TegulaRMSNorm(nn.Module):
    """RMSNorm as Qwen3RMSNorm and LlamaRMSNorm compute it. The result has the dtype of the input, also with an f32 weight;
    a 16-bit weight with f32 activations is widened."""

    def __init__(self, hidden_size: int, eps: float = 1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.variance_epsilon = eps

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        if hidden_states.dtype == torch.float32 and weight.dtype != torch.float32:
            weight = weight.float()
        return rms_norm(hidden_states, weight, self.variance_epsilon)

    def extra_repr(self) -> str:
        return f"{tuple(self.weight.shape)}, eps={self.variance_epsilon}"


class TegulaSwiGLUMLP(nn.Module):
    """down_proj(silu(gate_proj(x)) * up_proj(x)), as Qwen3MLP and LlamaMLP. `config` has hidden_size, intermediate_size
    and hidden_act (silu or swish), and mlp_bias if there are biases."""

    def __init__(self, config):
        super().__init__()
        if config.hidden_act not in ("silu", "swish"):
            raise ValueError(f"TegulaSwiGLUMLP: hidden_act: expected silu or swish, got {config.hidden_act!r}")
        self.config = config
        self.hidden_size = config.hidden_size
        self.intermediate_size = config.intermediate_size
        bias = getattr(config, "mlp_bias", False)
        self.gate_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=bias)
        self.up_proj = nn.Linear(self.hidden_size, self.intermediate_size, bias=bias)
        self.down_proj = nn.Linear(self.intermediate_size, self.hidden_size, bias=bias)
        self.act_fn = nn.SiLU()  # exists in HF's module; forward fuses it with the product if nobody sees it

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if type(self.act_fn) is not nn.SiLU or self.act_fn.inplace or why_heard(self.act_fn, SILU):
            return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))


class TegulaLinearCrossEntropyLoss(nn.Module):
    """`fused_linear_cross_entropy` as a module that holds the options; it owns no weight."""

    def __init__(
        self, *, ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0, z_loss: float = 0.0,
        softcap: float = 0.0, chunk_size: int | None = 4096, v_chunk_size: int | None = None,
    ):  # fmt: skip
        super().__init__()
        if reduction not in ("none", "sum", "mean"):
            raise ValueError(f"TegulaLinearCrossEntropyLoss: reduction: expected none or sum or mean, got {reduction!r}")
        self.options = {
            "ignore_index": ignore_index, "reduction": reduction, "label_smoothing": label_smoothing, "z_loss": z_loss,
            "softcap": softcap, "chunk_size": chunk_size, "v_chunk_size": v_chunk_size,
        }  # fmt: skip

    def forward(
        self, hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None = None,
        num_items_in_batch: int | torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        return fused_linear_cross_entropy(
            hidden, weight, target, bias, num_items_in_batch=num_items_in_batch, **self.options
        )

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())
