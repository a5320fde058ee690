"""Training a model on the C runtime."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Any, NamedTuple, NoReturn

from .. import _core, _runtime
from .argument_checks import I32_MAX, I64_MAX, instance_of, name_like, real_number, whole_number
from .language_model import Model
from .text_tokenizer import Tokenizer

_SCHEDULES = {"cosine": 1, "constant": 2, "linear": 3, "wsd": 4}


class StepResult(NamedTuple):
    """What a step did: its number from 1, the loss (the mean over the targets, and the auxiliary loss of routers times its
    coefficient), the gradients' norm before clipping, the learning rate, how many targets there were, and the auxiliary
    loss before its coefficient (0 without)."""

    step: int
    loss: float
    grad_norm: float
    learning_rate: float
    num_targets: int
    aux_loss: float


class Trainer:
    """Forward, backward and AdamW over batches of a fixed shape, for a model with f32 weights:

        with tegula.Trainer(model, batch_size=8, sequence_length=256, num_steps=1000, learning_rate=1e-3) as trainer:
            for ids, targets in batches:
                result = trainer.step(ids, targets)

    The model's weights follow on a CPU; those of a model on a GPU after sync, save or close. One thread at a time."""

    __slots__ = ("_handle", "_model", "__weakref__")
    _handle: _runtime.TrainerHandle
    _model: Model

    def __init__(
        self, model: Model, *, batch_size: int, sequence_length: int, num_steps: int, learning_rate: float,
        warmup_steps: int | None = None, min_learning_rate: float | None = None, beta1: float = 0.9, beta2: float = 0.99,
        eps: float = 1e-8, weight_decay: float = 0.1, max_grad_norm: float = 1.0, dtype: str = "float32",
        micro_batch_size: int = 0, schedule: str = "cosine", decay_fraction: float | None = None, freeze_experts: bool = False,
        router_aux_loss_coef: float | None = None,
    ) -> None:  # fmt: skip
        """The options of tg_trainer_options. dtype "bfloat16": passes in bf16, master weights in f32. schedule: cosine,
        constant, linear, or wsd with decay_fraction (0.2). Absent: warmup_steps a twentieth of num_steps,
        min_learning_rate a tenth of learning_rate, router_aux_loss_coef that of the model's config if it says
        output_router_logits, else 0."""
        instance_of("trainer: model", model, Model)
        whole_number("trainer: batch_size", batch_size, 1, I32_MAX)
        whole_number("trainer: sequence_length", sequence_length, 1, I32_MAX)
        whole_number("trainer: num_steps", num_steps, 1, I64_MAX)
        whole_number("trainer: micro_batch_size", micro_batch_size, 0, I32_MAX)
        if warmup_steps is not None:
            whole_number("trainer: warmup_steps", warmup_steps, 0, num_steps)
        if schedule not in _SCHEDULES:
            raise ValueError(f"trainer: schedule: expected one of {', '.join(_SCHEDULES)}, got {schedule}")
        numbers = {
            "learning_rate": learning_rate, "min_learning_rate": min_learning_rate, "beta1": beta1, "beta2": beta2, "eps": eps,
            "weight_decay": weight_decay, "max_grad_norm": max_grad_norm, "decay_fraction": decay_fraction,
            "router_aux_loss_coef": router_aux_loss_coef,
        }  # fmt: skip
        for name, value in numbers.items():
            if value is not None:
                real_number(f"trainer: {name}", value)
        name_like("bfloat16", "trainer: dtype", dtype)
        lowest = learning_rate / 10 if min_learning_rate is None else min_learning_rate
        warmup = num_steps // 20 if warmup_steps is None else warmup_steps
        fraction = (0.2 if schedule == "wsd" else 0.0) if decay_fraction is None else decay_fraction
        options = {
            "batch_size": batch_size, "sequence_length": sequence_length, "num_steps": num_steps, "warmup_steps": warmup,
            "learning_rate": learning_rate, "min_learning_rate": lowest, "beta1": beta1, "beta2": beta2, "eps": eps,
            "weight_decay": weight_decay, "max_grad_norm": max_grad_norm, "dtype": dtype, "micro_batch_size": micro_batch_size,
            "schedule": _SCHEDULES[schedule], "decay_fraction": fraction, "freeze_experts": freeze_experts,
            "router_aux_loss_coef": router_aux_loss_coef,
        }  # fmt: skip
        self._handle = _runtime.open_trainer(model._handle, **options)
        self._model = model
        model._trainers.add(self)

    def step(self, ids: Any, targets: Any) -> StepResult:
        """One step over [batch_size, sequence_length] ids and the ids that follow them; targets of -100 have no loss."""
        return StepResult(*self._handle.step(ids, targets))

    def loss(self, ids: Any, targets: Any) -> float:
        """The loss of a batch; nothing changes."""
        return self._handle.loss(ids, targets)

    def backward(self, ids: Any, targets: Any) -> float:
        """The loss of a batch, and its gradients for gradients()."""
        return self._handle.backward(ids, targets)

    def gradients(self) -> dict[str, _core.Array]:
        """Copies of the gradients after the last backward, by the parameters' names."""
        return self._handle.gradients()

    @property
    def steps(self) -> int:
        """Steps taken."""
        return self._handle.steps()

    def sync(self) -> None:
        """Brings the weights of a GPU to the model."""
        self._handle.sync()

    def save(
        self, directory: str | os.PathLike[str], *, tokenizer: Tokenizer | None = None, note: str | None = None
    ) -> None:
        """Saves a checkpoint: a directory that transformers loads, and that resume continues from."""
        if tokenizer is not None:
            instance_of("trainer: tokenizer", tokenizer, Tokenizer)
        self._handle.save(os.fspath(directory), None if tokenizer is None else tokenizer._handle, note)

    def resume(self, directory: str | os.PathLike[str]) -> str:
        """Continues from a checkpoint, whose weights the model has: the note that it was saved with."""
        return self._handle.resume(os.fspath(directory))

    def close(self) -> None:
        """Frees the trainer's memory; the model stays. Calls after it raise ValueError."""
        self._handle.close()
        self._model._trainers.discard(self)

    def __enter__(self) -> "Trainer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Trainer cannot be pickled: save a checkpoint, and resume from it there")
