"""The bars of training steps on a GPU: the best of ours, in the default mode, beside the best
peer; peak memory; losses; several GPUs."""

import dataclasses
import re

from pages.bars import NOT_MEASURED, Memory, Ratio, number, ours_of, peers_of

GIB = 2**30


@dataclasses.dataclass
class StepRatio:
    """Time of the best peer of all over the best of ours. Who must be among the peers: those that
    the shape does not exhaust."""
    model: str
    shape: str
    required: float
    peers: tuple = ("hf", "compile", "liger")

    def judge(self, cases):
        rows = cases.get(("model", self.model, "step", "bf16", self.shape), [])
        text, want = f"{self.model} step, bf16 {self.shape}", f"{self.required:g}x the best peer"
        missing = set(self.peers) - {row["impl"] for row in rows}
        if missing:
            said = f"without {', '.join(sorted(missing))}" if rows else NOT_MEASURED
            return [(text, want, said, False)]
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


@dataclasses.dataclass
class LossDistance:
    """How far the losses of ours are from the stock model's in the last steps of a training on
    text, at most as far as the stock model's in f32."""
    model: str

    def judge(self, cases):
        text = f"{self.model}, losses on text, bf16"
        want = "distance from hf at most that of hf in f32"
        found = [rows for case, rows in cases.items() if case[:2] == ("loss", self.model)]
        if not found:
            return [(text, want, NOT_MEASURED, False)]
        distance = {(row["impl"], row["config"]): float(said[1]) for row in found[-1]
                    if (said := re.search(r"average; ([\d.e+-]+) in the last", row["note"]))}
        own = next(value for (impl, _), value in distance.items() if impl == "hf_f32")
        mine = max(value for (impl, _), value in distance.items() if impl.startswith("tegula"))
        return [(text, want, f"{mine:.2g} beside {own:.2g}", mine <= own)]


@dataclasses.dataclass
class Scaling:
    """Pace of each of several GPUs over that of one, with its batch; losses beside one's."""
    model: str
    shape: str
    pace: float = 0.9
    loss: float = 2e-3

    def judge(self, cases):
        text = f"{self.model} on several GPUs, bf16 {self.shape} each"
        want = f"{self.pace:g} of one GPU's pace, losses within {self.loss:g}"
        start = f"{self.shape}_x"
        found = [(case[4], rows) for case, rows in sorted(cases.items())
                 if case[:2] == ("gpus", self.model) and case[4].startswith(start)
                 and case[4] != f"{start}1"]
        lines = []
        for shape, rows in found:
            said = re.search(r"([\d.]+) of one GPU's pace on each; loss within ([\d.e+-]+) of",
                             ours_of(rows)["note"])
            pace, loss = map(float, said.groups()) if said else (0.0, 1.0)
            lines.append((f"{text}, {shape.removeprefix(start)} of them", want,
                          f"{pace:.3f}, {loss:.2g}", pace >= self.pace and loss <= self.loss))
        return lines or [(text, want, NOT_MEASURED, False)]


SMALL = ("model", "qwen3-0.6b", "step", "bf16", "b4_s4096")
GPT_OSS = ("model", "gpt-oss-20b", "step", "bf16", "b1_s4096")
QWEN3_MOE = ("model", "qwen3-30b-a3b", "step", "bf16", "b1_s4096")
BARS = [
    StepRatio("qwen3-8b", "b1_s4096", 1.06), StepMemory("qwen3-8b", "b1_s4096", 68),
    StepRatio("qwen3-8b", "b1_s8192", 1.08), StepMemory("qwen3-8b", "b1_s8192", 88),
    StepRatio("qwen3-8b", "b1_s2048", 1.05),
    StepRatio("qwen3-8b", "b1_s16384", 1.15, ("liger",)),
    StepRatio("qwen3-8b", "b1_s32768_ckpt", 1.10, ("hf", "liger")),
    StepRatio("qwen3-0.6b", "b4_s4096", 1.06), StepMemory("qwen3-0.6b", "b4_s4096", 24),
    LossDistance("qwen3-0.6b"),
    Scaling("qwen3-8b", "b1_s4096"), Scaling("qwen3-0.6b", "b4_s4096"),
    Ratio(*SMALL, ("hf",), 1.15), Ratio(*SMALL, ("liger",), 1.0), Memory(*SMALL, ("hf",), 0.75),
    # Sparse models, with 6 layers.
    Ratio(*GPT_OSS, ("hf",), 1.8), Ratio(*GPT_OSS, ("liger",), 1.3), Ratio(*GPT_OSS, ("hf_flex",), 1.25),
    Memory(*GPT_OSS, ("hf",), 0.75), Memory(*GPT_OSS, ("hf",), 0.6),
    Memory("model", "gpt-oss-20b", "evaluation", "bf16", "b1_s8192", ("hf",), 0.5),
    Ratio(*QWEN3_MOE, ("hf",), 1.5),
    # The runtime's own training.
    Ratio("model", "gpt2-124m", "step", "bf16", "b64_s1024", ("compile", "llm.c"), 1.0),
]
