"""`tegula.ops`: the linear layer, and losses."""

import torch

from ..autograd.conventions import (
    ACTIVATION, NUM_ITEMS, REDUCTION, choose, empty, expect_tensor, flat, rows, statistic,
)  # fmt: skip
from ..autograd.loss_op import LossOp
from ..autograd.op_function import Op
from ..settings import tf32_allowed


def linear_outputs(x, weight, bias, residual, activation, allow_tf32):
    y = empty((x.shape[0], weight.shape[0]), x)
    return y, empty(y.shape, y) if activation else None


_linear = Op("linear", ["y", "preactivation"], linear_outputs, passed={"residual": "y"})


def linear(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, *, residual: torch.Tensor | None = None,
    activation: str = "none", allow_tf32: bool | None = None,
) -> torch.Tensor:  # fmt: skip
    """activation(x @ weight.T + bias) + residual; activation is "none", "gelu" or "gelu_tanh"; tegula/linear.h.
    allow_tf32: whether products of f32 may use TF32 on a GPU; None: if torch.backends.cuda.matmul.allow_tf32 is set, as
    PyTorch's products do."""
    activation = choose("linear", "activation", ACTIVATION, activation)
    expect_tensor("linear", "x", x)
    if residual is not None:
        residual = rows(expect_tensor("linear", "residual", residual))
    if allow_tf32 is None:
        allow_tf32 = x.is_cuda and x.dtype == torch.float32 and tf32_allowed()
    (y,) = _linear(rows(x), weight, bias, residual, activation, allow_tf32)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[-1])


def loss_outputs(logits, targets, reduction):
    count = targets.shape[0]
    return statistic((count if reduction == 1 else 1,), logits), statistic((count,), logits)


_cross_entropy = LossOp(
    "cross_entropy", ["loss", "lse"],
    lambda logits, targets, items, *scalars: loss_outputs(logits, targets, scalars[5]),
)  # fmt: skip
_linear_cross_entropy = LossOp(
    "linear_cross_entropy", ["loss", "lse"],
    lambda hidden, weight, bias, targets, items, *scalars: loss_outputs(hidden, targets, scalars[7]),
)  # fmt: skip


def loss_scalars(op, reduction, num_items_in_batch, device):
    """(num_items, num_items_in_batch, reduction). The number of items is a number or a tensor on any device; given one,
    the op divides the sum by it."""
    number = choose(op, "reduction", REDUCTION, reduction)
    if num_items_in_batch is None:
        return None, 0, number
    if reduction == "none":
        raise ValueError(f"{op}: num_items_in_batch: expected None with reduction none, got {num_items_in_batch!r}")
    if isinstance(num_items_in_batch, torch.Tensor):
        return num_items_in_batch.to(device), 0, NUM_ITEMS
    return None, num_items_in_batch, NUM_ITEMS


def expect_pair(op, argument, rowwise, targets):
    expect_tensor(op, "targets", targets)
    if expect_tensor(op, argument, rowwise).dim() == 0:
        raise ValueError(f"{op}: {argument}: expected [..., cols], got []")


def shaped_loss(loss, targets, reduction):
    return loss.view(targets.shape) if reduction == "none" else loss.view(())


def cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor, *, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0, z_loss: float = 0.0, softcap: float = 0.0,
    num_items_in_batch: int | torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    """Cross-entropy of [..., vocab] logits and [...] ids; tegula/cross_entropy.h. The loss is f32. num_items_in_batch,
    a number or a tensor, replaces the number of targets as the divisor of the sum."""
    expect_pair("cross_entropy", "logits", logits, targets)
    items, number, kind = loss_scalars("cross_entropy", reduction, num_items_in_batch, logits.device)
    (loss,) = _cross_entropy(
        logits, flat(targets), items, ignore_index, number, label_smoothing, z_loss, softcap, kind, True
    )
    return shaped_loss(loss, targets, reduction)


def linear_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, bias: torch.Tensor | None = None, *,
    ignore_index: int = -100, reduction: str = "mean", label_smoothing: float = 0.0, z_loss: float = 0.0,
    softcap: float = 0.0, num_items_in_batch: int | torch.Tensor | None = None, chunk_rows: int = 0,
    chunk_cols: int = 0,
) -> torch.Tensor:  # fmt: skip
    """cross_entropy(hidden @ weight.T + bias, targets) without the logits in memory; tegula/linear_cross_entropy.h."""
    expect_pair("linear_cross_entropy", "hidden", hidden, targets)
    items, number, kind = loss_scalars("linear_cross_entropy", reduction, num_items_in_batch, hidden.device)
    (loss,) = _linear_cross_entropy(
        hidden, weight, bias, flat(targets), items, ignore_index, number, chunk_rows, chunk_cols,
        label_smoothing, z_loss, softcap, kind, True,
    )  # fmt: skip
    return shaped_loss(loss, targets, reduction)


def fused_linear_cross_entropy(
    hidden: torch.Tensor, weight: torch.Tensor, target: torch.Tensor, bias: torch.Tensor | None = None, *,
    chunk_size: int | None = 4096, v_chunk_size: int | None = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0, num_items_in_batch: int | torch.Tensor | None = None, z_loss: float = 0.0,
    softcap: float = 0.0,
) -> torch.Tensor:  # fmt: skip
    """`linear_cross_entropy` with the argument names of other libraries: hidden [..., hidden_size], weight [vocab,
    hidden_size], target [...]; the logits never exist in memory as a whole. reduction="none" gives each token's loss.

    chunk_size and v_chunk_size are the rows and columns of a chunk of the logits. They change memory and time, not the
    loss. With None, or chunk_size 4096 (the usual value in other libraries), the library chooses for the device and its
    memory. A mean over no targets is NaN, as in PyTorch."""
    chunk_rows = 0 if chunk_size in (None, 4096) else chunk_size
    return linear_cross_entropy(
        hidden, weight, target, bias, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing,
        z_loss=z_loss, softcap=softcap, num_items_in_batch=num_items_in_batch, chunk_rows=chunk_rows,
        chunk_cols=v_chunk_size or 0,
    )  # fmt: skip
