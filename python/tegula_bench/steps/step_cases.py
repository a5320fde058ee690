"""The cases of a training step: model, batch, options."""

import dataclasses
import re

from ..model_sizes import SIZES

DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32"}
CHECKPOINTED = "_ckpt"  # suffix of a shape with gradient checkpointing


@dataclasses.dataclass(frozen=True)
class StepCase:
    model: str
    batch: int
    seq: int
    checkpointing: bool = False
    dtype: str = "bf16"
    layers: int = 0  # fewer than the model's; 0: all

    @property
    def size(self):
        size = SIZES[self.model]
        return dataclasses.replace(size, layers=self.layers) if self.layers else size

    @property
    def shape(self):
        return f"b{self.batch}_s{self.seq}" + CHECKPOINTED * self.checkpointing

    @property
    def name(self):
        return f"{self.model} {self.shape} {self.dtype}"

    @property
    def tokens(self):
        return self.batch * self.seq

    @property
    def flops(self):
        return self.size.step_flops(self.batch, self.seq)

    @property
    def identity(self):
        """The columns that name the case in a results file."""
        return dict(op=self.model, dir="step", dtype=self.dtype, shape=self.shape)


def case_of(model, shape, dtype):
    """shape: b4_s4096, or b1_s32768_ckpt with gradient checkpointing."""
    found = re.fullmatch(r"b([1-9]\d*)_s([1-9]\d*)(_ckpt)?", shape)
    if not found:
        raise ValueError(f"shape: expected b4_s4096 or b1_s32768_ckpt, got {shape}")
    return StepCase(model, int(found[1]), int(found[2]), bool(found[3]), dtype)


# Command -> its model and shapes, those of a bar first.
SWEEPS = {
    "small": ("qwen3-0.6b", ["b4_s4096"]),
    "8b": ("qwen3-8b", ["b1_s4096", "b1_s8192"]),
    "8b-seq": ("qwen3-8b", ["b1_s4096", "b1_s8192", "b1_s2048", "b1_s16384", "b1_s32768_ckpt", "b1_s1024", "b1_s512",
                            "b1_s256"]),
    "gpt-oss": ("gpt-oss-20b", ["b1_s4096"]),
    "qwen3-moe": ("qwen3-30b-a3b", ["b1_s4096"]),
}  # fmt: skip
LAYERS = {"gpt-oss": 6, "qwen3-moe": 6}  # of the model in these sweeps: what one GPU trains with gradients and moments
