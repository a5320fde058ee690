"""The bars of training steps on a GPU: the best of ours, in the default mode, beside the best
peer; peak memory."""

import dataclasses

from bars import NOT_MEASURED, Memory, Ratio, number, ours_of, peers_of

GIB = 2**30


@dataclasses.dataclass
class StepRatio:
    """Time of the best peer of all over the best of ours."""
    model: str
    shape: str
    required: float

    def judge(self, cases):
        rows = cases.get(("model", self.model, "step", "bf16", self.shape), [])
        text, want = f"{self.model} step, bf16 {self.shape}", f"{self.required:g}x the best peer"
        if not rows or not peers_of(rows):
            return [(text, want, NOT_MEASURED, False)]
        best = min(peers_of(rows), key=lambda row: number(row, "ms"))
        ratio = number(best, "ms") / number(ours_of(rows), "ms")
        return [(text, want, f"{ratio:.3f}x {best['impl']}", ratio >= self.required)]


@dataclasses.dataclass
class StepMemory:
    """Peak bytes of that one of ours."""
    model: str
    shape: str
    most: float  # GiB

    def judge(self, cases):
        rows = cases.get(("model", self.model, "step", "bf16", self.shape), [])
        text = f"{self.model} step, bf16 {self.shape}: memory"
        want = f"at most {self.most:g} GiB"
        if not rows:
            return [(text, want, NOT_MEASURED, False)]
        taken = number(ours_of(rows), "peak_bytes") / GIB
        return [(text, want, f"{taken:.1f} GiB", 0 < taken <= self.most)]


SMALL = ("model", "qwen3-0.6b", "step", "bf16", "b4_s4096")
BARS = [
    StepRatio("qwen3-8b", "b1_s4096", 1.06), StepMemory("qwen3-8b", "b1_s4096", 68),
    StepRatio("qwen3-8b", "b1_s8192", 1.08), StepMemory("qwen3-8b", "b1_s8192", 88),
    StepRatio("qwen3-8b", "b1_s2048", 1.05),
    StepRatio("qwen3-8b", "b1_s16384", 1.15),
    StepRatio("qwen3-8b", "b1_s32768_ckpt", 1.10),
    StepRatio("qwen3-0.6b", "b4_s4096", 1.06), StepMemory("qwen3-0.6b", "b4_s4096", 24),
    Ratio(*SMALL, ("hf",), 1.15), Ratio(*SMALL, ("liger",), 1.0), Memory(*SMALL, ("hf",), 0.75),
    # The runtime's own training.
    Ratio("model", "gpt2-124m", "step", "bf16", "b64_s1024", ("compile",), 1.0),
]
