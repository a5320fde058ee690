"""`tegula.ops`: sampling tokens from logits."""

import torch

from ..autograd.conventions import expect_tensor, flat, rows, statistic
from ..autograd.op_function import Op

_sample = Op(
    "sample", ["ids", "log_prob"],
    lambda logits, *rest: (logits.new_empty(logits.shape[0], dtype=torch.int64), statistic(logits.shape[:1], logits)),
    public=2,
)  # fmt: skip


def sample(
    logits: torch.Tensor, *, seed: int, position: int = 0, temperature: float = 1.0, top_k: int = 0, top_p: float = 0.0,
    min_p: float = 0.0, repetition_penalty: float = 0.0, history: torch.Tensor | None = None,
    history_lengths: torch.Tensor | None = None, positions: torch.Tensor | None = None, seeds: torch.Tensor | None = None,
    log_prob: bool = False,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """One id, i64, for each row of logits [..., vocab]; tegula/sample.h. The same seed, position and row give the same
    id on every device. temperature 0 selects the largest logit; 0 switches each other option off. history [..., n] holds the
    ids for repetition_penalty, history_lengths how many of them are valid. `positions` are added to `position` for each
    row. seeds [...] is a seed for each row, which then draws as if it were alone. log_prob: also returns the ids' log-probabilities, f32. No gradient."""
    lead = expect_tensor("sample", "logits", logits).shape[:-1]
    for name, tensor in (("history", history), ("history_lengths", history_lengths), ("positions", positions), ("seeds", seeds)):
        if tensor is not None:
            expect_tensor("sample", name, tensor)
    history = None if history is None else rows(history)
    ids, value = _sample(
        rows(logits), history, flat(history_lengths), flat(positions), flat(seeds), seed, position, temperature, top_p, min_p,
        repetition_penalty, top_k,
    )  # fmt: skip
    return (ids.view(lead), value.view(lead)) if log_prob else ids.view(lead)
